//! What a discipline's tables would take of a switch chip with reconfigurable match tables (RMT):
//! stages, memory, ALUs, header vector, and how often a packet would have to pass.
//!
//! A discipline declares its tables ([`Table`], a function of the [`Items`] that it is to hold);
//! [`place`] lays them out in the stages of a [`Chip`] and says what that takes ([`Usage`]).
//! Nothing is compiled for a chip: this is the arithmetic that the papers' compilers begin with, to
//! be read beside the figures that they publish ([`PublishedUsage`]).
//!
//! In: constants. Out: `shortstop resources`. Pure: no I/O, no discipline is known here.

#![deny(unsafe_code)]

mod chip;
mod declare;
mod place;

pub use chip::Chip;
pub use declare::{Items, Lookup, Pipeline, PublishedUsage, Table};
pub use place::{Error, HEADER_BITS, PlacedTable, Usage, place};
