//! Bytes in; commands, replies and keys out, whatever the pieces in which they come.

use proptest::prelude::*;
use redis::Value;

use crate::{
    Class, CommandTable, KeyWord, Limits, ProtocolError, ReplyError, ReplyScanner, RequestParser,
};

/// Feeds a parser the bytes in pieces: the words of each command, and the error at the end.
fn commands(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let limits = Limits { word_bytes: 1000, words: 8 };
    let (mut parser, mut buffer, mut all) = (RequestParser::default(), Vec::new(), Vec::new());
    for chunk in bytes.chunks(piece) {
        buffer.extend_from_slice(chunk);
        loop {
            let mut skipped = 0;
            let len = match parser.next(&buffer, &limits, &mut skipped) {
                Ok(Some(request)) => {
                    let words = request.words;
                    if !request.is_inline {
                        for index in 0..words.len() {
                            let range = words.range(index).unwrap();
                            assert_eq!(Some(&request.bytes[range]), words.get(index));
                        }
                    }
                    all.push(words.iter().map(<[u8]>::to_vec).collect());
                    Some(request.bytes.len())
                }
                Ok(None) => None,
                Err(error) => return (all, Some(error)),
            };
            buffer.drain(..skipped + len.unwrap_or(0));
            if len.is_none() {
                break;
            }
        }
    }
    (all, None)
}

/// Bytes, and the words of each command in them.
type Good = (&'static [u8], &'static [&'static [&'static [u8]]]);

const GOOD: &[Good] = &[
    (b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]]),
    (b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$0\r\n\r\n", &[&[b"GET", b"\r\n"], &[b""]]),
    (b"*0\r\n*-1\r\n*-7\r\n\r\n \r\n\nPING\r\n", &[&[b"PING"]]),
    (b"set a 'b c' \"\\x41\\n\\q\\xg\"\n", &[&[b"set", b"a", b"b c", b"A\nqxg"]]),
    (b"GET a\x0bb\r\n", &[&[b"GET", b"a\x0bb"]]),
    (b"echo 'it\\'s'\r\n", &[&[b"echo", b"it's"]]),
    // What stands in the place of a line's end is not looked at, as in Redis.
    (b"*1\rx$4\rxPINGxx*1\r\n$1\r\na\r\n", &[&[b"PING"], &[b"a"]]),
];

const BAD: &[(&str, ProtocolError)] = &[
    ("*x\r\n", ProtocolError::Count),
    ("*+1\r\n", ProtocolError::Count),
    ("*01\r\n", ProtocolError::Count),
    ("*9\r\n", ProtocolError::Count),
    ("*99999999999999999999\r\n", ProtocolError::Count),
    ("*1\r\n+a\r\n", ProtocolError::ExpectedWord(b'+')),
    ("*1\r\n$-1\r\n", ProtocolError::Length),
    ("*1\r\n$x\r\n", ProtocolError::Length),
    ("*1\r\n$1001\r\n", ProtocolError::Length),
    ("*1\r\n$9223372036854775808\r\n", ProtocolError::Length),
    ("GET a\0b c\r\n", ProtocolError::InlineZero),
    ("FLUSHALL\0\r\n", ProtocolError::InlineZero),
    ("\0", ProtocolError::InlineZero),
    ("PING \"a b\r\n", ProtocolError::Quotes),
    ("PING \"a\"b\r\n", ProtocolError::Quotes),
];

#[test]
fn commands_are_found_in_whatever_pieces_they_come() {
    for (bytes, expected) in GOOD {
        for piece in 1..=bytes.len() {
            assert_eq!(commands(bytes, piece), (owned(expected), None), "{}", bytes.escape_ascii());
        }
    }
    for (text, error) in BAD {
        for piece in 1..=text.len() {
            assert_eq!(commands(text.as_bytes(), piece).1, Some(*error), "{text}");
        }
    }
}

#[test]
fn a_parser_says_how_much_is_to_come_of_a_long_word() {
    let (mut parser, mut skipped) = (RequestParser::default(), 0);
    let limits = Limits::default();
    let start = b"*2\r\n$4\r\nECHO\r\n$1000000\r\nxx";
    assert!(parser.next(start, &limits, &mut skipped).unwrap().is_none());
    assert_eq!(parser.wanted(), start.len() - 2 + 1_000_000 + 2);
    let mut whole = start[..start.len() - 2].to_vec();
    whole.resize(parser.wanted(), b'x');
    assert_eq!(parser.next(&whole, &limits, &mut skipped).unwrap().unwrap().words.len(), 2);
    assert_eq!(parser.wanted(), 0);
}

