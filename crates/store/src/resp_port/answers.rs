//! What has to be read of a reply beside its end.

use crate::backend::redis::{is_elsewhere, put_off};

/// The first word of an array or a push: of a message what it is.
pub(super) fn kind_of(reply: &[u8]) -> Option<&[u8]> {
    let rest = after_line(reply)?;
    match rest.first()? {
        b'+' => rest[1..].split(|byte| *byte == b'\r').next(),
        b'$' => {
            let word = after_line(rest)?;
            word.split(|byte| *byte == b'\r').next()
        }
        _ => None,
    }
}

/// The number that a reply ends with.
pub(super) fn last_number(reply: &[u8]) -> Option<i64> {
    let line = reply.strip_suffix(b"\r\n")?;
    let line = line.rsplit(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line.strip_prefix(b":")?).ok()?.parse().ok()
}

/// What an error says.
pub(super) fn error_words(line: &[u8]) -> Option<&str> {
    let words = line.strip_prefix(b"-").and_then(|words| words.strip_suffix(b"\r\n"))?;
    std::str::from_utf8(words).ok()
}

/// An error line of a node of a Redis Cluster, as clients of a store are told it: they do not go
/// elsewhere.
pub(super) fn of_store(line: Vec<u8>) -> Vec<u8> {
    match error_words(&line) {
        Some(words) if is_elsewhere(words) => format!("-{}\r\n", put_off(words)).into_bytes(),
        _ => line,
    }
}

fn after_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    bytes.get(end + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_it_is_and_how_many_are_left() {
        let confirmed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:12\r\n";
        assert_eq!(kind_of(confirmed), Some(&b"subscribe"[..]));
        assert_eq!(last_number(confirmed), Some(12));
        assert_eq!(kind_of(b">2\r\n+invalidate\r\n*0\r\n"), Some(&b"invalidate"[..]));
        assert_eq!(kind_of(b"*1\r\n:1\r\n"), None);
        assert_eq!(kind_of(b"*0\r\n"), None);
        assert_eq!(last_number(b"$3\r\n:12\r\n\r\n"), None);
        assert_eq!(last_number(b""), None);
    }
}
