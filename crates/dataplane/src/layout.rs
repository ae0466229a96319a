//! The structs of `bpf/maps.h` and `bpf/table.h`, field by field. Both sides assert the same sizes;
//! the numbers are compared with the C below.

use crate::writes::{Word8, Word16, Word32, Word64};

/// Bytes of a cell.
pub(crate) const CELL_BYTES: usize = 64;
/// Cells of a page in which an item may start.
pub const PAGE_START_CELLS: usize = 384;
const _: () = assert!(PAGE_START_CELLS == decide::PAGE_START_CELLS);
/// Longest run of cells of one item.
pub(crate) const ITEM_MAX_CELLS: usize = 32;
pub(crate) const PAGE_BYTES: usize = (PAGE_START_CELLS + ITEM_MAX_CELLS - 1) * CELL_BYTES;
pub(crate) const PAGE_CELLS: usize = PAGE_BYTES / CELL_BYTES;
pub(crate) const BUCKET_SLOTS: usize = 8;
/// Longest value in bytes that an item holds.
pub const VALUE_MAX_BYTES: usize = 1392;
/// Longest record in bytes that is given: what is left of the longest item beside the longest key.
pub const GIVEN_MAX: usize = 1744;
pub(crate) const SKETCH_ROWS: usize = 4;
pub(crate) const SKETCH_COLUMNS: usize = 32768;
/// A row's cell counts so far one by one, and from there on in steps of [`SKETCH_STEP`].
pub(crate) const SKETCH_EXACT: u32 = 2048;
/// See [`SKETCH_EXACT`].
pub(crate) const SKETCH_STEP: u32 = 64;
/// The bits of a row's cell that count; those above are of its window.
pub(crate) const SKETCH_MOST: u32 = 0xfff;
pub(crate) const BLOOM_CELLS: usize = 65536;
pub(crate) const BURST_CELLS: usize = 8192;
pub(crate) const PIPE_STAGES: usize = 4;
pub(crate) const PIPE_SLOTS: usize = 4096;
pub(crate) const MAX_TENANTS: usize = 4096;
/// Hot keys that all tenants together may report in a window, from one CPU, before each has only
/// its share.
pub(crate) const REPORTS_OF_ALL: u32 = 4096;
pub(crate) const MAX_LEASES: usize = 1024;
/// When epochs are used up this one is taken again and again, and nothing is granted under it.
pub(crate) const LAST_EPOCH: u64 = (1 << 48) - 1;
/// Steps that a discipline may have, and its places in the table of programs.
pub const PROGRAMS_PER_DISCIPLINE: usize = 8;
/// The number of tenants whose packets are only forwarded; disciplines have lower ones.
pub const NO_DISCIPLINE: u32 = 15;
/// Programs of the entry's own object beside those of the disciplines, with their places in the
/// table of programs (`LENT_PACKETS` and `LOAN_MESSAGES` in `bpf/writeback.h`).
pub(crate) const OF_ENTRY: [(&str, u32); 2] = [
    ("lent_packet", NO_DISCIPLINE * PROGRAMS_PER_DISCIPLINE as u32 + 2),
    ("loan_message", NO_DISCIPLINE * PROGRAMS_PER_DISCIPLINE as u32 + 3),
];
/// Words that a discipline has of each tenant.
pub const PARAMETERS: usize = 2;
/// Numbers that a discipline's programs may count of each tenant.
pub const TALLIES: usize = 136;
pub(crate) const GROUP_PORTS: usize = 64;
/// In the place of a lease's slot in an item whose record was given.
pub const NO_LEASE: u16 = 0xffff;
/// Whether a packet's source address must be one that replies would be sent to. The kernel's
/// `rp_filter` does not see what the programs forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceCheck {
    /// It may be any.
    #[default]
    Off = 0,
    /// Some route must lead to it.
    Loose = 1,
    /// A route must lead to it by the interface that the packet came in by.
    Strict = 2,
}

