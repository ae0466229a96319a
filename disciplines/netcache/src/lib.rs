//! The discipline `netcache`: the switch answers the hottest keys itself.
//!
//! Control half: [`controller`] takes in what switches report and decides which items each of them caches.

mod controller;
mod estimate;
mod switch;
mod table;
mod threshold;

pub use controller::{Controller, controller};