#[test]
fn a_command_that_is_longer_than_redis_keeps_is_refused() {
    let next = |buffer: &[u8]| {
        let (mut parser, mut skipped) = (RequestParser::default(), 0);
        parser.next(buffer, &Limits::default(), &mut skipped).map(|found| found.is_some())
    };
    assert_eq!(next(b"*1048576\r\n"), Ok(false));
    assert_eq!(next(b"*1048577\r\n"), Err(ProtocolError::Count));
    assert_eq!(ProtocolError::Count.to_string(), "Protocol error: invalid multibulk length");
    // One word of the greatest length is taken, and not a second one.
    let long = 512 << 20;
    let head = format!("*2\r\n${long}\r\n");
    let rest = head.len() + long;
    let mut buffer = vec![0; rest];
    buffer[..head.len()].copy_from_slice(head.as_bytes());
    buffer.extend_from_slice(b"\r\n");
    assert_eq!(next(&buffer), Ok(false));
    buffer.extend_from_slice(format!("${long}\r\n").as_bytes());
    assert_eq!(next(&buffer), Err(ProtocolError::Length));
}

fn owned(commands: &[&[&[u8]]]) -> Vec<Vec<Vec<u8>>> {
    commands.iter().map(|words| words.iter().map(|word| word.to_vec()).collect()).collect()
}

#[test]
fn lines_that_do_not_end_are_refused_in_redis_words() {
    let long = "x".repeat(70_000);
    let rows = [
        (long.clone(), "Protocol error: too big inline request"),
        (format!("*{long}"), "Protocol error: too big mbulk count string"),
        (format!("*1\r\n${long}"), "Protocol error: too big bulk count string"),
    ];
    for (bytes, expected) in rows {
        let (_, error) = commands(bytes.as_bytes(), 4096);
        assert_eq!(error.map(|error| error.to_string()).as_deref(), Some(expected));
    }
}

/// The length and marker of each reply in the bytes, which come in pieces.
fn replies(bytes: &[u8], piece: usize) -> Result<Vec<(usize, u8)>, ReplyError> {
    let (mut scanner, mut all, mut before) = (ReplyScanner::default(), Vec::new(), 0);
    for mut chunk in bytes.chunks(piece) {
        while let Some(reply) = scanner.scan(chunk)? {
            assert!(!scanner.is_within());
            all.push((before + reply.len, reply.marker));
            before = 0;
            chunk = &chunk[reply.len..];
        }
        before += chunk.len();
    }
    Ok(all)
}

const REPLIES: &[(&[u8], u8)] = &[
    (b"+OK\r\n", b'+'),
    (b"-ERR x\r\n", b'-'),
    (b":1\r\n", b':'),
    (b"$-1\r\n", b'$'),
    (b"$0\r\n\r\n", b'$'),
    (b"$4\r\n\r\n\r\n\r\n", b'$'),
    (b"*-1\r\n", b'*'),
    (b"*0\r\n", b'*'),
    (b"*2\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n", b'*'),
    (b"%1\r\n+a\r\n%0\r\n", b'%'),
    (b"~2\r\n:1\r\n_\r\n", b'~'),
    (b"|1\r\n+ttl\r\n:1\r\n$1\r\na\r\n", b'$'),
    (b"*1\r\n|1\r\n+ttl\r\n*1\r\n:1\r\n:2\r\n", b'*'),
    (b">2\r\n+message\r\n$1\r\na\r\n", b'>'),
    (b"!5\r\nERR a\r\n", b'!'),
    (b"=5\r\ntxt:a\r\n", b'='),
    (b",1.5\r\n", b','),
    (b"(123\r\n", b'('),
    (b"#t\r\n", b'#'),
    (b"$?\r\n;2\r\nab\r\n;1\r\nc\r\n;0\r\n", b'$'),
    (b"*?\r\n:1\r\n*?\r\n.\r\n$?\r\n;0\r\n*1\r\n:1\r\n.\r\n", b'*'),
    (b"*2\r\n*?\r\n:1\r\n.\r\n:2\r\n", b'*'),
];

