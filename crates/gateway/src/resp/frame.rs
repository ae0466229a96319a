//! From bytes to commands: finds where a command ends before anything is allocated for it.
//!
//! The RESP crate decodes whole frames of any kind, nested as deep as the bytes say. A client's
//! command is only ever one flat array of bulk strings, so this walks over its few length lines
//! first, remembers how far it came (bytes are looked at once, however small the pieces they arrive
//! in), and refuses with Redis's own words what no command can be. Only a complete, flat, bounded
//! frame reaches the crate.

use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::{decode::decode_bytes_mut, types::BytesFrame};

use crate::Limits;

/// Longest line that states a length: a sign, the digits of a 64-bit number and some room.
const MAX_LENGTH_LINE: usize = 32;

/// First byte of a TLS connection. Its greeting may hold bytes that a page chose, line ends
/// included.
const TLS_HANDSHAKE: u8 = 0x16;

/// Why the bytes are no commands. The connection ends after it, as Redis does it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line that does not end within the limit.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A line with quotes that do not end, or go on without a space.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// A number of words that is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// A word's length that is none, or too large.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// Something else than a word in a command; its first byte.
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    ExpectedBulk(u8),
    /// Another protocol: HTTP or TLS, as a web page makes a browser send it. See [`is_foreign`].
    #[error("Protocol error: this is no HTTP port")]
    Foreign,
    /// Not what its lengths said.
    #[error("Protocol error: invalid frame")]
    Frame,
}

/// A command as it came: its words, at least one.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// The command's name and its arguments.
    pub words: Vec<Bytes>,
    /// Bytes that it took on the wire.
    pub wire_len: usize,
}

/// How far the command at the front of the buffer has been looked at.
#[derive(Default)]
pub struct Framer {
    /// Bytes that are known to be well-formed.
    seen: usize,
    /// Words that are still to come; `None` before the array's length is known.
    missing: Option<usize>,
}

impl Framer {
    /// Takes the next command off the buffer; `None` if it is not complete.
    ///
    /// # Errors
    /// [`ProtocolError`]: the bytes can never be one.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<Words>, ProtocolError> {
        loop {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => match inline(buffer, limits)? {
                    Some(command) if command.words.is_empty() => continue,
                    other => return Ok(other),
                },
            }
            let Some(len) = self.walk(buffer, limits)? else { return Ok(None) };
            let empty = self.missing.is_none();
            *self = Framer::default();
            if empty {
                // `*0` and `*-1`: Redis passes over them too.
                let _ = buffer.split_to(len);
                continue;
            }
            return decode(buffer, len).map(Some);
        }
    }

    /// Walks over length lines until the whole command is there; its length then. `missing` stays
    /// `None` for an array without words.
    fn walk(&mut self, buffer: &[u8], limits: &Limits) -> Result<Option<usize>, ProtocolError> {
        let mut missing = match self.missing {
            Some(missing) => missing,
            None => {
                let Some((count, end)) = length_line(buffer, 0, ProtocolError::MultibulkLength)?
                else {
                    return Ok(None);
                };
                if count <= 0 {
                    return Ok(Some(end));
                }
                let count = usize::try_from(count)
                    .ok()
                    .filter(|count| *count <= limits.words)
                    .ok_or(ProtocolError::MultibulkLength)?;
                self.seen = end;
                self.missing = Some(count);
                count
            }
        };
        while missing > 0 {
            match buffer.get(self.seen) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
            }
            let line = length_line(buffer, self.seen, ProtocolError::BulkLength)?;
            let Some((len, end)) = line else { return Ok(None) };
            let len = usize::try_from(len)
                .ok()
                .filter(|len| *len <= limits.bulk_bytes)
                .ok_or(ProtocolError::BulkLength)?;
            if buffer.len() < end + len + 2 {
                return Ok(None);
            }
            self.seen = end + len + 2;
            missing -= 1;
            self.missing = Some(missing);
        }
        Ok(Some(self.seen))
    }
}

