//! One direction of a link: how long a frame takes, and what becomes of it.

use lab::topology::Fault;
use rand::RngExt;
use seed::{SeededRng, rng};

/// What a link is.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Machines, by their places in [`crate::Spec::machines`].
    pub ends: [usize; 2],
    /// How long a bit is on its way, in nanoseconds.
    pub delay_ns: u64,
    /// Bits per second; 0: as many as come.
    pub bits_per_s: f64,
    /// Bytes that may wait for those before them; what exceeds it is dropped.
    pub queue_bytes: u64,
    /// What goes wrong on it, either way, as on a link of the lab. Its delay counts too.
    pub fault: Fault,
}

impl LinkSpec {
    /// A link of 10 microseconds that does nothing wrong.
    pub fn between(a: usize, b: usize) -> LinkSpec {
        LinkSpec {
            ends: [a, b],
            delay_ns: 10_000,
            bits_per_s: 0.0,
            queue_bytes: 1 << 20,
            fault: Fault::default(),
        }
    }
}

/// What happened to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came in.
    pub received: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Sent twice on purpose.
    pub duplicated: u64,
    /// Held back on purpose.
    pub reordered: u64,
    /// With a bit flipped on purpose.
    pub flipped: u64,
    /// Lost because the link was down.
    pub cut: u64,
    /// Dropped because too many waited.
    pub overflowed: u64,
    /// Sent, duplicates included.
    pub sent: u64,
}

/// What one frame meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// How often it arrives, 0 to 2 times.
    pub copies: u8,
    /// When.
    pub at_ns: u64,
    /// The bit that is flipped, modulo their number.
    pub flipped: Option<u32>,
}

/// One direction of a link.
pub struct Direction {
    delay_ns: u64,
    ns_per_byte: f64,
    queue_ns: u64,
    fault: Fault,
    is_faulty: bool,
    rng: SeededRng,
    /// Whether it carries anything.
    pub is_up: bool,
    /// When the last byte so far has left.
    free_ns: u64,
    /// What happened so far.
    pub counts: Counts,
}

impl Direction {
    /// The direction of this name of a link; its fate comes from the world's seed, the link's own
    /// and the name.
    pub fn new(spec: &LinkSpec, seed: u64, name: &str) -> Direction {
        let ns_per_byte = match spec.bits_per_s {
            rate if rate > 0.0 => 8e9 / rate,
            _ => 0.0,
        };
        let mut direction = Direction {
            delay_ns: 0,
            ns_per_byte,
            queue_ns: (spec.queue_bytes as f64 * ns_per_byte) as u64,
            fault: Fault::default(),
            is_faulty: false,
            rng: rng(seed ^ spec.fault.seed.rotate_left(32), name),
            is_up: true,
            free_ns: 0,
            counts: Counts::default(),
        };
        direction.set_fault(spec.delay_ns, spec.fault);
        direction
    }

    /// Changes what goes wrong from now on; the random stream goes on.
    pub fn set_fault(&mut self, delay_ns: u64, fault: Fault) {
        self.delay_ns = delay_ns + (fault.delay_ms * 1e6) as u64;
        self.is_faulty =
            fault.loss > 0.0 || fault.duplicate > 0.0 || fault.reorder > 0.0 || fault.flip > 0.0;
        self.fault = fault;
    }

    /// How long a frame without a fault is on its way.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Chance that a frame is lost.
    pub fn loss(&self) -> f64 {
        self.fault.loss
    }

    /// Sends a frame of `len` bytes at `now_ns`.
    #[inline]
    pub fn send(&mut self, now_ns: u64, len: usize) -> Fate {
        self.counts.received += 1;
        if !self.is_up {
            self.counts.cut += 1;
            return Fate::default();
        }
        let begun_ns = self.free_ns.max(now_ns);
        if self.ns_per_byte > 0.0 {
            if begun_ns - now_ns > self.queue_ns {
                self.counts.overflowed += 1;
                return Fate::default();
            }
            self.free_ns = begun_ns + (len as f64 * self.ns_per_byte) as u64;
        } else {
            self.free_ns = now_ns;
        }
        let mut fate = Fate { copies: 1, at_ns: self.free_ns + self.delay_ns, flipped: None };
        if self.is_faulty {
            self.spoil(&mut fate);
        }
        self.counts.sent += u64::from(fate.copies);
        fate
    }

