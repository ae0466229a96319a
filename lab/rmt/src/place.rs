//! Lays tables out in the stages of a chip, each as early as those that it depends on allow, and
//! adds up what that takes.

use serde::Serialize;

use crate::{Chip, Lookup, Table};

/// A set of tables that cannot be placed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A table is to come after one that is not there, or after itself, by however many steps.
    #[error("table {table}: expected only tables that can come before it, not {after}")]
    Order {
        /// The table.
        table: &'static str,
        /// What it is to come after.
        after: &'static str,
    },
}

/// Where a table lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacedTable {
    /// Its name.
    pub name: &'static str,
    /// The first and the last stage that has some of it, counted from 1 over all passes.
    pub stages: (u32, u32),
    /// Blocks of SRAM.
    pub sram_blocks: u32,
    /// Blocks of TCAM.
    pub tcam_blocks: u32,
    /// Stateful ALUs.
    pub alus: u32,
}

/// What all tables take.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// Stages, over all passes.
    pub stages: u32,
    /// How often a packet has to pass at most: for more stages than there are, and for more bits
    /// than its header vector has.
    pub passes: u32,
    /// Percent of the SRAM of the chip's stages. More than 100: it does not fit, however often a
    /// packet passes.
    pub sram_percent: f64,
    /// Percent of its TCAM.
    pub tcam_percent: f64,
    /// Percent of its stateful ALUs.
    pub alu_percent: f64,
    /// Bits that a packet carries from stage to stage.
    pub phv_bits: u32,
    /// Each table.
    pub tables: Vec<PlacedTable>,
}

/// What is left of a stage.
#[derive(Clone, Copy)]
struct Free {
    sram: u32,
    tcam: u32,
    alus: u32,
}

/// A part of a table that lies in one stage whole; parts of the same table may share a stage.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sram: u32,
    tcam: u32,
    alus: u32,
}

/// Ethernet, IPv4 and UDP, and the header of docs/protocol.md, in bits.
pub const HEADER_BITS: u32 = 8 * (14 + 20 + 8 + 64);
/// Of an entry that is looked up: whether it is there, and which action it has.
const ENTRY_BITS: u32 = 4;

/// Lays the tables out: each as early as what it depends on allows, split over as many stages as it
/// needs. `key_bits`: of the longest key, which a packet carries as well. Stages beyond the chip's
/// are the first ones again, met in a further pass: their memory is counted once for each table
/// that lies there.
///
/// # Errors
/// Dependencies that lead nowhere or round.
pub fn place(tables: &[Table], key_bits: u32, chip: &Chip) -> Result<Usage, Error> {
    let mut stages: Vec<Free> = vec![];
    let mut placed: Vec<PlacedTable> = vec![];
    for table in ordered(tables)? {
        let before = placed.iter().filter(|p| table.after.contains(&p.name));
        let first = before.map(|p| p.stages.1).max().unwrap_or(0);
        placed.push(lay(table, first as usize, &mut stages, chip));
    }
    let carried = tables.iter().filter(|table| table.carried);
    let values: u32 = carried.map(|table| table.bits).sum();
    let fixed = HEADER_BITS + key_bits;
    let room = chip.phv_bits.saturating_sub(fixed).max(1);
    let count = stages.len() as u32;
    let passes = count.div_ceil(chip.stages).max(values.div_ceil(room));
    let percent = |used: u32, each: u32| 100.0 * f64::from(used) / f64::from(each * chip.stages);
    let sum = |of: fn(&PlacedTable) -> u32| placed.iter().map(of).sum::<u32>();
    Ok(Usage {
        stages: count,
        passes: passes.max(1),
        sram_percent: percent(sum(|p| p.sram_blocks), chip.sram_blocks),
        tcam_percent: percent(sum(|p| p.tcam_blocks), chip.tcam_blocks),
        alu_percent: percent(sum(|p| p.alus), chip.alus),
        phv_bits: fixed + values,
        tables: placed,
    })
}

