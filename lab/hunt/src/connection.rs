//! Whom a tenant's clients ask: stores, or chains of switches.

use std::net::SocketAddr;

use bytes::Bytes;
use client::{Answer, Error, Machine, Operation, Options, coord};
use history::ClientsConfig;

/// A client of either kind.
pub enum Connection {
    /// Of stores.
    Stores(Box<Machine>),
    /// Of chains.
    Chains(Box<coord::Machine>),
}

/// The same of both kinds.
macro_rules! either {
    ($connection:expr, $client:ident => $do:expr) => {
        match $connection {
            Connection::Stores($client) => $do,
            Connection::Chains($client) => $do,
        }
    };
}

impl Connection {
    /// A client of a tenant.
    pub fn new(
        config: &ClientsConfig,
        options: &Options,
        tenant: u32,
        seed: u64,
    ) -> Result<Connection, Error> {
        if config.chains {
            let options = config.chain_options();
            let machine = coord::Machine::new(&config.cluster, tenant, options, seed)?;
            return Ok(Connection::Chains(Box::new(machine)));
        }
        let machine = Machine::new(&config.cluster, tenant, options.clone(), seed)?;
        Ok(Connection::Stores(Box::new(machine)))
    }

    pub fn begin(&mut self, operation: &Operation<'_>, now_ns: u64) -> u64 {
        either!(self, client => client.begin(operation, now_ns))
    }

    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        either!(self, client => client.take(datagram, from, now_ns));
    }

    pub fn timer(&mut self, now_ns: u64) {
        either!(self, client => client.timer(now_ns));
    }

    pub fn next_ns(&self) -> Option<u64> {
        either!(self, client => client.next_ns())
    }

    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        either!(self, client => client.next_datagram())
    }

    pub fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        either!(self, client => client.next_finished())
    }
}
