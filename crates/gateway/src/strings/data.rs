//! What the commands on strings say and hear of keys and values.

use std::time::Duration;

use bytes::Bytes;

/// What a key has, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyInfo {
    /// What Redis calls this kind of value: `string`, but for what other clients wrote to it.
    pub kind: &'static str,
    /// Length of a string in bytes.
    pub len: u64,
    /// What remains of its life; `None`: it does not expire.
    pub expires_in: Option<Duration>,
}

/// When SET writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnlyIf {
    #[default]
    Always,
    /// NX
    Absent,
    /// XX
    Present,
}

/// How long a written value lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Forever,
    /// At least a millisecond.
    For(Duration),
    /// Until a moment that has passed: what is there goes, and no value comes.
    Over,
    /// KEEPTTL: as long as the value before it.
    Kept,
}

/// How SET writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Put {
    pub only_if: OnlyIf,
    pub life: Life,
    /// GET: whether the value before is wanted.
    pub old: bool,
}

/// What SET did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetOutcome {
    /// Whether the value was written, or its condition did not hold.
    pub written: bool,
    /// The value before, if it was wanted and there was one.
    pub old: Option<Bytes>,
}

/// What Redis calls a value of bytes.
pub(crate) const STRING: &str = "string";

/// Why there is no result: the error's line as the client sees it, code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ErrorLine(pub String);

/// How the line of a write begins that may have been carried out, or may still be.
pub(crate) const OUTCOME_UNKNOWN: &str = "ERR outcome unknown";

impl ErrorLine {
    /// The key's value is not of bytes.
    pub fn wrong_type() -> ErrorLine {
        ErrorLine("WRONGTYPE Operation against a key holding the wrong kind of value".into())
    }

    /// Whether it says that.
    pub fn is_wrong_type(&self) -> bool {
        self.0.starts_with("WRONGTYPE ")
    }

    /// The same once the backend has carried the write out: what clients take for a refusal must
    /// not stand at the front.
    pub fn after(self, done: &str) -> ErrorLine {
        ErrorLine(format!("ERR {done}, but the value before cannot be given: {}", self.0))
    }
}

pub(crate) type DataResult<T> = Result<T, ErrorLine>;
