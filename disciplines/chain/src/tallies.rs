//! What the programs count of a tenant (`view.h`), by the number of the tally.

/// Reads that this switch answered.
pub const READS: usize = 0;
/// Reads that it sent on to the tail.
pub const READS_ON: usize = 1;
/// Writes that it took, as the head.
pub const WRITES: usize = 2;
