//! The learner that disciplines share: which keys of a tenant are hot at a switch, how many of them
//! have room there, and which are worth it.
//!
//! A discipline passes its events on to [`Caches`], which has a method for each that matters to it,
//! and says, for each key that a cache would take, whether it may ([`Permit`]). With no objection
//! ever, each switch decides alone; a discipline that decides over several switches answers from
//! what it knows of the others, and moves items by the methods of [`SwitchCache`]. Nothing here
//! knows which disciplines there are.
//!
//! Parameter word 0 of a tenant is the threshold: from how many requests in a window on the
//! switch's programs report a missed key. Word 1 is the discipline's own.

#![deny(unsafe_code)]

mod caches;
mod capacity;
mod estimate;
mod permit;
mod shortage;
mod switch;
mod table;
#[cfg(debug_assertions)]
pub mod testing;
mod threshold;
mod upheaval;

pub use caches::{Caches, add, beside_probation};
pub use capacity::Capacity;
pub use permit::Permit;
pub use switch::SwitchCache;
pub use threshold::Threshold;
