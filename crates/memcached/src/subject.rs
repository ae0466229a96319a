//! What a command asks for, for one who finds the server that has its keys, or has copies of their
//! values.

use std::borrow::Cow;

use bytes::BufMut;

use crate::{line::KEY_BYTES, meta, request::words};

/// Longest value of the flag that is given back as it came.
const OPAQUE_BYTES: usize = 32;

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandSubject<'a> {
    /// Values of keys, which may be several servers'.
    Values(AskedValues<'a>),
    /// One value and what is known of it, by `mg`, and nothing that a copy could not tell.
    Item(AskedItem<'a>),
    /// Something about one key, in whatever way.
    Key(Cow<'a, [u8]>),
    /// Something about every key: `flush_all`.
    Everything,
    /// Nothing about keys, or about none that a server has: the server's own words are the answer.
    Server,
}

/// `get`, `gets`, `gat` or `gats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedValues<'a> {
    /// What stands before the keys: the command, and until when values are to live.
    pub head: Vec<&'a [u8]>,
    /// The keys, one at least and none too long, as they were asked for.
    pub names: Vec<&'a [u8]>,
    /// Whether the number of each value is asked for, too.
    pub with_cas: bool,
    /// It changes nothing.
    pub only_reads: bool,
}

/// `mg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedItem<'a> {
    /// The key.
    pub name: &'a [u8],
    /// What is asked for, as it was: letters, and `O` with what follows it.
    pub flags: Vec<&'a [u8]>,
}

impl CommandSubject<'_> {
    /// The keys that it names.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let (one, several): (Option<&[u8]>, &[&[u8]]) = match self {
            CommandSubject::Values(asked) => (None, &asked.names),
            CommandSubject::Item(item) => (Some(item.name), &[]),
            CommandSubject::Key(name) => (Some(name), &[]),
            CommandSubject::Everything | CommandSubject::Server => (None, &[]),
        };
        one.into_iter().chain(several.iter().copied())
    }
}

/// What a command asks for that [`RequestParser`](crate::RequestParser) has found: `bytes` are all
/// of it.
pub fn subject(bytes: &[u8]) -> CommandSubject<'_> {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let mut words = words(line);
    let Some(name) = words.next() else { return CommandSubject::Server };
    match name {
        b"get" | b"bget" | b"gets" => values(vec![name], words, name == b"gets", true),
        b"gat" | b"gats" => match words.next() {
            Some(until) => values(vec![name, until], words, name == b"gats", false),
            None => CommandSubject::Server,
        },
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" | b"delete" | b"incr"
        | b"decr" | b"touch" => match words.next() {
            Some(key) => CommandSubject::Key(Cow::Borrowed(key)),
            None => CommandSubject::Server,
        },
        b"mg" | b"ms" | b"md" | b"ma" | b"me" => {
            let Some(word) = words.next() else { return CommandSubject::Server };
            let has_length = name == b"ms";
            let flags: Vec<&[u8]> = words.skip(usize::from(has_length)).collect();
            if name == b"mg" && word.len() <= KEY_BYTES && may_be_of_copy(&flags) {
                return CommandSubject::Item(AskedItem { name: word, flags });
            }
            meta::key_of(word, flags.iter().copied())
                .map_or(CommandSubject::Server, CommandSubject::Key)
        }
        b"flush_all" => CommandSubject::Everything,
        _ => CommandSubject::Server,
    }
}

fn values<'a>(
    head: Vec<&'a [u8]>,
    names: impl Iterator<Item = &'a [u8]>,
    with_cas: bool,
    only_reads: bool,
) -> CommandSubject<'a> {
    let names: Vec<&[u8]> = names.collect();
    let Some(first) = names.first() else { return CommandSubject::Server };
    // A server says what is wrong with one that is too long, behind what it has of those before.
    if names.iter().any(|name| name.len() > KEY_BYTES) {
        return CommandSubject::Key(Cow::Borrowed(first));
    }
    CommandSubject::Values(AskedValues { head, names, with_cas, only_reads })
}

/// Whether flags of `mg` ask for what a copy can tell, and are right: memcached refuses those that
/// come twice.
fn may_be_of_copy(flags: &[&[u8]]) -> bool {
    let is_right = |flag: &[u8]| match flag[0] {
        b'c' | b'f' | b'k' | b'q' | b's' | b'v' => flag.len() == 1,
        b'O' => flag.len() <= OPAQUE_BYTES,
        _ => false,
    };
    let comes_once =
        |(at, flag): (usize, &&[u8])| flags[..at].iter().all(|past| past[0] != flag[0]);
    flags.iter().all(|flag| is_right(flag)) && flags.iter().enumerate().all(comes_once)
}

