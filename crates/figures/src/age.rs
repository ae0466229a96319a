//! What has changed since a commit.

use std::{fmt, path::Path, process::Command};

/// Files that decide what is measured; tests and documents do not.
const CODE: [&str; 9] = [
    "bpf",
    "crates",
    "disciplines",
    "Cargo.lock",
    ":(exclude)*.md",
    ":(exclude)*/tests/*",
    ":(exclude)*tests.rs",
    ":(exclude)crates/figures",
    ":(exclude)crates/model",
];

/// How much newer the code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// So many of its files changed.
    Files(usize),
    /// The commit is not known here.
    Unknown,
}

impl Age {
    /// The code is what was measured.
    pub fn is_current(self) -> bool {
        self == Age::Files(0)
    }
}

impl fmt::Display for Age {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Age::Files(count) => write!(to, "{count} files of the code changed since"),
            Age::Unknown => write!(to, "which is not known here"),
        }
    }
}

fn git(project: &Path, words: &[&str]) -> Option<String> {
    let folder = project.canonicalize().ok()?;
    let safe = format!("safe.directory={}", folder.display());
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(&folder)
        .args(["-c", &safe])
        .args(words);
    let output = command.output().ok().filter(|o| o.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// How much the code changed since the commit, with what is not committed.
pub fn of(project: &Path, commit: &str) -> Age {
    let words = ["diff", "--name-only", commit.trim_end_matches('+'), "--"];
    let said = git(project, &[&words, &CODE[..]].concat());
    said.map_or(Age::Unknown, |files| Age::Files(files.lines().count()))
}

/// The commit of the code at hand; with `+` where some of it is not committed.
pub fn commit(project: &Path) -> String {
    let Some(commit) = git(project, &["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".into();
    };
    let commit = commit.trim();
    match of(project, commit) {
        Age::Files(0) => commit.into(),
        _ => format!("{commit}+"),
    }
}
