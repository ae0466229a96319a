//! Bytes in; commands, refusals and ends of answers out, whatever the pieces in which they come.

use proptest::prelude::*;

use crate::{
    Class, Front, KEY_BYTES, LINE_BYTES, Limits, READ_LINE_BYTES, ReplyScanner, RequestParser,
};

const LIMITS: Limits = Limits { value_bytes: 1000 };

/// What there was at the front of a stream, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Command(Vec<u8>, Class, Vec<Vec<u8>>),
    NoOp,
    Quit,
    PortQuestion,
    Refused(String, bool),
}

/// What a stream says that arrives in pieces of so many bytes, and what is left of it.
fn seen(bytes: &[u8], piece: usize) -> (Vec<Meaning>, Vec<u8>) {
    let (mut parser, mut buffer, mut all) = (RequestParser::default(), vec![], vec![]);
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let len = match parser.next(&buffer, &LIMITS) {
                Front::Partial => break,
                Front::Skipped(len) => len,
                Front::Command(request) => {
                    let changed = request.changed.iter().map(|key| key.to_vec()).collect();
                    let bytes = buffer[..request.len].to_vec();
                    all.push(Meaning::Command(bytes, request.class, changed));
                    request.len
                }
                Front::NoOp(len) => {
                    all.push(Meaning::NoOp);
                    len
                }
                Front::Quit(len) => {
                    all.push(Meaning::Quit);
                    len
                }
                Front::PortQuestion(len) => {
                    all.push(Meaning::PortQuestion);
                    len
                }
                Front::Refused(refusal) => {
                    let is_over = refusal.closes;
                    all.push(Meaning::Refused(refusal.answer.into(), is_over));
                    if is_over {
                        return (all, vec![]);
                    }
                    refusal.len
                }
            };
            assert!(len > 0 && len <= buffer.len());
            buffer.drain(..len);
        }
    }
    (all, buffer)
}

fn command(bytes: &[u8], class: Class, changed: &[&[u8]]) -> Meaning {
    Meaning::Command(bytes.to_vec(), class, changed.iter().map(|key| key.to_vec()).collect())
}

fn refused(answer: &str) -> Meaning {
    Meaning::Refused(answer.into(), false)
}

