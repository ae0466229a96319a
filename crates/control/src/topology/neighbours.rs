//! Whom each switch is to probe.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use decide::SwitchId;

use super::{Topology, learned};

/// A switch across a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number.
    pub switch: SwitchId,
    /// Its address there.
    pub address: IpAddr,
    /// The interface that leads there.
    pub interface: String,
}

impl Topology {
    /// For each switch, those that it shares a subnet with, once per interface: over the first
    /// subnet of several.
    pub fn neighbours(&self) -> BTreeMap<SwitchId, Vec<Neighbour>> {
        let mut seen = BTreeSet::new();
        let mut all: BTreeMap<SwitchId, Vec<Neighbour>> = BTreeMap::new();
        for (net, ports) in &self.subnets {
            if learned::is_single(net) {
                continue;
            }
            for from in ports {
                for to in ports.iter().filter(|to| learned::meet(from, to)) {
                    if seen.insert((from.switch, &from.interface, to.switch)) {
                        all.entry(from.switch).or_default().push(Neighbour {
                            switch: to.switch,
                            address: to.address,
                            interface: from.interface.clone(),
                        });
                    }
                }
            }
        }
        all
    }
}
