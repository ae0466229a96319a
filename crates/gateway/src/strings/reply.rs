//! From answers to bytes, in RESP2 or RESP3.

use std::io::{self, Write};

use bytes::Bytes;

/// An answer, whichever protocol it goes out in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(&'static str),
    /// One line; its first word is the code (`ERR`).
    Error(String),
    Int(i64),
    Bulk(Bytes),
    /// Text for people: verbatim in RESP3.
    Text(String),
    Nil,
    Array(Vec<Reply>),
    /// A flat array in RESP2.
    Map(Vec<(&'static str, Reply)>),
}

impl Reply {
    pub const OK: Reply = Reply::Simple("OK");

    /// An error; line ends in it become spaces, because it must stay one line.
    pub fn error(text: impl Into<String>) -> Reply {
        let text: String = text.into();
        Reply::Error(text.replace(['\r', '\n'], " "))
    }

    /// A bulk string of this text.
    pub fn bulk(text: impl Into<String>) -> Reply {
        Reply::Bulk(Bytes::from(text.into()))
    }

    /// Appends it in this protocol, 2 or 3.
    pub fn encode(&self, protocol: u8, into: &mut Vec<u8>) {
        // Writing into memory never fails.
        let _ = self.write(protocol, into);
    }

    fn write(&self, protocol: u8, into: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Reply::Simple(text) => write!(into, "+{text}\r\n"),
            Reply::Error(text) => write!(into, "-{text}\r\n"),
            Reply::Int(number) => write!(into, ":{number}\r\n"),
            Reply::Bulk(bytes) => bulk(bytes, into),
            Reply::Text(text) if protocol == 3 => {
                write!(into, "={}\r\ntxt:{text}\r\n", text.len() + 4)
            }
            Reply::Text(text) => bulk(text.as_bytes(), into),
            Reply::Nil if protocol == 3 => write!(into, "_\r\n"),
            Reply::Nil => write!(into, "$-1\r\n"),
            Reply::Array(items) => {
                write!(into, "*{}\r\n", items.len())?;
                items.iter().try_for_each(|item| item.write(protocol, into))
            }
            Reply::Map(pairs) => {
                match protocol {
                    3 => write!(into, "%{}\r\n", pairs.len())?,
                    _ => write!(into, "*{}\r\n", 2 * pairs.len())?,
                }
                pairs.iter().try_for_each(|(name, value)| {
                    bulk(name.as_bytes(), into)?;
                    value.write(protocol, into)
                })
            }
        }
    }
}

fn bulk(bytes: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    write!(into, "${}\r\n", bytes.len())?;
    into.extend_from_slice(bytes);
    into.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_protocols() {
        let map = || Reply::Map(vec![("proto", Reply::Int(3)), ("b", Reply::Nil)]);
        let rows: Vec<(Reply, &str, &str)> = vec![
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (Reply::Int(-2), ":-2\r\n", ":-2\r\n"),
            (Reply::bulk("ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
            (Reply::bulk(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::Text("a".into()), "$1\r\na\r\n", "=5\r\ntxt:a\r\n"),
            (
                map(),
                "*4\r\n$5\r\nproto\r\n:3\r\n$1\r\nb\r\n$-1\r\n",
                "%2\r\n$5\r\nproto\r\n:3\r\n$1\r\nb\r\n_\r\n",
            ),
            (
                Reply::Array(vec![Reply::Nil, Reply::OK]),
                "*2\r\n$-1\r\n+OK\r\n",
                "*2\r\n_\r\n+OK\r\n",
            ),
        ];
        for (reply, two, three) in rows {
            for (protocol, expected) in [(2, two), (3, three)] {
                let mut out = vec![];
                reply.encode(protocol, &mut out);
                assert_eq!(std::str::from_utf8(&out).unwrap(), expected, "{reply:?}");
            }
        }
    }
}
