//! How large the tables of a switch are, which follows from its pages and its CPUs, and the way in
//! which an object's maps are told before it is loaded.

use libbpf_rs::OpenMapMut;

use super::kernel::cpus;
use crate::{
    Error,
    layout::{BUCKET_SLOTS, PAGE_START_CELLS},
    maps::sketch::PIPES,
};

/// How large a switch's tables are. Fixed from the first load until the switch is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Pages of cache memory; each holds 128 items of a 16-byte key and a 128-byte value.
    pub pages: u32,
}

impl Sizes {
    /// Buckets of the lookup table: a power of two, at least 2.5 slots per smallest item, so that
    /// a bucket of eight overflows for about one key in two thousand.
    pub fn buckets(&self) -> u32 {
        let items = self.pages as usize * PAGE_START_CELLS / 3;
        (items * 5 / 2 / BUCKET_SLOTS).next_power_of_two().max(64) as u32
    }

    /// Entries of a shared table whose size depends on the switch.
    fn of(&self, table: &str) -> Option<u32> {
        self.on(table, cpus())
    }

    /// Likewise where programs run on so many CPUs.
    pub(crate) fn on(&self, table: &str, cpus: u32) -> Option<u32> {
        match table {
            "buckets" => Some(self.buckets()),
            "pages" => Some(self.pages),
            "hits" => Some(self.pages * cpus),
            "sketches" | "known_tenants" | PIPES => Some(cpus),
            _ => None,
        }
    }
}

/// Gives a map its entries, or the constants of a switch of this size their values.
pub(crate) fn give(
    map: &mut OpenMapMut<'_>,
    sizes: Sizes,
    own: &[(&str, u32)],
) -> Result<(), Error> {
    let name = map.name().to_string_lossy().into_owned();
    if name.contains(".rodata.switch") {
        // `struct switch_sizes`
        let words = [sizes.buckets() - 1, sizes.pages].map(u32::to_ne_bytes);
        map.set_initial_value(words.as_flattened())
            .map_err(Error::bpf("telling the programs the tables' sizes"))?;
    }
    if name.contains('.') {
        return Ok(());
    }
    let by_name = own.iter().find(|(own, _)| *own == name);
    if let Some(entries) = by_name.map_or_else(|| sizes.of(&name), |(_, n)| Some(*n)) {
        map.set_max_entries(entries).map_err(Error::bpf(format!("sizing map {name}")))?;
    }
    Ok(())
}
