//! Real connections through a real gateway to a real Redis, which is needed (`redis-server`).

mod answers;
mod hostile;
mod network;
mod operators;
mod secured;
mod several;
mod stores;
mod support;
mod tenants;
mod users;
