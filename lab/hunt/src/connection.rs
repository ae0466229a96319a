//! Whom a tenant's clients ask.

use std::net::SocketAddr;

use bytes::Bytes;
use client::{Answer, Error, Machine, Operation};
use history::ClientsConfig;

/// A client of one tenant without sockets, driven as [`Machine`] is: that of stores, or that of a
/// discipline whose keys are elsewhere.
pub trait Connection {
    /// As [`Machine::begin`].
    fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64;
    /// As [`Machine::take`].
    fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64);
    /// As [`Machine::timer`].
    fn timer(&mut self, now_ns: u64);
    /// As [`Machine::next_ns`].
    fn next_ns(&self) -> Option<u64>;
    /// As [`Machine::next_datagram`].
    fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)>;
    /// As [`Machine::next_finished`].
    fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)>;
    /// Reads that copies of its own have answered.
    fn hits(&self) -> u64 {
        0
    }
}

/// What makes the client of a tenant, given what clients do, the tenant, and a seed.
pub type Connect = fn(&ClientsConfig, u32, u64) -> Result<Box<dyn Connection>, Error>;

/// A client that asks the stores.
///
/// # Errors
/// As [`Machine::new`].
pub fn stores(
    config: &ClientsConfig,
    tenant: u32,
    seed: u64,
) -> Result<Box<dyn Connection>, Error> {
    let machine = Machine::new(&config.cluster, tenant, config.options(), seed)?;
    Ok(Box::new(machine))
}

impl Connection for Machine {
    fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        Machine::begin(self, operation, now_ns)
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        Machine::take(self, datagram, from, now_ns);
    }

    fn timer(&mut self, now_ns: u64) {
        Machine::timer(self, now_ns);
    }

    fn next_ns(&self) -> Option<u64> {
        Machine::next_ns(self)
    }

    fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        Machine::next_datagram(self)
    }

    fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        Machine::next_finished(self)
    }
}
