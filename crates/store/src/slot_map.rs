//! Which shard of a Redis Cluster has which slots, put together from what several of its nodes say
//! (`CLUSTER NODES`): no node is believed alone where there are others.
//!
//! Nodes may disagree while something changes, and one that was away may come back with what it
//! knew then. Each claim to slots has a number, the config epoch of the claiming master; of two
//! claims to a slot the one with the higher number counts, and of two with the same number that
//! of the node whose name comes first, as among the nodes themselves. A map is made only if more
//! than half of the masters that it names have been heard: the others can have decided nothing
//! without one of these. Numbers of another cluster say nothing of this one: whose words are put
//! together says [`same_cluster`]. Texts go in, a map comes out; [`read`] asks.

mod read;
mod same_cluster;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use wire::CLUSTER_SLOTS;

pub(crate) use read::list;
pub use read::{MapReader, read};
pub use view::{ClusterNode, NodeAddress, NodeView};

/// The owner of each slot, as most of the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// Its number: the highest config epoch that any owner has. A later map has a higher one, or
    /// the same where only replicas or moving slots are new.
    pub epoch: u64,
    /// Shards that own slots, in the order of their first slots.
    pub shards: Vec<Shard>,
    /// Where masters are, also by their names: those of the shards, and those without slots that
    /// have not failed.
    pub masters: Vec<NodeAddress>,
    /// Slots that a node says it is giving away or taking in, in ascending order.
    pub moving: Vec<u16>,
    /// Where nodes have answered that are another cluster's: nothing of this is theirs.
    pub strangers: Vec<NodeAddress>,
    /// Of each slot its shard's place; [`UNOWNED`]: nobody has it.
    owners: Vec<u16>,
    /// The names of all nodes that have not failed.
    nodes: BTreeSet<String>,
}

const UNOWNED: u16 = u16::MAX;

/// A master, its replicas, and its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The master's name in the cluster: 40 hex digits.
    pub id: String,
    /// Where the master is.
    pub master: NodeAddress,
    /// Where its replicas are, as far as they have not failed.
    pub replicas: Vec<NodeAddress>,
    /// The first and the last of each run of its slots, in ascending order.
    pub slots: Vec<(u16, u16)>,
    /// More than half of the masters say themselves that this one is a master with slots.
    pub is_agreed: bool,
}

