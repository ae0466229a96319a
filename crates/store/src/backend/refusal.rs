//! What a backend says of a request that it did not carry out.

use std::sync::Arc;

/// Longest words that are passed on, in bytes.
const LONGEST: usize = 240;

/// Why a request was not carried out, in the words of the backend, or of the store if it could not
/// be asked: one line, which begins with a word in capitals as errors of Redis do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(Arc<str>);

impl Refusal {
    /// These words, cut to what answers have room for.
    pub fn new(words: &str) -> Refusal {
        let line = words.lines().next().unwrap_or_default();
        let mut end = line.len().min(LONGEST);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        Refusal(line[..end].into())
    }

    /// The words.
    pub fn words(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_line_that_an_answer_has_room_for() {
        assert_eq!(Refusal::new("OOM no\r\nroom").words(), "OOM no");
        assert_eq!(Refusal::new("").words(), "");
        let long = "é".repeat(LONGEST);
        assert_eq!(Refusal::new(&long).words(), "é".repeat(LONGEST / 2));
    }
}
