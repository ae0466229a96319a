//! How many replicas writes allow.
//!
//! A key of load L, of which the part w writes, costs each of its r servers (1 - w)L / r + wL, for
//! each write goes to all of them: every further replica relieves the others by less, and costs wL
//! more in all. What both together cost is least at r = sqrt((1 - w) / w); without writes that is
//! no limit. Two servers have (1 + w)L / 2 each: as long as that is well below L they are worth it,
//! for the hottest keys only, where one server has too much and others too little. The few keys
//! that would be much of a server's load with so few have more: one server with too much to do is
//! what all wait for.

use decide::Tallies;

use crate::servers::{EACH, ENTERED, HITS, LOADS, WRITES};

/// What the last window counts, beside those before it.
const NEW: f64 = 0.25;
/// The part of writes up to which two servers are worth it.
const TWO: f64 = 0.65;
/// What part of a server's load one key may be, if more replicas can change it.
const MUCH: f64 = 1.0 / 3.0;
/// The load of a key that is written, as a part of an average server's, from which it may have two
/// servers: times the square of the part that writes.
const LITTLE: f64 = 0.5;
/// A limit changes when what it follows from is so far beyond it.
const BEYOND: f64 = 0.15;

/// The part of a tenant's requests that write, and what follows.
#[derive(Debug)]
pub struct Writes {
    part: Option<f64>,
    most: usize,
}

impl Default for Writes {
    fn default() -> Writes {
        Writes { part: None, most: usize::MAX }
    }
}

impl Writes {
    /// A window ended in which the switch counted this.
    pub fn window_end(&mut self, tallies: &Tallies) {
        let sent = tallies.iter().skip(LOADS).take(EACH as usize);
        let sent: u64 = sent.map(|count| count & u64::from(u32::MAX)).sum();
        let writes = tallies[WRITES] + tallies[ENTERED];
        let requests = sent + tallies[HITS] + tallies[ENTERED];
        if requests == 0 {
            return;
        }
        let part = (writes as f64 / requests as f64).min(1.0);
        let part = self.part.map_or(part, |before| before + NEW * (part - before));
        self.part = Some(part);
        let best = ((1.0 - part) / part).sqrt();
        let best = if part <= TWO { best.max(2.0) } else { best };
        let limit = self.most as f64;
        if best < limit - BEYOND || best > limit + 1.0 + BEYOND {
            // What is no number that a key may have is no limit.
            self.most = ((best + BEYOND) as usize).max(1);
        }
    }

    /// Most servers that a key may have whose load is this part of an average server's: where as
    /// many as cost least in all would each have more than [`MUCH`] of a server's load of it, so
    /// many that they have not, if there are.
    pub fn most_of(&self, load: f64) -> usize {
        if load < LITTLE * self.part() * self.part() {
            return 1;
        }
        let left = MUCH - self.part() * load;
        if self.most < 2 || left <= 0.0 {
            return self.most;
        }
        // What is no number that a key may have is no limit.
        let needed = ((1.0 - self.part()) * load / left).ceil() as usize;
        self.most.max(needed)
    }

    /// The part that writes.
    pub fn part(&self) -> f64 {
        self.part.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(writes: &mut Writes, reads: u64, written: u64, entered: u64) -> usize {
        let mut tallies = [0; decide::TALLIES];
        tallies[WRITES] = written;
        tallies[ENTERED] = entered;
        tallies[LOADS] = (reads + written) | (7 << 32);
        writes.window_end(&tallies);
        writes.most_of(0.2)
    }

    #[test]
    fn the_more_is_written_the_fewer_replicas_there_may_be() {
        for (percent, most) in
            [(1, 10), (5, 4), (10, 3), (20, 2), (33, 2), (50, 2), (70, 1), (100, 1)]
        {
            let mut writes = Writes::default();
            assert_eq!(
                window(&mut writes, 100 - percent, percent / 2, percent - percent / 2),
                most,
                "{percent} %"
            );
        }
        assert!(window(&mut Writes::default(), 100, 0, 0) > 1000);
        assert!(window(&mut Writes::default(), 0, 0, 0) > 1000);
    }

    #[test]
    fn what_is_much_of_a_server_has_more() {
        let mut writes = Writes::default();
        window(&mut writes, 950, 50, 0);
        let most: Vec<usize> = [0.1, 1.0, 2.0, 4.0, 7.0].map(|load| writes.most_of(load)).into();
        assert_eq!(most, [4, 4, 9, 29, 4]);
        let mut writes = Writes::default();
        window(&mut writes, 300, 700, 0);
        assert_eq!(writes.most_of(1.0), 1);
    }

    #[test]
    fn it_does_not_flap_at_a_border() {
        let mut writes = Writes::default();
        let first = window(&mut writes, 800, 200, 0);
        for turn in 0..100 {
            let written = if turn % 2 == 0 { 190 } else { 210 };
            assert_eq!(window(&mut writes, 1000 - written, written, 0), first);
        }
        assert_eq!((0..20).map(|_| window(&mut writes, 990, 10, 0)).max(), Some(9));
    }
}
