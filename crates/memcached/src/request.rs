//! Commands: where the next one ends, what it may change, and what is answered to those that do not
//! go on.

use std::borrow::Cow;

use crate::{
    line::{Line, Request},
    meta, text,
};

/// Longest line, without the byte that ends it. memcached closes the connection on longer ones,
/// unless they come all at once.
pub const LINE_BYTES: usize = 2048;
/// Longest line that begins with `get ` or `gets `, for memcached takes those of any length.
pub const READ_LINE_BYTES: usize = 1 << 20;
/// Spaces before such a word that memcached looks past.
const LEADING_SPACES: usize = 100;
/// With this byte TLS begins.
const HANDSHAKE: u8 = 0x16;
/// With this byte commands of the binary protocol begin.
const BINARY: u8 = 0x80;

/// What a command may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest value in bytes, at most 2 GiB less two.
    pub value_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { value_bytes: 64 << 20 }
    }
}

/// An answer to what does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Bytes at the front of the buffer that it is about, which the caller takes off.
    pub len: usize,
    /// What is answered, without the end of the line; nothing, if the client wants no answer.
    pub answer: Cow<'static, str>,
    /// The connection ends with it.
    pub closes: bool,
}

/// What there is at the front of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Front<'a> {
    /// Not enough of it has come.
    Partial,
    /// A command for memcached.
    Command(Request<'a>),
    /// A meta no-op of so many bytes, which is answered with `MN` when all before it is answered.
    NoOp(usize),
    /// The client has said `quit`, in so many bytes.
    Quit(usize),
    /// [`PORT_QUESTION`](crate::PORT_QUESTION), in so many bytes.
    PortQuestion(usize),
    /// What does not go on.
    Refused(Refusal),
    /// So many bytes that belong to what was refused before.
    Skipped(usize),
}

/// How far the command at the front of a buffer has been looked at.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Bytes in which no end of a line was found.
    searched: usize,
    /// Bytes that the command takes, once that is known.
    wanted: usize,
    /// Bytes that belong to what was refused, and are still to come.
    skipped: u64,
}

impl RequestParser {
    /// What stands at the front of `buffer`, which begins where the last one ended and holds all
    /// that came since.
    pub fn next<'a>(&mut self, buffer: &'a [u8], limits: &Limits) -> Front<'a> {
        if buffer.len() < self.wanted.max(1) {
            return Front::Partial;
        }
        if self.skipped > 0 {
            let len = self.skipped.min(buffer.len() as u64);
            self.skipped -= len;
            return Front::Skipped(len as usize);
        }
        let front = self.front(buffer, limits);
        if front != Front::Partial {
            (self.searched, self.wanted) = (0, 0);
        }
        front
    }

    /// Bytes that the command at the front takes at the least, as far as is known: whoever reads
    /// may make room for them at once.
    pub fn wanted(&self) -> usize {
        self.wanted.max(self.searched)
    }

    fn front<'a>(&mut self, buffer: &'a [u8], limits: &Limits) -> Front<'a> {
        let refused = |len, answer, closes| Front::Refused(Refusal { len, answer, closes });
        // TLS, by which a web page may have a browser say what it likes.
        if buffer[0] == HANDSHAKE {
            return refused(buffer.len(), "".into(), true);
        }
        if buffer[0] == BINARY {
            let answer =
                "CLIENT_ERROR the binary protocol is not spoken here: expected the text protocol";
            return refused(buffer.len(), answer.into(), true);
        }
        let found = memchr::memchr(b'\n', &buffer[self.searched..]);
        let end = found.map(|at| self.searched + at);
        self.searched = end.unwrap_or(buffer.len());
        if self.searched > LINE_BYTES && self.searched > longest_line(buffer) {
            return refused(buffer.len(), "CLIENT_ERROR line too long".into(), true);
        }
        let Some(end) = end else { return Front::Partial };
        let (line, len) = (&buffer[..end], end + 1);
        match parse(line.strip_suffix(b"\r").unwrap_or(line)) {
            Line::NoOp => Front::NoOp(len),
            Line::Quit => Front::Quit(len),
            Line::PortQuestion => Front::PortQuestion(len),
            Line::Refused(answer) => refused(len, answer, false),
            Line::RefusedForGood(answer) => refused(len, answer, true),
            Line::RefusedBlock(answer, block) => {
                self.skipped = block + 2;
                refused(len, answer, false)
            }
            Line::Whole(request) => Front::Command(Request { len, ..request }),
            Line::Block(request, block) if block > limits.value_bytes as u64 => {
                self.skipped = block + 2;
                let answer = match request.is_silent {
                    true => "",
                    false => "SERVER_ERROR object too large for cache",
                };
                refused(len, answer.into(), false)
            }
            Line::Block(request, block) => {
                self.wanted = len + block as usize + 2;
                match buffer.get(..self.wanted) {
                    None => Front::Partial,
                    // memcached takes as many bytes, and answers the same.
                    Some(whole) if !whole.ends_with(b"\r\n") => {
                        let is_silent = request.is_silent;
                        let answer = if is_silent { "" } else { "CLIENT_ERROR bad data chunk" };
                        refused(self.wanted, answer.into(), false)
                    }
                    Some(whole) => Front::Command(Request { len: whole.len(), ..request }),
                }
            }
        }
    }
}

/// Longest line that what begins so may be.
fn longest_line(buffer: &[u8]) -> usize {
    let spaces = buffer.iter().take_while(|byte| **byte == b' ').count();
    let rest = &buffer[spaces..];
    let is_read = rest.starts_with(b"get ") || rest.starts_with(b"gets ");
    match is_read && spaces <= LEADING_SPACES {
        true => READ_LINE_BYTES,
        false => LINE_BYTES,
    }
}

fn parse(line: &[u8]) -> Line<'_> {
    // To memcached the line would end there.
    if memchr::memchr(0, line).is_some() {
        return Line::refused("CLIENT_ERROR bad command line format");
    }
    let mut words = words(line);
    let Some(name) = words.next() else { return Line::refused("ERROR") };
    match meta::line(name, words.clone()) {
        Some(line) => line,
        None => text::line(name, words),
    }
}

/// The words of a line, as memcached splits it: at spaces, and at nothing else.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}
