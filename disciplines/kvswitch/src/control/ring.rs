//! What a switch shares requests out among: its servers. Those of a switch at the top of a rack are
//! the stores of the rack; those of one above such switches (a spine) are the racks, each with one
//! store for a key, its *entry*, from where the rack's own switch goes on. Where the cluster file
//! knows no racks, all stores are servers.
//!
//! Which store of a rack is a key's entry follows from the key's hash, and from which stores are
//! there: so both switches know it, and neither has to ask the other.

use std::collections::BTreeMap;

use decide::{Key, Stores, SwitchId};
use wire::mixed;

use crate::servers::EACH;

/// Where the switch is among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Position {
    /// There are no racks.
    #[default]
    Alone,
    /// At the top of a rack.
    OnTop,
    /// Above the switches at the tops of the racks.
    Above,
}

/// The servers of a tenant at a switch.
#[derive(Debug, Default)]
pub struct Ring {
    position: Position,
    /// The stores of each server, by their place in the cluster file's list: one, or a rack's.
    servers: Vec<Vec<usize>>,
    /// The server that each place is, or is in.
    of: Vec<Option<usize>>,
}

impl Ring {
    /// What this switch shares out among. No more servers than are counted.
    pub fn new(switch: SwitchId, stores: &Stores) -> Ring {
        let places = || (0..stores.addresses().len()).filter(|at| stores.is_server(*at));
        let racks: Vec<SwitchId> = places().filter_map(|at| stores.rack(at)).collect();
        let position = match () {
            () if racks.is_empty() => Position::Alone,
            () if racks.contains(&switch) => Position::OnTop,
            () => Position::Above,
        };
        let mut servers: Vec<Vec<usize>> = match position {
            Position::Alone => places().map(|at| vec![at]).collect(),
            Position::OnTop => {
                let own = places().filter(|at| stores.rack(*at) == Some(switch));
                own.map(|at| vec![at]).collect()
            }
            Position::Above => racks_of(stores),
        };
        servers.truncate(EACH as usize);
        let mut of = vec![None; stores.addresses().len()];
        for (server, its) in servers.iter().enumerate() {
            its.iter().for_each(|at| of[*at] = Some(server));
        }
        Ring { position, servers, of }
    }

    /// Where the switch is among the others.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many servers there are.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// The stores of a server, by place.
    pub fn stores(&self, server: usize) -> &[usize] {
        self.servers.get(server).map_or(&[], Vec::as_slice)
    }

    /// The server that the store at this place is, or is in.
    pub fn server_of(&self, at: usize) -> Option<usize> {
        self.of.get(at).copied().flatten()
    }

    /// Where reads of a key come to if nothing is done about it: its home, or this rack's entry for
    /// a key of another one. None: they do not come this way, or nobody is `there` to be the entry.
    pub fn home(&self, key: &Key, stores: &Stores, there: &[bool]) -> Option<usize> {
        let home = stores.home_of(key);
        if self.server_of(home).is_some() || self.position != Position::OnTop {
            return self.server_of(home).map(|_| home);
        }
        entry(self.servers.iter().flatten(), home, key, stores, there)
    }

    /// Where a server has a key: itself, or of a rack the key's entry. None: it may not have it.
    pub fn entry(
        &self,
        server: usize,
        key: &Key,
        stores: &Stores,
        there: &[bool],
    ) -> Option<usize> {
        let home = stores.home_of(key);
        let of = self.stores(server);
        if of.contains(&home) {
            return Some(home).filter(|at| there[*at]);
        }
        match of {
            [at] => Some(*at).filter(|at| there[*at] && is_of_family(*at, home, stores)),
            rack => entry(rack, home, key, stores, there),
        }
    }
}

/// The stores of each rack; one without a rack is one by itself. All tenants have the same racks,
/// for these have to do what all of them ask.
fn racks_of(stores: &Stores) -> Vec<Vec<usize>> {
    let mut racks: BTreeMap<SwitchId, Vec<usize>> = BTreeMap::new();
    let mut alone = vec![];
    for at in 0..stores.addresses().len() {
        let own = stores.is_server(at).then_some(at);
        match stores.rack(at) {
            Some(rack) => racks.entry(rack).or_default().extend(own),
            None => alone.push(own.into_iter().collect()),
        }
    }
    racks.into_values().chain(alone).collect()
}

/// Whether reads of a key of that home can be sent to the store: a packet keeps its family.
fn is_of_family(at: usize, home: usize, stores: &Stores) -> bool {
    let is_ipv6 = |at: usize| stores.addresses()[at].is_ipv6();
    is_ipv6(at) == is_ipv6(home)
}

