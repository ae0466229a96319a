//! A store, as the cluster file names it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{NodeId, PORT, address};

/// One store process and the partitions `first..=last` that it owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Where it listens.
    #[serde(deserialize_with = "address::one")]
    pub address: SocketAddr,
    /// First partition.
    pub first: u32,
    /// Last partition, inclusive.
    pub last: u32,
    /// The id of the switch at the top of its rack; 0: racks are not told apart, or it stands
    /// beside them.
    #[serde(default, skip_serializing_if = "is_no_switch")]
    pub rack: NodeId,
    /// Where gateways find its RESP port, as a URL: `redis://HOST:PORT`, `rediss://HOST:PORT` or
    /// `redis+unix:///PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resp: Option<String>,
    /// Where gateways find its memcached port, likewise: `memcached://HOST:PORT`,
    /// `memcacheds://HOST:PORT` or `memcached+unix:///PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memcached: Option<String>,
}

/// Where a port of a store's is, for clients of the server behind it.
pub(crate) struct PortUrl<'a> {
    /// What it is called in the cluster file.
    pub name: &'static str,
    pub url: &'a str,
    /// As a server of this kind is called in URLs.
    pub server: &'static str,
}

impl PortUrl<'_> {
    /// Whether it begins as such a URL does.
    pub fn is_right(&self) -> bool {
        let behind = self.url.strip_prefix(self.server);
        let schemes = ["://", "s://", "+unix://"];
        behind.is_some_and(|behind| schemes.iter().any(|scheme| behind.starts_with(scheme)))
    }
}

impl Store {
    /// One in no rack, of which no ports for clients of the server behind it are known.
    pub fn new(address: SocketAddr, first: u32, last: u32) -> Store {
        Store { address, first, last, rack: 0, resp: None, memcached: None }
    }

    /// Where switches take nothing of a store at this address for our protocol's, by its port: what
    /// follows, and what to do.
    pub fn unseen_by_switches(address: SocketAddr) -> Option<String> {
        (address.port() != PORT).then(|| {
            format!(
                "store {address}: switches cache nothing of it, for its port is not {PORT}; give it an \
                 address of its own, and that port"
            )
        })
    }

    /// The ports that it has.
    pub(crate) fn port_urls(&self) -> impl Iterator<Item = PortUrl<'_>> {
        let resp = self.resp.as_deref().map(|url| PortUrl { name: "resp", url, server: "redis" });
        let memcached = self.memcached.as_deref();
        let memcached =
            memcached.map(|url| PortUrl { name: "memcached", url, server: "memcached" });
        resp.into_iter().chain(memcached)
    }
}

fn is_no_switch(id: &NodeId) -> bool {
    *id == 0
}
