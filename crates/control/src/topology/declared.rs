//! What is declared of a topology.

use std::{collections::BTreeSet, net::IpAddr};

use decide::SwitchId;
use ipnet::IpNet;

/// A network as somebody declared it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTopology {
    /// The switches.
    pub switches: Vec<DeclaredSwitch>,
    /// Where clients and stores are.
    pub hosts: Vec<DeclaredHost>,
    /// What is connected with what.
    pub links: Vec<DeclaredLink>,
}

/// A switch that is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredSwitch {
    /// Its number, 1 to 32767.
    pub id: SwitchId,
    /// What links call it.
    pub name: String,
}

/// A host that is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredHost {
    /// What links call it.
    pub name: String,
    /// Its addresses.
    pub address: Vec<IpAddr>,
    /// Networks behind it: any address in one of them is there.
    pub network: Vec<IpNet>,
}

/// A link that is declared; it carries both ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredLink {
    /// Names of two switches, or of a switch and a host.
    pub ends: [String; 2],
    /// What it costs to cross it, at least 1.
    pub cost: u32,
}

impl DeclaredTopology {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        let (mut addresses, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        let switches: BTreeSet<&str> = self.switches.iter().map(|s| s.name.as_str()).collect();
        for switch in &self.switches {
            if !(1..=wire::SWITCH_MOST).contains(&switch.id) {
                return Err(format!(
                    "switch {:?}: id {}, expected 1 to {}",
                    switch.name,
                    switch.id,
                    wire::SWITCH_MOST
                ));
            }
            if !ids.insert(switch.id) {
                return Err(format!("switch id {} is declared twice", switch.id));
            }
        }
        let hosts = self.hosts.iter().map(|h| &h.name);
        for name in self.switches.iter().map(|s| &s.name).chain(hosts) {
            if name.is_empty() {
                return Err("a switch or host has an empty name".into());
            }
            if !names.insert(name) {
                return Err(format!("the name {name:?} is declared twice"));
            }
        }
        for host in &self.hosts {
            for address in &host.address {
                if !addresses.insert(address.to_canonical()) {
                    return Err(format!("host {:?}: {address} is another host's too", host.name));
                }
            }
        }
        for DeclaredLink { ends, cost } in &self.links {
            let [a, b] = ends;
            let link = format!("link {a:?} to {b:?}");
            if let Some(end) = ends.iter().find(|end| !names.contains(end)) {
                return Err(format!("{link}: no switch or host is named {end:?}"));
            }
            if a == b {
                return Err(format!("{link}: a link needs two different ends"));
            }
            if ends.iter().all(|end| !switches.contains(end.as_str())) {
                return Err(format!("{link}: one end must be a switch"));
            }
            if *cost == 0 {
                return Err(format!("{link}: cost 0, at least 1 is needed"));
            }
            if !pairs.insert([a.min(b), a.max(b)]) {
                return Err(format!("{link} is declared twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: &str, b: &str, cost: u32) -> DeclaredLink {
        let ends = [a.into(), b.into()];
        DeclaredLink { ends, cost }
    }

    fn switch(id: SwitchId, name: &str) -> DeclaredSwitch {
        let name = name.into();
        DeclaredSwitch { id, name }
    }

    fn host(name: &str, address: &[&str]) -> DeclaredHost {
        DeclaredHost {
            name: name.into(),
            address: address.iter().map(|a| a.parse().unwrap()).collect(),
            network: vec![],
        }
    }

    #[test]
    fn what_is_wrong_is_one_line_that_names_it() {
        let good = DeclaredTopology {
            switches: vec![switch(1, "a"), switch(2, "b")],
            hosts: vec![host("h", &["10.0.0.1"]), host("i", &[])],
            links: vec![],
        };
        assert_eq!(good.check(), Ok(()));
        let links =
            |links: &[DeclaredLink]| DeclaredTopology { links: links.to_vec(), ..good.clone() };
        let one_more = |more: DeclaredSwitch| DeclaredTopology {
            switches: [&good.switches[..], &[more]].concat(),
            ..good.clone()
        };
        let another = DeclaredTopology {
            hosts: [&good.hosts[..], &[host("j", &["10.0.0.1"])]].concat(),
            ..good.clone()
        };
        // (declared, what the error says)
        let rows = [
            (links(&[link("a", "c", 1)]), "link \"a\" to \"c\": no switch or host is named \"c\""),
            (links(&[link("a", "a", 1)]), "two different ends"),
            (links(&[link("h", "i", 1)]), "one end must be a switch"),
            (links(&[link("a", "b", 0)]), "cost 0, at least 1"),
            (links(&[link("a", "b", 1), link("b", "a", 1)]), "is declared twice"),
            (one_more(switch(1, "c")), "switch id 1 is declared twice"),
            (one_more(switch(0, "c")), "id 0, expected 1 to 32767"),
            (one_more(switch(32768, "c")), "id 32768, expected 1 to"),
            (one_more(switch(3, "h")), "the name \"h\" is declared twice"),
            (another, "host \"j\": 10.0.0.1 is another host's too"),
        ];
        for (declared, says) in rows {
            let error = declared.check().unwrap_err();
            assert!(error.contains(says), "{error:?} should say {says:?}");
            assert!(!error.contains('\n'), "{error:?} should be one line");
        }
    }
}
