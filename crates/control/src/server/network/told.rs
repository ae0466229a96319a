//! What is remembered of what switches told of their interfaces.

use decide::SwitchId;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{state::ROW_MAX, topology::Interface};

/// Longest row in bytes: many of them may be written together.
const LONGEST: usize = ROW_MAX / 8;

/// A switch's interfaces as they are remembered: without the neighbours that its kernel happens to
/// know, which come and go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfacesRow {
    interfaces: Vec<InterfaceRow>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct InterfaceRow {
    name: String,
    up: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    silent: Vec<SwitchId>,
}

impl InterfacesRow {
    /// Of what a switch told. None: that is too much to be remembered.
    pub fn of(interfaces: &[Interface]) -> Option<InterfacesRow> {
        let interface = |interface: &Interface| InterfaceRow {
            name: interface.name.clone(),
            up: interface.up,
            addresses: interface.addresses.clone(),
            silent: interface.silent.clone(),
        };
        let row = InterfacesRow { interfaces: interfaces.iter().map(interface).collect() };
        let length = serde_json::to_vec(&row).map_or(usize::MAX, |json| json.len());
        (length <= LONGEST).then_some(row)
    }

    /// What the switch told.
    pub fn interfaces(&self) -> Vec<Interface> {
        let interface = |row: &InterfaceRow| Interface {
            name: row.name.clone(),
            up: row.up,
            addresses: row.addresses.clone(),
            neighbours: vec![],
            silent: row.silent.clone(),
        };
        self.interfaces.iter().map(interface).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str) -> Interface {
        Interface {
            name: name.into(),
            up: true,
            addresses: vec!["10.0.1.1/24".parse().unwrap()],
            neighbours: vec!["10.0.1.9".parse().unwrap()],
            silent: vec![2],
        }
    }

    #[test]
    fn a_row_has_all_but_the_neighbours_and_is_not_made_of_too_much() {
        let told = interface("eth0");
        let row = InterfacesRow::of(std::slice::from_ref(&told)).unwrap();
        let json = serde_json::to_string(&row).unwrap();
        let read: InterfacesRow = serde_json::from_str(&json).unwrap();
        assert_eq!(read.interfaces(), [Interface { neighbours: vec![], ..told }]);
        assert_eq!(InterfacesRow::of(&[interface(&"x".repeat(LONGEST))]), None);
    }
}
