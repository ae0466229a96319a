//! The connections of a client that keeps a cache of its own: one to each store, each of which
//! tracks what is read by it.

/// What a client with a cache of its own has beside others.
pub(super) struct TrackedConnections {
    /// Its connections, by the number of the store.
    pub owns: Vec<usize>,
    /// What CLIENT CACHING may say; `None`: nothing.
    pub choice: Option<CachingChoice>,
    /// It was said, and the next command is to come behind it.
    pub caching: Option<CachingChoice>,
}

/// Whether what the next command reads is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachingChoice {
    Yes,
    No,
}

impl CachingChoice {
    /// It, as it is said.
    pub fn command(self) -> [&'static [u8]; 3] {
        [b"CLIENT", b"CACHING", if self == CachingChoice::Yes { b"YES" } else { b"NO" }]
    }
}
