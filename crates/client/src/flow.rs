//! How many parts of one value are under way at a time.

use std::time::Duration;

/// Parts under way at first.
const FIRST: usize = 32;
/// Fewest, whatever gets lost.
const LEAST: usize = 4;
/// Most: what a socket of the system's usual size still takes at once.
const MOST: usize = 64;

/// A window that halves with each loss, at most once per round trip, and grows by one with each
/// windowful that came.
pub(crate) struct Flow {
    window: usize,
    came: usize,
    /// Losses before this time are those that it halved for.
    halved_until_ns: u64,
}

impl Flow {
    pub fn new() -> Flow {
        Flow { window: FIRST, came: 0, halved_until_ns: 0 }
    }

    /// Parts that may be under way.
    pub fn window(&self) -> usize {
        self.window
    }

    /// One more has arrived.
    pub fn came(&mut self) {
        self.came += 1;
        if self.came >= self.window {
            self.came = 0;
            self.window = (self.window + 1).min(MOST);
        }
    }

    /// One seems lost; what is lost within this time is lost by the same cause.
    pub fn lost(&mut self, now_ns: u64, round_trip: Duration) {
        if now_ns >= self.halved_until_ns {
            self.halved_until_ns = now_ns + round_trip.as_nanos() as u64;
            self.window = (self.window / 2).max(LEAST);
            self.came = 0;
        }
    }
}
