//! Replies: where the next one ends.
//!
//! A reply may be longer than any buffer, so the scanner keeps no bytes: it is handed each piece
//! once, and what it has been handed may go on to the client. RESP2 and RESP3: nested arrays, maps
//! and sets, attributes before what they are about, pushes between replies, and the strings and
//! arrays of RESP3 whose length is not said at the beginning.

/// Longest line that states a length or a number: digits of 64 bits, with room.
const MAX_NUMBER: usize = 32;
/// Arrays of unknown length within each other. Redis sends none at all.
const MAX_STREAMED: usize = 16;

/// Why bytes are no reply: whoever sent them is no Redis, or the connection is out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A first byte that no kind of reply has.
    #[error("a reply cannot begin with byte {0:#04x}")]
    Marker(u8),
    /// A length that is no number, or none that can be.
    #[error("a reply has a length that is no number")]
    Length,
    /// Arrays of unknown length within each other, too many.
    #[error("a reply has more than {MAX_STREAMED} streams within each other")]
    Nested,
}

/// A reply that ends in the piece that was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Bytes of the piece up to its end.
    pub len: usize,
    /// What it is: `+ - : $ * _ # , ( ! = % ~ >`; attributes before it do not count.
    pub marker: u8,
}

impl Reply {
    /// Whether it was sent unasked: it answers no command.
    pub fn is_push(&self) -> bool {
        self.marker == b'>'
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self.marker, b'-' | b'!')
    }
}

/// Commands whose answer says whether they have written anything: `+OK` or a number above 0 where
/// they have. Others may answer the same and have done nothing, as LTRIM or SORT.
const TELL: [&str; 22] = [
    "decr", "decrby", "del", "expire", "hdel", "hmset", "hset", "incr", "incrby", "lpush", "mset",
    "msetnx", "persist", "psetex", "rename", "rpush", "sadd", "set", "setex", "setnx", "srem",
    "unlink",
];

/// Whether a command's answer tells whether it has written anything ([`did_write`]). The name in
/// lower case.
pub fn tells_of_writes(name: &str) -> bool {
    TELL.contains(&name)
}

