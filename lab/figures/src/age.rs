//! Whether a result is of the code at hand.

use std::fmt;

use crate::{code::Versions, result::RunResult};

/// How a result and the code at hand differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Age {
    /// In nothing that was run.
    Current,
    /// There is no result.
    Never,
    /// In these, of what was run at this commit.
    Changed(String, Vec<String>),
}

impl Age {
    /// Of a result, if what runs has these versions now.
    pub fn of(kept: Option<&RunResult>, now: &Versions) -> Age {
        let Some(kept) = kept else { return Age::Never };
        let then = &kept.code;
        let names = then.keys().chain(now.keys().filter(|name| !then.contains_key(*name)));
        let mut changed: Vec<String> =
            names.filter(|name| then.get(*name) != now.get(*name)).cloned().collect();
        changed.sort();
        match changed.is_empty() {
            true => Age::Current,
            false => Age::Changed(kept.commit.clone(), changed),
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Age::Current => write!(to, "current"),
            Age::Never => write!(to, "never measured"),
            Age::Changed(commit, names) => {
                write!(to, "changed since {commit}: {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Map;

    use super::*;

    fn versions(all: &[(&str, &str)]) -> Versions {
        let one = |(name, version): &(&str, &str)| (name.to_string(), version.to_string());
        all.iter().map(one).collect()
    }

    #[test]
    fn what_changed_is_said_by_name() {
        let now = versions(&[("a", "1"), ("b", "2"), ("new", "3")]);
        let of = |code| {
            let kept = RunResult {
                command: "c".into(),
                commit: "abc".into(),
                machine: "m".into(),
                seconds: 1,
                code,
                figures: Map::new(),
                failed: BTreeSet::new(),
                seeds: None,
            };
            Age::of(Some(&kept), &now)
        };
        assert_eq!(Age::of(None, &now), Age::Never);
        assert_eq!(of(now.clone()), Age::Current);
        let then = versions(&[("a", "1"), ("b", "1"), ("gone", "3")]);
        let age = of(then).to_string();
        assert_eq!(age, "changed since abc: b, gone, new");
    }
}
