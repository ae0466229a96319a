//! Why bytes are no command, in Redis's own words.

/// Why bytes are no command. The connection ends after `-ERR ` with this, as Redis does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A command on a line that does not end.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// A command on a line with a byte 0, where Redis finds no end of the line, or none of what
    /// follows: nobody can tell what it would carry out.
    #[error("Protocol error: zero byte in inline request")]
    InlineZero,
    /// A line with quotes that do not end, or go on without a space.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// The line of the number of words does not end.
    #[error("Protocol error: too big mbulk count string")]
    CountTooBig,
    /// A number of words that is none, or too large.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The line of a word's length does not end.
    #[error("Protocol error: too big bulk count string")]
    LengthTooBig,
    /// A word's length that is none, or too large.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// Something else than a word in a command; its first byte.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedWord(u8),
}
