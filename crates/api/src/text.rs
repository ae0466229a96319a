//! Texts of others, made fit for one line of ours.

/// Longest piece of somebody else's text that an answer repeats, in characters.
const SHOWN: usize = 400;

/// `text` on one line: runs of white space and control characters become one space; cut when it
/// is long.
pub fn one_line(text: &str) -> String {
    let visible: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    visible.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A TOML error on one line: where it is and what was expected, without the excerpt of TOML's
/// own text.
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let message = one_line(error.message());
    let Some(span) = error.span() else { return message };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {message}")
}
