//! Real connections through a real gateway to a real Redis or memcached, which are needed
//! (`redis-server`, `memcached`).

mod answers;
mod copies;
mod hostile;
mod memcached;
mod names;
mod network;
mod operators;
mod secured;
mod several;
mod store_thread;
mod stores;
mod strings;
mod support;
mod tenants;
mod tracking;
mod users;
