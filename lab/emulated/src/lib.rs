//! Servers that are not there, for experiments: what gives a store's backend keys from the start
//! ([`Populate`]), and has the store answer at the pace of a server of a given speed ([`Pace`]), so
//! that one process stands for a rack of them.
//!
//! `shortstop-lab store` and the simulator call this; the store knows nothing of it but the
//! [`Admission`](store::backend::Admission) of its requests.

#![deny(unsafe_code)]

mod pace;
mod populate;

pub use pace::{Pace, Rate, RateChange};
pub use populate::Populate;
