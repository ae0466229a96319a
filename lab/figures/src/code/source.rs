//! Files of a crate that decide what it does.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Folders of a crate with nothing of what it does.
const NOT_CODE: [&str; 5] = ["tests", "benches", "examples", "target", "proptest-regressions"];

/// A file, without its tests.
pub struct Source {
    /// From the project's folder.
    pub path: PathBuf,
    hash: blake3::Hash,
}

impl Source {
    /// Its name counts as well: a file that is renamed may be another module.
    pub fn add_to(&self, hash: &mut blake3::Hasher) {
        hash.update(self.path.as_os_str().as_encoded_bytes());
        hash.update(self.hash.as_bytes());
    }
}

/// Those of a crate, in order: all files but documents, tests, and its `Cargo.toml`, of which not
/// everything counts.
///
/// # Errors
/// One cannot be read.
pub fn of(project: &Path, folder: &Path) -> anyhow::Result<Vec<Source>> {
    let mut paths = BTreeSet::new();
    look(project, folder, folder, &mut paths)?;
    let mut texts = vec![];
    let mut tests = BTreeSet::new();
    for path in paths {
        let at = project.join(&path);
        let bytes = fs::read(&at).with_context(|| at.display().to_string())?;
        if path.extension().is_some_and(|e| e == "rs") {
            let text = String::from_utf8_lossy(&bytes);
            tests.extend(test_modules(&path, &text));
            texts.push((path, without_tests(&text).into_bytes()));
        } else {
            texts.push((path, bytes));
        }
    }
    let is_test = |path: &Path| tests.iter().any(|test| path.starts_with(test));
    texts.retain(|(path, _)| !is_test(path));
    let source = |(path, text): (PathBuf, Vec<u8>)| Source { path, hash: blake3::hash(&text) };
    Ok(texts.into_iter().map(source).collect())
}

fn look(
    project: &Path,
    root: &Path,
    at: &Path,
    found: &mut BTreeSet<PathBuf>,
) -> anyhow::Result<()> {
    let here = project.join(at);
    // A crate within its folder is another.
    if at != root && here.join("Cargo.toml").exists() {
        return Ok(());
    }
    let context = || here.display().to_string();
    for entry in fs::read_dir(&here).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = at.join(&*name);
        if name.starts_with('.') {
            continue;
        }
        if entry.file_type().with_context(context)?.is_dir() {
            if !(NOT_CODE.contains(&&*name) && at == root) {
                look(project, root, &path, found)?;
            }
        } else if !name.ends_with(".md") && name != "Cargo.toml" {
            found.insert(path);
        }
    }
    Ok(())
}

/// What begins a module of tests.
const TEST: &str = "#[cfg(test)]";

/// The text without modules of tests that stand in it. As the formatter leaves them, they begin and
/// end at the margin.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_module = |next: &&str| next.starts_with("mod ") && next.ends_with('{');
        if line == TEST && lines.peek().is_some_and(is_module) {
            lines.find(|line| *line == "}");
        } else {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

/// Files and folders of the modules of tests that a file declares.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let within = match &*stem {
        "mod" | "lib" | "main" => folder.to_owned(),
        stem => folder.join(stem),
    };
    let mut found = vec![];
    let mut lines = text.lines();
    while lines.any(|line| line == TEST) {
        let mut rest = lines.clone();
        let mut next = rest.next().unwrap_or_default();
        let named = next.strip_prefix("#[path = \"");
        let named = named.and_then(|rest| rest.strip_suffix("\"]"));
        if named.is_some() {
            next = rest.next().unwrap_or_default();
        }
        let next = next.strip_prefix("pub ").unwrap_or(next);
        let module = next.strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
        match (module, named) {
            (Some(_), Some(file)) => found.push(folder.join(file)),
            (Some(module), None) => {
                found.extend([within.join(module), within.join(format!("{module}.rs"))]);
            }
            (None, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_in_a_file_do_not_count_and_what_follows_does() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\n\nfn b() {}\n";
        assert_eq!(without_tests(text), "fn a() {}\n\n\nfn b() {}\n");
        // No module: it may be part of what is built.
        let text = "#[cfg(test)]\nfn a() {\n}\n";
        assert_eq!(without_tests(text), text);
    }

    #[test]
    fn modules_of_tests_are_found_where_they_lie() {
        let of = |path: &str, text: &str| test_modules(Path::new(path), text);
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let plain = "mod a;\n#[cfg(test)]\nmod fake;\n";
        assert_eq!(of("c/src/lib.rs", plain), paths(&["c/src/fake", "c/src/fake.rs"]));
        assert_eq!(of("c/src/x.rs", plain), paths(&["c/src/x/fake", "c/src/x/fake.rs"]));
        let named = "#[cfg(test)]\n#[path = \"x_tests.rs\"]\nmod tests;\n";
        assert_eq!(of("c/src/x.rs", named), paths(&["c/src/x_tests.rs"]));
        assert_eq!(of("c/src/x.rs", "#[cfg(test)]\nmod tests {\n}\n"), paths(&[]));
        assert_eq!(of("c/src/x.rs", "mod tests;\n"), paths(&[]));
    }
}
