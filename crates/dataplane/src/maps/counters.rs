//! The counters of a switch, one for each end that a packet can come to. Names and meanings are
//! read from `bpf/counters.h`, so that there is one list; whoever shows the status of a switch
//! calls this.

use std::sync::LazyLock;

use super::{backing::Backing, map::Map};
use crate::Error;

/// A way that a packet can end: `bpf/counters.h` is the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// As in the list, for example `drop_truncated`. `pass_*` went to the kernel, `drop_*` ended,
    /// `bypass_*` was forwarded past the cache.
    pub name: String,
    /// What it counts.
    pub meaning: String,
}

static LIST: LazyLock<Vec<Counter>> = LazyLock::new(|| {
    let source = include_str!("../../../../bpf/counters.h");
    let entry = |line: &str| {
        let rest = line.trim().strip_prefix("X(")?;
        let (name, rest) = rest.split_once(", \"")?;
        let (meaning, _) = rest.rsplit_once("\")")?;
        Some(Counter { name: name.into(), meaning: meaning.into() })
    };
    source.lines().filter_map(entry).collect()
});

/// The counters of a switch: reads the map, per CPU, and sums.
pub struct Counters {
    map: Map,
}

impl Counters {
    /// Every counter with its meaning, in the data plane's order.
    pub fn list() -> &'static [Counter] {
        &LIST
    }

    /// The counters of a switch.
    ///
    /// # Errors
    /// [`Error::NoSwitch`] if there is none.
    pub fn open(at: impl Into<Backing>) -> Result<Counters, Error> {
        let at = at.into();
        at.must_exist()?;
        let map = at.map("counters")?;
        Ok(Counters { map })
    }

    /// All values now, in the order of [`Counters::list`]. They only rise, until the switch is
    /// detached.
    ///
    /// # Errors
    /// If the kernel refuses the look-up.
    pub fn read(&self) -> Result<Vec<(&'static Counter, u64)>, Error> {
        let sum = |(index, counter)| {
            let key = (index as u32).to_ne_bytes();
            let per_cpu = self
                .map
                .lookup_percpu(&key)
                .map_err(Error::bpf("reading the counters"))?
                .unwrap_or_default();
            let value = |bytes: &Vec<u8>| u64::from_ne_bytes(bytes[..8].try_into().expect("u64"));
            Ok((counter, per_cpu.iter().map(value).sum()))
        };
        LIST.iter().enumerate().map(sum).collect()
    }

    /// One value by name; 0 for a name that is not in the list.
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

    #[test]
    fn the_list_is_read_from_the_header_whole() {
        let lines = include_str!("../../../../bpf/counters.h").matches("\tX(").count();
        assert_eq!(Counters::list().len(), lines);
        assert!(
            Counters::list()
                .iter()
                .any(|c| c.name == "hit" && c.meaning == "answered from the cache")
        );
    }
}
