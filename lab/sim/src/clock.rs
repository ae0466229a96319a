//! A machine's clocks: they begin somewhere, run a little fast or slow, and may stand still.

use plan::Clocks;

/// Seconds since 1970 at the beginning of every world.
pub const WALL_START_S: u64 = 1_750_000_000;

/// What a machine's clocks show, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Since its start, without the time that it was suspended.
    pub monotonic_ns: u64,
    /// Since its start.
    pub boottime_ns: u64,
    /// Since 1970.
    pub wall_ns: u64,
}

/// A machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    rate: f64,
    /// The world's time when the rest was written down.
    since_ns: u64,
    then: Reading,
    /// Whether the monotonic clock stands.
    suspended: bool,
    /// Whether all of them stand.
    halted: bool,
}

impl Clock {
    /// The clocks of a machine when the world begins.
    pub fn new(clocks: Clocks) -> Clock {
        let wall_ns = WALL_START_S * 1_000_000_000;
        Clock {
            rate: 1.0 + clocks.drift_ppm / 1e6,
            since_ns: 0,
            then: Reading {
                monotonic_ns: clocks.uptime_ns,
                boottime_ns: clocks.uptime_ns,
                wall_ns: wall_ns.saturating_add_signed(clocks.wall_ahead_ns),
            },
            suspended: false,
            halted: false,
        }
    }

    /// What they show at a time of the world.
    #[inline]
    pub fn at(&self, now_ns: u64) -> Reading {
        if self.halted {
            return self.then;
        }
        let passed_ns = self.passed_ns(now_ns);
        Reading {
            monotonic_ns: self.then.monotonic_ns + if self.suspended { 0 } else { passed_ns },
            boottime_ns: self.then.boottime_ns + passed_ns,
            wall_ns: self.then.wall_ns + passed_ns,
        }
    }

    #[inline]
    fn passed_ns(&self, now_ns: u64) -> u64 {
        let passed_ns = now_ns - self.since_ns;
        if self.rate == 1.0 { passed_ns } else { (passed_ns as f64 * self.rate) as u64 }
    }

    /// The first time of the world at which the monotonic clock shows this, if nothing happens to
    /// it; never, while it stands.
    #[inline]
    pub fn when_monotonic(&self, shows_ns: u64) -> Option<u64> {
        if self.suspended || self.halted {
            return None;
        }
        let left_ns = shows_ns.saturating_sub(self.then.monotonic_ns);
        if self.rate == 1.0 {
            return Some(self.since_ns.saturating_add(left_ns));
        }
        // Rounded up: a clock that does not show it yet would be looked at again and again.
        let mut at_ns = self.since_ns + (left_ns as f64 / self.rate) as u64;
        while self.passed_ns(at_ns) < left_ns {
            at_ns += 1;
        }
        Some(at_ns)
    }

    /// Lets the monotonic clock stand or run, as when the machine is suspended.
    pub fn suspend(&mut self, now_ns: u64, suspended: bool) {
        self.write_down(now_ns);
        self.suspended = suspended;
    }

    /// Lets all of them stand or run, as when a virtual machine is paused.
    pub fn halt(&mut self, now_ns: u64, halted: bool) {
        self.write_down(now_ns);
        self.halted = halted;
    }

    /// The machine starts anew: only the wall clock goes on.
    pub fn restart(&mut self, now_ns: u64) {
        self.write_down(now_ns);
        (self.then.monotonic_ns, self.then.boottime_ns) = (0, 0);
        (self.suspended, self.halted) = (false, false);
    }

    /// All of them go on from what they showed at another time, as when a virtual machine is
    /// restored from a snapshot.
    pub fn put_back(&mut self, now_ns: u64, then: Reading) {
        self.then = then;
        self.since_ns = now_ns;
    }

    /// Sets the wall clock by so much.
    pub fn step_wall(&mut self, now_ns: u64, by_ns: i64) {
        self.write_down(now_ns);
        self.then.wall_ns = self.then.wall_ns.saturating_add_signed(by_ns);
    }

    fn write_down(&mut self, now_ns: u64) {
        self.then = self.at(now_ns);
        self.since_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_suspended_machine_has_two_times() {
        let mut clock = Clock::new(Clocks { uptime_ns: 5 * S, ..Clocks::default() });
        clock.suspend(10 * S, true);
        assert_eq!(clock.when_monotonic(16 * S), None);
        clock.suspend(13 * S, false);
        let shown = clock.at(14 * S);
        assert_eq!((shown.monotonic_ns, shown.boottime_ns), (16 * S, 19 * S));
        assert_eq!(shown.wall_ns, (WALL_START_S + 14) * S);
        assert_eq!(clock.when_monotonic(17 * S), Some(15 * S));
    }

    #[test]
    fn all_clocks_of_a_halted_machine_stand() {
        let mut clock = Clock::new(Clocks::default());
        clock.halt(S, true);
        assert_eq!(clock.at(5 * S).boottime_ns, S);
        clock.halt(5 * S, false);
        assert_eq!(clock.at(6 * S).wall_ns, (WALL_START_S + 2) * S);
    }

    #[test]
    fn all_clocks_of_a_machine_that_is_restored_show_what_they_showed() {
        let mut clock = Clock::new(Clocks::default());
        let then = clock.at(S);
        clock.put_back(9 * S, then);
        assert_eq!(clock.at(10 * S), Clock::new(Clocks::default()).at(2 * S));
        assert_eq!(clock.when_monotonic(3 * S), Some(11 * S));
    }

    #[test]
    fn a_time_is_shown_when_it_was_said_that_it_would_be() {
        for drift_ppm in [-250.0, -0.3, 0.0, 17.0, 400.0] {
            let clock = Clock::new(Clocks { drift_ppm, ..Clocks::default() });
            for shows_ns in [0, 1, 999, 123_456_789, 3_600 * S + 7] {
                let at_ns = clock.when_monotonic(shows_ns).unwrap();
                assert!(clock.at(at_ns).monotonic_ns >= shows_ns, "{drift_ppm}");
                let before = at_ns.checked_sub(2).map(|at_ns| clock.at(at_ns));
                assert!(before.is_none_or(|shown| shown.monotonic_ns <= shows_ns));
            }
        }
        let fast = Clock::new(Clocks { drift_ppm: 100.0, ..Clocks::default() });
        assert_eq!(fast.at(10_000 * S).monotonic_ns, 10_001 * S);
    }
}
