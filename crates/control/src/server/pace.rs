//! When the core is told the time, and when what became due is sent: seldom while there is nothing
//! to do, for a process that is woken a hundred times a second keeps a processor from its rest.

use std::time::Duration;

use super::core::{IDLE_TICK_EVERY, PUMP_EVERY, TICK_EVERY};

/// Of one lead. Times are of one clock.
#[derive(Debug)]
pub struct Pace {
    tick_at: Duration,
    pumped_at: Option<Duration>,
    /// There may be something to send.
    is_due: bool,
}

impl Pace {
    /// Both are due.
    pub fn new(now: Duration) -> Pace {
        Pace { tick_at: now, pumped_at: None, is_due: true }
    }

    /// The core was told something.
    pub fn told(&mut self) {
        self.is_due = true;
    }

    /// When the core is to be told the time next.
    pub fn tick_at(&self) -> Duration {
        self.tick_at
    }

    /// It was told it.
    pub fn ticked(&mut self, now: Duration, is_idle: bool) {
        self.tick_at = now + if is_idle { IDLE_TICK_EVERY } else { TICK_EVERY };
        self.is_due = true;
    }

    /// When there is to be sent what became due; none: there is nothing.
    pub fn pump_at(&self) -> Option<Duration> {
        self.is_due.then(|| self.pumped_at.map_or(Duration::ZERO, |at| at + PUMP_EVERY))
    }

    /// Whether that is now.
    pub fn may_pump(&self, now: Duration) -> bool {
        self.pump_at().is_some_and(|at| at <= now)
    }

    /// It was sent; whether there was anything, or may be more.
    pub fn pumped(&mut self, now: Duration, any: bool) {
        self.pumped_at = Some(now);
        self.is_due = any;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_sent_at_once_but_not_more_often_than_it_may_be() {
        let mut pace = Pace::new(Duration::ZERO);
        assert!(pace.may_pump(Duration::ZERO));
        pace.pumped(Duration::ZERO, true);
        assert!(!pace.may_pump(PUMP_EVERY / 2) && pace.may_pump(PUMP_EVERY));
        pace.pumped(PUMP_EVERY, false);
        assert_eq!(pace.pump_at(), None, "nothing is due");
        pace.told();
        assert!(!pace.may_pump(PUMP_EVERY) && pace.may_pump(PUMP_EVERY * 2));
    }

    #[test]
    fn the_time_is_told_seldom_while_nothing_is_to_be_done() {
        let mut pace = Pace::new(Duration::ZERO);
        pace.ticked(Duration::ZERO, false);
        assert_eq!(pace.tick_at(), TICK_EVERY);
        pace.ticked(TICK_EVERY, true);
        assert_eq!(pace.tick_at(), TICK_EVERY + IDLE_TICK_EVERY);
    }
}
