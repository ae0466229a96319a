//! Where tables lie on a switch chip.

use rmt::{Chip, Error, HEADER_BITS, Lookup, Table, Usage, place};

const TABLE: Table = Table::registers("a", "", 1024, 32);

fn placed(tables: &[Table]) -> Usage {
    place(tables, 128, &Chip::TOFINO).expect("no circle")
}

#[test]
fn tables_take_blocks_and_alus() {
    use Lookup::{Exact, Index, Ternary};
    // (lookup, entries, bits, written; SRAM, TCAM, ALUs, last stage)
    let rows = [
        (Index, 4096, 32, true, 1, 0, 1, 1),
        (Index, 4097, 32, true, 2, 0, 1, 1),
        (Index, 65_536, 128, true, 64, 0, 4, 1),
        (Index, 1024, 129, true, 5, 0, 5, 2),
        (Index, 65_536, 1024, true, 512, 0, 32, 8),
        (Index, 400_000, 32, true, 98, 0, 2, 2),
        (Index, 4096, 32, false, 1, 0, 0, 1),
        (Exact(92), 65_536, 32, false, 64, 0, 0, 1),
        (Exact(92), 65_536, 33, false, 128, 0, 0, 2),
        (Ternary(32), 1024, 16, false, 1, 2, 0, 1),
        (Ternary(45), 512, 16, false, 1, 2, 0, 1),
    ];
    for (lookup, entries, bits, written, sram, tcam, alus, last) in rows {
        let table = Table { lookup, entries, bits, written, ..TABLE };
        let usage = placed(&[table]);
        let one = &usage.tables[0];
        let took = (one.sram_blocks, one.tcam_blocks, one.alus, one.stages.1);
        assert_eq!(took, (sram, tcam, alus, last), "{table:?}");
    }
}

#[test]
fn a_table_comes_behind_what_it_depends_on() {
    let b = Table { name: "b", after: &["c"], ..TABLE };
    let c = Table { name: "c", after: &["a"], bits: 160, ..TABLE };
    let usage = placed(&[b, c, TABLE]);
    let stages: Vec<_> = usage.tables.iter().map(|t| (t.name, t.stages)).collect();
    assert_eq!(stages, [("a", (1, 1)), ("c", (2, 3)), ("b", (4, 4))]);
    assert_eq!((usage.stages, usage.passes), (4, 1));
}

#[test]
fn dependencies_that_lead_round_are_refused() {
    let a = Table { after: &["b"], ..TABLE };
    let b = Table { name: "b", after: &["a"], ..TABLE };
    let round = Error::Order { table: "a", after: "b" };
    assert_eq!(place(&[a, b], 0, &Chip::TOFINO), Err(round.clone()));
    assert_eq!(place(&[a], 0, &Chip::TOFINO), Err(round));
}

#[test]
fn more_stages_or_bits_than_there_are_take_another_pass() {
    let long = Table { bits: 32 * 4 * 13, ..TABLE };
    assert_eq!((placed(&[long]).stages, placed(&[long]).passes), (13, 2));
    let wide = Table { bits: 4096, written: false, carried: true, ..TABLE };
    let usage = placed(&[wide]);
    assert_eq!((usage.stages, usage.passes), (1, 2));
    assert_eq!(usage.phv_bits, HEADER_BITS + 128 + 4096);
}
