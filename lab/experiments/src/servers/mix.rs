//! What servers are asked for.

use load::{Phase, workload::Popularity};

/// Reads and writes that spread alike.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Which keys, read or written.
    pub popularity: Popularity,
    /// Part of the requests that write.
    pub write_ratio: f64,
}

impl Mix {
    /// Reads only.
    pub fn reads(popularity: Popularity) -> Mix {
        Mix { popularity, write_ratio: 0.0 }
    }

    /// A phase of it.
    pub fn phase(self, rate: f64, warmup_s: f64, seconds: f64) -> Phase {
        Phase {
            write_ratio: self.write_ratio,
            ..Phase::reads(self.popularity, rate, warmup_s, seconds)
        }
    }
}
