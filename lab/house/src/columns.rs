//! Lines with comments that are too long to be read at a glance. The formatters keep code within
//! the same width and leave comments alone.

use crate::{
    finding::Finding,
    tree::{Source, Tree},
};

/// The longest line with a comment.
const COLUMNS: usize = 100;

/// What a tab counts for, as in `.clang-format`.
const TAB: usize = 8;

/// How comments of a language begin.
type Marks = &'static [&'static str];

/// Each line that is too long and has a comment, but for rows of tables and single words, which
/// cannot be wrapped.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let Some(marks) = marks(source) else { continue };
        for (number, line) in (1..).zip(source.text.lines()) {
            let width = width(line);
            if width > COLUMNS && has_comment(line, marks) && can_be_wrapped(line) {
                findings.push(Finding {
                    path: source.path.clone(),
                    line: number,
                    text: format!("a comment of {width} columns; wrap it at {COLUMNS}"),
                });
            }
        }
    }
    Ok(findings)
}

/// The marks of this file's comments, if it is of a language that is checked.
fn marks(source: &Source) -> Option<Marks> {
    let name = source.path.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("rs") => Some(&["//"]),
        Some("c" | "h") => Some(&["//", "/*", "*"]),
        Some("sh") => Some(&["#"]),
        None if source.text.starts_with("#!") => Some(&["#"]),
        _ => None,
    }
}

fn width(line: &str) -> usize {
    line.chars().map(|letter| if letter == '\t' { TAB } else { 1 }).sum()
}

/// Whether the line is a comment, or one follows the code. In a string a mark hardly ever stands
/// between two spaces.
fn has_comment(line: &str, marks: Marks) -> bool {
    let text = line.trim_start();
    marks
        .iter()
        .any(|mark| text.starts_with(mark) || *mark != "*" && line.contains(&format!(" {mark} ")))
}

fn can_be_wrapped(line: &str) -> bool {
    let text = line.trim().trim_start_matches(['/', '!', '*', '#']).trim_start();
    !text.starts_with('|') && text.contains(' ')
}
