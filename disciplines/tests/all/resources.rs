//! What disciplines would need on a switch chip.

use rmt::{Chip, Items, place};

use disciplines_experiments::PAPERS;

#[test]
fn what_is_declared_can_be_placed() {
    let items = Items { count: 10_000, key_bytes: 16, value_bytes: 128 };
    for paper in PAPERS {
        let name = paper.discipline;
        assert!(disciplines::find(name).is_some(), "{name} is registered");
        let Some(pipeline) = paper.pipeline else { continue };
        let usage = place(&pipeline(items), 128, &Chip::TOFINO);
        let usage = usage.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(usage.passes > 0 && usage.sram_percent < 100.0, "{usage:?}");
    }
}
