//! What is declared for a switch chip against the maps that the C declares: the same entries, and
//! all of their bits.

use dataplane::{MapLayout, cells_needed, maps_of};
use rmt::{Items, Lookup, Table};

const ITEMS: Items = Items { count: 1000, key_bytes: 16, value_bytes: 128 };

fn map(name: &str) -> MapLayout {
    let maps = maps_of(netcache::OBJECT).expect("compiled just now");
    let found = maps.into_iter().find(|map| map.name == name);
    found.unwrap_or_else(|| panic!("{name}: no such map"))
}

fn of_map(name: &str) -> Vec<Table> {
    let tables = netcache::pipeline(ITEMS).into_iter();
    tables.filter(|table| table.map == name).collect()
}

/// Bits that a packet's entry has in all of them together.
fn bits(tables: &[Table]) -> u32 {
    tables.iter().map(|table| table.bits).sum()
}

#[test]
fn every_table_is_of_a_map() {
    for table in netcache::pipeline(ITEMS) {
        map(table.map);
    }
}

#[test]
fn a_tenant_has_the_same_bits() {
    let (map, tables) = (map("tenants"), of_map("tenants"));
    assert!(tables.iter().all(|table| table.entries == map.entries));
    assert_eq!(tables[0].lookup, Lookup::Exact(8 * map.key_bytes));
    // Its id stands in key and value.
    assert_eq!(bits(&tables), 8 * (map.value_bytes - map.key_bytes));
}

#[test]
fn a_lease_has_the_bits_that_packets_change() {
    let (map, tables) = (map("leases"), of_map("leases"));
    let (address, lock, unused) = (16, 4, 24);
    assert_eq!(tables[0].entries, map.entries);
    assert_eq!(bits(&tables), 8 * (map.value_bytes - address - lock - unused));
}

#[test]
fn a_slot_is_a_fingerprint_and_a_reference() {
    let (map, tables) = (map("buckets"), of_map("buckets"));
    let slot = map.value_bytes / 8;
    assert_eq!(bits(&tables), 8 * slot / 2, "the reference");
    assert_eq!(tables[0].entries, ITEMS.count);
    let (map, tables) = (self::map("hits"), of_map("hits"));
    let items = dataplane::PAGE_START_CELLS as u32; // of one cell each
    assert_eq!(bits(&tables), 8 * map.value_bytes / items);
}

/// Sequence count and key length's neighbours that only memory shared by CPUs needs are no part of
/// it.
#[test]
fn an_item_has_the_bits_of_its_cells() {
    let tables = of_map("pages");
    assert!(tables.iter().all(|table| table.entries == ITEMS.count));
    let (key, value) = (ITEMS.key_bytes, ITEMS.value_bytes);
    let (header, sequence) = (48, 4);
    let bytes = bits(&tables) / 8;
    assert_eq!(bytes, header - sequence + key + value);
    let cells = cells_needed(key as usize, value as usize).expect("an item can be so long");
    assert!(bytes <= 64 * u32::from(cells));
}

#[test]
fn the_sketch_has_the_bits_of_one_cpu() {
    let (map, tables) = (map("sketches"), of_map("sketches"));
    let total: u32 = tables.iter().map(|table| table.entries * table.bits).sum();
    // Three probes share out the filter's cells; one is left over, and so is a word at the end.
    assert_eq!(total + 8 + 32, 8 * map.value_bytes);
}
