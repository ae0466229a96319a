//! What a command may do to copies of values.

/// What a command may do to copies of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing: it reads, or is not about keys.
    Read,
    /// It may change the keys that it names, or until when they live.
    Write,
    /// It may change every key.
    Everything,
}
