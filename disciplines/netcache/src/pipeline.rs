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
        Table::fixed("tenant", "tenants", 4096, 8 * 60).by(Lookup::Exact(32)),
        Table::registers("rate", "tenants", 4096, 64).after(&["tenant"]),
        // Rule 1: before the table is searched.
        Table::registers("epoch", "config", 1, 64).after(&["tenant"]),
        Table::fixed("lookup", "buckets", items.count, 32).by(Lookup::Exact(64)).after(&["epoch"]),
        Table::registers("hits", "hits", items.count, 32).after(&["lookup"]),
        // Key length, tenant, lease and cells: what the agent writes of an item.
        Table::fixed("head", "pages", items.count, 8 + 32 + 16 + 6).after(&["lookup"]),
        Table::fixed("key", "pages", items.count, 8 * items.key_bytes).after(&["lookup"]),
        Table::registers("lease", "leases", 1024, 64 + 64 + 32).after(&["head"]),
        // Epoch and valid bit.
        Table::registers("word", "pages", items.count, 64).after(&["head", "key"]),
        // Version, expiry, when the epoch was taken, length, sum and flags.
        Table::registers("granted", "pages", items.count, 3 * 64 + 16 + 16 + 2)
            .after(&["word", "lease"]),
        Table::registers("value", "pages", items.count, 8 * items.value_bytes)
            .after(&["word", "lease"])
            .carried(),
    ];
    let sketch = ["sketch_1", "sketch_2", "sketch_3", "sketch_4"];
    tables.extend(
        sketch.map(|name| Table::registers(name, "sketches", COLUMNS, 16).after(&["lookup"])),
    );
    tables.push(Table::registers("burst", "sketches", BURSTS, 32).after(&["lookup"]));
    let bloom = &["bloom_1", "bloom_2", "bloom_3"];
    tables.extend(bloom.map(|name| {
        Table::registers(name, "sketches", PROBED, 8)
            .after(&["sketch_1", "sketch_2", "sketch_3", "sketch_4"])
    }));
    tables.push(Table::registers("share", "sketches", SHARES, 32).after(bloom));
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