/// Whether the answer to such a command, or to a transaction with one among others, says that it
/// has written something. Where that is not certain, or not all of the answer is there: no.
pub fn did_write(answer: &[u8]) -> bool {
    let did = |line: &[u8]| line == b"+OK" || matches!(line, [b':', b'1'..=b'9', ..]);
    let Some(lines) = answer.strip_suffix(b"\r\n") else { return false };
    let lines = lines.split(|byte| *byte == b'\n');
    let mut lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    match lines.next() {
        Some([b'*', count @ ..]) => {
            let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
            let all: Vec<&[u8]> = lines.collect();
            !all.is_empty() && count == Some(all.len()) && all.into_iter().all(did)
        }
        Some(line) => did(line) && lines.next().is_none(),
        None => false,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The first byte of an element comes next.
    #[default]
    Marker,
    /// In a line whose text does not matter.
    Text,
    /// In a line that states a length; its marker.
    Length(u8),
    /// So many bytes of a string, its line end included.
    Bytes(u64),
}

/// How far the reply at the front of a connection has come.
#[derive(Debug, Default)]
pub struct ReplyScanner {
    state: State,
    /// Elements that are still to come, the present one included; 0: a reply begins.
    missing: u64,
    /// What was missing around each array of unknown length that is open.
    streamed: Vec<u64>,
    /// In a string that comes in chunks.
    in_chunks: bool,
    marker: Option<u8>,
    digits: [u8; MAX_NUMBER],
    digits_len: usize,
}

impl ReplyScanner {
    /// Whether a reply has begun that has not ended.
    pub fn is_within(&self) -> bool {
        self.missing > 0 || !self.streamed.is_empty()
    }

    /// What the reply is that has begun, as soon as that is known.
    pub fn marker(&self) -> Option<u8> {
        self.marker
    }

    /// Looks at a piece of what a server sent: the reply that ends in it first. `None`: all of the
    /// piece belongs to a reply that goes on. What is behind the end has not been looked at.
    ///
    /// # Errors
    /// [`ReplyError`]; nothing more can be said of this connection then.
    pub fn scan(&mut self, piece: &[u8]) -> Result<Option<Reply>, ReplyError> {
        let mut at = 0;
        while at < piece.len() {
            let rest = &piece[at..];
            match self.state {
                State::Marker => {
                    at += 1;
                    self.begins(rest[0])?;
                    continue;
                }
                State::Text => match memchr::memchr(b'\n', rest) {
                    Some(end) => at += end + 1,
                    None => return Ok(None),
                },
                State::Length(marker) => {
                    let end = memchr::memchr(b'\n', rest);
                    let line = &rest[..end.unwrap_or(rest.len())];
                    let room = self.digits.get_mut(self.digits_len..self.digits_len + line.len());
                    room.ok_or(ReplyError::Length)?.copy_from_slice(line);
                    self.digits_len += line.len();
                    let Some(end) = end else { return Ok(None) };
                    at += end + 1;
                    if self.length(marker)? {
                        continue;
                    }
                }
                State::Bytes(len) => {
                    let has = len.min(rest.len() as u64);
                    at += has as usize;
                    self.state = State::Bytes(len - has);
                    if has < len {
                        return Ok(None);
                    }
                }
            }
            if self.element_ends() {
                let marker = self.marker.take().unwrap_or_default();
                return Ok(Some(Reply { len: at, marker }));
            }
        }
        Ok(None)
    }

    /// An element begins with this byte.
    fn begins(&mut self, marker: u8) -> Result<(), ReplyError> {
        if self.in_chunks {
            if marker != b';' {
                return Err(ReplyError::Marker(marker));
            }
        } else if self.missing == 0 && marker != b'.' {
            self.missing = 1;
        }
        self.digits_len = 0;
        self.state = match marker {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => State::Text,
            b'$' | b'!' | b'=' | b'*' | b'%' | b'~' | b'>' | b'|' => State::Length(marker),
            b';' if self.in_chunks => State::Length(marker),
            b'.' if self.missing == 0 && !self.streamed.is_empty() => State::Text,
            other => return Err(ReplyError::Marker(other)),
        };
        if marker == b'.' {
            // Ends the array around it, which was one element of what is around that.
            self.missing = self.streamed.pop().unwrap_or(1);
        }
        if self.marker.is_none() && marker != b'|' && self.is_outermost() {
            self.marker = Some(marker);
        }
        Ok(())
    }

    fn is_outermost(&self) -> bool {
        self.missing == 1 && self.streamed.is_empty()
    }

    /// The line of a length is whole. True: what it announces is still to come.
    fn length(&mut self, marker: u8) -> Result<bool, ReplyError> {
        let line = &self.digits[..self.digits_len];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.state = State::Marker;
        if line == b"?" && marker != b'|' {
            if marker == b'$' {
                self.in_chunks = true;
                return Ok(true);
            }
            if self.streamed.len() == MAX_STREAMED {
                return Err(ReplyError::Nested);
            }
            self.streamed.push(self.missing);
            self.missing = 0;
            return Ok(true);
        }
        let number = crate::number::integer(line).ok_or(ReplyError::Length)?;
        let Ok(number) = u64::try_from(number) else {
            // An array or a string that there is not.
            return if number == -1 { Ok(false) } else { Err(ReplyError::Length) };
        };
        match marker {
            b';' if number == 0 => {
                self.in_chunks = false;
                return Ok(false);
            }
            b'$' | b'!' | b'=' | b';' => {
                self.state = State::Bytes(number.checked_add(2).ok_or(ReplyError::Length)?);
                return Ok(true);
            }
            _ => {}
        }
        let each = if matches!(marker, b'%' | b'|') { 2 } else { 1 };
        let elements = number.checked_mul(each).filter(|many| *many <= i64::MAX as u64);
        let elements = elements.ok_or(ReplyError::Length)?;
        self.missing = self.missing.checked_add(elements).ok_or(ReplyError::Length)?;
        // An attribute is no element: what it is about follows it.
        Ok(marker == b'|' || {
            let is_empty = elements == 0;
            if !is_empty {
                self.missing -= 1;
            }
            !is_empty
        })
    }

    /// An element is whole; true if the reply is.
    fn element_ends(&mut self) -> bool {
        self.state = State::Marker;
        if self.in_chunks {
            return false;
        }
        self.missing -= 1;
        self.missing == 0 && self.streamed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_that_something_was_written_or_counts_as_if_nothing_was() {
        for answer in ["+OK\r\n", ":1\r\n", ":12\r\n", "*2\r\n+OK\r\n:3\r\n"] {
            assert!(did_write(answer.as_bytes()), "{answer:?}");
        }
        let nothing = [
            "",
            "+OK",
            "+QUEUED\r\n",
            ":0\r\n",
            ":-1\r\n",
            "$-1\r\n",
            "-OOM\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*1\r\n$-1\r\n",
            "*2\r\n+OK\r\n",
            "*2\r\n+OK\r\n:0\r\n",
            "$3\r\n+OK\r\n",
            "_\r\n",
        ];
        for answer in nothing {
            assert!(!did_write(answer.as_bytes()), "{answer:?}");
        }
        assert!(tells_of_writes("set") && !tells_of_writes("ltrim"));
        assert!(TELL.is_sorted());
    }
}
