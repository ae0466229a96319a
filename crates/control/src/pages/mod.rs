//! Cache memory by the page: whose each page is, how idle ones are shared, where guaranteed ones
//! are placed.
//!
//! All of it is decided here without I/O and without a clock: [`ledger`] says who owns which page
//! and is the only place that changes it, [`policy`] on which switches a tenant's guaranteed pages
//! should be, [`claim`] how many of them it keeps from being lent, and [`share`] how many each
//! tenant should have of a switch.

pub mod claim;
pub mod ledger;
pub mod policy;
pub mod share;
