//! How fast something serves: a time for each, several at once, and a bounded queue before it.

/// Workers that serve one queue.
#[derive(Clone, Debug)]
pub struct Service {
    cost_ns: f64,
    /// How far behind a worker may be before nothing more is taken.
    behind_ns: f64,
    /// When each worker is free.
    free_ns: Box<[f64]>,
}

impl Service {
    /// Workers that take `cost_ns` for each; `queue` may wait.
    pub fn new(cost_ns: f64, workers: u32, queue: u32) -> Service {
        let workers = workers.max(1);
        Service {
            cost_ns,
            behind_ns: cost_ns * f64::from(queue) / f64::from(workers),
            free_ns: vec![0.0; workers as usize].into(),
        }
    }

    /// Takes one at `now_ns`; when it is done, or `None` if too many wait.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        if self.cost_ns == 0.0 {
            return Some(now_ns);
        }
        let now = now_ns as f64;
        let first = self.free_ns.iter_mut().reduce(|a, b| if *b < *a { b } else { a });
        let worker = first.expect("one worker at least");
        if *worker - now > self.behind_ns {
            return None;
        }
        *worker = worker.max(now) + self.cost_ns;
        Some(*worker as u64)
    }

    /// No worker is free before then.
    pub fn held_until(&mut self, ns: f64) {
        for worker in &mut self.free_ns {
            *worker = worker.max(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_dropped_and_the_rest_leaves_evenly() {
        let mut service = Service::new(1000.0, 1, 4);
        let done: Vec<u64> = (0..100_000).filter_map(|i| service.take(i * 10)).collect();
        assert!((1000..=1006).contains(&done.len()), "{}", done.len());
        assert!(done.windows(2).all(|w| w[1] - w[0] == 1000));
    }

    #[test]
    fn two_workers_do_twice_as_much() {
        let mut service = Service::new(1000.0, 2, 4);
        let done: Vec<u64> = (0..7).filter_map(|_| service.take(0)).collect();
        assert_eq!(done, [1000, 1000, 2000, 2000, 3000, 3000]);
    }

    #[test]
    fn fractions_of_a_nanosecond_add_up() {
        let mut service = Service::new(0.5, 1, 10_000_000);
        let last = (0..1_000_000).filter_map(|_| service.take(0)).last();
        assert_eq!(last, Some(500_000));
    }
}
