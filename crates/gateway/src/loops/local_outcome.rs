//! What comes of asking copies, for whoever sends a read elsewhere then.

/// What copies have made of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalOutcome {
    /// It is answered.
    Answered,
    /// There is no copy, and the key's store is at work on it.
    AtStore,
    /// There is none.
    Elsewhere,
}