/// A command that is the whole of its stream, what it may do, and the keys that it may change.
type Row = (&'static [u8], Class, &'static [&'static [u8]]);

const COMMANDS: &[Row] = &[
    (b"get k\r\n", Class::Read, &[]),
    (b"  gets  k j  \n", Class::Read, &[]),
    (b"bget k\r\n", Class::Read, &[]),
    (b"get noreply\r\n", Class::Read, &[]),
    (b"get\r\n", Class::Read, &[]),
    (b"gat 10 k j\r\n", Class::Write, &[b"k", b"j"]),
    (b"gats x k\r\n", Class::Write, &[b"k"]),
    (b"set k 0 0 2\r\n\r\n\r\n", Class::Write, &[b"k"]),
    (b"set k\tj 4294967295 -1 0 noreply\r\n\r\n", Class::Write, &[b"k\tj"]),
    (b"add k 0 0 3 what\r\nget\r\n", Class::Write, &[b"k"]),
    (b"cas k 0 0 1 18446744073709551615\r\nv\r\n", Class::Write, &[b"k"]),
    (b"cas k 0 0 1 5 noreply\r\nv\r\n", Class::Write, &[b"k"]),
    (b"delete k 0\r\n", Class::Write, &[b"k"]),
    (b"incr k x\r\n", Class::Write, &[b"k"]),
    (b"touch\r\n", Class::Write, &[]),
    (b"flush_all\r\n", Class::Everything, &[]),
    (b"flush_all 0 noreply\r\n", Class::Everything, &[]),
    (b"flush_all -7\r\n", Class::Everything, &[]),
    (b"version\r\n", Class::Read, &[]),
    (b"verbosity 1\r\n", Class::Read, &[]),
    (b"stats items\r\n", Class::Read, &[]),
    (b"me k\r\n", Class::Read, &[]),
    (b"mg k s v t f c k O9 q\r\n", Class::Read, &[]),
    (b"mg YQ== b v\r\n", Class::Read, &[]),
    (b"mg k T30 v\r\n", Class::Write, &[b"k"]),
    (b"mg k N30\r\n", Class::Write, &[b"k"]),
    (b"mg k R30\r\n", Class::Write, &[b"k"]),
    (b"mg k ?\r\n", Class::Write, &[b"k"]),
    (b"mg YSBi b T0\r\n", Class::Write, &[b"a b"]),
    (b"md YR== b q\r\n", Class::Write, &[b"a"]),
    (b"ma k N0 J13 M+\r\n", Class::Write, &[b"k"]),
    (b"ms k 2 T0 F5 c k O123 MS\r\nvv\r\n", Class::Write, &[b"k"]),
    (b"ms AAEC 0 b I\r\n\r\n", Class::Write, &[b"\0\x01\x02"]),
];

/// What memcached 1.6.18 answers to the same, and how it goes on; a line that begins with `~` is
/// ours.
const REFUSED: &[(&[u8], &[&str])] = &[
    (b"\r\n", &["ERROR"]),
    (b" \n", &["ERROR"]),
    (b"GET k\r\n", &["ERROR"]),
    (b"set k\r\n", &["ERROR"]),
    (b"set k 0 0 x\r\nabc\r\n", &["CLIENT_ERROR bad command line format", "ERROR"]),
    (b"set k a 0 1\r\nv\r\n", &["CLIENT_ERROR bad command line format", "ERROR"]),
    (b"set k 0 0 -1\r\n", &["CLIENT_ERROR bad command line format"]),
    (b"set k 0 0 1 a b\r\nv\r\n", &["ERROR", "ERROR"]),
    (b"set k 0 0 noreply\r\n", &[""]),
    (b"set k a 0 1 noreply\r\nv\r\n", &["", "ERROR"]),
    (b"set k 0 0 1\r\nvvv\r\n", &["CLIENT_ERROR bad data chunk", "ERROR"]),
    (b"set k 0 0 1 noreply\r\nvvv\r\n", &["", "ERROR"]),
    (b"set k 0 0 5\r\nvv\r\n\r\nxx\r\n", &["CLIENT_ERROR bad data chunk", "ERROR"]),
    (b"cas k 0 0 1\r\nv\r\n", &["ERROR", "ERROR"]),
    (b"cas k 0 0 1 x\r\nv\r\n", &["CLIENT_ERROR bad command line format", "ERROR"]),
    (b"flush_all x\r\n", &["CLIENT_ERROR invalid exptime argument"]),
    (b"flush_all 0 1 2\r\n", &["ERROR"]),
    (b"mg\r\n", &["ERROR"]),
    (b"mg YQ b v\r\n", &["CLIENT_ERROR error decoding key"]),
    (b"ms k\r\n", &["CLIENT_ERROR bad command line format"]),
    (b"ms k x\r\nv\r\n", &["CLIENT_ERROR bad command line format", "ERROR"]),
    (b"ms k 1 y\r\nv\r\n", &["CLIENT_ERROR invalid flag"]),
    (b"ms k 1 T0 T0\r\nv\r\n", &["CLIENT_ERROR duplicate flag"]),
    (b"ms k 1 Tx\r\nv\r\n", &["CLIENT_ERROR bad token in command line format"]),
    (b"ms k 1 MX\r\nv\r\n", &["CLIENT_ERROR invalid mode for ms M token"]),
    (b"ms k 1\r\nvvv\r\n", &["CLIENT_ERROR bad data chunk", "ERROR"]),
    (b"ms !! 1 b\r\nv\r\n", &["CLIENT_ERROR error decoding key"]),
    (b"mq k\r\n", &["ERROR"]),
    (b"get a\0b\r\n", &["~CLIENT_ERROR bad command line format"]),
    (b"flush_all +5\r\n", &["~CLIENT_ERROR invalid exptime argument"]),
    (b"flush_all 5\t\r\n", &["~CLIENT_ERROR invalid exptime argument"]),
    (b"set k 0 0 +1\r\n", &["~CLIENT_ERROR bad command line format"]),
    (b"set k 0 0 4294967297\r\n", &["~CLIENT_ERROR bad command line format"]),
];

#[test]
fn commands_are_found_in_whatever_pieces_they_come() {
    for (bytes, class, changed) in COMMANDS {
        for piece in 1..=bytes.len() {
            let expected = vec![command(bytes, *class, changed)];
            assert_eq!(seen(bytes, piece), (expected, vec![]), "{}", bytes.escape_ascii());
        }
    }
    // A browser's, which goes on with what a web page likes.
    let page = b"POST / HTTP/1.1\r\nset k 0 0 1\r\nv\r\n";
    assert_eq!(seen(page, 4).0[0], Meaning::Refused("".into(), true));
    assert_eq!(seen(b"\x16\x03\x01\r\nset", 7).0[0], Meaning::Refused("".into(), true));
    let asked = (vec![Meaning::PortQuestion], vec![]);
    assert_eq!(seen(crate::PORT_QUESTION.as_bytes(), 4), asked);
    let both = b"set k 0 0 1\r\nv\r\nmn\r\nquit x\r\n";
    let expected = [command(&both[..16], Class::Write, &[b"k"]), Meaning::NoOp, Meaning::Quit];
    assert_eq!(seen(both, 3), (expected.to_vec(), vec![]));
}

#[test]
fn what_is_wrong_is_answered_as_memcached_answers_it_and_passed_over_as_far() {
    for (bytes, answers) in REFUSED {
        let expected: Vec<_> =
            answers.iter().map(|answer| refused(answer.trim_start_matches('~'))).collect();
        for piece in 1..=bytes.len() {
            assert_eq!(seen(bytes, piece).0, expected, "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn what_would_do_harm_behind_a_store_is_refused_with_the_reason() {
    for (line, said) in [
        ("flush_all 30", "copies of values would outlive it"),
        ("watch fetchers", "watch is not possible by a store: say it to the memcached"),
        ("shutdown", "shutdown is not possible by a store"),
        ("lru_crawler metadump all", "lru_crawler is not possible by a store"),
        ("slabs reassign 1 2", "slabs is not possible by a store"),
        ("stats cachedump 1 0", "shows names as they are"),
        ("stats detail dump", "shows names as they are"),
    ] {
        match &seen(format!("{line}\r\n").as_bytes(), 64).0[..] {
            [Meaning::Refused(answer, false)] => assert!(answer.contains(said), "{line}: {answer}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    for (bytes, said) in [
        (&b"flush_all 30 noreply\r\nget k\r\n"[..], "copies of values would outlive it"),
        (b"\x80\x0a\x00\x00\r\n", "the binary protocol is not spoken here"),
    ] {
        match &seen(bytes, 64).0[..] {
            [Meaning::Refused(answer, true)] => assert!(answer.contains(said), "{answer}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lines_keys_and_values_have_bounds() {
    let key = "k".repeat(KEY_BYTES + 1);
    let bad = [refused("CLIENT_ERROR bad command line format"), refused("ERROR")];
    for line in [format!("set {key} 0 0 1\r\nv\r\n"), format!("ms {key} 1\r\nv\r\n")] {
        assert_eq!(seen(line.as_bytes(), 100).0, bad, "{line}");
    }
    let too_long = [Meaning::Refused("CLIENT_ERROR line too long".into(), true)];
    for (line, most) in [
        ("touch k ".into(), LINE_BYTES),
        (format!("{}get k ", " ".repeat(101)), LINE_BYTES),
        ("get k ".into(), READ_LINE_BYTES),
        (" gets k ".into(), READ_LINE_BYTES),
    ] {
        let fits = line.clone() + &"1".repeat(most - 1 - line.len()) + "\r\n";
        let is_one = |seen: &[Meaning]| matches!(seen, [Meaning::Command(..)]);
        assert!(is_one(&seen(fits.as_bytes(), 999).0), "{line}");
        let longer = line.clone() + &"1".repeat(most + 1 - line.len());
        assert_eq!(seen(longer.as_bytes(), 999).0, too_long, "{line}");
        assert_eq!(seen((longer + "\r\n").as_bytes(), usize::MAX).0, too_long, "{line}");
    }
    let large = |line: &str| [line.as_bytes(), &[b'v'; 1001], b"\r\nmn\r\n"].concat();
    let too_large = [refused("SERVER_ERROR object too large for cache"), Meaning::NoOp];
    for line in ["set k 0 0 1001\r\n", "ms k 1001\r\n"] {
        assert_eq!(seen(&large(line), 10), (too_large.to_vec(), vec![]), "{line}");
    }
    assert_eq!(seen(&large("set k 0 0 1001 noreply\r\n"), 10).0, [refused(""), Meaning::NoOp]);
    let mut parser = RequestParser::default();
    assert_eq!(parser.next(b"set k 0 0 900\r\nvv", &LIMITS), Front::Partial);
    assert_eq!(parser.wanted(), 15 + 902);
}

/// Where each batch of answers ends, and the answers without what ends them.
fn batches(bytes: &[u8], piece: usize) -> (Vec<usize>, Vec<u8>) {
    let (mut scanner, mut buffer, mut answers) = (ReplyScanner::default(), vec![], vec![]);
    let mut ends = vec![];
    for piece in bytes.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let found = scanner.scan(&buffer).unwrap();
            answers.extend_from_slice(&buffer[..found.answers]);
            buffer.drain(..found.taken);
            if !found.is_over {
                break;
            }
            ends.push(answers.len());
        }
    }
    assert!(buffer.is_empty());
    (ends, answers)
}

#[test]
fn a_batch_ends_with_its_no_op_and_not_with_what_values_hold() {
    let first =
        b"VALUE k 0 8\r\nMN\r\n\nMN\r\r\nVALUE j 1 0 7\r\n\r\nEND\r\nSTORED\r\nHD kMN O1\r\n";
    let second = b"VA 4 f0 MN\r\nMN\r\n\r\nEN\r\nSTAT pid 1\r\nEND\r\nCLIENT_ERROR x\r\n";
    let third = b"VA 3\r\nMN\n\r\n";
    let bytes = [&first[..], b"MN\r\n", second, b"MN\r\n", b"MN\r\n", third, b"MN\r\n"].concat();
    let ends = [first.len(), first.len() + second.len(), first.len() + second.len()];
    let all = first.len() + second.len() + third.len();
    for piece in 1..=bytes.len() {
        let (found, answers) = batches(&bytes, piece);
        assert_eq!(found, [&ends[..], &[all]].concat(), "pieces of {piece}");
        assert_eq!(answers, [&first[..], second, third].concat());
    }
}

#[test]
fn what_is_no_answer_is_found_out() {
    for wrong in ["VALUE k 0 x\r\n", "VALUE k\r\n", "VA\r\n", "VA -1\r\n", "VA 99999999999\r\n"] {
        assert!(ReplyScanner::default().scan(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(ReplyScanner::default().scan("x".repeat(20_000).as_bytes()).is_err());
}

/// Lines that look like commands.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        "(get|gets|gat|set|add|cas|delete|touch|incr|flush_all|stats|mg|ms|md|ma|me|mn|quit)",
        "[kbqvTNOMISC0-9=+ \\-]{1,6}",
        "(0|1|2|5|1001|4294967297|noreply|\r)",
        "[\\x00-\\xff]{0,3}",
    ];
    let line = prop::collection::vec(word, 0..7).prop_map(|words| words.join(" ").into_bytes());
    let end = prop_oneof![Just("\r\n"), Just("\n"), Just("")];
    let lines = prop::collection::vec((line, end), 0..8);
    lines.prop_map(|lines| {
        lines.into_iter().flat_map(|(line, end)| [&line, end.as_bytes()].concat()).collect()
    })
}

proptest! {
    #[test]
    fn any_bytes_mean_the_same_in_whatever_pieces(
        bytes in prop_oneof![lines(), prop::collection::vec(any::<u8>(), 0..200)],
        piece in 1..50usize,
    ) {
        let whole = seen(&bytes, bytes.len().max(1));
        // Of a line that is too long, or of another protocol, all that has come is about it.
        prop_assert_eq!(seen(&bytes, piece), whole);
    }

    #[test]
    fn what_goes_on_is_one_line_or_a_line_and_the_block_that_it_says(bytes in lines()) {
        for seen in seen(&bytes, 7).0 {
            let Meaning::Command(bytes, class, changed) = seen else { continue };
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let line: Vec<&[u8]> = bytes[..end].trim_ascii_end().split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
            let block = match line[0] {
                b"set" | b"add" | b"cas" => Some(line[4]),
                b"ms" => Some(line[2]),
                _ => None,
            };
            let block = block.map(|len| std::str::from_utf8(len).unwrap().parse::<usize>().unwrap() + 2);
            prop_assert_eq!(bytes.len(), end + block.unwrap_or(0));
            if class == Class::Write && line.len() > 1 && line[0] != b"gat" {
                prop_assert_eq!(changed.len(), 1);
            }
        }
    }

    #[test]
    fn any_bytes_are_answers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut scanner = ReplyScanner::default();
        if let Ok(found) = scanner.scan(&bytes) {
            prop_assert!(found.answers <= found.taken && found.taken <= bytes.len());
        }
    }
}
