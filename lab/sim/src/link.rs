//! One direction of a link: how long a frame takes, and what becomes of it.

use plan::{Hardware, topology::Fault};
use rand::RngExt;
use seed::{SeededRng, rng};

/// Bytes that may wait for those before them; what exceeds it is dropped.
const QUEUE: u32 = 1 << 20;

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
    /// What a frame takes without a fault.
    link_ns: u64,
    /// With the fault's delay.
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
    /// The direction of this name of a link with this fault; its fate comes from the world's seed,
    /// the fault's own and the name.
    pub fn new(hardware: &Hardware, fault: Fault, seed: u64, name: &str) -> Direction {
        let ns_per_byte = match hardware.link_gbit.map(|gbit| gbit * 1e9) {
            Some(rate) if rate > 0.0 => 8e9 / rate,
            _ => 0.0,
        };
        let mut direction = Direction {
            link_ns: (hardware.link_us * 1e3) as u64,
            delay_ns: 0,
            ns_per_byte,
            queue_ns: (f64::from(QUEUE) * ns_per_byte) as u64,
            fault: Fault::default(),
            is_faulty: false,
            rng: rng(seed ^ fault.seed.rotate_left(32), name),
            is_up: true,
            free_ns: 0,
            counts: Counts::default(),
        };
        direction.set_fault(fault);
        direction
    }

    /// Changes what goes wrong from now on; the random stream goes on.
    pub fn set_fault(&mut self, fault: Fault) {
        self.delay_ns = self.link_ns + (fault.delay_ms * 1e6) as u64;
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

    fn fates(seed: u64, name: &str) -> (Vec<Fate>, Counts) {
        let fault = Fault {
            loss: 0.1,
            duplicate: 0.05,
            reorder: 0.02,
            reorder_ms: 4.0,
            delay_ms: 1.0,
            flip: 0.01,
            seed: 9,
        };
        let hardware = Hardware { link_us: 0.0, ..Hardware::default() };
        let mut direction = Direction::new(&hardware, fault, seed, name);
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
        let hardware = Hardware { link_us: 0.5, link_gbit: Some(8.0), ..Hardware::default() };
        let mut direction = Direction::new(&hardware, Fault::default(), 1, "a to b");
        let third = QUEUE as usize / 3;
        let fates: Vec<Fate> = (0..6).map(|_| direction.send(0, third)).collect();
        let left: Vec<Option<u64>> = fates.iter().map(|f| f.at_ns.checked_sub(500)).collect();
        let third = third as u64;
        assert_eq!(left[..4], [1, 2, 3, 4].map(|n| Some(n * third)));
        assert_eq!(left[4..], [None; 2]);
        assert_eq!(direction.counts.overflowed, 2);
        assert_eq!(direction.send(10_000_000, 1000).at_ns, 10_001_500, "idle again");
    }

    #[test]
    fn a_link_that_is_down_carries_nothing() {
        let fault = Fault::default();
        let mut direction = Direction::new(&Hardware::default(), fault, 1, "a to b");
        direction.is_up = false;
        assert_eq!(direction.send(0, 100).copies, 0);
        direction.is_up = true;
        assert_eq!(direction.send(0, 100).copies, 1);
        assert_eq!((direction.counts.cut, direction.counts.sent), (1, 1));
    }
}
