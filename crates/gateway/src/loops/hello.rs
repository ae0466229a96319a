//! HELLO, which may say three things at once: the protocol, who somebody is, and a name.

use resp::Words;

use super::users::Login;

/// What a HELLO says.
pub(super) struct Hello<'a> {
    /// 2 or 3, if it says which.
    pub version: Option<u8>,
    pub login: Option<Login>,
    pub name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    /// `None`: only Redis knows what it means.
    pub fn of(words: Words<'a>) -> Option<Hello<'a>> {
        let is = |at: usize, word: &[u8]| {
            words.get(at).is_some_and(|there| there.eq_ignore_ascii_case(word))
        };
        let version = match words.get(1) {
            None => None,
            Some(b"2") => Some(2),
            Some(b"3") => Some(3),
            Some(_) => return None,
        };
        let mut hello = Hello { version, login: None, name: None };
        let mut at = 2;
        while at < words.len() {
            if is(at, b"auth") {
                hello.login = Some(Login::of(words, at + 1, 2)?);
                at += 3;
            } else if is(at, b"setname") {
                hello.name = Some(words.get(at + 1)?);
                at += 2;
            } else {
                return None;
            }
        }
        Some(hello)
    }
}

#[cfg(test)]
mod tests {
    use resp::{Limits, RequestParser};

    use super::*;

    /// What is understood of a line.
    fn read(line: &str) -> Option<(Option<u8>, bool, Option<String>)> {
        let line = format!("{line}\r\n");
        let mut parser = RequestParser::default();
        let mut skipped = 0;
        let request = parser.next(line.as_bytes(), &Limits::default(), &mut skipped);
        let hello = Hello::of(request.unwrap().unwrap().words)?;
        let name = hello.name.map(|name| String::from_utf8_lossy(name).into_owned());
        Some((hello.version, hello.login.is_some(), name))
    }

    #[test]
    fn what_is_said_in_whatever_order() {
        let me = || Some("me".to_string());
        let rows = [
            ("HELLO", Some((None, false, None))),
            ("HELLO 2", Some((Some(2), false, None))),
            ("HELLO 3 AUTH ada secret", Some((Some(3), true, None))),
            ("HELLO 3 auth ada secret SetName me", Some((Some(3), true, me()))),
            ("HELLO 3 SETNAME me AUTH ada secret", Some((Some(3), true, me()))),
            ("HELLO 4", None),
            ("HELLO 3 AUTH ada", None),
            ("HELLO 3 SETNAME", None),
            ("HELLO 3 ELSE", None),
        ];
        for (line, expected) in rows {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
