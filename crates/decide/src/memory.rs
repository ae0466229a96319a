//! Sizes of a switch's memory that disciplines count with.

/// Cells of a page in which an item may start: what a page is counted as having (`struct page` in
/// `bpf/maps.h`).
pub const PAGE_START_CELLS: usize = 384;
/// Items of the usual size that a page holds: a key of 16 bytes with a value of 128 takes three
/// cells.
pub const ITEMS_PER_PAGE_USUAL: usize = PAGE_START_CELLS / 3;

/// Where a switch makes items by itself ([`crate::Registration::probation`]), those and the cells
/// that are kept for them have one in so many of a tenant's cells.
pub const PROBATION_ONE_IN: usize = 16;
