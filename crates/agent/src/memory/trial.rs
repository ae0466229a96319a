//! What an item on probation is judged by: how often it was read in which time. The index notes it
//! with the item's entry; whoever judges is [`super::probation`].

/// What an item on probation is judged by.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// The window in which it began.
    pub window: u32,
    /// The round, and the requests until then, since which it is judged.
    pub since: u64,
    pub from: u32,
}

impl Trial {
    /// Requests in a round.
    pub fn rate(&self, requests: u32, round: u64) -> f64 {
        f64::from(requests.wrapping_sub(self.from)) / (round - self.since + 1) as f64
    }
}
