//! The controller as a process: gRPC and HTTP in front, disciplines behind, its memory in a store.
//!
//! [`core`] sequences (no I/O, time as argument): what comes in goes to the value that it concerns,
//! and what that returns is carried on. [`memory`] says whose each page is, [`network`] which way
//! packets go, [`tenants`] who there is. [`exchange`] stands between [`disciplines`] and those whom
//! they decide for: each [`switch`], its [`configurations`], and [`stores`]. [`operations`] are
//! what people ask, [`changes`] the checks of it, [`views`] what they see; [`journal`] collects
//! what is to be remembered. Around it, [`lead`] is the life of a controller that leads or stands
//! by, [`service`] speaks gRPC, [`streams`] with switches and stores, and [`admin`] answers the
//! admin API.

mod admin;
mod around;
mod audit;
mod changes;
mod config;
mod configurations;
pub mod core;
mod disciplines;
mod exchange;
mod homes;
mod incoming;
mod journal;
mod kept;
mod lead;
mod mail;
mod memories;
mod memory;
mod network;
mod operations;
mod pace;
mod published;
mod remember;
mod service;
mod setup;
mod shared;
mod stores;
mod streams;
mod switch;
mod switches;
mod tenants;
mod views;

pub use service::{Options, Server, ServerError};
