//! The load beyond which a key gets another replica (paper, 4.1.3). It falls while servers are out
//! of balance. Here it rises again as well: when they have been well in balance for some windows,
//! and when lower ones turned out to be of no use.
//!
//! It is a part of an average server's load, so that a tenant that asks twice as much has the same
//! replicas.

/// Windows of balance before a higher one is tried.
const CALM: u32 = 4;
/// Calm is what is this much closer to balance than has to be.
const CALMER: f64 = 0.6;
/// Beyond so many times the bound it falls by two steps at once.
const FAR: f64 = 4.0;
/// Lower ones in a row that brought nothing before it goes back to where it was.
const FUTILE: u32 = 6;
/// What a lower one has to bring: so much less than the imbalance before.
const USE: f64 = 0.95;
/// The longest wait before what was found wrong is tried again, in windows.
const LONGEST_WAIT: u32 = 512;
/// The lowest, in parts of the highest.
const LOWEST: f64 = 1.0 / 4096.0;

/// What the threshold is moved by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Where it begins, in parts of an average server's load; also the highest.
    pub first: f64,
    /// By how much the highest load may exceed the average, a part of it.
    pub bound: f64,
    /// The factor by which it is multiplied when servers are out of balance.
    pub gamma: f64,
}

/// What was tried, and when it may be tried again.
#[derive(Debug)]
struct Pause {
    left: u32,
    next: u32,
}

impl Pause {
    const NEW: Pause = Pause { left: 0, next: 8 };

    fn begin(&mut self) {
        self.left = self.next;
        self.next = (2 * self.next).min(LONGEST_WAIT);
    }
}

/// The threshold of one tenant at one switch.
#[derive(Debug)]
pub struct Threshold {
    rules: Rules,
    part: f64,
    calm: u32,
    /// Whether the last move was up.
    raised: bool,
    raise: Pause,
    lower: Pause,
    futile: Failures,
}

/// Lower thresholds that brought nothing.
#[derive(Debug, Default)]
struct Failures {
    times: u32,
    /// The part before the first of them, and how far from balance the servers were.
    from: f64,
    excess: f64,
}

impl Threshold {
    /// A threshold at its first value.
    pub fn new(rules: Rules) -> Threshold {
        Threshold {
            part: rules.first,
            rules,
            calm: 0,
            raised: false,
            raise: Pause::NEW,
            lower: Pause::NEW,
            futile: Failures::default(),
        }
    }

    /// Where another left it; 0: nobody did.
    pub fn resume(&mut self, part: f64) {
        if part > 0.0 {
            self.part = part.clamp(self.rules.first * LOWEST, self.rules.first);
        }
    }

    /// The threshold, in parts of an average server's load.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// By how much the highest load may exceed the average, a part of it.
    pub fn bound(&self) -> f64 {
        self.rules.bound
    }

    /// The hottest key has this part of an average server's load: a threshold above it is none, and
    /// none that was tried.
    pub fn hottest(&mut self, part: f64) {
        if part > 0.0 && self.part > part {
            let lowest = self.rules.first * LOWEST;
            self.part = part.max(lowest);
            self.futile = Failures::default();
        }
    }

    /// Whether servers are so far from balance that more of it is not by what is still under way.
    pub fn is_far(&self, excess: f64, chance: f64) -> bool {
        excess > FAR * self.rules.bound + chance
    }

    /// A window ended whose highest load exceeded the average by `excess` of it, of which `chance`
    /// may be nothing but that. To be called for windows only in which what the threshold asks for
    /// was there. True if it moved.
    pub fn window_end(&mut self, excess: f64, chance: f64) -> bool {
        self.raise.left = self.raise.left.saturating_sub(1);
        self.lower.left = self.lower.left.saturating_sub(1);
        if excess > self.rules.bound + chance {
            self.calm = 0;
            return self.lower.left == 0 && self.lower(excess, chance);
        }
        self.futile = Failures::default();
        if self.lower.left == 0 {
            self.lower = Pause::NEW;
        }
        let calm = excess < CALMER * self.rules.bound;
        self.calm = if calm { self.calm + 1 } else { 0 };
        let is_time = self.calm >= CALM && self.raise.left == 0 && self.part < self.rules.first;
        if is_time {
            self.calm = 0;
            self.raised = true;
            self.part = (self.part / self.rules.gamma).min(self.rules.first);
        }
        is_time
    }

