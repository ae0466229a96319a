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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cells_needed,
        layout::{
            Bucket, CELL_BYTES, LentKey, MAX_TENANTS, PAGE_BYTES, PAGE_CELLS, PageHits, Pipe,
            Sketch, TALLIES,
        },
    };

    const PAGE: &str = include_str!("../../../../docs/operations/sizing.md");

    fn with_commas(number: usize) -> String {
        let digits = number.to_string();
        let groups = digits.as_bytes().rchunks(3).rev();
        let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
        groups.join(",")
    }

    /// Items of so many cells that lie side by side on a page.
    fn on_a_page(cells: usize) -> usize {
        (PAGE_CELLS / cells).min((PAGE_START_CELLS - 1) / cells + 1)
    }

    #[test]
    fn the_page_about_sizing_has_these_numbers() {
        let mut rows = vec![];
        for (key, value) in [(16, 64), (16, 128), (16, 1024)] {
            let cells = usize::from(cells_needed(key, value).expect("an item"));
            let bytes = cells * CELL_BYTES;
            rows.push(format!("| {key}, {value} | {cells} | {bytes} | {} |", on_a_page(cells)));
        }
        let usual = Sizes { pages: 96 };
        let items = with_commas(96 * on_a_page(3));
        rows.push(format!("96 pages hold {items} items of the second row"));
        let [page, hits] = [PAGE_BYTES, size_of::<PageHits>()].map(with_commas);
        rows.push(format!(
            "| pages | {page} each, and {hits} for each page and CPU to count hits |"
        ));
        let lookup = with_commas(usual.buckets() as usize * size_of::<Bucket>());
        rows.push(format!("| lookup table | {lookup} for 96 pages;"));
        let tallies = MAX_TENANTS * TALLIES * 8;
        let [sketch, pipe, tallies] =
            [size_of::<Sketch>(), size_of::<Pipe>(), tallies].map(with_commas);
        rows.push(format!("| {sketch}, {pipe} and {tallies} |"));
        // KEPT_RECORDS, and WINDOWS of `struct window`.
        let lent = with_commas(1024 * size_of::<LentKey>() + 8192 * 64);
        rows.push(format!("| records and windows of lent keys | {lent} |"));
        for row in rows {
            assert!(PAGE.contains(&row), "docs/operations/sizing.md does not have: {row}");
        }
    }

    #[test]
    fn there_are_as_many_slots_as_the_page_about_sizing_says() {
        for pages in 1..=2048 {
            let slots = Sizes { pages }.buckets() as f64 * BUCKET_SLOTS as f64;
            let items = f64::from(pages) * on_a_page(3) as f64;
            // The smallest table has 64 buckets.
            assert!((2.5..=5.0).contains(&(slots / items)) || slots == 512.0, "{pages} pages");
        }
    }
}
