//! Cache memory by the page: whose each page is, how idle ones are shared, where guaranteed ones are placed.
//!
//! All of it is decided here without I/O and without a clock: [`ring`] walks a tenant's switches item by item.

pub mod ring;
