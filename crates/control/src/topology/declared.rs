//! The topology file.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{SwitchId, api::toml_error};

/// A declared network (TOML):
///
/// ```toml
/// [[switch]]
/// id = 1
/// name = "s1"
/// [[host]]
/// name = "client"
/// address = ["10.0.1.1"]
/// [[link]]
/// ends = ["client", "s1"]
/// cost = 1
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// The switches.
    #[serde(rename = "switch", default)]
    pub switches: Vec<DeclaredSwitch>,
    /// Where clients and stores are.
    #[serde(rename = "host", default)]
    pub hosts: Vec<DeclaredHost>,
    /// What is connected with what.
    #[serde(rename = "link", default)]
    pub links: Vec<DeclaredLink>,
}

/// A switch of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredSwitch {
    /// Its number, 1 to 65535.
    pub id: SwitchId,
    /// What links call it.
    pub name: String,
}

/// A host of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredHost {
    /// What links call it.
    pub name: String,
    /// Its addresses.
    #[serde(default)]
    pub address: Vec<IpAddr>,
    /// Networks behind it: any address in one of them is there.
    #[serde(default)]
    pub network: Vec<IpNet>,
}

/// A link of the file; it carries both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredLink {
    /// Names of two switches, or of a switch and a host.
    pub ends: [String; 2],
    /// What it costs to cross it, at least 1.
    #[serde(default = "one")]
    pub cost: u32,
}

fn one() -> u32 {
    1
}

/// Why a topology file cannot be used; one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("topology file: {0}")]
pub struct TopologyError(String);

impl Declared {
    /// Reads and checks a topology file.
    ///
    /// # Errors
    /// [`TopologyError`] names what is wrong and what was expected.
    pub fn parse(text: &str) -> Result<Declared, TopologyError> {
        let declared: Declared =
            toml::from_str(text).map_err(|e| TopologyError(toml_error(text, &e)))?;
        declared.check().map_err(TopologyError)?;
        Ok(declared)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        let (mut addresses, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        let switches: BTreeSet<&str> = self.switches.iter().map(|s| s.name.as_str()).collect();
        for switch in &self.switches {
            if switch.id == 0 {
                return Err(format!(
                    "switch {:?}: id 0, expected 1 to 65535",
                    switch.name
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
                    return Err(format!(
                        "host {:?}: {address} is another host's too",
                        host.name
                    ));
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

    #[test]
    fn what_is_wrong_is_one_line_that_names_it() {
        let two = "[[switch]]\nid = 1\nname = \"a\"\n[[switch]]\nid = 2\nname = \"b\"\n\
                   [[host]]\nname = \"h\"\naddress = [\"10.0.0.1\"]\n\
                   [[host]]\nname = \"i\"\naddress = []\n";
        assert!(Declared::parse(two).is_ok());
        // (added text, what the error says)
        let rows = [
            ("[[link]]\nends = [", "line 14, column"),
            ("[[link]]\nends = [\"a\"]", "line 14, column"),
            (
                "[[link]]\nends = [\"a\", \"c\"]",
                "link \"a\" to \"c\": no switch or host is named \"c\"",
            ),
            ("[[link]]\nends = [\"a\", \"a\"]", "two different ends"),
            (
                "[[link]]\nends = [\"h\", \"i\"]",
                "one end must be a switch",
            ),
            (
                "[[link]]\nends = [\"a\", \"b\"]\ncost = 0",
                "cost 0, at least 1",
            ),
            (
                "[[link]]\nends = [\"a\", \"b\"]\n[[link]]\nends = [\"b\", \"a\"]",
                "is declared twice",
            ),
            (
                "[[switch]]\nid = 1\nname = \"c\"",
                "switch id 1 is declared twice",
            ),
            ("[[switch]]\nid = 0\nname = \"c\"", "expected 1 to 65535"),
            (
                "[[switch]]\nid = 3\nname = \"h\"",
                "the name \"h\" is declared twice",
            ),
            (
                "[[host]]\nname = \"j\"\naddress = [\"10.0.0.1\"]",
                "host \"j\": 10.0.0.1 is another host's too",
            ),
            (
                "[[host]]\nname = \"j\"\naddress = [\"10.0.0\"]",
                "invalid IP address",
            ),
            ("[[hosts]]\nname = \"j\"", "unknown field `hosts`"),
        ];
        for (text, says) in rows {
            let error = Declared::parse(&format!("{two}{text}\n"))
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("topology file: "), "{error:?}");
            assert!(error.contains(says), "{error:?} should say {says:?}");
            assert!(!error.contains('\n'), "{error:?} should be one line");
        }
    }
}
