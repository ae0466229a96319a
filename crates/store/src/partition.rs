//! Partitions: which ones this store owns, and each one's pace.
//!
//! With a rate limit a partition stands for a server with a bounded queue. Its virtual clock `next_free_ns` says
//! when it would be done with what it has taken; a reply leaves no sooner than that, and a request that finds more than
//! `queue_limit` others waiting is dropped, as a full socket buffer would.

use wire::KeyHash;

/// One partition's counters and virtual clock.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    /// Whether this store owns it.
    pub owned: bool,
    /// Requests taken.
    pub served: u64,
    /// Requests dropped because its queue was full.
    pub dropped: u64,
    next_free_ns: u64,
}

/// Every partition of the cluster.
#[derive(Debug)]
pub struct Partitions {
    all: Vec<Partition>,
    /// Those that are ours.
    own: Vec<usize>,
    /// Nanoseconds that a request takes; 0: no limit.
    cost_ns: u64,
    queue_limit: u64,
    later: Option<Later>,
}

/// Another rate, from some time after the first request on: of a server that turns slow while it runs.
#[derive(Debug)]
struct Later {
    after_ns: u64,
    cost_ns: u64,
    /// When the first request came.
    first_ns: Option<u64>,
}

/// Nanoseconds that a request takes at so many in a second.
fn cost_ns(rate: f64) -> u64 {
    (1e9 / rate) as u64
}

impl Partitions {
    /// The partitions of a store; `owned` says which are its own.
    pub fn new(
        count: u32,
        owned: impl Fn(u32) -> bool,
        rate_limit: Option<f64>,
        queue_limit: u32,
    ) -> Partitions {
        let all: Vec<_> = (0..count)
            .map(|i| Partition {
                owned: owned(i),
                ..Partition::default()
            })
            .collect();
        Partitions {
            own: (0..all.len()).filter(|at| all[*at].owned).collect(),
            all,
            cost_ns: rate_limit.map_or(0, cost_ns),
            queue_limit: queue_limit.into(),
            later: None,
        }
    }

    /// So many seconds after the first request each takes this rate, whatever it was before.
    pub fn set_later(&mut self, (after_s, rate): (f64, f64)) {
        self.later = Some(Later {
            after_ns: (after_s * 1e9) as u64,
            cost_ns: cost_ns(rate),
            first_ns: None,
        });
    }

    /// The partition of a key.
    pub fn at(&self, hash: KeyHash) -> usize {
        wire::partition_of(hash, self.all.len() as u32) as usize
    }

    /// Whether a partition is ours.
    pub fn owns(&self, at: usize) -> bool {
        self.all[at].owned
    }

    /// The partition of ours that pays for a request which another store's partition would: a server has no more time for having
    /// others' keys.
    pub fn in_place_of(&self, at: usize) -> usize {
        let own = self.own.len();
        if own == 0 { at } else { self.own[at % own] }
    }

    /// Takes one request at `now_ns`: the time before which its reply must not leave (0: at once), or `None` if
    /// it is dropped.
    pub fn admit(&mut self, at: usize, now_ns: u64) -> Option<u64> {
        if let Some(later) = &mut self.later {
            let first_ns = *later.first_ns.get_or_insert(now_ns);
            if now_ns.saturating_sub(first_ns) >= later.after_ns {
                self.cost_ns = later.cost_ns;
                self.later = None;
            }
        }
        let partition = &mut self.all[at];
        if self.cost_ns == 0 {
            partition.served += 1;
            return Some(0);
        }
        let backlog_ns = self.cost_ns.saturating_mul(self.queue_limit);
        if partition.next_free_ns.saturating_sub(now_ns) > backlog_ns {
            partition.dropped += 1;
            return None;
        }
        partition.served += 1;
        partition.next_free_ns = partition.next_free_ns.max(now_ns) + self.cost_ns;
        Some(partition.next_free_ns)
    }

    /// Every partition, in order of its number.
    pub fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_may_be_another_some_time_after_the_first_request() {
        let mut partitions = Partitions::new(1, |_| true, Some(1000.0), 4);
        partitions.set_later((2.0, 250.0));
        let begin = 77_000_000_000;
        let mut served = [0; 4];
        for i in 0..40_000 {
            let taken = partitions.admit(0, begin + i * 100_000);
            served[i as usize / 10_000] += u32::from(taken.is_some());
        }
        for (count, expected) in served.into_iter().zip([1000, 1000, 250, 250]) {
            assert!((expected - 6..=expected + 6).contains(&count), "{served:?}");
        }
    }

    #[test]
    fn a_limited_partition_serves_its_rate_and_drops_the_rest() {
        let mut partitions = Partitions::new(1, |_| true, Some(1000.0), 4);
        let mut replies = Vec::new();
        for i in 0..100_000 {
            // 100,000 requests in one second at a partition that serves 1,000.
            replies.extend(partitions.admit(0, i * 10_000));
        }
        let served = partitions.iter().next().map(|p| p.served).unwrap();
        assert_eq!(served, replies.len() as u64);
        assert!((1000..=1006).contains(&served), "{served}");
        assert!(
            replies.windows(2).all(|w| w[1] - w[0] == 1_000_000),
            "evenly spaced"
        );
    }

    #[test]
    fn an_idle_partition_serves_a_burst_of_its_queue() {
        let mut partitions = Partitions::new(1, |_| true, Some(1000.0), 4);
        let taken = (0..20).filter_map(|_| partitions.admit(0, 5)).count();
        assert_eq!(taken, 5, "one in service and four in the queue");
    }

    #[test]
    fn without_a_limit_everything_leaves_at_once() {
        let mut partitions = Partitions::new(2, |i| i == 1, None, 0);
        assert_eq!(partitions.admit(1, 77), Some(0));
        assert_eq!(partitions.at(KeyHash([0; 16])), 0);
        assert_eq!(partitions.at(KeyHash([0xff; 16])), 1);
        assert!(!partitions.owns(0), "partition 0 is another store's");
        assert!(partitions.owns(1));
    }
}
