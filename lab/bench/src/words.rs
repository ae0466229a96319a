//! Command lines as users type them.

/// The words of a command line, which has no quotes.
pub fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}
