//! The tables of a switch: what the agent reads and writes, and the programs read and write beside
//! it.
//!
//! [`backing`] says where a switch's tables are: pinned in bpffs ([`bpffs`], [`mount`]), shared
//! with programs in the kernel, or in this process ([`local`]), where programs are native code. It
//! opens a table as rows that are reached by key ([`map`]) or as memory that is shared
//! ([`mapped`]); all that is written passes [`crate::writes`]. Each other file gives one table, or
//! a few that belong together, names and types. Nothing here loads or attaches a program.

pub(crate) mod backing;
pub(crate) mod bpffs;
pub(crate) mod cells;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod events;
pub(crate) mod grace;
pub(crate) mod group;
pub(crate) mod lease;
pub(crate) mod lent;
pub(crate) mod local;
pub(crate) mod map;
pub(crate) mod mapped;
pub(crate) mod mount;
pub(crate) mod page;
pub(crate) mod page_items;
pub(crate) mod port_bytes;
pub(crate) mod probation;
pub(crate) mod rows;
pub(crate) mod sketch;
pub(crate) mod table;
pub(crate) mod tally;
pub(crate) mod tenant;
pub(crate) mod traffic;
