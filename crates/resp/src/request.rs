//! Commands: where the next one ends, and where its words stand.
//!
//! The parser looks at bytes where they lie and remembers how far it came, so that each length line
//! is read once, however small the pieces that a command comes in. Limits and errors are Redis's,
//! word for word.

use crate::{
    error::ProtocolError,
    inline,
    number::integer,
    words::{Span, Words},
};

/// Bytes of one command, with its lengths: what Redis keeps of a client at most
/// (`client-query-buffer-limit`).
const MAX_COMMAND: usize = 1 << 30;
/// Bytes after which a line that does not end is refused. Redis's own limit.
const MAX_LINE: usize = 64 << 10;
/// Words for which a parser keeps the memory from one command to the next.
const KEEP_WORDS: usize = 1024;

/// What a command may be. The defaults are Redis's, up to version 6: later ones take any number of
/// words, each of which costs memory before anybody has logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest word in bytes; all of a command has 1 GiB at most.
    pub word_bytes: usize,
    /// Words in one command.
    pub words: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { word_bytes: 512 << 20, words: 1 << 20 }
    }
}

/// A whole command at the front of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its bytes as they came: the first of the buffer, which the caller takes off.
    pub bytes: &'a [u8],
    /// Its words, at least one.
    pub words: Words<'a>,
    /// Whether it came on a line: then its words do not stand in `bytes` as they are.
    pub is_inline: bool,
}

/// How far the command at the front of a buffer has been looked at.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Bytes that belong to it and are understood.
    seen: usize,
    /// Bytes behind those in which no end of a line was found.
    searched: usize,
    /// Words that are still to come; 0: their number is not known yet.
    missing: usize,
    /// Bytes up to the end of the word that is coming, once its length is known.
    wanted: usize,
    spans: Vec<Span>,
    /// The words of a command on a line.
    text: Vec<u8>,
}

/// What there is at the front of a buffer.
enum Front {
    /// A command of so many bytes.
    Command { len: usize, is_inline: bool },
    /// So many bytes that are no command, which Redis passes over, too.
    Nothing(usize),
}

impl RequestParser {
    /// The next command in `buffer`, which begins where the last one ended, and holds all that
    /// came since. `None`: it is not complete. `skipped`: bytes before the command that are
    /// nothing, as empty lines are; the caller takes them off in any case, before the command's.
    ///
    /// # Errors
    /// [`ProtocolError`]: the bytes can never be one.
    pub fn next<'a>(
        &'a mut self,
        buffer: &'a [u8],
        limits: &Limits,
        skipped: &mut usize,
    ) -> Result<Option<Request<'a>>, ProtocolError> {
        *skipped = 0;
        loop {
            let rest = &buffer[*skipped..];
            match self.front(rest, limits)? {
                None => return Ok(None),
                Some(Front::Nothing(len)) => {
                    self.begin();
                    *skipped += len;
                }
                Some(Front::Command { len, is_inline }) => {
                    self.seen = 0;
                    self.searched = 0;
                    self.missing = 0;
                    self.wanted = 0;
                    let text = if is_inline { &self.text[..] } else { &rest[..len] };
                    let words = Words { text, spans: &self.spans };
                    return Ok(Some(Request { bytes: &rest[..len], words, is_inline }));
                }
            }
        }
    }

    /// Bytes that the command at the front takes at the least, as far as is known: whoever reads
    /// may make room for them at once.
    pub fn wanted(&self) -> usize {
        self.wanted.max(self.seen)
    }

    /// Memory in bytes that it takes for the words of the command at the front.
    pub fn held(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.text.capacity()
    }

    fn begin(&mut self) {
        self.seen = 0;
        self.searched = 0;
        self.missing = 0;
        self.wanted = 0;
        self.spans.clear();
        self.spans.shrink_to(KEEP_WORDS);
        self.text.clear();
        self.text.shrink_to(KEEP_WORDS);
    }

    fn front(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<Front>, ProtocolError> {
        if self.missing == 0 {
            if self.searched == 0 {
                self.begin();
            }
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.inline(buffer),
            }
            let Some(end) = self.line(buffer, ProtocolError::CountTooBig)? else {
                return Ok(None);
            };
            let count = integer(&buffer[1..end]).ok_or(ProtocolError::Count)?;
            self.seen = end + 2;
            if count <= 0 {
                return Ok(Some(Front::Nothing(self.seen)));
            }
            let count = usize::try_from(count).ok().filter(|count| *count <= limits.words);
            self.missing = count.ok_or(ProtocolError::Count)?;
        }
        while self.missing > 0 {
            let start = self.seen;
            let Some(end) = self.line(buffer, ProtocolError::LengthTooBig)? else {
                return Ok(None);
            };
            if buffer[start] != b'$' {
                return Err(ProtocolError::ExpectedWord(buffer[start]));
            }
            let len = integer(&buffer[start + 1..end]);
            let len = len.and_then(|len| usize::try_from(len).ok());
            let len = len.filter(|len| *len <= limits.word_bytes).ok_or(ProtocolError::Length)?;
            let word = end + 2;
            if word + len > MAX_COMMAND {
                return Err(ProtocolError::Length);
            }
            self.wanted = word + len + 2;
            if buffer.len() < self.wanted {
                return Ok(None);
            }
            self.spans.push(Span::new(word, word + len));
            self.seen = word + len + 2;
            self.missing -= 1;
        }
        Ok(Some(Front::Command { len: self.seen, is_inline: false }))
    }

    /// Where the line that begins at `seen` has its `\r`; `None` if its end is not there yet.
    fn line(
        &mut self,
        buffer: &[u8],
        too_big: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let from = self.seen + self.searched;
        let rest = buffer.get(from..).unwrap_or_default();
        match memchr::memchr(b'\r', rest) {
            // The byte behind it is taken for the line's end, whatever it is.
            Some(at) if rest.len() > at + 1 => {
                self.searched = 0;
                Ok(Some(from + at))
            }
            Some(at) => {
                self.searched += at;
                Ok(None)
            }
            None => {
                self.searched += rest.len();
                if self.searched > MAX_LINE { Err(too_big) } else { Ok(None) }
            }
        }
    }

    fn inline(&mut self, buffer: &[u8]) -> Result<Option<Front>, ProtocolError> {
        let Some(at) = memchr::memchr2(b'\n', 0, &buffer[self.searched..]) else {
            self.searched = buffer.len();
            return if self.searched > MAX_LINE {
                Err(ProtocolError::InlineTooBig)
            } else {
                Ok(None)
            };
        };
        // To Redis, whose lines are C's, such a line never ends: passed on it would be waited for.
        if buffer[self.searched + at] == 0 {
            return Err(ProtocolError::InlineZero);
        }
        let end = self.searched + at;
        let line = &buffer[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        inline::split(line, &mut self.text, &mut self.spans)?;
        Ok(Some(match self.spans.is_empty() {
            true => Front::Nothing(end + 1),
            false => Front::Command { len: end + 1, is_inline: true },
        }))
    }
}
