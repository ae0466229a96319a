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

/// Which worker takes something whose cost is not known yet.
#[derive(Clone, Copy, Debug)]
pub struct Worker(usize);

impl Service {
    /// Workers that take `cost_ns` for each; `queue` may wait.
    pub fn new(cost_ns: f64, workers: u32, queue: u32) -> Service {
        Service::varied(cost_ns, cost_ns, workers, queue)
    }

    /// Workers that take `cost_ns` for each and some more for some, up to `most_ns`; `queue` of the
    /// dearest may wait.
    pub fn varied(cost_ns: f64, most_ns: f64, workers: u32, queue: u32) -> Service {
        let workers = workers.max(1);
        Service {
            cost_ns,
            behind_ns: most_ns * f64::from(queue) / f64::from(workers),
            free_ns: vec![0.0; workers as usize].into(),
        }
    }

    /// Takes one at `now_ns`; when it is done, or `None` if too many wait.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        if self.cost_ns == 0.0 {
            return Some(now_ns);
        }
        let worker = self.begin(now_ns)?;
        Some(self.serve(worker, now_ns, 0.0))
    }

    /// The worker that takes one at `now_ns`, or `None` if too many wait.
    #[inline]
    pub fn begin(&self, now_ns: u64) -> Option<Worker> {
        let first =
            (0..self.free_ns.len()).reduce(|a, b| match self.free_ns[b] < self.free_ns[a] {
                true => b,
                false => a,
            });
        let worker = first.expect("one worker at least");
        (self.free_ns[worker] - now_ns as f64 <= self.behind_ns).then_some(Worker(worker))
    }

    /// Has the worker take what came at `now_ns`, which costs so much more than the least; when it
    /// is done.
    #[inline]
    pub fn serve(&mut self, Worker(worker): Worker, now_ns: u64, more_ns: f64) -> u64 {
        let free_ns = &mut self.free_ns[worker];
        *free_ns = free_ns.max(now_ns as f64) + self.cost_ns + more_ns;
        *free_ns as u64
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
    fn what_costs_more_holds_up_the_next() {
        let mut service = Service::varied(1000.0, 1500.0, 1, 2);
        let mut serve = |more_ns| Some(service.serve(service.begin(0)?, 0, more_ns));
        let done = [0.0, 500.0, 0.0, 0.0].map(&mut serve);
        assert_eq!(done, [Some(1000), Some(2500), Some(3500), None]);
    }

    #[test]
    fn fractions_of_a_nanosecond_add_up() {
        let mut service = Service::new(0.5, 1, 10_000_000);
        let last = (0..1_000_000).filter_map(|_| service.take(0)).last();
        assert_eq!(last, Some(500_000));
    }
}
