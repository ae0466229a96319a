//! What a discipline says of its tables, so that they can be laid out: how large they are, how they
//! are looked up, and which come after which.

use serde::Serialize;

/// What leads to an entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Fields of the packet, so many bits of them, all equal.
    Exact(u32),
    /// Likewise, some bits of each entry not looked at.
    Ternary(u32),
    /// A number: the packet's own, a hash of it, or what an earlier table said.
    Index,
}

/// A table of a discipline, as a pipeline would have it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// What it is.
    pub name: &'static str,
    /// The map of the C that has it, or has it among others; see `bpf/maps.h`.
    pub map: &'static str,
    /// What leads to an entry.
    pub lookup: Lookup,
    /// Entries.
    pub entries: u32,
    /// Bits of an entry, those that are looked up not counted.
    pub bits: u32,
    /// Whether packets write it: then it is registers, behind stateful ALUs. Else only the control
    /// plane does.
    pub written: bool,
    /// Whether its bits leave with the packet: they pass through the header vector.
    pub carried: bool,
    /// Tables that must have answered before it can be looked up.
    pub after: &'static [&'static str],
}

impl Table {
    /// One that only the control plane writes, of that map of the C: so many entries of so many
    /// bits, looked up by a number, after no other.
    pub const fn fixed(name: &'static str, map: &'static str, entries: u32, bits: u32) -> Table {
        let lookup = Lookup::Index;
        Table { name, map, lookup, entries, bits, written: false, carried: false, after: &[] }
    }

    /// Likewise one that packets write.
    pub const fn registers(
        name: &'static str,
        map: &'static str,
        entries: u32,
        bits: u32,
    ) -> Table {
        Table { written: true, ..Table::fixed(name, map, entries, bits) }
    }

    /// Looked up so.
    pub const fn by(self, lookup: Lookup) -> Table {
        Table { lookup, ..self }
    }

    /// Behind these.
    pub const fn after(self, after: &'static [&'static str]) -> Table {
        Table { after, ..self }
    }

    /// Its bits leave with the packet.
    pub const fn carried(self) -> Table {
        Table { carried: true, ..self }
    }
}

/// The items that a switch is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Items {
    /// How many.
    pub count: u32,
    /// Bytes of the longest key.
    pub key_bytes: u32,
    /// Bytes of the longest value.
    pub value_bytes: u32,
}

/// Declares a discipline's tables for such items.
pub type Pipeline = fn(Items) -> Vec<Table>;

/// What a paper says its system takes. `None`: it does not say.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PublishedUsage {
    /// Whose figures.
    pub system: &'static str,
    /// Where they stand.
    pub source: &'static str,
    /// For what items.
    pub items: &'static str,
    /// Stages.
    pub stages: Option<u32>,
    /// Percent of the chip's SRAM.
    pub sram_percent: Option<f64>,
    /// Whether the paper gives that as an upper bound only.
    pub sram_is_bound: bool,
    /// Percent of its TCAM.
    pub tcam_percent: Option<f64>,
    /// Percent of its stateful ALUs.
    pub alu_percent: Option<f64>,
}
