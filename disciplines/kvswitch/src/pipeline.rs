//! What the data plane would need on a switch chip: its tables as a pipeline of match-action stages
//! would have them.
//!
//! As for other disciplines, forwarding, counters of endings and tags are left out. A write's
//! updates are a multicast there. A turn is the store's number there, and a table of stores has the
//! rest; in memory both stand together, where one look is enough.

use rmt::{Items, Lookup, PublishedUsage, Table};

use crate::{record::TURNS_MAX, servers};

const TENANTS: u32 = 4096;
const STAGES: [&str; 4] = ["pipe_1", "pipe_2", "pipe_3", "pipe_4"];
const STAGE_SLOTS: u32 = 4096;

/// Its tables, for one tenant's stores: [`servers::EACH`].
pub fn pipeline(items: Items) -> Vec<Table> {
    let mut tables = vec![
        Table {
            name: "tenant",
            map: "tenants",
            lookup: Lookup::Exact(32),
            entries: TENANTS,
            bits: 8 * 60,
            ..Table::STATIC
        },
        Table {
            name: "rate",
            map: "tenants",
            entries: TENANTS,
            bits: 64,
            after: &["tenant"],
            ..Table::REGISTERS
        },
        Table {
            name: "lookup",
            map: "buckets",
            lookup: Lookup::Exact(64),
            entries: items.count,
            bits: 32,
            after: &["tenant"],
            ..Table::STATIC
        },
        Table {
            name: "hits",
            map: "hits",
            entries: items.count,
            bits: 32,
            after: &["lookup"],
            ..Table::REGISTERS
        },
        // Key length, tenant, and of the record: scale, turns, count, home with its place, whether
        // it is an entry, kind of addresses.
        Table {
            name: "head",
            map: "pages",
            entries: items.count,
            bits: 8 + 32 + 32 + 8 + 8 + 16 + 16 + 16,
            after: &["lookup"],
            ..Table::STATIC
        },
        Table {
            name: "key",
            map: "pages",
            entries: items.count,
            bits: 8 * items.key_bytes,
            after: &["lookup"],
            ..Table::STATIC
        },
        Table {
            name: "valid",
            map: "pages",
            entries: items.count,
            bits: TURNS_MAX as u32,
            after: &["head", "key", "hits"],
            ..Table::REGISTERS
        },
        Table {
            name: "turns",
            map: "pages",
            entries: items.count,
            bits: 16 * TURNS_MAX as u32,
            after: &["head", "key", "hits"],
            ..Table::STATIC
        },
        Table {
            name: "server",
            map: "pages",
            lookup: Lookup::Exact(64),
            entries: servers::EACH,
            bits: 128 + 16,
            after: &["turns", "valid"],
            ..Table::STATIC
        },
        Table {
            name: "address",
            map: servers::MAP,
            lookup: Lookup::Exact(32 + 128),
            entries: servers::EACH,
            bits: 32,
            after: &["tenant"],
            ..Table::STATIC
        },
        Table {
            name: "racks",
            map: "kvswitch_racks",
            entries: servers::EACH,
            bits: 32,
            after: &["server", "address"],
            ..Table::REGISTERS
        },
        Table {
            name: "loads",
            map: "tallies",
            entries: servers::EACH,
            bits: 64,
            after: &["server", "address"],
            ..Table::REGISTERS
        },
    ];
    tables.extend(STAGES.iter().enumerate().map(|(i, name)| Table {
        name,
        map: "pipes",
        entries: STAGE_SLOTS,
        bits: 64 + 32 + 32,
        after: match i {
            0 => &["lookup"],
            1 => &["pipe_1"],
            2 => &["pipe_2"],
            _ => &["pipe_3"],
        },
        ..Table::REGISTERS
    }));
    tables
}

/// What the paper says of its own, and of NetCache as its authors built it.
pub const PUBLISHED: &[PublishedUsage] = &[
    PublishedUsage {
        system: "NetCache, as KVSwitch's authors built it",
        source: "KVSwitch, table 1",
        items: "10,000",
        stages: None,
        sram_percent: Some(48.98),
        sram_is_bound: false,
        tcam_percent: Some(34.21),
        alu_percent: Some(16.74),
    },
    PublishedUsage {
        system: "KVSwitch",
        source: "KVSwitch, table 1",
        items: "10,000, 32 servers",
        stages: None,
        sram_percent: Some(38.43),
        sram_is_bound: false,
        tcam_percent: Some(0.0),
        alu_percent: Some(24.61),
    },
];
