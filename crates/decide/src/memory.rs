/// Cells of a page in which an item may start: what a page is counted as having (`struct page` in `bpf/maps.h`).
pub const PAGE_START_CELLS: usize = 384;
/// Items of the usual size that a page holds: a key of 16 bytes with a value of 128 takes three cells.
pub const ITEMS_PER_PAGE_USUAL: usize = PAGE_START_CELLS / 3;
