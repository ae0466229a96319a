//! The pace of servers with bounded queues, one for each partition.
//!
//! A partition's virtual clock says when its server would be done with what it has taken; an answer
//! leaves no sooner than that, and a request that finds more than `queue` others waiting is
//! dropped, as a full socket buffer would.

use std::str::FromStr;

use store::backend::Admission;

/// How fast a server is, and how many requests may wait for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Requests that may wait.
    pub queue: u32,
}

impl Rate {
    /// Requests that wait for a server of which nothing else is said.
    pub const QUEUE: u32 = 16;

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// The option of the rate, and what was expected.
    pub fn check(&self) -> anyhow::Result<()> {
        let rate = self.requests_per_s;
        anyhow::ensure!(
            (1.0..=1e9).contains(&rate),
            "--rate-limit {rate}: expected 1 to 1000000000 requests per second"
        );
        Ok(())
    }
}

/// Another speed, so long after the first request: of a server that turns slow while it runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateChange {
    /// Seconds after the first request.
    pub after_s: f64,
    /// Requests per second from then on.
    pub requests_per_s: f64,
}

impl FromStr for RateChange {
    type Err = String;

    fn from_str(text: &str) -> Result<RateChange, String> {
        let read = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        let pair = text.split_once(':');
        pair.and_then(|(after, rate)| {
            Some(RateChange { after_s: read(after)?, requests_per_s: read(rate)? })
        })
        .ok_or_else(|| format!("{text:?}: expected SECONDS:REQ_PER_S, for example 12:500"))
    }
}

/// A change of speed that is to come.
#[derive(Debug)]
struct Change {
    after_ns: u64,
    cost_ns: u64,
    /// When the first request came.
    first_ns: Option<u64>,
}

/// When requests are answered, and which are not.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds that a request takes; 0: no limit.
    cost_ns: u64,
    queue: u64,
    change: Option<Change>,
    /// By partition: when its server is done with what it has taken.
    free_ns: Vec<u64>,
}

/// Nanoseconds that a request takes at so many in a second.
fn cost_ns(requests_per_s: f64) -> u64 {
    (1e9 / requests_per_s) as u64
}

impl Pace {
    /// That of servers of this rate; without one, of servers that have time for everything.
    pub fn new(rate: Option<Rate>) -> Pace {
        Pace {
            cost_ns: rate.map_or(0, |rate| cost_ns(rate.requests_per_s)),
            queue: rate.map_or(0, |rate| rate.queue.into()),
            ..Pace::default()
        }
    }

    /// So long after the next request every server has this speed, whatever it was before.
    pub fn change_later(&mut self, later: RateChange) {
        self.change = Some(Change {
            after_ns: (later.after_s * 1e9) as u64,
            cost_ns: cost_ns(later.requests_per_s),
            first_ns: None,
        });
    }

    /// What has a store answer at this pace.
    pub fn admission(mut self) -> Admission {
        Box::new(move |partition, now_ns| self.admit(partition, now_ns))
    }

    /// Takes one request at `now_ns`: the time before which its answer must not leave (0: at once),
    /// or `None` if it is dropped.
    pub fn admit(&mut self, partition: usize, now_ns: u64) -> Option<u64> {
        if let Some(change) = &mut self.change {
            let first_ns = *change.first_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(first_ns) >= change.after_ns {
                self.cost_ns = change.cost_ns;
                self.change = None;
            }
        }
        if self.cost_ns == 0 {
            return Some(0);
        }
        if self.free_ns.len() <= partition {
            self.free_ns.resize(partition + 1, 0);
        }
        let free_ns = &mut self.free_ns[partition];
        if free_ns.saturating_sub(now_ns) > self.cost_ns.saturating_mul(self.queue) {
            return None;
        }
        *free_ns = (*free_ns).max(now_ns) + self.cost_ns;
        Some(*free_ns)
    }
}
