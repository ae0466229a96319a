//! From answers to bytes, in RESP2 or RESP3.

use bytes::{Bytes, BytesMut};
use redis_protocol::{resp2, resp3};

/// The version of the protocol that a connection speaks. HELLO changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

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

/// What a part of an answer takes besides its text.
const PART_BYTES: usize = size_of::<Reply>();

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

    /// Bytes that it takes while it waits, about: its text, and as much as its frame for each part.
    pub fn size_bytes(&self) -> usize {
        PART_BYTES
            + match self {
                Reply::Simple(text) => text.len(),
                Reply::Error(text) | Reply::Text(text) => text.len(),
                Reply::Bulk(bytes) => bytes.len(),
                Reply::Int(_) | Reply::Nil => 0,
                Reply::Array(items) => items.iter().map(Reply::size_bytes).sum(),
                Reply::Map(pairs) => {
                    pairs.iter().map(|(name, of)| name.len() + of.size_bytes()).sum()
                }
            }
    }

    /// The bulk strings in it of more than `len` bytes.
    pub fn large_values(&self, len: usize, into: &mut Vec<Bytes>) {
        match self {
            Reply::Bulk(bytes) if bytes.len() > len => into.push(bytes.clone()),
            Reply::Array(items) => items.iter().for_each(|item| item.large_values(len, into)),
            _ => {}
        }
    }

    /// Appends the answer to `out`.
    pub fn encode(self, protocol: Protocol, out: &mut BytesMut) {
        let encoded = match protocol {
            Protocol::Resp2 => resp2::encode::extend_encode(out, &self.resp2(), false),
            Protocol::Resp3 => resp3::encode::complete::extend_encode(out, &self.resp3(), false),
        };
        // It made room for exactly this frame before, and none is malformed.
        debug_assert!(encoded.is_ok(), "{encoded:?}");
    }

    fn resp2(self) -> resp2::types::BytesFrame {
        use resp2::types::BytesFrame as Frame;
        match self {
            Reply::Simple(text) => Frame::SimpleString(Bytes::from_static(text.as_bytes())),
            Reply::Error(text) => Frame::Error(text.into()),
            Reply::Int(number) => Frame::Integer(number),
            Reply::Bulk(bytes) => Frame::BulkString(bytes),
            Reply::Text(text) => Frame::BulkString(text.into()),
            Reply::Nil => Frame::Null,
            Reply::Array(items) => Frame::Array(items.into_iter().map(Reply::resp2).collect()),
            Reply::Map(pairs) => {
                let flat = |(name, value): (&'static str, Reply)| {
                    [Frame::BulkString(Bytes::from_static(name.as_bytes())), value.resp2()]
                };
                Frame::Array(pairs.into_iter().flat_map(flat).collect())
            }
        }
    }

    fn resp3(self) -> resp3::types::BytesFrame {
        use resp3::types::{BytesFrame as Frame, VerbatimStringFormat};
        let attributes = None;
        let blob = |data| Frame::BlobString { data, attributes: None };
        match self {
            Reply::Simple(text) => {
                Frame::SimpleString { data: Bytes::from_static(text.as_bytes()), attributes }
            }
            Reply::Error(text) => Frame::SimpleError { data: text.into(), attributes },
            Reply::Int(data) => Frame::Number { data, attributes },
            Reply::Bulk(bytes) => blob(bytes),
            Reply::Text(text) => Frame::VerbatimString {
                data: text.into(),
                format: VerbatimStringFormat::Text,
                attributes,
            },
            Reply::Nil => Frame::Null,
            Reply::Array(items) => {
                Frame::Array { data: items.into_iter().map(Reply::resp3).collect(), attributes }
            }
            Reply::Map(pairs) => Frame::Map {
                data: pairs
                    .into_iter()
                    .map(|(name, value)| (blob(Bytes::from_static(name.as_bytes())), value.resp3()))
                    .collect(),
                attributes,
            },
        }
    }
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
            for (protocol, expected) in [(Protocol::Resp2, two), (Protocol::Resp3, three)] {
                let mut out = BytesMut::new();
                reply.clone().encode(protocol, &mut out);
                assert_eq!(std::str::from_utf8(&out).unwrap(), expected, "{reply:?}");
            }
        }
    }
}
