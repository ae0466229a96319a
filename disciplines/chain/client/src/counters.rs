//! What a client counts.

/// What a client of chains has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams sent, retransmissions included.
    pub sent: u64,
    /// Datagrams sent again because no answer came in time.
    pub retransmitted: u64,
    /// Datagrams that answered a call or told a watch.
    pub answered: u64,
    /// Datagrams that answered nothing: late, duplicated, malformed, from elsewhere, or with a
    /// wrong tag.
    pub ignored: u64,
    /// Answers that named a chain.
    pub moved: u64,
    /// Requests that a switch put off: busy, or making what is needed.
    pub put_off: u64,
}
