//! memcached clients: their commands go to the memcached ports of the stores that have their keys,
//! and what a copy that the gateway keeps can answer is answered here.
//!
//! `servers` are the stores' ports, with connections (`links`) that are lent to one exchange after
//! the other; a `client` is one connection of a client's, whose commands are carried out in their
//! order; `joint` are commands of keys that several servers have, or that are here in part;
//! `learner` finds out what copies do not tell: the flags that clients give to values, and
//! memcached's numbers; `memory` bounds what all clients together hold.

mod client;
mod joint;
mod learner;
mod links;
mod memory;
mod own_stats;
mod serve;
mod servers;
mod state;

pub use serve::MEMCACHED_LINKS;
pub(crate) use serve::{MemcachedParts, MemcachedSide};
