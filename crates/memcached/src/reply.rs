//! Answers: where those to a batch of commands end.
//!
//! An answer is lines, and blocks whose length the line before them says (`VALUE`, `VA`). Which
//! line answers which command nobody needs to know: quiet commands are answered by nothing, or by
//! an error after all. Behind a batch goes a meta no-op instead, which memcached answers when
//! everything before it has been carried out, and by a line that answers nothing else.

/// What goes behind a batch.
pub const TERMINATOR: &[u8] = b"mn\r\n";
/// What memcached answers to it.
const TERMINATED: &[u8] = b"MN";
/// Longest line that an answer may have.
const LINE_BYTES: usize = 16 << 10;
/// Longest block that it may have: memcached's items are not longer.
const BLOCK_BYTES: u64 = 2 << 30;

/// Why bytes are no answer: whoever sent them is no memcached, or the connection is out of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A line that does not end.
    #[error("a line of more than {LINE_BYTES} bytes")]
    Line,
    /// A block's length that is no number, or none that can be.
    #[error("a value whose length is no number")]
    Length,
}

/// How far a piece of what memcached sent has brought a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// So many bytes at its front are answers, or parts of them.
    pub answers: usize,
    /// So many bytes at its front have been looked at, and are not to be shown again.
    pub taken: usize,
    /// With them the batch is answered.
    pub is_over: bool,
}

/// How far the answers to a batch have come.
#[derive(Debug, Default)]
pub struct ReplyScanner {
    /// Bytes that are still to come of a block.
    block: u64,
}

impl ReplyScanner {
    /// Whether a value has begun that has not ended.
    pub fn is_within(&self) -> bool {
        self.block > 0
    }

    /// Looks at what has come and has not been taken yet. What is left behind what it takes is a
    /// line that has not ended, or belongs to the next batch.
    ///
    /// # Errors
    /// [`ReplyError`]; nothing more can be said of this connection then.
    pub fn scan(&mut self, piece: &[u8]) -> Result<Progress, ReplyError> {
        let mut at = 0;
        loop {
            let rest = &piece[at..];
            if self.block > 0 {
                let has = self.block.min(rest.len() as u64);
                self.block -= has;
                at += has as usize;
                if self.block > 0 {
                    return Ok(Progress { answers: at, taken: at, is_over: false });
                }
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return match rest.len() <= LINE_BYTES {
                    true => Ok(Progress { answers: at, taken: at, is_over: false }),
                    false => Err(ReplyError::Line),
                };
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            if line == TERMINATED {
                return Ok(Progress { answers: at, taken: at + end + 1, is_over: true });
            }
            self.block = block_behind(line)?;
            at += end + 1;
        }
    }
}

/// Bytes of the block that follows a line, its end included.
fn block_behind(line: &[u8]) -> Result<u64, ReplyError> {
    let mut words = line.split(|byte| *byte == b' ');
    let len = match words.next() {
        Some(b"VALUE") => words.nth(2),
        Some(b"VA") => words.next(),
        _ => return Ok(0),
    };
    let len = len.and_then(crate::number::unsigned).filter(|len| *len <= BLOCK_BYTES);
    len.map(|len| len + 2).ok_or(ReplyError::Length)
}
