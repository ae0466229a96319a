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
const AFTER: [&[&str]; 4] = [&["lookup"], &["pipe_1"], &["pipe_2"], &["pipe_3"]];
const STAGE_SLOTS: u32 = 4096;

/// Its tables, for one tenant's stores: [`servers::EACH`].
pub fn pipeline(items: Items) -> Vec<Table> {
    let mut tables = vec![
        Table::fixed("tenant", "tenants", TENANTS, 8 * 60).by(Lookup::Exact(32)),
        Table::registers("rate", "tenants", TENANTS, 64).after(&["tenant"]),
        Table::fixed("lookup", "buckets", items.count, 32).by(Lookup::Exact(64)).after(&["tenant"]),
        Table::registers("hits", "hits", items.count, 32).after(&["lookup"]),
        // Key length, tenant, and of the record: scale, turns, count, home with its place, whether
        // it is an entry, kind of addresses.
        Table::fixed("head", "pages", items.count, 8 + 32 + 32 + 8 + 8 + 16 + 16 + 16)
            .after(&["lookup"]),
        Table::fixed("key", "pages", items.count, 8 * items.key_bytes).after(&["lookup"]),
        Table::registers("valid", "pages", items.count, TURNS_MAX as u32)
            .after(&["head", "key", "hits"]),
        Table::fixed("turns", "pages", items.count, 16 * TURNS_MAX as u32)
            .after(&["head", "key", "hits"]),
        Table::fixed("server", "pages", servers::EACH, 128 + 16)
            .by(Lookup::Exact(64))
            .after(&["turns", "valid"]),
        Table::fixed("address", servers::MAP, servers::EACH, 32)
            .by(Lookup::Exact(32 + 128))
            .after(&["tenant"]),
        Table::registers("racks", "kvswitch_racks", servers::EACH, 32)
            .after(&["server", "address"]),
        Table::registers("loads", "tallies", servers::EACH, 64).after(&["server", "address"]),
    ];
    let stage =
        |(name, after)| Table::registers(name, "pipes", STAGE_SLOTS, 64 + 32 + 32).after(after);
    tables.extend(STAGES.into_iter().zip(AFTER).map(stage));
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