    /// Always draws the same number of times, so that one frame's fate does not shift the
    /// next one's.
    fn spoil(&mut self, fate: &mut Fate) {
        let draws: [f64; 5] = std::array::from_fn(|_| self.rng.random());
        let bit: u32 = self.rng.random();
        let fault = &self.fault;
        if draws[0] < fault.loss {
            self.counts.lost += 1;
            fate.copies = 0;
            return;
        }
        if draws[1] < fault.duplicate {
            self.counts.duplicated += 1;
            fate.copies = 2;
        }
        if draws[2] < fault.reorder {
            self.counts.reordered += 1;
            fate.at_ns += (draws[3] * fault.reorder_ms.max(0.1) * 1e6) as u64;
        }
        if draws[4] < fault.flip {
            self.counts.flipped += 1;
            fate.flipped = Some(bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faulty() -> LinkSpec {
        LinkSpec {
            delay_ns: 0,
            fault: Fault {
                loss: 0.1,
                duplicate: 0.05,
                reorder: 0.02,
                reorder_ms: 4.0,
                delay_ms: 1.0,
                flip: 0.01,
                seed: 9,
            },
            ..LinkSpec::between(0, 1)
        }
    }

    fn fates(seed: u64, name: &str) -> (Vec<Fate>, Counts) {
        let mut direction = Direction::new(&faulty(), seed, name);
        let fates = (0..100_000).map(|_| direction.send(0, 100)).collect();
        (fates, direction.counts)
    }

    #[test]
    fn fates_follow_their_chances_and_their_seed() {
        let (all, counts) = fates(1, "a to b");
        let part = |count: u64| count as f64 / all.len() as f64;
        assert!((part(counts.lost) - 0.1).abs() < 0.005);
        assert!((part(counts.duplicated) - 0.9 * 0.05).abs() < 0.004);
        assert!((part(counts.reordered) - 0.9 * 0.02).abs() < 0.003);
        assert!((part(counts.flipped) - 0.9 * 0.01).abs() < 0.003);
        let arrived = |fate: &&Fate| fate.copies > 0;
        let times = all.iter().filter(arrived).map(|fate| fate.at_ns);
        assert!(times.clone().all(|ns| (1_000_000..=5_000_000).contains(&ns)));
        assert!(times.filter(|ns| *ns == 1_000_000).count() > 85_000);
        assert_eq!(all, fates(1, "a to b").0);
        assert_ne!(all, fates(1, "b to a").0);
        assert_ne!(all, fates(2, "a to b").0);
    }

    #[test]
    fn frames_leave_one_after_another_and_too_many_are_dropped() {
        let spec = LinkSpec {
            delay_ns: 500,
            bits_per_s: 8e9,
            queue_bytes: 3_000,
            ..LinkSpec::between(0, 1)
        };
        let mut direction = Direction::new(&spec, 1, "a to b");
        let fates: Vec<Fate> = (0..6).map(|_| direction.send(0, 1000)).collect();
        let times: Vec<u64> = fates.iter().map(|fate| fate.at_ns).collect();
        assert_eq!(times, [1500, 2500, 3500, 4500, 0, 0]);
        assert_eq!(direction.counts.overflowed, 2);
        assert_eq!(direction.send(10_000, 1000).at_ns, 11_500, "idle again");
    }

    #[test]
    fn a_link_that_is_down_carries_nothing() {
        let mut direction = Direction::new(&LinkSpec::between(0, 1), 1, "a to b");
        direction.is_up = false;
        assert_eq!(direction.send(0, 100).copies, 0);
        direction.is_up = true;
        assert_eq!(direction.send(0, 100).copies, 1);
        assert_eq!((direction.counts.cut, direction.counts.sent), (1, 1));
    }
}