#[test]
fn replies_end_where_they_do_in_whatever_pieces_they_come() {
    let all: Vec<u8> = REPLIES.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    let expected: Vec<_> = REPLIES.iter().map(|(bytes, marker)| (bytes.len(), *marker)).collect();
    for piece in 1..=all.len() {
        assert_eq!(replies(&all, piece).as_ref(), Ok(&expected), "in pieces of {piece}");
    }
}

#[test]
fn what_is_no_reply_is_said_to_be_none() {
    let rows: &[(&[u8], ReplyError)] = &[
        (b"x", ReplyError::Marker(b'x')),
        (b".\r\n", ReplyError::Marker(b'.')),
        (b"$x\r\n", ReplyError::Length),
        (b"$-2\r\n", ReplyError::Length),
        (b"*9223372036854775808\r\n", ReplyError::Length),
        (b"%9223372036854775807\r\n", ReplyError::Length),
        (b"$1111111111111111111111111111111111", ReplyError::Length),
        (&[b'*', b'?', b'\n'].repeat(17), ReplyError::Nested),
    ];
    for (bytes, error) in rows {
        assert_eq!(replies(bytes, bytes.len()), Err(*error), "{}", bytes.escape_ascii());
        assert_eq!(replies(bytes, 1), Err(*error), "{}", bytes.escape_ascii());
    }
}

proptest! {
    #[test]
    fn noise_is_read_the_same_in_whatever_pieces(
        bytes in proptest::collection::vec(
            prop_oneof![
                Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'2'),
                Just(b'0'), Just(b'-'), Just(b'>'), Just(b'|'), Just(b'?'), Just(b'.'),
                Just(b';'), Just(b'"'), Just(b' '), any::<u8>(),
            ],
            0..200,
        ),
        piece in 1usize..50,
    ) {
        prop_assert_eq!(commands(&bytes, piece), commands(&bytes, 200));
        prop_assert_eq!(replies(&bytes, piece), replies(&bytes, 200));
    }
}

fn bulk(text: &str) -> Value {
    Value::BulkString(text.into())
}

/// A flat map, as RESP2 has it.
fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Array(pairs.iter().flat_map(|(key, value)| [bulk(key), value.clone()]).collect())
}

fn spec(flags: &str, search: Value, finding: Value) -> Value {
    let flags = flags.split(' ').map(|flag| Value::SimpleString(flag.into())).collect();
    map(&[("flags", Value::Array(flags)), ("begin_search", search), ("find_keys", finding)])
}

fn index(index: i64) -> Value {
    map(&[("type", bulk("index")), ("spec", map(&[("index", Value::Int(index))]))])
}

fn keyword(keyword: &str, from: i64) -> Value {
    let spec = map(&[("keyword", bulk(keyword)), ("startfrom", Value::Int(from))]);
    map(&[("type", bulk("keyword")), ("spec", spec)])
}

fn range(last: i64, step: i64, limit: i64) -> Value {
    let int = Value::Int;
    let spec = map(&[("lastkey", int(last)), ("keystep", int(step)), ("limit", int(limit))]);
    map(&[("type", bulk("range")), ("spec", spec)])
}

fn keynum(at: i64, first: i64, step: i64) -> Value {
    let int = Value::Int;
    let spec = map(&[("keynumidx", int(at)), ("firstkey", int(first)), ("keystep", int(step))]);
    map(&[("type", bulk("keynum")), ("spec", spec)])
}

fn unknown() -> Value {
    map(&[("type", bulk("unknown")), ("spec", map(&[]))])
}

fn row(
    name: &str,
    flags: &str,
    keys: (i64, i64, i64),
    specs: Vec<Value>,
    subs: Vec<Value>,
) -> Value {
    let flags = flags.split(' ').map(|flag| Value::SimpleString(flag.into())).collect();
    let (first, last, step) = keys;
    let none = Value::Array(vec![]);
    Value::Array(vec![
        bulk(name),
        Value::Int(-2),
        Value::Array(flags),
        Value::Int(first),
        Value::Int(last),
        Value::Int(step),
        none.clone(),
        none,
        Value::Array(specs),
        Value::Array(subs),
    ])
}

