//! Which keys are read so often that their reads go by the network: a sketch of counts, which are
//! halved from time to time.

/// Counts in each of the two rows.
const ROW: usize = 1 << 12;
/// After so many reads all counts are halved: a key of a share of the reads has between that share
/// of these and twice as many.
const HALVED_AFTER: u32 = 1 << 14;
/// Reads that make a key hot: 1 in 256 of all, or more.
const HOT: u8 = (HALVED_AFTER / 256) as u8;
/// Reads that keep a key hot which a switch answers.
const HELD: u8 = HOT / 8;
/// Keys that are remembered as answered by a switch.
const ANSWERED: usize = 1 << 10;

/// Counts of keys, by their hashes.
pub(super) struct Sketch {
    rows: [Box<[u8; ROW]>; 2],
    reads: u32,
    /// Hashes of keys that a switch answered last.
    answered: Box<[u64; ANSWERED]>,
}

impl Sketch {
    /// Nothing was read.
    pub fn new() -> Sketch {
        Sketch {
            rows: [Box::new([0; ROW]), Box::new([0; ROW])],
            reads: 0,
            answered: Box::new([0; ANSWERED]),
        }
    }

    /// Counts a read of a key; whether it is hot.
    pub fn read(&mut self, hash: u64) -> bool {
        self.reads += 1;
        if self.reads == HALVED_AFTER {
            self.reads = 0;
            self.rows.iter_mut().flat_map(|row| row.iter_mut()).for_each(|count| *count /= 2);
        }
        let mut least = u8::MAX;
        for (row, part) in self.rows.iter_mut().zip([hash >> 8, hash >> 36]) {
            let count = &mut row[part as usize % ROW];
            *count = count.saturating_add(1);
            least = least.min(*count);
        }
        let held = self.answered[(hash >> 20) as usize % ANSWERED] == hash;
        least >= if held { HELD } else { HOT }
    }

    /// Notes who answered a read of a key: a switch, or somebody else.
    pub fn answered(&mut self, hash: u64, by_switch: bool) {
        let place = &mut self.answered[(hash >> 20) as usize % ANSWERED];
        if by_switch {
            *place = hash;
        } else if *place == hash {
            *place = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(number: u64) -> u64 {
        number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn a_key_of_many_reads_is_hot_and_others_are_not() {
        let mut sketch = Sketch::new();
        let (mut hot, mut others) = (0, 0);
        for number in 0..20_000 {
            others += u32::from(sketch.read(spread(number)));
            hot += u32::from(number % 50 == 0 && sketch.read(spread(1 << 40)));
        }
        assert!(hot > 300, "{hot} of 400");
        assert_eq!(others, 0);
    }

    #[test]
    fn what_a_switch_answers_stays_hot_longer() {
        let mut sketch = Sketch::new();
        let key = spread(7);
        while !sketch.read(key) {}
        sketch.answered(key, true);
        let cooled = |sketch: &mut Sketch| {
            for number in 0..2 * u64::from(HALVED_AFTER) {
                sketch.read(spread(number + 100));
            }
            sketch.read(key)
        };
        assert!(cooled(&mut sketch), "a quarter of the reads is left");
        sketch.answered(key, false);
        assert!(!sketch.read(key));
    }
}