impl AskedItem<'_> {
    /// The answer of a server that has this value, with these flags of its client's and this
    /// number, appended to `answer`.
    pub fn answer(&self, value: &[u8], flags: u32, cas: u64, answer: &mut impl BufMut) {
        let len = value.len();
        let with_value = self.flags.contains(&&b"v"[..]);
        match with_value {
            true => answer.put_slice(format!("VA {len}").as_bytes()),
            false => answer.put_slice(b"HD"),
        }
        for flag in &self.flags {
            match flag[0] {
                b'c' => answer.put_slice(format!(" c{cas}").as_bytes()),
                b'f' => answer.put_slice(format!(" f{flags}").as_bytes()),
                b's' => answer.put_slice(format!(" s{len}").as_bytes()),
                b'k' => [b" k", self.name].iter().for_each(|part| answer.put_slice(part)),
                b'O' => [b" ", *flag].iter().for_each(|part| answer.put_slice(part)),
                _ => {}
            }
        }
        answer.put_slice(b"\r\n");
        if with_value {
            answer.put_slice(value);
            answer.put_slice(b"\r\n");
        }
    }
}

impl AskedValues<'_> {
    /// What a server says of one of the keys, which has this value, with these flags of its
    /// client's and this number, appended to `answer`.
    pub fn answer(
        &self,
        name: &[u8],
        value: &[u8],
        flags: u32,
        cas: u64,
        answer: &mut impl BufMut,
    ) {
        answer.put_slice(b"VALUE ");
        answer.put_slice(name);
        let len = value.len();
        match self.with_cas {
            true => answer.put_slice(format!(" {flags} {len} {cas}\r\n").as_bytes()),
            false => answer.put_slice(format!(" {flags} {len}\r\n").as_bytes()),
        }
        answer.put_slice(value);
        answer.put_slice(b"\r\n");
    }

    /// The same command for some of the keys, appended to `line`.
    pub fn ask<'b>(&self, names: impl Iterator<Item = &'b [u8]>, line: &mut Vec<u8>) {
        line.extend_from_slice(&self.head.join(&b' '));
        for name in names {
            line.push(b' ');
            line.extend_from_slice(name);
        }
        line.extend_from_slice(b"\r\n");
    }
}

/// The values in an answer to `get` and its like, each with its key and as it stands there, with
/// the line before it; until the end that memcached says.
///
/// # Errors
/// A line that is neither: what memcached says instead of an answer, or the rest of a part of one.
pub fn values_in(answer: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), &[u8]>> {
    let mut rest = answer;
    std::iter::from_fn(move || {
        if rest == b"END\r\n" {
            rest = &[];
            return None;
        }
        match first_value(rest) {
            Some((name, len)) => {
                let (value, behind) = rest.split_at(len);
                rest = behind;
                Some(Ok((name, value)))
            }
            None if rest.is_empty() => None,
            None => {
                let end = memchr::memchr(b'\r', rest).unwrap_or(rest.len());
                let line = &rest[..end];
                rest = &[];
                Some(Err(line))
            }
        }
    })
}