/// Mixed into key hashes, times the tenant.
pub(crate) const HASH_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
/// Of an item's flags, those that say how many cells it has.
pub(crate) const ITEM_CELLS: u8 = 0x3f;
pub(crate) const EVENT_HOT: u8 = 1;
pub(crate) const EVENT_UNANSWERED: u8 = 3;
pub(crate) const EVENT_TOO_LARGE: u8 = 2;
pub(crate) const EVENT_HEADER: usize = 16;
pub(crate) const DROP_OVER_RATE: u32 = 1;
pub(crate) const MEASURED: u32 = 2;
pub(crate) const WRITE_BACK: u32 = 4;
pub(crate) const PLACE_SHIFT: u32 = 16;

#[repr(C)]
pub(crate) struct Config {
    pub switch_id: Word32,
    pub window: Word32,
    pub sample_mask: Word32,
    pub share: Word32,
    pub seed: Word64,
    pub source_check: Word32,
    pub layout: Word32,
    pub life: Word64,
    pub tenants_changed: Word64,
    pub frame_most: Word64,
    pub sums_later: Word64,
    pub epoch: Word64,
    pub unused_too: [u64; 7],
}

/// How many recirculation ports programs tell apart (`RECIRCULATION_PORTS` in `bpf/recirculate.h`).
pub(crate) const RECIRCULATION_PORTS: u32 = 4;

/// The number of the layout that these structs describe. It rises when one changes under its name.
pub(crate) const LAYOUT: u32 = 3;

#[repr(C)]
pub(crate) struct Bucket {
    pub slot: [Word64; BUCKET_SLOTS],
}

#[repr(C)]
pub(crate) struct Page {
    pub bytes: [Word64; PAGE_BYTES / 8],
}

/// Requests of a page's items on one CPU, each at its first cell.
#[repr(C)]
pub(crate) struct PageHits {
    pub cell: [Word32; PAGE_START_CELLS],
}

/// The header of an item, at the start of its first cell.
#[repr(C)]
pub(crate) struct Item {
    pub seq: Word32,
    pub key_len: Word8,
    pub flags: Word8,
    pub value_len: Word16,
    pub word: Word64,
    pub version: Word64,
    pub expiry_ns: Word64,
    pub epoch_ns: Word64,
    pub tenant: Word32,
    pub lease: Word16,
    pub sum: Word16,
}

#[repr(C)]
pub(crate) struct Lease {
    pub store: [Word64; 2],
    pub until_ns: Word64,
    pub floor: Word64,
    pub term: Word64,
    pub lock: Word32,
    pub unused: [u32; 5],
}

/// Tenants that have blanks: those with a lower place.
pub(crate) const PROBATION_TENANTS: usize = 128;
/// Blanks that a tenant has at most.
pub const BLANKS: usize = 512;
#[cfg(test)]
pub(crate) const BUCKET_LOCKS: usize = 1024;
pub(crate) const LOCKED_BY_AGENT: u32 = 2;
/// In `slot` of a blank that was taken and not used.
pub(crate) const BLANK_LEFT: u32 = u32::MAX;
/// Slots from a store's own on in which programs look for its lease.
#[cfg(test)]
pub(crate) const LEASE_PROBES: usize = 8;

#[repr(C)]
pub(crate) struct Blank {
    pub reference: Word32,
    pub slot: Word32,
}

/// The ring of a tenant's blanks.
#[repr(C)]
pub(crate) struct Blanks {
    pub threshold: Word32,
    pub next: Word32,
    pub end: Word32,
    pub plenty: Word32,
    pub unused: [u32; 12],
    pub blank: [Blank; BLANKS],
}

/// Of a record's states those that count.
pub(crate) const KEPT_ACTIVE: u8 = 2;
pub(crate) const KEPT_SEALED: u8 = 3;

