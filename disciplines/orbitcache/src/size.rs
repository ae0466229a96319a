//! How many items a switch has of a tenant: fewer when too many reads find no place to wait, more
//! while they do and keys are there that are worth it (paper, 3.10).
//!
//! All items of a switch go round the same ports. Where these are full, reads of all tenants find
//! no place, and the number falls for each of them. A tenant that asks for one key in bursts fills
//! that key's queue, however many items there are: it alone has fewer then.

/// Where it begins, within its bounds: the paper's optimum.
const START: f64 = 128.0;
/// A window of fewer reads says nothing.
const READS_MIN: u64 = 100;
/// The part by which it changes in a window.
const FALL: f64 = 1.0 / 8.0;
const RISE: f64 = 1.0 / 16.0;

/// The number, and what it goes by.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    items: f64,
    least: f64,
    most: f64,
    /// Part of the reads that may overflow.
    target: f64,
}

impl Size {
    /// Between `least` and `most` items; of a thousand reads `permille` may overflow.
    pub fn new(least: u32, most: u32, permille: u32) -> Size {
        let most = f64::from(most.max(1));
        let least = f64::from(least.max(1)).min(most);
        Size { items: START.clamp(least, most), least, most, target: f64::from(permille) / 1000.0 }
    }

    /// Items of the tenant.
    pub fn items(&self) -> usize {
        self.items as usize
    }

    /// The switch has so many already, of a control half before this one.
    pub fn at_least(&mut self, items: usize) {
        self.items = (items as f64).clamp(self.items, self.most);
    }

    /// A window ended with so many reads of items that might be answered, of which so many
    /// overflowed, while there might be `share` items: beside others fewer than the number. `more`:
    /// there are all that there may be, and others are worth it. Between the target and half of it
    /// nothing changes.
    pub fn window_end(&mut self, reads: u64, overflows: u64, share: usize, more: bool) {
        if reads < READS_MIN {
            return;
        }
        let ratio = overflows as f64 / reads as f64;
        if ratio > self.target {
            if share < self.items() {
                self.items = share.max(1) as f64;
            }
            self.items -= (self.items * FALL).max(1.0);
        } else if more && ratio <= self.target / 2.0 {
            self.items += (self.items * RISE).max(1.0);
        }
        self.items = self.items.clamp(self.least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A switch on which nothing overflows up to so many items, and ever more beyond.
    fn overflows(items: usize, up_to: f64, reads: u64) -> u64 {
        let ratio = ((items as f64 / up_to - 1.0) * 0.2).clamp(0.0, 1.0);
        (reads as f64 * ratio) as u64
    }

    #[test]
    fn bounds_that_are_the_same_fix_it() {
        let mut size = Size::new(64, 64, 10);
        for overflows in [0, 5000, 10_000] {
            size.window_end(10_000, overflows, size.items(), true);
            assert_eq!(size.items(), 64);
        }
    }

    #[test]
    fn it_stays_where_nothing_is_wanted_or_known() {
        let mut size = Size::new(16, 256, 10);
        size.window_end(10_000, 0, 128, false);
        size.window_end(READS_MIN - 1, READS_MIN - 1, 128, true);
        assert_eq!(size.items(), 128);
    }

    #[test]
    fn it_falls_from_what_there_might_be() {
        let mut size = Size::new(16, 256, 10);
        size.window_end(10_000, 5000, 40, true);
        assert_eq!(size.items(), 35);
    }

    proptest! {
        #[test]
        fn it_comes_near_what_the_switch_carries_and_stays_there(up_to in 20.0..240.0f64, start in 16u32..256) {
            let mut size = Size::new(16, 256, 10);
            size.items = f64::from(start);
            for window in 0..150 {
                let over = overflows(size.items(), up_to, 10_000);
                size.window_end(10_000, over, size.items(), true);
                if window > 60 {
                    let items = size.items() as f64;
                    prop_assert!((0.8 * up_to..=1.2 * up_to + 1.0).contains(&items), "{items} of {up_to} in window {window}");
                }
            }
        }

        #[test]
        fn it_keeps_its_bounds(least in 1u32..300, most in 1u32..300, windows in prop::collection::vec((0u64..1000, 0u64..1000), 0..100)) {
            let mut size = Size::new(least, most, 10);
            for (reads, overflows) in windows {
                size.window_end(reads, overflows, size.items(), true);
                prop_assert!(size.items() <= most as usize && size.items() >= least.min(most) as usize);
            }
        }
    }
}