/// Rows as Redis 7.0 has them, and some of modules that nobody knows.
fn table() -> CommandTable {
    let rows = vec![
        row(
            "get",
            "readonly fast",
            (1, 1, 1),
            vec![spec("RO access", index(1), range(0, 1, 0))],
            vec![],
        ),
        row(
            "mset",
            "write",
            (1, -1, 2),
            vec![spec("OW update", index(1), range(-1, 2, 0))],
            vec![],
        ),
        row(
            "eval",
            "noscript movablekeys",
            (0, 0, 0),
            vec![spec("RW access update", index(2), keynum(0, 1, 1))],
            vec![],
        ),
        row(
            "rename",
            "write",
            (1, 2, 1),
            vec![
                spec("RW access delete", index(1), range(0, 1, 0)),
                spec("OW update", index(2), range(0, 1, 0)),
            ],
            vec![],
        ),
        row(
            "zunionstore",
            "write movablekeys",
            (1, 1, 1),
            vec![
                spec("OW update", index(1), range(0, 1, 0)),
                spec("RO access", index(2), keynum(0, 1, 1)),
            ],
            vec![],
        ),
        row(
            "xread",
            "readonly blocking movablekeys",
            (0, 0, 0),
            vec![spec("RO access", keyword("STREAMS", 1), range(-1, 1, 2))],
            vec![],
        ),
        row(
            "sort",
            "write movablekeys",
            (1, 1, 1),
            vec![
                spec("RO access", index(1), range(0, 1, 0)),
                spec("RO access", unknown(), unknown()),
                spec("OW update", unknown(), unknown()),
            ],
            vec![],
        ),
        row(
            "migrate",
            "write movablekeys",
            (3, 3, 1),
            vec![
                spec("RW access delete", index(3), range(0, 1, 0)),
                spec("RW access delete incomplete", keyword("KEYS", -2), range(-1, 1, 0)),
            ],
            vec![],
        ),
        row(
            "lpush",
            "write fast",
            (1, 1, 1),
            vec![spec("RW insert", index(1), range(0, 1, 0))],
            vec![],
        ),
        row("flushall", "write", (0, 0, 0), vec![], vec![]),
        row("multi", "noscript", (0, 0, 0), vec![], vec![]),
        row(
            "xgroup",
            "",
            (0, 0, 0),
            vec![],
            vec![row(
                "xgroup|create",
                "write",
                (2, 2, 1),
                vec![spec("RW insert", index(2), range(0, 1, 0))],
                vec![],
            )],
        ),
        row(
            "function",
            "",
            (0, 0, 0),
            vec![],
            vec![row("function|load", "write", (0, 0, 0), vec![], vec![])],
        ),
        row(
            "memory",
            "",
            (0, 0, 0),
            vec![],
            vec![row(
                "memory|usage",
                "readonly",
                (2, 2, 1),
                vec![spec("RO", index(2), range(0, 1, 0))],
                vec![],
            )],
        ),
        row("m.set", "write", (1, 1, 1), vec![spec("OW update", index(1), range(0, 1, 0))], vec![]),
        row("m.wild", "write", (0, 0, 0), vec![], vec![]),
        row(
            "m.vague",
            "write movablekeys",
            (1, 1, 1),
            vec![spec("RW incomplete", index(1), range(0, 1, 0))],
            vec![],
        ),
        row("m.get", "readonly", (1, 1, 1), vec![spec("RO", index(1), range(0, 1, 0))], vec![]),
        row(
            "spublish",
            "pubsub",
            (1, 1, 1),
            vec![spec("not_key", index(1), range(0, 1, 0))],
            vec![],
        ),
    ];
    CommandTable::of(&Value::Array(rows)).unwrap()
}

/// The command of a line, with its keys: those that it may change, and the others.
fn keys_of(table: &CommandTable, line: &str) -> (Class, Vec<String>, Vec<String>) {
    let line = format!("{line}\n");
    let (mut parser, mut skipped) = (RequestParser::default(), 0);
    let request = parser.next(line.as_bytes(), &Limits::default(), &mut skipped).unwrap().unwrap();
    let command = table.find_of(request.words).expect("a command of the table");
    let mut found = Vec::new();
    command.keys(request.words, &mut found);
    let word =
        |key: &KeyWord| String::from_utf8_lossy(request.words.get(key.index).unwrap()).into_owned();
    let of = |changes: bool| found.iter().filter(move |key| key.may_change == changes);
    (command.class, of(true).map(word).collect(), of(false).map(word).collect())
}