/// A record of a lent key, as far as this side looks at it.
#[repr(C)]
pub(crate) struct LentKey {
    pub seq: Word32,
    pub state: Word8,
    pub is_owner: Word8,
    pub rest: [Word8; 1778],
}

#[repr(C)]
pub(crate) struct Sketch {
    pub row: [[Word16; SKETCH_COLUMNS]; SKETCH_ROWS],
    pub bloom: [Word8; BLOOM_CELLS],
    pub reports: [Word32; MAX_TENANTS],
    pub reports_of_all: Word32,
    pub unused: u32,
    pub burst: [Word32; BURST_CELLS],
}

/// A place in a HashPipe.
#[repr(C)]
pub(crate) struct PipeSlot {
    pub key: Word64,
    pub count: Word32,
    pub window: Word32,
}

#[repr(C)]
pub(crate) struct Pipe {
    pub stage: [[PipeSlot; PIPE_SLOTS]; PIPE_STAGES],
}

/// As the `tenants` map holds it; written through the syscall.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub id: u32,
    pub flags: u32,
    pub secret: [u8; 16],
    pub also_secret: [u8; 16],
    pub ns_per_request: u64,
    pub next_ns: u64,
    pub burst_ns: u32,
    pub parameter_0: u32,
    pub discipline: u32,
    pub parameter_1: u32,
}

/// A key of the `traffic` map, as bytes: tenant (native order), client, store.
pub(crate) const FLOW_BYTES: usize = 36;
/// One request in so many is counted there.
pub(crate) const TRAFFIC_SAMPLE: u64 = 64;