impl SlotMap {
    /// The map that these nodes' words make, all of one cluster.
    ///
    /// # Errors
    /// Why they make none: too few masters were heard, or nobody has slots.
    pub fn of(views: &[NodeView]) -> Result<SlotMap, String> {
        let mut claims: Vec<Option<(u64, &ClusterNode)>> = vec![None; CLUSTER_SLOTS as usize];
        let nodes = || views.iter().flat_map(|view| &view.nodes);
        for node in nodes().filter(|node| node.is_master) {
            for &(first, last) in &node.slots {
                for claim in &mut claims[usize::from(first)..=usize::from(last)] {
                    let is_later = |(epoch, other): (u64, &ClusterNode)| {
                        (epoch, &node.id) < (node.config_epoch, &other.id)
                    };
                    if claim.is_none_or(is_later) {
                        *claim = Some((node.config_epoch, node));
                    }
                }
            }
        }
        let mut places = BTreeMap::new();
        let mut shards: Vec<Shard> = vec![];
        let mut owners = vec![UNOWNED; CLUSTER_SLOTS as usize];
        for (slot, claim) in (0..).zip(&claims) {
            let Some((_, node)) = claim else { continue };
            let at = *places.entry(&node.id).or_insert_with(|| {
                let (id, master) = (node.id.clone(), address_of(&node.id, views));
                let master = master.unwrap_or_else(|| node.address.clone());
                let (replicas, slots) = (vec![], vec![]);
                shards.push(Shard { id, master, replicas, slots, is_agreed: false });
                shards.len() - 1
            });
            owners[usize::from(slot)] = at as u16;
            match shards[at].slots.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => shards[at].slots.push((slot, slot)),
            }
        }
        if shards.is_empty() {
            return Err("no node has slots: expected a Redis Cluster that was created".into());
        }
        let of_masters = || views.iter().filter(|view| places.contains_key(&view.myself));
        let heard = of_masters().count();
        if heard * 2 <= shards.len() {
            return Err(format!(
                "{heard} of {} masters have answered: expected more than half of them, for the others may know better",
                shards.len()
            ));
        }
        let mut named_by = vec![0; shards.len()];
        for node in of_masters().flat_map(|view| &view.nodes) {
            if let Some(at) = places.get(&node.id).filter(|_| node.is_master_with_slots()) {
                named_by[*at] += 1;
            }
        }
        let all = shards.len();
        for (shard, named_by) in shards.iter_mut().zip(named_by) {
            shard.is_agreed = named_by * 2 > all;
        }
        for node in nodes().filter(|node| !node.is_master && !node.is_failed) {
            let Some(at) = node.master.as_ref().and_then(|master| places.get(master)) else {
                continue;
            };
            if places.contains_key(&node.id) || shards[*at].replicas.contains(&node.address) {
                continue;
            }
            shards[*at].replicas.push(node.address.clone());
        }
        shards.iter_mut().for_each(|shard| shard.replicas.sort());
        let mut moving: Vec<u16> = nodes().flat_map(|node| node.moving.iter().copied()).collect();
        moving.sort_unstable();
        moving.dedup();
        let epochs = claims.iter().flatten().map(|(epoch, _)| *epoch);
        let mut masters: Vec<NodeAddress> = shards.iter().map(|s| s.master.clone()).collect();
        let empty = |node: &&ClusterNode| {
            let speaks = views.iter().find(|view| view.myself == node.id);
            let own = speaks.and_then(|view| view.nodes.iter().find(|own| own.id == node.id));
            own.unwrap_or(*node).is_master && !node.is_failed && node.slots.is_empty()
        };
        masters
            .extend(nodes().filter(|node| node.is_master).filter(empty).map(|n| n.address.clone()));
        let named = nodes().filter_map(|node| {
            let at = masters.iter().find(|at| **at == node.address)?;
            Some(NodeAddress { host: node.hostname.clone()?, port: at.port })
        });
        let named: Vec<NodeAddress> = named.collect();
        masters.extend(named);
        masters.sort();
        masters.dedup();
        let epoch = epochs.max().unwrap_or(0);
        let nodes = nodes().filter(|node| !node.is_failed).map(|node| node.id.clone()).collect();
        Ok(SlotMap { epoch, shards, masters, moving, strangers: vec![], owners, nodes })
    }

    /// The place of the shard that owns a slot.
    pub fn owner(&self, slot: u32) -> Option<usize> {
        let owner = self.owners.get(slot as usize).filter(|owner| **owner != UNOWNED);
        owner.map(|owner| usize::from(*owner))
    }

    /// The first slot that nobody owns.
    pub fn unowned(&self) -> Option<u32> {
        self.owners.iter().position(|owner| *owner == UNOWNED).map(|slot| slot as u32)
    }

    /// Where its nodes are, masters first.
    pub fn addresses(&self) -> impl Iterator<Item = &NodeAddress> {
        let masters = self.shards.iter().map(|shard| &shard.master);
        masters.chain(self.shards.iter().flat_map(|shard| &shard.replicas))
    }
}