#[test]
fn each_command_has_its_class_and_its_keys() {
    use Class::{Connection, OtherType, StringRead, WholeDatabase, Write};
    let table = table();
    let rows: &[(&str, Class, &str, &str)] = &[
        ("get a", StringRead, "", "a"),
        ("MSET a 1 b 2", Write, "a b", ""),
        ("EVAL x 2 a b c", Write, "a b", ""),
        ("EVAL x 0 c", Write, "", ""),
        // No number: whatever may be a key is taken for one.
        ("EVAL x +2 a b", Write, "a b", ""),
        ("EVAL x 9 a b", Write, "a b", ""),
        ("EVAL x 9223372036854775807 a b", Write, "a b", ""),
        ("EVAL x", Write, "", ""),
        ("RENAME a b", Write, "a b", ""),
        ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", Write, "d", "a b"),
        ("XREAD COUNT 1 streams a b 0 0", OtherType, "", "a b"),
        ("SORT a BY x STORE b", Write, "b", "a"),
        ("SORT a STORE b STORE c", Write, "b c", "a"),
        ("SORT a STORE", Write, "", "a"),
        ("MIGRATE h 1 a 0 9", Write, "a", ""),
        ("MIGRATE h 1 '' 0 9 KEYS a b", Write, " a b a b", ""),
        ("MIGRATE h 1 '' 0 9 KEYS KEYS a", Write, " a KEYS a", ""),
        ("LPUSH a b", OtherType, "a", ""),
        ("FLUSHALL", WholeDatabase, "", ""),
        ("MULTI", Connection, "", ""),
        ("XGROUP CREATE a g 0", OtherType, "a", ""),
        ("FUNCTION LOAD x", OtherType, "", ""),
        ("memory USAGE a", OtherType, "", "a"),
        ("m.set a b", Write, "a", ""),
        ("m.wild a", WholeDatabase, "", ""),
        ("m.vague a b", Write, "a a b", ""),
        ("m.get a", OtherType, "", "a"),
        ("SPUBLISH a b", OtherType, "", ""),
    ];
    for (line, class, changed, read) in rows {
        let (found, changes, reads) = keys_of(&table, line);
        assert_eq!(found, *class, "{line}");
        assert_eq!(changes.join(" "), *changed, "{line}");
        assert_eq!(reads.join(" "), *read, "{line}");
    }
    assert!(table.find(b"nosuch").is_none());
    assert!(table.find(&[b'x'; 100]).is_none());
    assert!(table.find(b"XREAD").unwrap().is_blocking);
}

#[test]
fn an_answer_without_specifications_is_read_by_positions() {
    // As a Redis 6 tells of commands, of which it does not call all writes that may write.
    let old = |name: &str, flags: &str, positions| {
        let Value::Array(mut row) = row(name, flags, positions, vec![], vec![]) else { panic!() };
        row.truncate(7);
        Value::Array(row)
    };
    let table = CommandTable::of(&Value::Array(vec![
        old("mset", "write", (1, -1, 2)),
        old("eval", "noscript may_replicate movablekeys", (0, 0, 0)),
        old("evalsha", "noscript may_replicate movablekeys", (0, 0, 0)),
        old("pfcount", "readonly may_replicate", (1, -1, 1)),
    ]))
    .unwrap();
    for (line, keys) in [
        ("MSET a 1 b 2", &["a", "b"][..]),
        ("EVAL x 2 a b c", &["a", "b"]),
        ("EVALSHA x 1 a b", &["a"]),
        ("EVAL x 0 a", &[]),
        ("PFCOUNT a b", &["a", "b"]),
    ] {
        assert_eq!(keys_of(&table, line).1, keys, "{line}");
    }
    assert!(CommandTable::parse(b"-NOPERM no\r\n").is_err());
    assert!(CommandTable::parse(b"*1\r\n:1\r\n").is_err());
}