/// Of these stores, as far as they are of the home's family, the key's; where that is not `there`,
/// another one, which is not the same for all keys.
fn entry<'r>(
    rack: impl IntoIterator<Item = &'r usize>,
    home: usize,
    key: &Key,
    stores: &Stores,
    there: &[bool],
) -> Option<usize> {
    let rack = rack.into_iter().copied();
    let rack: Vec<usize> = rack.filter(|at| is_of_family(*at, home, stores)).collect();
    let first = rack.iter().copied().find(|at| there[*at])?;
    // The other half of the hash says which partition a key is in.
    let hash = stores.hash_of(key).low();
    let draws = (0..DRAWS).map(|n| mixed(hash.wrapping_add(n)) % rack.len() as u64);
    let mut drawn = draws.map(|draw| rack[draw as usize]);
    Some(drawn.find(|at| there[*at]).unwrap_or(first))
}

/// How often a key looks for a store that is there before it takes the first one.
const DRAWS: u64 = 64;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use wire::Secret;

    use super::*;

    const SPINE: SwitchId = 1;
    /// Of racks 2, 3 and 4, in this order, each with four stores.
    const RACKS: [SwitchId; 12] = [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4];

    fn stores() -> Stores {
        let address = |at: u16| SocketAddr::from(([10, 0, 0, at as u8], 7117));
        let addresses = (0..RACKS.len() as u16).map(address).collect();
        let homes = (0..RACKS.len() as u16).collect();
        Stores::new(addresses, 7, Secret([7; 16]), homes).in_racks(RACKS)
    }

    fn keys() -> impl Iterator<Item = Key> {
        (0..500).map(|n| Key::from(format!("key {n}")))
    }

    #[test]
    fn a_spine_and_a_rack_s_own_switch_agree_on_each_key_s_entry() {
        let stores = stores();
        let spine = Ring::new(SPINE, &stores);
        assert_eq!((spine.len(), spine.position()), (3, Position::Above));
        let mut there = vec![true; RACKS.len()];
        for dead in [None, Some(5), Some(6)] {
            dead.into_iter().for_each(|at: usize| there[at] = false);
            for (server, rack) in [2, 3, 4].into_iter().enumerate() {
                let top = Ring::new(rack, &stores);
                assert_eq!((top.len(), top.position()), (4, Position::OnTop));
                for key in keys() {
                    let entry = spine.entry(server, &key, &stores, &there);
                    let home = stores.home_of(&key);
                    let seen = top.home(&key, &stores, &there);
                    match there[home] || RACKS[home] != rack {
                        true => assert_eq!(entry, seen),
                        false => assert_eq!((entry, seen), (None, Some(home))),
                    }
                    assert!(entry.is_none_or(|at| there[at] && RACKS[at] == rack));
                    assert_eq!(spine.home(&key, &stores, &there), Some(home));
                }
            }
        }
    }

    #[test]
    fn entries_are_spread_and_stay_when_another_store_is_gone() {
        let stores = stores();
        let spine = Ring::new(SPINE, &stores);
        let mut there = vec![true; RACKS.len()];
        let entries = |there: &[bool]| -> Vec<usize> {
            let foreign = keys().filter(|key| stores.home_of(key) >= 4);
            foreign.filter_map(|key| spine.entry(0, &key, &stores, there)).collect()
        };
        let before = entries(&there);
        let count = |of: &[usize], at| of.iter().filter(|entry| **entry == at).count();
        for at in 0..4 {
            assert!(count(&before, at) > before.len() / 6, "{before:?}");
        }
        there[1] = false;
        let after = entries(&there);
        assert_eq!(count(&after, 1), 0);
        let moved = before.iter().zip(&after).filter(|(was, is)| was != is);
        assert_eq!(moved.count(), count(&before, 1));
        for at in [0, 2, 3] {
            assert!(count(&after, at) > after.len() / 5, "{after:?}");
        }
    }

    #[test]
    fn without_racks_every_store_is_a_server() {
        let alone = Ring::new(SPINE, &stores().in_racks([0; RACKS.len()]));
        assert_eq!((alone.len(), alone.position()), (12, Position::Alone));
        let some = stores().in_racks([0, 0]);
        let spine = Ring::new(SPINE, &some);
        assert_eq!(spine.len(), 5, "who has no rack is one by himself");
        assert_eq!([0, 2, 1].map(|at| spine.server_of(at)), [Some(3), Some(0), Some(4)]);
    }
}
