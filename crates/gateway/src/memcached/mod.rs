//! memcached clients: their commands go to the memcached ports of the stores that have their keys,
//! and what a copy that the gateway keeps can answer is answered here.
//!
//! A `servers::Server` is a store's port, with connections that are lent to one exchange after the
//! other; a `client` is one connection of a client's, whose commands are carried out in their
//! order; `joint` are commands of keys that several servers have, or that are here in part; `known`
//! is what copies do not tell: the flags that clients give to values, and memcached's numbers.

mod client;
mod joint;
mod known;
mod links;
mod serve;
mod servers;
mod state;

pub(crate) use serve::{MemcachedParts, MemcachedSide};