    fn lower(&mut self, excess: f64, chance: f64) -> bool {
        let before = self.part;
        let lowest = self.rules.first * LOWEST;
        if std::mem::take(&mut self.raised) {
            // That was too high: it is where it was again, for longer each time.
            self.raise.begin();
        } else if self.futile.times > 0 && excess < USE * self.futile.excess {
            self.futile = Failures::default();
        }
        if self.futile.times == 0 {
            self.futile.from = self.part;
            self.futile.excess = excess;
        }
        self.futile.times += 1;
        if self.futile.times > FUTILE || self.part <= lowest {
            self.part = self.futile.from.max(self.part);
            self.futile = Failures::default();
            self.lower.begin();
        } else {
            let steps = 1 + i32::from(self.is_far(excess, chance));
            self.part = (self.part * self.rules.gamma.powi(steps)).max(lowest);
        }
        self.part != before
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules { first: 0.1, bound: 0.05, gamma: 0.7 };

    /// Windows with servers whose excess is as `of` the threshold says; how often it moved.
    fn run(threshold: &mut Threshold, windows: usize, mut of: impl FnMut(f64) -> f64) -> usize {
        let move_once = |_| usize::from(threshold.window_end(of(threshold.part()), 0.0));
        (0..windows).map(move_once).sum()
    }

    #[test]
    fn it_falls_until_servers_are_in_balance() {
        let mut threshold = Threshold::new(RULES);
        run(&mut threshold, 12, |part| 10.0 * part);
        assert!((0.0034..0.005).contains(&threshold.part()), "{}", threshold.part());
    }

    #[test]
    fn it_rises_again_when_balance_allows() {
        let mut threshold = Threshold::new(RULES);
        run(&mut threshold, 12, |part| 10.0 * part);
        run(&mut threshold, 200, |part| part);
        assert!(threshold.part() >= 0.05 / 2.0, "{}", threshold.part());
    }

    #[test]
    fn what_brings_nothing_is_taken_back() {
        let mut threshold = Threshold::new(RULES);
        // Something else is in the way, which no replica helps.
        run(&mut threshold, 100, |part| 0.5 + part / 100.0);
        assert!(threshold.part() > 0.03, "{}", threshold.part());
        // It is gone: what helps is done, after a while at most.
        run(&mut threshold, 600, |part| 10.0 * part);
        assert!(threshold.part() < 0.006, "{}", threshold.part());
    }

    proptest! {
        /// However an imbalance follows from the threshold, it settles: the longer it goes on, the
        /// rarer it moves.
        #[test]
        fn it_does_not_flap(slope in 0.1f64..100.0, base in 0.0f64..0.2, gamma in 0.3f64..0.9) {
            let mut threshold = Threshold::new(Rules { gamma, ..RULES });
            run(&mut threshold, 2000, |part| base + slope * part);
            let moves = run(&mut threshold, 2000, |part| base + slope * part);
            prop_assert!(moves <= 20 * 4, "{moves} moves in 2000 windows");
        }

        #[test]
        fn it_stays_between_its_ends(excesses in prop::collection::vec((0.0f64..2.0, 0.0f64..0.1), 0..300)) {
            let mut threshold = Threshold::new(RULES);
            for (excess, chance) in excesses {
                threshold.window_end(excess, chance);
                prop_assert!(threshold.part() <= RULES.first && threshold.part() > 0.0);
            }
        }

        /// Where a threshold in between gives balance, it is found and mostly kept.
        #[test]
        fn it_converges(slope in 1.0f64..30.0) {
            let mut threshold = Threshold::new(RULES);
            run(&mut threshold, 100, |part| slope * part);
            let over = (0..1000).filter(|_| {
                let excess = slope * threshold.part();
                threshold.window_end(excess, 0.0);
                excess > RULES.bound
            });
            prop_assert!(over.count() <= 20);
        }
    }
}
