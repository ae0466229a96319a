//! Real connections through a real gateway to a real Redis, which is needed (`redis-server`).

mod answers;
mod copies;
mod hostile;
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
