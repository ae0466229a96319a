//! Networks of usual shapes: machines and links, on which seats are put afterwards.

use crate::{link::LinkSpec, spec::MachineSpec};

/// Machines and the links between them.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Machines, named; nothing runs on them yet.
    pub machines: Vec<MachineSpec>,
    /// Links; each host has one.
    pub links: Vec<LinkSpec>,
}

impl Shape {
    fn host(&mut self, name: String, switch: usize) -> usize {
        self.machines.push(MachineSpec::host(name, vec![]));
        let host = self.machines.len() - 1;
        self.links.push(LinkSpec::between(host, switch));
        host
    }

    fn switch(&mut self, name: String) -> usize {
        self.machines.push(MachineSpec::switch(name, vec![]));
        self.machines.len() - 1
    }

    /// Hosts `client1` and on, switches `switch1` and on in a row, hosts `server1` and on behind
    /// the last one; `control` at the first.
    pub fn line(clients: usize, switches: usize, servers: usize) -> Shape {
        let mut shape = Shape::default();
        let row: Vec<usize> = (1..=switches).map(|n| shape.switch(format!("switch{n}"))).collect();
        for pair in row.windows(2) {
            shape.links.push(LinkSpec::between(pair[0], pair[1]));
        }
        shape.host("control".into(), row[0]);
        for n in 1..=clients {
            shape.host(format!("client{n}"), row[0]);
        }
        for n in 1..=servers {
            shape.host(format!("server{n}"), row[switches - 1]);
        }
        shape
    }

    /// One switch with everybody at it.
    pub fn rack(clients: usize, servers: usize) -> Shape {
        Shape::line(clients, 1, servers)
    }

    /// Racks under a spine: `spine`, `leaf1` and on, below each `clientL-1` and on and `serverL-1`
    /// and on; `control` at the spine.
    pub fn leaf_spine(racks: usize, clients: usize, servers: usize) -> Shape {
        let mut shape = Shape::default();
        let spine = shape.switch("spine".into());
        shape.host("control".into(), spine);
        for rack in 1..=racks {
            let leaf = shape.switch(format!("leaf{rack}"));
            shape.links.push(LinkSpec::between(leaf, spine));
            for n in 1..=clients {
                shape.host(format!("client{rack}-{n}"), leaf);
            }
            for n in 1..=servers {
                shape.host(format!("server{rack}-{n}"), leaf);
            }
        }
        shape
    }

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> Option<usize> {
        self.machines.iter().position(|m| m.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spec;

    #[test]
    fn everybody_reaches_everybody() {
        for shape in [Shape::line(2, 3, 2), Shape::rack(1, 4), Shape::leaf_spine(3, 1, 4)] {
            let spec = Spec::new(shape.machines, shape.links, 1, true, &[]).unwrap();
            let mut network = spec.network().unwrap();
            network.find_ways();
            for from in 0..spec.machines.len() as u32 {
                for to in 0..spec.machines.len() as u32 {
                    let address = network.address(to).unwrap().into();
                    assert!(network.path(from, address).is_some());
                }
            }
        }
    }

    #[test]
    fn a_thousand_servers_fit() {
        let shape = Shape::leaf_spine(32, 1, 32);
        let spec = Spec::new(shape.machines, shape.links, 1024, true, &[]).unwrap();
        let mut network = spec.network().unwrap();
        network.find_ways();
        let last = spec.machine("server32-32").unwrap() as u32;
        let client = spec.machine("client1-1").unwrap() as u32;
        let address = network.address(last).unwrap().into();
        assert_eq!(network.path(client, address).unwrap().len(), 4);
    }
}
