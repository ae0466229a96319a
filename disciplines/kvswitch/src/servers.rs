//! What the switch knows of a tenant's stores: in which tally each is counted (`load.h`).

use std::net::IpAddr;

use decide::Row;

/// The map from a store's address to its tally.
pub const MAP: &str = "kvswitch_addresses";
/// Stores of one tenant whose load is counted.
pub const EACH: u32 = 64;
/// The tally of the first of them; that of store `i` of the configuration is `LOADS + i`.
pub const LOADS: usize = 8;
/// The tally of the tenant's writes, of those that go to a server of the switch.
pub const WRITES: usize = 0;
/// The tally of writes that another switch made updates of, for the entries of this one's rack.
pub const ENTERED: usize = 1;
/// The tally of the updates of replicas that the first of them was sent; that of store `i` is
/// `UPDATES + i`.
pub const UPDATES: usize = LOADS + EACH as usize;
/// The tally of the tenant's reads that the switch answered itself.
pub const HITS: usize = 2;

/// A store, as records and the rows of a configuration tell of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// `0x8000 |` its place in the cluster file.
    pub holder: u16,
    /// Where requests are sent, to the port that all stores have.
    pub address: IpAddr,
    /// Its place among those whose load is counted, below [`EACH`] where it may have replicas.
    pub place: u16,
}

impl Server {
    /// The row of a tenant's configuration that tells of it.
    pub fn row(&self, tenant: u32) -> Row {
        let address = match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let key = [&tenant.to_ne_bytes()[..], &address.octets()];
        Row {
            map: MAP.into(),
            key: key.concat().into(),
            value: u32::from(self.place).to_ne_bytes().to_vec().into(),
        }
    }
}