/// Where a node is, by what it says itself if it was heard: others may know its former address.
fn address_of(id: &str, views: &[NodeView]) -> Option<NodeAddress> {
    let own = views.iter().find(|view| view.myself == id)?;
    let node = own.nodes.iter().find(|node| node.id == id)?;
    Some(node.address.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What node `myself` says of masters, each with a letter, a config epoch and slots.
    fn view(myself: &str, masters: &[(&str, u64, &str)]) -> NodeView {
        let line = |(id, epoch, slots): &(&str, u64, &str)| {
            let own = if *id == myself { "myself," } else { "" };
            let of_replica = if myself == format!("r{id}") { "myself," } else { "" };
            let port = 7000 + u32::from(id.as_bytes()[0]);
            format!(
                "{id} 10.0.0.1:{port}@17000 {own}master - 0 0 {epoch} connected {slots}\n\
                 r{id} 10.0.0.2:{port}@17000 {of_replica}slave {id} 0 0 {epoch} connected\n"
            )
        };
        let text: String = masters.iter().map(line).collect();
        NodeView::parse(&text, "10.0.0.1").unwrap()
    }

    #[test]
    fn of_two_claims_the_later_counts_whoever_tells_it() {
        let old = view("a", &[("a", 1, "0-16383"), ("b", 2, ""), ("c", 3, "")]);
        let new = |myself| view(myself, &[("a", 1, "0-99"), ("b", 5, "100-16383"), ("c", 3, "")]);
        for views in [[old.clone(), new("b")], [new("b"), old.clone()]] {
            let map = SlotMap::of(&views).unwrap();
            assert_eq!(map.epoch, 5);
            let owned = map.shards.iter().map(|shard| (&shard.id[..], &shard.slots[..]));
            let expected: [(&str, &[(u16, u16)]); 2] = [("a", &[(0, 99)]), ("b", &[(100, 16_383)])];
            assert_eq!(owned.collect::<Vec<_>>(), expected);
            assert_eq!((map.owner(99), map.owner(100), map.unowned()), (Some(0), Some(1), None));
            assert_eq!(map.shards[1].replicas.len(), 1);
            let agreed: Vec<bool> = map.shards.iter().map(|shard| shard.is_agreed).collect();
            assert_eq!(agreed, [true, false], "one of two has heard of the second");
        }
    }

    /// Both go on with the number until the one whose name comes first has taken a higher one.
    #[test]
    fn of_two_claims_with_one_number_the_first_name_counts_whoever_tells_it() {
        let of = |own| view(own, &[("a", 4, if own == "a" { "0-16383" } else { "0-99" })]);
        let by_b = view("b", &[("a", 4, "0-99"), ("b", 4, "0-16383"), ("c", 4, "7")]);
        for views in [[of("a"), by_b.clone()], [by_b, of("a")]] {
            let map = SlotMap::of(&views).unwrap();
            let owners = [0, 7, 16_383].map(|slot| &map.shards[map.owner(slot).unwrap()].id[..]);
            assert_eq!(owners, ["a"; 3]);
        }
    }

    #[test]
    fn one_of_three_masters_is_not_believed() {
        let masters = [("a", 1, "0-5000"), ("b", 2, "5001-9999"), ("c", 3, "10000-16383")];
        let error = SlotMap::of(&[view("a", &masters)]).unwrap_err();
        assert!(error.starts_with("1 of 3 masters have answered"), "{error}");
        assert!(SlotMap::of(&[view("a", &masters), view("ra", &masters)]).is_err(), "a replica");
        assert!(SlotMap::of(&[view("a", &masters), view("c", &masters)]).is_ok());
        assert!(SlotMap::of(&[]).is_err());
        assert!(SlotMap::of(&[view("a", &[("a", 1, "")])]).is_err(), "nobody has slots");
    }

    #[test]
    fn what_nobody_owns_and_what_moves_is_told() {
        let text =
            "a 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-9 11 [9->-bb] [12-<-cc]\n";
        let map = SlotMap::of(&[NodeView::parse(text, "h").unwrap()]).unwrap();
        assert_eq!(map.shards[0].slots, [(0, 9), (11, 11)]);
        assert_eq!((map.unowned(), map.owner(10)), (Some(10), None));
        assert_eq!(map.moving, [9, 12]);
        assert_eq!(map.masters.len(), 1);
    }
}
