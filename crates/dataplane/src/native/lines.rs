//! Which cache lines of a switch's tables were written between two moments. For tests that hold
//! programs to the table in `docs/architecture.md`.

use std::collections::BTreeSet;

use super::Switch;
use crate::maps::local::LocalMap;

/// Bytes that a core has or has not.
const LINE: usize = 64;
/// The kernel's number of rings.
const RING: u32 = libbpf_rs::MapType::RingBuf as u32;

/// What the tables of a switch held at one time, for tests that ask what a program wrote: what
/// several cores write goes back and forth between them.
pub struct Lines(Vec<(String, Vec<u8>)>);

impl Switch {
    /// What its tables hold now, but for rings of events. Nobody may run programs of the switch
    /// meanwhile.
    pub fn lines(&self) -> Lines {
        let tables = self.table_names().iter();
        let all = tables.filter_map(|name| Some((self.table(name)?, name.clone())));
        let all = all.filter(|(table, _)| table.kind() != RING);
        Lines(all.map(|(table, name)| (name, bytes_of(&table))).collect())
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

/// All of an array; of a table with keys the values, each padded to whole lines.
fn bytes_of(table: &LocalMap) -> Vec<u8> {
    let Some(len) = table.bytes_of_array() else {
        let values = table.keys().into_iter().filter_map(|key| table.lookup(&key));
        return values
            .flat_map(|mut value| {
                value.resize(value.len().next_multiple_of(LINE), 0);
                value
            })
            .collect();
    };
    // SAFETY: the array is that long; nobody writes it now.
    unsafe { std::slice::from_raw_parts(table.at(0), len) }.to_vec()
}
