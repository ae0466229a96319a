//! What the data plane would need on a switch chip: its tables as a pipeline of match-action stages
//! would have them.
//!
//! Tables of `bpf/maps.h` that every discipline meets on its way are among them (tenants, leases,
//! epochs): without them it would not answer. Left out: forwarding, which a switch does anyway;
//! counters of endings; tags, which no ALU computes; items on probation, for no chip fills its
//! match tables by itself. Where the C looks several times into one array, a pipeline needs one for
//! each time; and it would raise all four counts of a key that missed, where the C raises those
//! that are least.

use rmt::{Items, Lookup, PublishedUsage, Table};

const COLUMNS: u32 = 32_768;
/// The Bloom filter's cells, shared out over its three probes.
const PROBED: u32 = 65_536 / 3;
/// Each tenant's share of reports, and what is for whoever comes first.
const SHARES: u32 = 4096 + 1;
/// Cells of the counts of what is read in a burst.
const BURSTS: u32 = 8192;

/// The discipline's tables.
pub fn pipeline(items: Items) -> Vec<Table> {
    let mut tables = vec![
        Table {
            name: "tenant",
            map: "tenants",
            lookup: Lookup::Exact(32),
            entries: 4096,
            bits: 8 * 60,
            ..Table::STATIC
        },
        Table {
            name: "rate",
            map: "tenants",
            entries: 4096,
            bits: 64,
            after: &["tenant"],
            ..Table::REGISTERS
        },
        // Rule 1: before the table is searched.
        Table {
            name: "epoch",
            map: "config",
            entries: 1,
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
            after: &["epoch"],
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
        // Key length, tenant, lease and cells: what the agent writes of an item.
        Table {
            name: "head",
            map: "pages",
            entries: items.count,
            bits: 8 + 32 + 16 + 6,
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
            name: "lease",
            map: "leases",
            entries: 1024,
            bits: 64 + 64 + 32,
            after: &["head"],
            ..Table::REGISTERS
        },
        // Epoch and valid bit.
        Table {
            name: "word",
            map: "pages",
            entries: items.count,
            bits: 64,
            after: &["head", "key"],
            ..Table::REGISTERS
        },
        // Version, expiry, when the epoch was taken, length, sum and flags.
        Table {
            name: "granted",
            map: "pages",
            entries: items.count,
            bits: 3 * 64 + 16 + 16 + 2,
            after: &["word", "lease"],
            ..Table::REGISTERS
        },
        Table {
            name: "value",
            map: "pages",
            entries: items.count,
            bits: 8 * items.value_bytes,
            carried: true,
            after: &["word", "lease"],
            ..Table::REGISTERS
        },
    ];
    let sketch = ["sketch_1", "sketch_2", "sketch_3", "sketch_4"];
    tables.extend(sketch.map(|name| Table {
        name,
        map: "sketches",
        entries: COLUMNS,
        bits: 16,
        after: &["lookup"],
        ..Table::REGISTERS
    }));
    tables.push(Table {
        name: "burst",
        map: "sketches",
        entries: BURSTS,
        bits: 32,
        after: &["lookup"],
        ..Table::REGISTERS
    });
    let bloom = &["bloom_1", "bloom_2", "bloom_3"];
    tables.extend(bloom.map(|name| Table {
        name,
        map: "sketches",
        entries: PROBED,
        bits: 8,
        after: &["sketch_1", "sketch_2", "sketch_3", "sketch_4"],
        ..Table::REGISTERS
    }));
    tables.push(Table {
        name: "share",
        map: "sketches",
        entries: SHARES,
        bits: 32,
        after: bloom,
        ..Table::REGISTERS
    });
    tables
}

/// What the paper says of its own.
pub const PUBLISHED: &[PublishedUsage] = &[PublishedUsage {
    system: "NetCache",
    source: "SOSP 2017, section 6",
    items: "65,536 of 16 + 128 bytes, values over 8 stages",
    stages: None,
    sram_percent: Some(50.0),
    sram_is_bound: true,
    tcam_percent: None,
    alu_percent: None,
}];
