//! How long everybody waits for one writer's room.

use std::time::{Duration, Instant};

/// Pauses in a row at most, and in each second of all writers.
pub(super) const PAUSES: u32 = 10;
/// How long each is: memcached's own thread comes round within some milliseconds.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// A bound on what a tenant whose values find no room takes from all others: while a connection
/// pauses it carries nobody's requests.
#[derive(Default)]
pub(super) struct Pauses {
    taken: u32,
    since: Option<Instant>,
}

impl Pauses {
    /// Whether there may be one more pause now; it counts as taken then.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_over = |since| now.saturating_duration_since(since) >= SECOND;
        if self.since.is_none_or(is_over) {
            *self = Pauses { taken: 0, since: Some(now) };
        }
        let may = self.taken < PAUSES;
        self.taken += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_second_everybody_waits_for_a_twentieth_of_it_at_most() {
        let (mut pauses, begin) = (Pauses::default(), Instant::now());
        for second in 0..3 {
            let asked = (0..200).map(|at| begin + second * SECOND + at * PAUSE);
            let taken = asked.filter(|at| pauses.take(*at)).count() as u32;
            assert_eq!(taken * PAUSE, SECOND / 20);
        }
    }
}
