//! Which cache lines of a switch's tables were written between two moments. For tests that hold
//! programs to the table in `docs/architecture.md`.

use std::{collections::BTreeSet, sync::Arc};

use super::{Keyed, Switch};

/// Bytes that a core has or has not.
const LINE: usize = 64;
/// The kernel's numbers of arrays that each CPU has for itself, and of rings.
const PERCPU_ARRAY: u32 = libbpf_rs::MapType::PercpuArray as u32;
const RING: u32 = libbpf_rs::MapType::RingBuf as u32;

/// What the tables of a switch held at one time, for tests that ask what a program wrote: what
/// several cores write goes back and forth between them.
pub struct Lines(Vec<(String, Vec<u8>)>);

impl Switch {
    /// What its tables hold now, but for rings of events. Nobody may run programs of the switch
    /// meanwhile.
    pub fn lines(self: &Arc<Switch>) -> Lines {
        let tables = self.table_names().into_iter();
        let all = tables.filter_map(|name| Some((self.table(&name)?, name)));
        let all = all.filter(|(table, _)| table.kind() != RING);
        Lines(all.map(|(table, name)| (name, table.bytes())).collect())
    }
}

impl Lines {
    /// The cache lines that were written since, as table and number; in a table with keys each
    /// value counts as one.
    pub fn changed_since(&self, before: &Lines) -> BTreeSet<(String, usize)> {
        let mut changed = BTreeSet::new();
        for ((name, now), (_, then)) in self.0.iter().zip(&before.0) {
            let lines = now.chunks(LINE).zip(then.chunks(LINE)).enumerate();
            let here = lines.filter(|(_, (now, then))| now != then);
            changed.extend(here.map(|(number, _)| (name.clone(), number)));
        }
        changed
    }
}

impl Keyed {
    /// All of an array; of a table with keys the values, each padded to whole lines.
    fn bytes(&self) -> Vec<u8> {
        if self.is_hash() {
            let values = self.keys().into_iter().filter_map(|key| self.lookup(&key));
            return values
                .flat_map(|mut value| {
                    value.resize(value.len().next_multiple_of(LINE), 0);
                    value
                })
                .collect();
        }
        let each = if self.kind() == PERCPU_ARRAY {
            self.switch().cpus() as usize
        } else {
            1
        };
        let len = self.stride() * self.max_entries() as usize * each;
        // SAFETY: the array is that long; nobody writes it now.
        unsafe { std::slice::from_raw_parts(self.at(0), len) }.to_vec()
    }
}
