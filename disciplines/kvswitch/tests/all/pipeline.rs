//! What is declared for a switch chip against the maps that the C declares.

use dataplane::{MapLayout, maps_of};
use kvswitch::record::{HEADER, IPV6_TURN, TURNS_MAX};
use rmt::{Items, Table};

const ITEMS: Items = Items { count: 1000, key_bytes: 16, value_bytes: 128 };

fn map(name: &str) -> MapLayout {
    let maps = maps_of(kvswitch::REGISTRATION.object).expect("compiled just now");
    let found = maps.into_iter().find(|map| map.name == name);
    found.unwrap_or_else(|| panic!("{name}: no such map"))
}

fn of_map(name: &str) -> Vec<Table> {
    let tables = kvswitch::pipeline(ITEMS).into_iter();
    tables.filter(|table| table.map == name).collect()
}

/// Bits of an entry of each, in all of them together.
fn bits(tables: &[Table]) -> u32 {
    tables.iter().map(|table| table.entries * table.bits).sum()
}

#[test]
fn every_table_is_of_a_map() {
    for table in kvswitch::pipeline(ITEMS) {
        map(table.map);
    }
}

#[test]
fn pipes_servers_and_records_have_the_same_bits() {
    assert_eq!(bits(&of_map("pipes")), 8 * map("pipes").value_bytes);
    let servers = kvswitch::servers::MAP;
    assert_eq!(of_map(servers)[0].bits, 8 * map(servers).value_bytes);
    // The item's key length and tenant, its key, and the longest record; but of a turn the store's
    // number alone.
    let record = HEADER + 2 * TURNS_MAX;
    let all = 8 + 32 + 8 * ITEMS.key_bytes + 8 * record as u32;
    let (stores, items): (Vec<Table>, Vec<Table>) =
        of_map("pages").into_iter().partition(|table| table.name == "server");
    assert_eq!(bits(&items), ITEMS.count * all);
    assert_eq!(stores[0].bits, 8 * (IPV6_TURN as u32 - 2));
}