/// The number on the line that begins with one marker byte at `at`, and where the line ends.
fn length_line(
    buffer: &[u8],
    at: usize,
    error: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &buffer[at + 1..];
    let line = &line[..line.len().min(MAX_LENGTH_LINE)];
    let Some(len) = line.iter().position(|byte| *byte == b'\r') else {
        return if line.len() == MAX_LENGTH_LINE { Err(error) } else { Ok(None) };
    };
    match line.get(len + 1) {
        None if line.len() < MAX_LENGTH_LINE => return Ok(None),
        Some(b'\n') => {}
        _ => return Err(error),
    }
    let number = std::str::from_utf8(&line[..len])
        .ok()
        .filter(|text| !text.starts_with('+'))
        .and_then(|text| text.parse().ok())
        .ok_or(error)?;
    Ok(Some((number, at + 1 + len + 2)))
}

/// A complete array of bulk strings, without copying them.
fn decode(buffer: &mut BytesMut, len: usize) -> Result<Words, ProtocolError> {
    match decode_bytes_mut(buffer) {
        Ok(Some((BytesFrame::Array(frames), wire_len, _))) if wire_len == len => {
            let word = |frame| match frame {
                BytesFrame::BulkString(word) => Ok(word),
                _ => Err(ProtocolError::Frame),
            };
            let words = frames.into_iter().map(word).collect::<Result<_, _>>()?;
            Ok(Words { words, wire_len })
        }
        _ => Err(ProtocolError::Frame),
    }
}

/// A command on a line, as people type it into telnet. Without words if the line is empty.
fn inline(buffer: &mut BytesMut, limits: &Limits) -> Result<Option<Words>, ProtocolError> {
    let within = &buffer[..buffer.len().min(limits.inline_bytes)];
    let Some(len) = within.iter().position(|byte| *byte == b'\n') else {
        return if within.len() == limits.inline_bytes {
            Err(ProtocolError::InlineTooBig)
        } else {
            Ok(None)
        };
    };
    let line = buffer.split_to(len + 1);
    if line.first() == Some(&TLS_HANDSHAKE) {
        return Err(ProtocolError::Foreign);
    }
    let words = split_line(&line[..len])?;
    if is_foreign(&words) {
        return Err(ProtocolError::Foreign);
    }
    Ok(Some(Words { words, wire_len: len + 1 }))
}

/// Whether a line is the beginning of an HTTP request, or one of its headers. Whoever reaches this
/// port may write, and browsers reach every port of their own machine in the name of any page: the
/// lines of a request's body would be commands. `POST` and `Host:` are what Redis refuses. A page
/// whose name was made to mean this machine may choose the method too (`SET /key HTTP/1.1`), so the
/// version at the end of a request's first line is refused as well.
fn is_foreign(words: &[Bytes]) -> bool {
    let begins = |word: &Bytes, with: &[u8]| {
        let start = word.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    let Some(first) = words.first() else { return false };
    first.eq_ignore_ascii_case(b"post")
        || begins(first, b"host:")
        || (words.len() == 3 && begins(&words[2], b"http/"))
}

/// Words between white space; "..." with backslash escapes and '...' with \' hold white space
/// together.
fn split_line(line: &[u8]) -> Result<Vec<Bytes>, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        if rest.peek().is_none() {
            return Ok(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
            match byte {
                b'"' | b'\'' => {
                    quoted(byte, &mut rest, &mut word)?;
                    // Nothing may follow a closing quote but white space.
                    if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return Err(ProtocolError::Quotes);
                    }
                }
                byte => word.push(byte),
            }
        }
        words.push(word.into());
    }
}

/// The rest of a quoted string up to its closing quote.
fn quoted(
    quote: u8,
    rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>,
    word: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
    loop {
        match rest.next().ok_or(ProtocolError::Quotes)? {
            byte if byte == quote => return Ok(()),
            b'\\' if quote == b'"' => {
                let escaped = rest.next().ok_or(ProtocolError::Quotes)?;
                if escaped == b'x' {
                    escaped_hex(rest, word);
                } else {
                    word.push(match escaped {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'a' => 7,
                        other => other,
                    });
                }
            }
            b'\\' if rest.peek() == Some(&b'\'') => {
                rest.next();
                word.push(b'\'');
            }
            byte => word.push(byte),
        }
    }
}

/// Two hex digits after `\x`; without them it is the letter x and what follows.
fn escaped_hex(rest: &mut std::iter::Peekable<impl Iterator<Item = u8>>, word: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let Some(high) = rest.next_if(u8::is_ascii_hexdigit) else { return word.push(b'x') };
    match rest.next_if(u8::is_ascii_hexdigit) {
        Some(low) => word.extend(digit(high).zip(digit(low)).map(|(h, l)| h << 4 | l)),
        None => word.extend([b'x', high]),
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
