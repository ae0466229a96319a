//! The structs of `bpf/maps.h` and `bpf/table.h`, field by field. Both sides assert the same sizes.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

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
pub const VALUE_MAX_BYTES: usize = 1408;
pub(crate) const SKETCH_ROWS: usize = 4;
pub(crate) const SKETCH_COLUMNS: usize = 65536;
pub(crate) const BLOOM_CELLS: usize = 65536;
pub(crate) const MAX_LEASES: usize = 1024;
pub(crate) const EPOCH_MASK: u64 = (1 << 48) - 1;

#[repr(C)]
pub(crate) struct Config {
    pub switch_id: AtomicU32,
    pub window: AtomicU32,
    pub sample_mask: AtomicU32,
    pub unused_word: u32,
    pub unused: [u64; 6],
    pub epoch: AtomicU64,
    pub unused_too: [u64; 7],
}

#[repr(C)]
pub(crate) struct Bucket {
    pub slot: [AtomicU64; BUCKET_SLOTS],
}

#[repr(C)]
pub(crate) struct Page {
    pub bytes: [AtomicU64; PAGE_BYTES / 8],
}

/// The header of an item, at the start of its first cell.
#[repr(C)]
pub(crate) struct Item {
    pub seq: AtomicU32,
    pub key_len: AtomicU8,
    pub flags: AtomicU8,
    pub value_len: AtomicU16,
    pub word: AtomicU64,
    pub version: AtomicU64,
    pub expiry_ns: AtomicU64,
    pub epoch_ns: AtomicU64,
    pub tenant: AtomicU32,
    pub lease: AtomicU16,
    pub cells: AtomicU8,
    pub unused: AtomicU8,
}

#[repr(C)]
pub(crate) struct Lease {
    pub store: [AtomicU64; 2],
    pub until_ns: AtomicU64,
    pub floor: AtomicU64,
    pub term: AtomicU32,
    pub lock: AtomicU32,
    pub unused: [u64; 3],
}

#[repr(C)]
pub(crate) struct Sketch {
    pub row: [[AtomicU32; SKETCH_COLUMNS]; SKETCH_ROWS],
    pub bloom: [AtomicU8; BLOOM_CELLS],
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
    pub hot_threshold: u32,
    pub discipline: u32,
    pub unused: u32,
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
const _: () = assert!(size_of::<Tenant>() == 72);