const _: () = assert!(size_of::<Config>() == 128);
const _: () = assert!(size_of::<Bucket>() == 64);
const _: () = assert!(size_of::<Page>() == PAGE_BYTES && PAGE_BYTES == 26_560);
const _: () = assert!(size_of::<Item>() == 48);
const _: () = assert!(size_of::<Lease>() == 64);
const _: () = assert!(size_of::<LentKey>() == 1784);
const _: () = assert!(size_of::<PipeSlot>() == 16);
const _: () = assert!(size_of::<Blanks>() == 64 + 8 * BLANKS);
const _: () = assert!(size_of::<Tenant>() == 72);
const _: () = assert!(std::mem::offset_of!(Tenant, parameter_0) == 60);
const _: () = assert!(std::mem::offset_of!(Tenant, parameter_1) == 68);

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [&str; 11] = [
        include_str!("../../../bpf/lent/table.h"),
        include_str!("../../../bpf/source.h"),
        include_str!("../../../bpf/sketch.h"),
        include_str!("../../../bpf/pipe.h"),
        include_str!("../../../bpf/maps.h"),
        include_str!("../../../bpf/tally.h"),
        include_str!("../../../bpf/table.h"),
        include_str!("../../../bpf/given.h"),
        include_str!("../../../bpf/events.h"),
        include_str!("../../../bpf/discipline.h"),
        include_str!("../../../bpf/probation.h"),
    ];

    /// The number that `#define NAME` gives a name in the C.
    fn in_c(name: &str) -> u64 {
        let define = format!("#define {name} ");
        let mut found = HEADERS.iter().flat_map(|header| header.split(&define).skip(1));
        let text = found.next().unwrap_or_else(|| panic!("{name}: not defined"));
        assert!(found.next().is_none(), "{name}: defined twice");
        let word = text.split_whitespace().next().expect("a number");
        let word = word.trim_end_matches(['U', 'L']);
        match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).expect(name),
            None => word.parse().expect(name),
        }
    }

    #[test]
    fn numbers_are_those_of_the_c() {
        let numbers = [
            ("CELL_BYTES", CELL_BYTES as u64),
            ("PAGE_START_CELLS", PAGE_START_CELLS as u64),
            ("ITEM_MAX_CELLS", ITEM_MAX_CELLS as u64),
            ("BUCKET_SLOTS", BUCKET_SLOTS as u64),
            ("VALUE_MAX_BYTES", VALUE_MAX_BYTES as u64),
            ("GIVEN_MAX", GIVEN_MAX as u64),
            ("SKETCH_ROWS", SKETCH_ROWS as u64),
            ("SKETCH_COLUMNS", SKETCH_COLUMNS as u64),
            ("SKETCH_EXACT", SKETCH_EXACT.into()),
            ("SKETCH_STEP", SKETCH_STEP.into()),
            ("SKETCH_MOST", SKETCH_MOST.into()),
            ("BLOOM_CELLS", BLOOM_CELLS as u64),
            ("BURST_CELLS", BURST_CELLS as u64),
            ("PIPE_STAGES", PIPE_STAGES as u64),
            ("PIPE_SLOTS", PIPE_SLOTS as u64),
            ("MAX_TENANTS", MAX_TENANTS as u64),
            ("REPORTS_OF_ALL", REPORTS_OF_ALL.into()),
            ("MAX_LEASES", MAX_LEASES as u64),
            ("PROGRAMS_PER_DISCIPLINE", PROGRAMS_PER_DISCIPLINE as u64),
            ("NO_DISCIPLINE", NO_DISCIPLINE.into()),
            ("PARAMETERS", PARAMETERS as u64),
            ("TALLIES", TALLIES as u64),
            ("GROUP_PORTS", GROUP_PORTS as u64),
            ("NO_LEASE", NO_LEASE.into()),
            ("ITEM_CELLS", ITEM_CELLS.into()),
            ("PROBATION_TENANTS", PROBATION_TENANTS as u64),
            ("BLANKS", BLANKS as u64),
            ("BUCKET_LOCKS", BUCKET_LOCKS as u64),
            ("LOCKED_BY_AGENT", LOCKED_BY_AGENT.into()),
            ("BLANK_LEFT", BLANK_LEFT.into()),
            ("LEASE_PROBES", LEASE_PROBES as u64),
            ("SOURCE_LOOSE", SourceCheck::Loose as u64),
            ("SOURCE_STRICT", SourceCheck::Strict as u64),
            ("HASH_SALT", HASH_SALT),
            ("EVENT_HOT", EVENT_HOT.into()),
            ("EVENT_UNANSWERED", EVENT_UNANSWERED.into()),
            ("EVENT_TOO_LARGE", EVENT_TOO_LARGE.into()),
            ("EVENT_HEADER_BYTES", EVENT_HEADER as u64),
            ("TENANT_DROP_OVER_RATE", DROP_OVER_RATE.into()),
            ("TENANT_MEASURED", MEASURED.into()),
            ("TENANT_WRITE_BACK", WRITE_BACK.into()),
            ("TENANT_PLACE_SHIFT", PLACE_SHIFT.into()),
        ];
        for (name, here) in numbers {
            assert_eq!(in_c(name), here, "{name}");
        }
    }

    #[test]
    fn states_are_those_of_the_c() {
        let (_, text) = HEADERS[0].split_once("enum kept_state {").expect("it is there");
        let names = text.lines().filter_map(|line| {
            let name = line.trim().split(',').next()?;
            name.starts_with("KEPT_").then_some(name)
        });
        let names: Vec<&str> = names.take(4).collect();
        let place = |name| names.iter().position(|other| *other == name);
        assert_eq!(place("KEPT_ACTIVE"), Some(KEPT_ACTIVE.into()));
        assert_eq!(place("KEPT_SEALED"), Some(KEPT_SEALED.into()));
    }

    #[test]
    fn numbers_are_those_that_disciplines_are_written_by() {
        assert_eq!(decide::NO_DISCIPLINE, NO_DISCIPLINE);
        assert_eq!(decide::PROGRAMS_MAX, PROGRAMS_PER_DISCIPLINE);
        assert_eq!(decide::PARAMETERS, PARAMETERS);
        assert_eq!(decide::TALLIES, TALLIES);
    }
}
