//! Bytes in, words or Redis's error out; and whatever the bytes, no panic and nothing unbounded.

use proptest::prelude::*;

use super::*;

fn limits() -> Limits {
    Limits { inline_bytes: 64, bulk_bytes: 1000, words: 8, ..Limits::default() }
}

/// Feeds the bytes in pieces; what came out until the end or an error.
fn run(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let (mut framer, mut buffer, mut all) = (Framer::default(), BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(piece) {
        buffer.extend_from_slice(chunk);
        loop {
            match framer.next(&mut buffer, &limits()) {
                Ok(Some(command)) => {
                    assert!(command.words.len() <= 64);
                    all.push(command.words.iter().map(|word| word.to_vec()).collect());
                }
                Ok(None) => break,
                Err(error) => return (all, Some(error)),
            }
        }
    }
    (all, None)
}

const BAD: &[(&str, ProtocolError)] = &[
    ("*x\r\n", ProtocolError::MultibulkLength),
    ("*+1\r\n$4\r\nPING\r\n", ProtocolError::MultibulkLength),
    ("*1\rx", ProtocolError::MultibulkLength),
    ("*9\r\n", ProtocolError::MultibulkLength),
    ("*99999999999999999999\r\n", ProtocolError::MultibulkLength),
    ("*1111111111111111111111111111111111", ProtocolError::MultibulkLength),
    ("*1\r\n+a\r\n", ProtocolError::ExpectedBulk(b'+')),
    ("*1\r\n*1\r\n", ProtocolError::ExpectedBulk(b'*')),
    ("*1\r\n$-1\r\n", ProtocolError::BulkLength),
    ("*1\r\n$x\r\n", ProtocolError::BulkLength),
    ("*1\r\n$1001\r\n", ProtocolError::BulkLength),
    ("*1\r\n$9223372036854775807\r\n", ProtocolError::BulkLength),
    ("POST / HTTP/1.1\r\n", ProtocolError::Foreign),
    ("post x\r\n", ProtocolError::Foreign),
    ("Host: 127.0.0.1:6380\r\n", ProtocolError::Foreign),
    ("HOST:evil\r\n", ProtocolError::Foreign),
    ("GET / HTTP/1.1\r\n", ProtocolError::Foreign),
    ("SET /key HTTP/1.1\r\n", ProtocolError::Foreign),
    ("\x16\x03\x01\nSET a 1\n", ProtocolError::Foreign),
    ("PING \"a b\r\n", ProtocolError::Quotes),
    ("PING \"a\"b\r\n", ProtocolError::Quotes),
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        ProtocolError::InlineTooBig,
    ),
];

/// Bytes, and the words of each command in them.
type Good = (&'static [u8], &'static [&'static [&'static [u8]]]);

const GOOD: &[Good] = &[
    (b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]]),
    (b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$0\r\n\r\n", &[&[b"GET", b"a\r\n"], &[b""]]),
    (b"*0\r\n*-1\r\n\r\n  \nPING\n", &[&[b"PING"]]),
    (b"set \"a b\\x41\\n\\xg\" 'it\\'s' x\r\n", &[&[b"set", b"a bA\nxg", b"it's", b"x"]]),
    (b"*2\r\n$3\r\nGET\r\n$3\r\nab", &[]),
    // What stands in the words of a command that is no line is the client's affair.
    (
        b"*2\r\n$4\r\nPOST\r\n$8\r\nHTTP/1.1\r\nget host:\nGET posting http\n",
        &[&[b"POST", b"HTTP/1.1"], &[b"get", b"host:"], &[b"GET", b"posting", b"http"]],
    ),
];

#[test]
fn good_bytes_give_words_however_they_are_cut() {
    for (bytes, expected) in GOOD {
        for piece in 1..=bytes.len() {
            let (words, error) = run(bytes, piece);
            assert_eq!(error, None, "{}", bytes.escape_ascii());
            assert_eq!(words, *expected, "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn bad_bytes_give_redis_own_errors() {
    for (bytes, expected) in BAD {
        for piece in [1, 2, 7, bytes.len()] {
            assert_eq!(run(bytes.as_bytes(), piece), (vec![], Some(expected.clone())), "{bytes:?}");
        }
    }
}

/// Bytes that come close to being commands.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"GET".to_vec()),
        Just(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec()),
        any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        (-2i64..12).prop_map(|n| format!("${n}\r\n").into_bytes()),
        (-2i64..12).prop_map(|n| format!("*{n}\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn no_bytes_panic_and_cuts_change_nothing(bytes in nearly(), piece in 1usize..50) {
        let whole = run(&bytes, bytes.len().max(1));
        prop_assert_eq!(run(&bytes, piece), whole);
    }

    #[test]
    fn every_command_comes_back(words in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..100), 1..8), piece in 1usize..50) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in &words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        prop_assert_eq!(run(&bytes, piece), (vec![words], None));
    }
}
