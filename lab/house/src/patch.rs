//! A patch as `git diff` writes it, carried out on texts. Where a hunk goes is found by what it
//! takes away and leaves, not by the numbers of its lines.

use anyhow::Context;

/// The changes, file by file.
pub struct Patch {
    /// The files from the repository's root, each with its hunks from the top down.
    pub files: Vec<(String, Vec<Hunk>)>,
}

/// Lines of one place in a file.
#[derive(Default)]
pub struct Hunk {
    before: String,
    after: String,
}

impl Patch {
    /// Reads a patch of files that stay where they are.
    ///
    /// # Errors
    /// A hunk before the name of its file.
    pub fn read(text: &str) -> anyhow::Result<Patch> {
        let mut files: Vec<(String, Vec<Hunk>)> = Vec::new();
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("+++ b/") {
                files.push((path.to_owned(), Vec::new()));
                continue;
            }
            let is_header = ["diff ", "index ", "--- "].iter().any(|head| line.starts_with(head));
            if is_header || line.is_empty() {
                continue;
            }
            let (_, hunks) = files.last_mut().with_context(|| format!("no file of {line:?}"))?;
            if line.starts_with("@@ ") {
                hunks.push(Hunk::default());
                continue;
            }
            let hunk = hunks.last_mut().with_context(|| format!("no hunk of {line:?}"))?;
            let (kind, rest) = line.split_at(1);
            for (side, other) in [(&mut hunk.before, "+"), (&mut hunk.after, "-")] {
                if kind != other {
                    *side += rest;
                    side.push('\n');
                }
            }
        }
        Ok(Patch { files })
    }

    /// A file's text after these changes; none: it has no place for one of them.
    pub fn apply(hunks: &[Hunk], text: &str) -> Option<String> {
        let (mut done, mut rest) = (String::new(), text);
        for hunk in hunks {
            let (before, after) = rest.split_once(&hunk.before)?;
            done = done + before + &hunk.after;
            rest = after;
        }
        Some(done + rest)
    }
}
