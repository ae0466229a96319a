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

/// The same for a client that has subscribed to something by its connection, which stays at its
/// node: to come again by it would be of no use.
pub(super) fn of_subscriber(line: Vec<u8>) -> Vec<u8> {
    let is_moved = line.starts_with(b"-MOVED ");
    match error_words(&line).and_then(|words| words.split(' ').nth(1)).filter(|_| is_moved) {
        Some(slot) => format!(
            "-CROSSSLOT slot {slot} is at another node than what this connection has subscribed to: take another\r\n"
        )
        .into_bytes(),
        None => of_store(line),
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
    fn who_has_subscribed_is_not_told_to_come_again() {
        let said = |line: &str| String::from_utf8(of_subscriber(line.into())).unwrap();
        assert!(said("-MOVED 7 h:1\r\n").starts_with("-CROSSSLOT slot 7 is at another node"));
        assert!(said("-ASK 7 h:1\r\n").starts_with("-TRYAGAIN slot 7 "));
        assert_eq!(said("-OOM no\r\n"), "-OOM no\r\n");
    }

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
