//! The load generator against stand-ins for a store on loopback.

mod generator;
