//! What a discipline answers a cache that would take a key.

/// May a key be cached here now? A cache asks, and whoever decides over several caches answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// Others do not mind.
    Yes,
    /// Perhaps later: until then it counts as a key that has no room here.
    NotYet,
    /// No, and it does not count as wanted here.
    No,
}