/// The key of the value at the front, and how many bytes it takes.
fn first_value(answer: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', answer)?;
    let mut words = words(answer[..end].strip_suffix(b"\r")?);
    if words.next() != Some(b"VALUE") {
        return None;
    }
    let name = words.next()?;
    let len = usize::try_from(crate::number::unsigned(words.nth(1)?)?).ok()?;
    let whole = len.checked_add(end + 3).filter(|whole| *whole <= answer.len())?;
    answer[..whole].ends_with(b"\r\n").then_some((name, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command asks for, in short.
    fn shown(bytes: &str) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let joined = |words: &[&[u8]]| text(&words.join(&b','));
        match subject(bytes.as_bytes()) {
            CommandSubject::Values(AskedValues { head, names, with_cas, only_reads }) => {
                let (cas, reads) =
                    (if with_cas { "#" } else { "" }, if only_reads { "" } else { "!" });
                format!("{}{cas}{reads}: {}", joined(&head), joined(&names))
            }
            CommandSubject::Item(AskedItem { name, flags }) => {
                format!("item {} {}", text(name), joined(&flags))
            }
            CommandSubject::Key(name) => format!("key {}", text(&name)),
            CommandSubject::Everything => "everything".into(),
            CommandSubject::Server => "server".into(),
        }
    }

    #[test]
    fn what_commands_ask_for() {
        let long = "k".repeat(251);
        let rows = [
            ("get a\r\n", "get: a"),
            (" get  a b \n", "get: a,b"),
            ("bget a\r\n", "bget: a"),
            ("gets a a\r\n", "gets#: a,a"),
            ("gat 10 a b\r\n", "gat,10!: a,b"),
            ("gats 10 a\r\n", "gats,10#!: a"),
            ("get\r\n", "server"),
            ("gat 10\r\n", "server"),
            (&format!("get a {long}\r\n"), "key a"),
            ("mg a\r\n", "item a "),
            ("mg a v f c s k q Oabc\r\n", "item a v,f,c,s,k,q,Oabc"),
            ("mg a v t\r\n", "key a"),
            ("mg a v v\r\n", "key a"),
            ("mg a N30\r\n", "key a"),
            ("mg a v1\r\n", "key a"),
            (&format!("mg a O{}\r\n", "x".repeat(32)), "key a"),
            ("mg YSBi b v\r\n", "key a b"),
            ("ms YSBi 1 b\r\nv\r\n", "key a b"),
            ("ms b 1\r\nv\r\n", "key b"),
            ("md a q\r\n", "key a"),
            ("me a\r\n", "key a"),
            ("mg\r\n", "server"),
            ("set a 0 0 5\r\nget b\r\n", "key a"),
            ("delete a noreply\r\n", "key a"),
            ("delete\r\n", "server"),
            ("flush_all 0\r\n", "everything"),
            ("version\r\n", "server"),
            ("stats\r\n", "server"),
        ];
        for (bytes, expected) in rows {
            assert_eq!(shown(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_copy_answers_as_memcached_does() {
        let of_item = |bytes: &str| {
            let CommandSubject::Item(item) = subject(bytes.as_bytes()) else { panic!("{bytes}") };
            let mut answer = vec![];
            item.answer(b"abc", 7, 9, &mut answer);
            String::from_utf8(answer).unwrap()
        };
        assert_eq!(of_item("mg k\r\n"), "HD\r\n");
        assert_eq!(of_item("mg k q s O1 f c k\r\n"), "HD s3 O1 f7 c9 kk\r\n");
        assert_eq!(of_item("mg k v f q\r\n"), "VA 3 f7\r\nabc\r\n");
        let of_values = |bytes: &str| {
            let CommandSubject::Values(values) = subject(bytes.as_bytes()) else {
                panic!("{bytes}")
            };
            let mut answer = vec![];
            for name in &values.names {
                values.answer(name, b"abc", 7, 9, &mut answer);
            }
            String::from_utf8(answer).unwrap()
        };
        assert_eq!(of_values("get k j\r\n"), "VALUE k 7 3\r\nabc\r\nVALUE j 7 3\r\nabc\r\n");
        assert_eq!(of_values("gets k\r\n"), "VALUE k 7 3 9\r\nabc\r\n");
    }

    #[test]
    fn values_are_found_in_an_answer_and_what_is_none_is_told() {
        let found = |answer: &'static str| -> Vec<Result<String, String>> {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let each = values_in(answer.as_bytes());
            each.map(|value| {
                value.map(|(name, bytes)| format!("{}={}", text(name), bytes.len())).map_err(text)
            })
            .collect()
        };
        let two = "VALUE a 0 5\r\nEND\r\n\r\nVALUE b 1 0 9\r\n\r\nEND\r\n";
        assert_eq!(found(two), [Ok("a=20".into()), Ok("b=17".into())]);
        assert_eq!(found("END\r\n"), []);
        assert_eq!(found(""), []);
        assert_eq!(found("SERVER_ERROR x\r\n"), [Err("SERVER_ERROR x".into())]);
        let half = "VALUE a 0 1\r\nv\r\nSERVER_ERROR out\r\n";
        assert_eq!(found(half), [Ok("a=16".into()), Err("SERVER_ERROR out".into())]);
        for wrong in
            ["VALUE a 0 9\r\nv\r\n", "VALUE a 0 x\r\n", "VALUE a 0 1\r\nvvv\r\nEND\r\n", "VA"]
        {
            assert!(matches!(&found(wrong)[..], [Err(_)]), "{wrong:?}: {:?}", found(wrong));
        }
    }
}
