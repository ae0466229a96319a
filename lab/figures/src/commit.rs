//! The commit that figures are shown with.

use std::{path::Path, process::Command};

/// Files that decide what is measured; tests and documents do not.
const CODE: [&str; 10] = [
    "bpf",
    "crates",
    "disciplines",
    "lab",
    "Cargo.lock",
    ":(exclude)*.md",
    ":(exclude)*/tests/*",
    ":(exclude)*tests.rs",
    ":(exclude)lab/figures",
    ":(exclude)lab/model",
];

fn git(project: &Path, words: &[&str]) -> Option<String> {
    let folder = project.canonicalize().ok()?;
    let safe = format!("safe.directory={}", folder.display());
    let mut command = Command::new("git");
    command.arg("-C").arg(&folder).args(["-c", &safe]).args(words);
    let output = command.output().ok().filter(|o| o.status.success())?;
    String::from_utf8(output.stdout).ok()
}

/// The commit that changed the code at hand last, whatever documents were since; with `+` where
/// some of it is not committed.
pub fn of(project: &Path) -> String {
    let words = ["log", "-1", "--first-parent", "--abbrev=10", "--format=%h", "--"];
    let last = git(project, &[&words, &CODE[..]].concat()).unwrap_or_default();
    let changed = git(project, &[&["diff", "HEAD", "--name-only", "--"], &CODE[..]].concat());
    match (last.trim(), changed.as_deref()) {
        ("", _) => "unknown".into(),
        (commit, Some("")) => commit.into(),
        (commit, _) => format!("{commit}+"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn commit_of(project: &Path, file: &str, text: &str) {
        let path = project.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let by = ["-c", "user.name=x", "-c", "user.email=x"];
        git(project, &["add", "."]).unwrap();
        git(project, &[&by[..], &["commit", "-q", "-m", "x"]].concat()).unwrap();
    }

    /// Figures that are kept in commits of their own would make all the others look older than
    /// the code.
    #[test]
    fn documents_make_no_other_code() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        assert_eq!(of(project), "unknown");
        git(project, &["init", "-q"]).unwrap();
        commit_of(project, "bpf/a.h", "1");
        let first = of(project);
        commit_of(project, "docs/figures/a.json", "{}");
        commit_of(project, "bpf/README.md", "words");
        assert_eq!(of(project), first);
        fs::write(project.join("bpf/a.h"), "2").unwrap();
        assert_eq!(of(project), format!("{first}+"));
        commit_of(project, "bpf/a.h", "3");
        assert_ne!(of(project), first);
    }
}
