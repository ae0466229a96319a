//! The port by which a switch sends packets round.

use std::collections::VecDeque;

/// What happened at it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundCounts {
    /// Packets that it carried.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that found too many others waiting.
    pub overflowed: u64,
    /// How long it was busy, in nanoseconds.
    pub busy_ns: f64,
    /// The most that waited at once.
    pub most_waiting: u32,
}

/// Carries one packet after another, each in a time for itself and one for each of its bytes.
pub struct RoundPort {
    packet_ns: f64,
    byte_ns: f64,
    queue: usize,
    free_ns: f64,
    /// When those that wait or are being carried have left.
    leaving_ns: VecDeque<f64>,
    /// What happened so far.
    pub counts: RoundCounts,
}

impl RoundPort {
    /// A port where `queue` packets may wait.
    pub fn new(packet_ns: f64, byte_ns: f64, queue: u32) -> RoundPort {
        RoundPort {
            packet_ns,
            byte_ns,
            queue: queue as usize,
            free_ns: 0.0,
            leaving_ns: VecDeque::new(),
            counts: RoundCounts::default(),
        }
    }

    /// Takes a packet of `len` bytes at `now_ns`; when it is on the other side, or `None` if too
    /// many wait.
    #[inline]
    pub fn take(&mut self, now_ns: u64, len: usize) -> Option<u64> {
        let now = now_ns as f64;
        while self.leaving_ns.front().is_some_and(|left| *left <= now) {
            self.leaving_ns.pop_front();
        }
        if self.leaving_ns.len() > self.queue {
            self.counts.overflowed += 1;
            return None;
        }
        let took = self.packet_ns + len as f64 * self.byte_ns;
        self.free_ns = self.free_ns.max(now) + took;
        self.leaving_ns.push_back(self.free_ns);
        let waiting = self.leaving_ns.len() as u32 - 1;
        self.counts.most_waiting = self.counts.most_waiting.max(waiting);
        self.counts.packets += 1;
        self.counts.bytes += len as u64;
        self.counts.busy_ns += took;
        Some(self.free_ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_after_another_by_their_length_and_too_many_are_dropped() {
        // 100 ns a packet and 8 Gbit/s; two may wait beside the one that is carried.
        let mut port = RoundPort::new(100.0, 1.0, 2);
        let left: Vec<Option<u64>> = [900, 400, 100, 50].map(|len| port.take(0, len)).into();
        assert_eq!(left, [Some(1000), Some(1500), Some(1700), None]);
        assert_eq!(port.take(1000, 50), Some(1850), "the first has left");
        assert_eq!(port.take(5000, 50), Some(5150), "idle again");
        let counts = port.counts;
        assert_eq!((counts.packets, counts.bytes), (5, 1500));
        assert_eq!((counts.overflowed, counts.most_waiting), (1, 2));
        assert_eq!(counts.busy_ns, 2000.0);
    }

    #[test]
    fn packets_that_come_back_at_once_share_its_bandwidth() {
        // Each of 16 packets of 1000 bytes goes round again and again: 1 Gbit/s is 125,000 of them
        // a second, whoever they are.
        let mut port = RoundPort::new(0.0, 8.0, 64);
        let mut next: VecDeque<u64> = (0..16).map(|_| port.take(0, 1000).unwrap()).collect();
        let mut rounds = 0;
        while let Some(at_ns) = next.pop_front().filter(|at_ns| *at_ns < 10_000_000) {
            rounds += 1;
            next.push_back(port.take(at_ns, 1000).unwrap());
        }
        assert!((1249..=1251).contains(&rounds), "{rounds}");
        assert_eq!(port.counts.overflowed, 0);
    }
}
