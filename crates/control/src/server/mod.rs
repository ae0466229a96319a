//! The controller as a process: gRPC and HTTP in front, disciplines behind, its memory in a store.
//!
//! [`core`] decides (no I/O, time as argument): it takes in what switches say, [`applications`] decide on items,
//! [`allocate`] on pages, [`network`] on placement and routes, [`changes`] are what people want; [`journal`] collects what is to be
//! remembered. Around it, [`lead`] is the life of a controller that leads or stands by, [`service`] speaks gRPC and [`admin`] answers
//! the admin API.

mod admin;
mod allocate;
mod applications;
mod audit;
mod changes;
mod convert;
mod core;
mod held;
mod journal;
mod lead;
mod network;
mod outbox;
mod rate;
mod remember;
mod service;
mod shared;
mod switch;
mod tenants;
mod views;

pub use applications::DisciplineMaker;
pub use service::{Options, Server, ServerError};
