//! Commands from their words.

use std::io::Write;

/// Appends the command that these words are.
pub(super) fn encode(words: &[impl AsRef<[u8]>], into: &mut Vec<u8>) {
    // Writing into memory never fails.
    let _ = write!(into, "*{}\r\n", words.len());
    for word in words {
        let word = word.as_ref();
        let _ = write!(into, "${}\r\n", word.len());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}
