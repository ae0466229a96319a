//! What is on a machine beside its programs: whatever is there after they have ended in order, and
//! was not there before they began, was left behind.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use lab::namespace;

/// The settings and interfaces of a network namespace, by name.
pub(super) type Machine = BTreeMap<String, String>;

/// What a network namespace is like now.
pub(super) fn look(namespace: &str) -> anyhow::Result<Machine> {
    namespace::within(namespace, || {
        let mut seen = Machine::new();
        for root in ["/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/core"] {
            read_all(Path::new(root), &mut seen);
        }
        let interfaces = dataplane::interfaces().into_iter();
        seen.extend(interfaces.map(|name| (format!("interface {name}"), String::new())));
        Ok(seen)
    })
}

/// Every setting below a directory. What cannot be read is no setting.
fn read_all(directory: &Path, seen: &mut Machine) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_all(&path, seen);
        } else if let Ok(text) = fs::read_to_string(&path) {
            seen.insert(path.display().to_string(), text);
        }
    }
}

/// Settings that are others now, and what came or went.
pub(super) fn changed(before: &Machine, after: &Machine) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

/// Those of these files that are there.
pub(super) fn there(paths: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
    let there = paths.into_iter().filter(|path| path.symlink_metadata().is_ok());
    there.map(|path| path.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_came_or_went_is_named() {
        let machine = |rows: &[(&str, &str)]| -> Machine {
            rows.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let before = machine(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = machine(&[("a", "1"), ("b", "2"), ("d", "")]);
        assert_eq!(changed(&before, &after), ["b", "c", "d"]);
        assert_eq!(changed(&before, &before), [""; 0]);
    }
}
