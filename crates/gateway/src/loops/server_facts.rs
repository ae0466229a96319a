//! What is known of a server that a connection leads to. Times are on the clock of leases.

/// What a server has said of itself.
#[derive(Default)]
pub(super) struct ServerFacts {
    /// What came of an answer that is not whole.
    pub heard: Vec<u8>,
    pub run_id: Option<String>,
    /// Why it lets nobody in, in its own words.
    pub refusal: Option<String>,
    /// When it said that it is a master.
    pub master: Option<u64>,
    /// When it was asked last who it is.
    pub asked: Option<u64>,
}
