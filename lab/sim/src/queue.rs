//! What happens when: a radix heap.
//!
//! Events leave by time, those of one time in the order in which they were put. A bucket holds the
//! events whose time first differs from the last one taken in a certain bit, so an event moves down
//! at most once per bit, some five times on the way of a packet, and events of one time always
//! share a bucket, in order. Cost: some 30 ns per event, however many wait.

/// Bits of a time, and the bucket of those that are due.
const BUCKETS: usize = 65;

/// Events that are still to happen.
pub struct Queue<T> {
    buckets: [Vec<(u64, T)>; BUCKETS],
    /// Events of bucket 0 that have been taken.
    taken: usize,
    /// One bit per bucket from 1 on that holds something.
    filled: u64,
    /// The time of the last event taken.
    last_ns: u64,
    len: usize,
}

impl<T: Copy> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue {
            buckets: std::array::from_fn(|_| Vec::new()),
            taken: 0,
            filled: 0,
            last_ns: 0,
            len: 0,
        }
    }
}

impl<T: Copy> Queue<T> {
    /// Events that wait.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Puts an event; one whose time is over happens at once, that is, at the time of the last
    /// event taken.
    #[inline]
    pub fn put(&mut self, at_ns: u64, event: T) {
        let at_ns = at_ns.max(self.last_ns);
        self.len += 1;
        self.file(at_ns, event);
    }

    #[inline]
    fn file(&mut self, at_ns: u64, event: T) {
        let bucket = (64 - (at_ns ^ self.last_ns).leading_zeros()) as usize;
        self.buckets[bucket].push((at_ns, event));
        if bucket > 0 {
            self.filled |= 1 << (bucket - 1);
        }
    }

    /// Takes the next event, if its time is not after `limit_ns`.
    #[inline]
    pub fn take(&mut self, limit_ns: u64) -> Option<(u64, T)> {
        if self.taken == self.buckets[0].len() && !self.advance(limit_ns) {
            return None;
        }
        let (at_ns, event) = self.buckets[0][self.taken];
        if at_ns > limit_ns {
            return None;
        }
        self.taken += 1;
        self.len -= 1;
        Some((at_ns, event))
    }

    /// Fills bucket 0 with the events of the next time there are any, if that is not after
    /// `limit_ns`.
    fn advance(&mut self, limit_ns: u64) -> bool {
        if self.filled == 0 {
            return false;
        }
        let bucket = self.filled.trailing_zeros() as usize + 1;
        let times = self.buckets[bucket].iter().map(|(at_ns, _)| *at_ns);
        let next_ns = times.min().unwrap_or(u64::MAX);
        if next_ns > limit_ns {
            return false;
        }
        self.buckets[0].clear();
        self.taken = 0;
        self.last_ns = next_ns;
        self.filled &= !(1 << (bucket - 1));
        let mut events = std::mem::take(&mut self.buckets[bucket]);
        for (at_ns, event) in events.drain(..) {
            self.file(at_ns, event);
        }
        // Kept for its memory.
        self.buckets[bucket] = events;
        true
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use seed::rng;

    use super::*;

    #[test]
    fn events_leave_by_time_and_in_the_order_in_which_they_came() {
        let mut queue = Queue::default();
        let mut rng = rng(1, "queue");
        let (mut number, mut now_ns) = (0u64, 0);
        let mut waiting: Vec<(u64, u64)> = vec![];
        for _ in 0..20_000 {
            for _ in 0..rng.random_range(0..4) {
                let at_ns = match rng.random_range(0..4) {
                    0 => now_ns,
                    1 => now_ns + rng.random_range(0..4),
                    2 => now_ns + rng.random_range(0..5_000),
                    _ => now_ns + rng.random_range(0..5_000_000_000),
                };
                queue.put(at_ns, number);
                waiting.push((at_ns, number));
                number += 1;
            }
            if let Some((at_ns, event)) = queue.take(u64::MAX) {
                let first = *waiting.iter().min().unwrap();
                assert_eq!((at_ns, event), first);
                waiting.retain(|one| *one != first);
                now_ns = at_ns;
            }
            assert_eq!(queue.len(), waiting.len());
        }
    }

    #[test]
    fn what_is_after_the_limit_stays_and_others_may_still_come_before_it() {
        let mut queue = Queue::default();
        queue.put(100, 'b');
        assert_eq!(queue.take(99), None);
        queue.put(50, 'a');
        assert_eq!(queue.take(100), Some((50, 'a')));
        assert_eq!(queue.take(100), Some((100, 'b')));
        queue.put(7, 'c');
        assert_eq!(queue.take(u64::MAX), Some((100, 'c')), "its time is over");
        assert_eq!(queue.len(), 0);
    }
}
