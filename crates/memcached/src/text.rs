//! The text protocol's commands.

use std::borrow::Cow;

use crate::{
    Class,
    line::{BLOCK_BYTES, KEY_BYTES, Line, Request},
    number::{signed, unsigned},
};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const NO_REPLY: &[u8] = b"noreply";

const FLUSH_LATER: &str = "CLIENT_ERROR flush_all with a delay is not possible by a store: copies of values would \
                           outlive it; say flush_all when it is due";
const DUMP: &str = "CLIENT_ERROR this is not possible by a store, for it shows names as they are: ask the memcached \
                    behind it";

/// Commands that are the operator's, or do not end: they go past a store.
const OF_OPERATORS: &[&[u8]] = &[
    b"watch",
    b"shutdown",
    b"slabs",
    b"lru",
    b"lru_crawler",
    b"cache_memlimit",
    b"extstore",
    b"misbehave",
    b"debugtime",
    b"refresh_certs",
    b"mrc",
];

/// What a line says that begins with this word.
pub(crate) fn line<'a>(name: &[u8], words: impl Iterator<Item = &'a [u8]> + Clone) -> Line<'a> {
    let read = Line::Whole(Request::read());
    let count = words.clone().count();
    let is_silent = words.clone().last() == Some(NO_REPLY);
    match name {
        b"get" | b"gets" | b"bget" | b"version" => read,
        b"gat" | b"gats" => {
            let request = Request::write(words.skip(1).map(Cow::Borrowed).collect());
            Line::Whole(Request { may_touch: true, ..request })
        }
        b"set" | b"add" | b"replace" | b"append" | b"prepend" => {
            with_block(words, count, 4, is_silent)
        }
        b"cas" => with_block(words, count, 5, is_silent),
        b"delete" | b"incr" | b"decr" | b"touch" => {
            let request = Request::write(words.take(1).map(Cow::Borrowed).collect());
            Line::Whole(Request { may_touch: name == b"touch", is_silent, ..request })
        }
        b"flush_all" => flush(words, count, is_silent),
        b"verbosity" => Line::Whole(Request { is_silent, ..Request::read() }),
        b"stats" => stats(words),
        b"quit" => Line::Quit,
        name if OF_OPERATORS.contains(&name) => Line::Refused(
            format!(
                "CLIENT_ERROR {} is not possible by a store: say it to the memcached behind it",
                String::from_utf8_lossy(name)
            )
            .into(),
        ),
        b"shortstop" if count == 0 => Line::PortQuestion,
        // A web page has its browser send commands of its own behind the head of a request.
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => {
            Line::RefusedForGood("".into())
        }
        _ => Line::refused("ERROR"),
    }
}

/// KEY FLAGS EXPTIME LENGTH [CAS] [noreply]: so many words, and maybe one more.
fn with_block<'a>(
    words: impl Iterator<Item = &'a [u8]> + Clone,
    count: usize,
    least: usize,
    is_silent: bool,
) -> Line<'a> {
    if count != least && count != least + 1 {
        return Line::refused("ERROR");
    }
    let block = || {
        let mut words = words.clone();
        let key = words.next().filter(|key| key.len() <= KEY_BYTES)?;
        unsigned(words.next()?)?;
        signed(words.next()?)?;
        let len = unsigned(words.next()?).filter(|len| *len <= BLOCK_BYTES)?;
        if least == 5 {
            unsigned(words.next()?)?;
        }
        Some((key, len))
    };
    match block() {
        Some((key, len)) => {
            let request = Request::write(vec![Cow::Borrowed(key)]);
            Line::Block(Request { is_silent, ..request }, len)
        }
        None => Line::refused(if is_silent { "" } else { BAD_FORMAT }),
    }
}

/// flush_all [DELAY] [noreply]. What a delay says ends values when nobody has every key held.
fn flush<'a>(mut words: impl Iterator<Item = &'a [u8]>, count: usize, is_silent: bool) -> Line<'a> {
    let everything = Request { class: Class::Everything, is_silent, ..Request::read() };
    if count > 2 {
        return Line::refused("ERROR");
    }
    if count == 0 || (count == 1 && is_silent) {
        return Line::Whole(everything);
    }
    match words.next().and_then(signed) {
        Some(..=0) => Line::Whole(everything),
        // Whoever wants no answer would take it for another's: the connection ends with it.
        Some(_) if is_silent => Line::RefusedForGood(FLUSH_LATER.into()),
        Some(_) => Line::refused(FLUSH_LATER),
        None if is_silent => Line::refused(""),
        None => Line::refused("CLIENT_ERROR invalid exptime argument"),
    }
}

/// stats [WHAT ...]. Two kinds show names as they are, which may hold the end of a line: nobody
/// could tell then where an answer ends.
fn stats<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Line<'a> {
    match (words.next(), words.next()) {
        (Some(b"cachedump"), _) | (Some(b"detail"), Some(b"dump")) => Line::refused(DUMP),
        _ => Line::Whole(Request::read()),
    }
}
