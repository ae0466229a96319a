//! The cluster file of a plan: its stores at the addresses of their machines, and who may ask; and
//! the topology that has it.

use std::net::SocketAddr;

use anyhow::Context;
use wire::{Cluster, PORT};

use crate::{
    Plan, Site,
    network::Ports,
    roles::{Role, Store},
    topology::Topology,
};

impl Site {
    /// The store of the machine, if it has one.
    fn store(&self) -> Option<&Store> {
        self.roles.iter().find_map(|seated| match &seated.role {
            Role::Store(store) => Some(store),
            _ => None,
        })
    }

    /// The id of the switch that it is; 0: it is none.
    fn switch_id(&self) -> u16 {
        let id = self.roles.iter().find_map(|seated| match &seated.role {
            Role::Switch(switch) => Some(switch.id),
            _ => None,
        });
        id.unwrap_or(0)
    }
}

impl Plan {
    /// The cluster file.
    ///
    /// # Errors
    /// A store without a link, or those of [`Plan::ports`].
    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        let ports = self.ports()?;
        let machines = (0..).zip(&self.sites);
        let with_store = machines.filter_map(|(at, site)| Some((at, site, site.store()?)));
        let with_store: Vec<(u32, &Site, &Store)> = with_store.collect();
        let count = with_store.len() as u64;
        let bound = |i: u64| (i * u64::from(self.partitions) / count) as u32;
        let mut stores = vec![];
        for (i, (machine, site, store)) in (0..).zip(with_store) {
            let port = ports.first_of(machine);
            let port =
                port.with_context(|| format!("{}: a store without an address", site.name))?;
            let over_ipv6 = store.listen.contains("{address6:");
            let address = if over_ipv6 { port.v6.into() } else { port.v4.into() };
            let address = SocketAddr::new(address, PORT);
            let store = wire::Store::new(address, bound(i), bound(i + 1).saturating_sub(1));
            stores.push(wire::Store { rack: self.rack_of(machine, &ports), ..store });
        }
        Ok(Cluster {
            stores,
            tenants: self.tenants.clone(),
            open_tenant: self.is_open,
            system_secret: self.is_signed.then(|| format!("{:032x}", 0x5353)),
            lease_ms: self.lease_ms,
            lease_max_ms: self.lease_max_ms,
            ..Cluster::single(SocketAddr::from(([0; 4], 0)), self.partitions)
        })
    }

    /// Nodes, links, processes and the cluster file.
    ///
    /// # Errors
    /// Those of [`Plan::cluster`].
    pub fn topology(&self) -> anyhow::Result<Topology> {
        let cluster = self.cluster()?.to_toml();
        Ok(Topology { files: [("cluster.toml".into(), cluster)].into(), ..self.network() })
    }

    /// The id of the switch that a machine is linked to, where the file is to say so; else 0.
    fn rack_of(&self, machine: u32, ports: &Ports) -> u16 {
        let first = ports.of(machine).first().filter(|_| self.tells_racks);
        first.map_or(0, |port| self.sites[ports.across(*port).machine as usize].switch_id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{roles::Switch, shapes, topology::Link};

    #[test]
    fn stores_are_where_their_machines_are() {
        let mut plan = shapes::racks(2, 0, 1);
        plan.seat(|name| match name {
            "leaf2" => Some(Role::Switch(Switch::of(3, name, String::new()))),
            "server1-1" => Some(Role::Store(Store::of(name))),
            "server2-1" => {
                let listen = format!("[{{address6:{name}}}]:{PORT}");
                Some(Role::Store(Store { listen, ..Store::of(name) }))
            }
            _ => None,
        });
        let plan = Plan { partitions: 3, tells_racks: true, ..plan };
        let stores = plan.cluster().unwrap().stores.into_iter();
        let stores = stores.map(|s| (s.address.to_string(), s.first, s.last, s.rack));
        let first = ("10.0.3.1:7117".to_owned(), 0, 0, 0);
        let second = ("[fd00:0:0:5::1]:7117".to_owned(), 1, 2, 3);
        assert_eq!(stores.collect::<Vec<_>>(), [first, second]);
    }

    #[test]
    fn links_that_no_world_can_have_are_refused() {
        let ends = |a: &str, b: &str| Link::between([a.into(), b.into()]);
        let addresses = Some([[10, 1, 1, 1], [10, 1, 1, 2]].map(Into::into));
        for (link, expected) in [
            (ends("control", "moon"), "moon: a link's end that is no machine"),
            (ends("spine", "spine"), "link 2: both ends are spine"),
            (
                Link { addresses, ..ends("spine", "control") },
                "link 2: in a plan its number says its addresses",
            ),
        ] {
            let mut plan = shapes::racks(0, 0, 0);
            plan.links.push(link);
            assert_eq!(plan.cluster().unwrap_err().to_string(), expected);
        }
    }
}
