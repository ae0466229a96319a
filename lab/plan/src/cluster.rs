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
            stores.push(wire::Store {
                address: SocketAddr::new(address, PORT),
                first: bound(i),
                last: bound(i + 1).saturating_sub(1),
                rack: self.rack_of(machine, &ports),
            });
        }
        Ok(Cluster {
            partitions: self.partitions,
            stores,
            tenants: self.tenants.clone(),
            open_tenant: self.is_open,
            system_secret: self.is_signed.then(|| format!("{:032x}", 0x5353)),
            lease_ms: self.lease_ms,
            lease_max_ms: self.lease_max_ms,
            max_value: wire::MAX_VALUE_DEFAULT,
            switches: vec![],
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
