//! The counters of a switch, one for each end that a packet can come to. Numbers, names and
//! meanings are read from the lists that the C has: `bpf/counters.h`, and `counters.h` in the
//! folders of disciplines.

use super::{backing::Backing, map::Map};
use crate::Error;

/// The list of the shared code.
const SHARED: &str = include_str!("../../../../bpf/counters.h");

/// A way that a packet can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Its place in the map.
    pub number: u32,
    /// As in the list, for example `drop_truncated`. `pass_*` went to the kernel, `drop_*` ended,
    /// `bypass_*` was forwarded past the cache.
    pub name: &'static str,
    /// What it counts.
    pub meaning: &'static str,
}

/// What a list has; lines that are no rows of it are left out.
fn rows(list: &'static str) -> impl Iterator<Item = Counter> {
    let row = |line: &'static str| {
        let mut parts = line.trim().strip_prefix("X(")?.splitn(3, ", ");
        let number = parts.next()?.parse().ok()?;
        let name = parts.next()?;
        let meaning = parts.next()?.strip_prefix('"')?.rsplit_once("\")")?.0;
        Some(Counter { number, name, meaning })
    };
    list.lines().filter_map(row)
}

/// The counters of a switch: reads the map, per CPU, and sums.
pub struct Counters {
    map: Map,
    list: Vec<Counter>,
}

impl Counters {
    /// Numbers are below it (`COUNT_MAX` in `bpf/counters.h`).
    pub const MOST: u32 = 256;

    /// The counters of the shared code, and those of disciplines that have some of their own
    /// ([`decide::Registration::counters`]), by their numbers.
    pub fn list(own: impl IntoIterator<Item = &'static str>) -> Vec<Counter> {
        let mut all: Vec<Counter> = [SHARED].into_iter().chain(own).flat_map(rows).collect();
        all.sort_unstable();
        // Disciplines may have one object, and with it one list.
        all.dedup();
        all
    }

    /// The counters of a switch; `own` as for [`Counters::list`].
    ///
    /// # Errors
    /// [`Error::NoSwitch`] if there is none.
    pub fn open(
        at: impl Into<Backing>,
        own: impl IntoIterator<Item = &'static str>,
    ) -> Result<Counters, Error> {
        let at = at.into();
        at.must_exist()?;
        let map = at.map("counters")?;
        Ok(Counters { map, list: Counters::list(own) })
    }

    /// All values now, by the counters' numbers. They only rise, until the switch is detached.
    ///
    /// # Errors
    /// If the kernel refuses the look-up.
    pub fn read(&self) -> Result<Vec<(Counter, u64)>, Error> {
        // In order of numbers: beyond the last there are none, and reading each costs.
        let some = self.list.last().map_or(0, |last| last.number + 1);
        let sums = self.map.sums(some).map_err(Error::bpf("reading the counters"))?;
        let value = |counter: &Counter| sums.get(counter.number as usize).copied().unwrap_or(0);
        Ok(self.list.iter().map(|counter| (*counter, value(counter))).collect())
    }

    /// One value by name; 0 for a name that is not in the lists.
    ///
    /// # Errors
    /// As [`Counters::read`].
    pub fn get(&self, name: &str) -> Result<u64, Error> {
        Ok(self.read()?.iter().find(|(counter, _)| counter.name == name).map_or(0, |(_, v)| *v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "#define OWN_COUNTERS(X) \\\n\tX(200, mine, \"what \\\"only\\\" I do\")\n";

    #[test]
    fn lists_are_read_whole_and_each_once() {
        let shared = Counters::list([]);
        assert_eq!(shared.len(), SHARED.matches("\tX(").count());
        let hit = Counter { number: 51, name: "hit", meaning: "answered from the cache" };
        assert!(shared.contains(&hit), "{shared:?}");
        let most = SHARED.split_once("COUNT_MAX = ").expect("it is there").1;
        assert!(most.starts_with(&Counters::MOST.to_string()));
        let all = Counters::list([OWN, "", OWN]);
        let mine = Counter { number: 200, name: "mine", meaning: "what \\\"only\\\" I do" };
        assert_eq!((all.len(), all.last()), (shared.len() + 1, Some(&mine)));
    }
}