/// Each table behind those that it comes after; in the order of the declaration where that
/// allows it.
fn ordered(tables: &[Table]) -> Result<Vec<&Table>, Error> {
    let mut left: Vec<&Table> = tables.iter().collect();
    let mut done: Vec<&Table> = vec![];
    while !left.is_empty() {
        let is_done = |name: &str| done.iter().any(|table| table.name == name);
        let next = left.iter().position(|table| table.after.iter().all(|name| is_done(name)));
        let Some(next) = next else {
            let after = left[0].after.iter().find(|name| !is_done(name));
            return Err(Error::Order {
                table: left[0].name,
                after: after.expect("it waits for one"),
            });
        };
        done.push(left.remove(next));
    }
    Ok(done)
}

/// Puts a table's parts into the stages from `first` on.
fn lay(table: &Table, first: usize, stages: &mut Vec<Free>, chip: &Chip) -> PlacedTable {
    let empty = Free { sram: chip.sram_blocks, tcam: chip.tcam_blocks, alus: chip.alus };
    let mut at = first;
    let (mut from, mut total) = (None, Part::default());
    for part in parts(table, chip) {
        loop {
            if stages.len() == at {
                stages.push(empty);
            }
            let free = &mut stages[at];
            if part.sram <= free.sram && part.tcam <= free.tcam && part.alus <= free.alus {
                free.sram -= part.sram;
                free.tcam -= part.tcam;
                free.alus -= part.alus;
                break;
            }
            at += 1;
        }
        from.get_or_insert(at);
        total.sram += part.sram;
        total.tcam += part.tcam;
        total.alus += part.alus;
    }
    PlacedTable {
        name: table.name,
        stages: (from.unwrap_or(at) as u32 + 1, at as u32 + 1),
        sram_blocks: total.sram,
        tcam_blocks: total.tcam,
        alus: total.alus,
    }
}

/// Blocks of SRAM for so many entries of so many bits: entries share a word, or take several.
fn sram(entries: u32, bits: u32, chip: &Chip) -> u32 {
    let in_a_word = chip.sram_bits / bits.max(1);
    if in_a_word > 0 {
        entries.div_ceil(in_a_word).div_ceil(chip.sram_words)
    } else {
        entries.div_ceil(chip.sram_words) * bits.div_ceil(chip.sram_bits)
    }
}

/// What a table may be split into.
fn parts(table: &Table, chip: &Chip) -> Vec<Part> {
    if table.written {
        return registers(table, chip);
    }
    let unit = |sram, tcam| Part { sram, tcam, alus: 0 };
    match table.lookup {
        Lookup::Index => vec![unit(1, 0); sram(table.entries, table.bits, chip) as usize],
        Lookup::Exact(key_bits) => {
            let bits = key_bits + table.bits + ENTRY_BITS;
            vec![unit(1, 0); sram(table.entries, bits, chip) as usize]
        }
        Lookup::Ternary(key_bits) => {
            let wide = key_bits.div_ceil(chip.tcam_bits);
            let deep = table.entries.div_ceil(chip.tcam_entries);
            let data = sram(table.entries, table.bits, chip);
            let mut parts = vec![unit(0, wide); deep as usize];
            parts.extend(vec![unit(1, 0); data as usize]);
            parts
        }
    }
}

/// Arrays of one word for each ALU; one too long for a stage is continued in the next, behind an
/// ALU of its own.
fn registers(table: &Table, chip: &Chip) -> Vec<Part> {
    let whole = chip.sram_blocks * chip.sram_words * (chip.sram_bits / chip.alu_bits);
    let mut parts = vec![];
    for word in 0..table.bits.div_ceil(chip.alu_bits) {
        let bits = (table.bits - word * chip.alu_bits).min(chip.alu_bits);
        let mut entries = table.entries;
        while entries > 0 {
            let here = entries.min(whole);
            parts.push(Part { sram: sram(here, bits, chip), tcam: 0, alus: 1 });
            entries -= here;
        }
    }
    parts
}
