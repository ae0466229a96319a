//! Follows one shard of a Redis Cluster: the one that has most of the store's slots.
//!
//! Where its master is says a map that several nodes agree on ([`slot_map`](crate::slot_map)). It
//! is read when there is no connection, and every second. A map has a number, and one with a lower
//! number than that before is of nodes that have not heard of what is new: it is not believed, but
//! for what [`LatestEpoch`] says.
//!
//! What the master tells counts for a while after a map, no longer ([`Proof`]).

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    address::node_at, dial::Dial, latest_epoch::LatestEpoch, masters::Masters, proof::Proof,
};
use crate::{
    clock::boot_ns,
    slot_map::{MapReader, NodeAddress, Shard, SlotMap, list},
};

/// From the beginning of one reading of the map to that of the next, if it does not take longer.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The shard of a store.
pub(super) struct Follower {
    reader: MapReader,
    /// The first and the last of each run of the store's slots.
    own: Vec<(u32, u32)>,
    /// The newest map that was believed.
    map: Option<SlotMap>,
    latest: LatestEpoch,
    reading: Option<JoinHandle<anyhow::Result<SlotMap>>>,
    /// When nodes were asked for a map last.
    asked_ns: u64,
    proof: Proof,
    /// Slots of the store that other shards have by that map, in ascending order.
    away: Vec<u32>,
    /// The masters of the shards that have those.
    away_at: BTreeSet<NodeAddress>,
    /// Other shards have some that they did not have before, or have another master.
    has_lost: bool,
    /// Where masters are by that map, and were; nothing before there is one.
    masters: watch::Sender<Masters>,
    /// Nodes of other clusters of which it was said that they are.
    strangers: BTreeSet<NodeAddress>,
}

impl Follower {
    /// Of a store with these slots, by nodes of the cluster.
    pub fn new(seeds: Vec<ConnectionInfo>, dial: Dial, own: Vec<(u32, u32)>) -> Follower {
        let reader = MapReader::new(seeds, dial);
        let masters = watch::Sender::new(Masters::default());
        Follower {
            reader,
            own,
            map: None,
            latest: LatestEpoch::new("nodes", "map"),
            reading: None,
            asked_ns: 0,
            proof: Proof::new("the map of the Redis Cluster"),
            away: vec![],
            away_at: BTreeSet::new(),
            has_lost: false,
            masters,
            strangers: BTreeSet::new(),
        }
    }

    /// Where the cluster's masters are, as long as this follows it.
    pub fn masters(&self) -> watch::Receiver<Masters> {
        self.masters.subscribe()
    }

    /// Whether data of a node there may count: it is a master, or on no map yet.
    pub fn may_count(&self, at: &ConnectionAddr) -> bool {
        let masters = self.masters.borrow();
        node_at(at).is_none_or(|at| !masters.had(&at))
    }

    /// How a node is connected to.
    pub fn info_of(&self, at: &NodeAddress) -> ConnectionInfo {
        self.reader.info(at)
    }

    /// Where the shard's master is, as most nodes have it now.
    ///
    /// # Errors
    /// They cannot be asked, or know less than they did before.
    pub async fn master(&mut self) -> anyhow::Result<ConnectionInfo> {
        self.reading = None;
        self.asked_ns = boot_ns();
        let map = self.reader.read(self.map.as_ref()).await;
        self.believe(map, boot_ns()).context("the map of the Redis Cluster")?;
        self.info().context(
            "the Redis Cluster: nobody has any of this store's slots, or another cluster's node is where their master was",
        )
    }

    /// Has the map read again, unless that was done just now; it does not wait.
    pub fn doubts(&mut self) {
        let now_ns = boot_ns();
        if self.reading.is_none() && now_ns >= self.asked_ns + READ_AGAIN.as_nanos() as u64 {
            self.asked_ns = now_ns;
            let (reader, before) = (self.reader.clone(), self.map.clone());
            self.reading = Some(tokio::spawn(async move { reader.read(before.as_ref()).await }));
        }
    }

    /// Why the shard's master is not the one that is connected, if a map that was read meanwhile
    /// says so.
    pub async fn moved_from(&mut self, at: &ConnectionInfo) -> Option<String> {
        let reading = self.reading.take_if(|reading| reading.is_finished())?;
        let (map, now_ns) = (reading.await.ok()?, boot_ns());
        if let Err(error) = self.believe(map, now_ns) {
            self.proof.fails(&error, now_ns);
            return None;
        }
        let master = self.info().filter(|master| master.addr() != at.addr())?;
        Some(format!("the Redis Cluster has this store's slots at {}", master.addr()))
    }

    /// See [`Proof::until`].
    pub fn proven_until(&self) -> u64 {
        self.proof.until()
    }

    /// Whether another shard has the key's slot, by the newest map.
    pub fn is_away(&self, key: &[u8]) -> bool {
        // Most stores have none away, and this is asked of every command.
        !self.away.is_empty() && self.away.binary_search(&wire::cluster_slot(key)).is_ok()
    }

    /// Whether slots have gone to other shards since this was asked last, or those have other
    /// masters: whatever is granted or known of them may have been changed there, or be lost.
    pub fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
    }

    fn believe(&mut self, map: anyhow::Result<SlotMap>, now_ns: u64) -> anyhow::Result<()> {
        let map = map.inspect_err(|_| self.latest.hears_nothing())?;
        let agreed = self.shard(&map).filter(|shard| shard.is_agreed);
        let agreed = agreed.map(|shard| shard.master.clone());
        self.latest.hears(map.epoch, agreed, now_ns)?;
        self.proof.is_given(self.asked_ns);
        let strangers = map.strangers.iter().cloned();
        let news: Vec<NodeAddress> =
            strangers.filter(|at| self.strangers.insert(at.clone())).collect();
        if !news.is_empty() {
            tracing::warn!(
                "backend: nodes of another Redis Cluster answer at {}: what they say of slots is left out; their addresses \
                 may have been given to it, and may stand in --backend still",
                list(&news)
            );
        }
        let away = self.away(&map);
        if away.len() != self.away.len() && !away.is_empty() {
            tracing::warn!(
                "{} slots of this store are at other shards of the Redis Cluster (map {}): they are asked there, and no \
                 copies are granted of them, until the cluster file is written again (shortstop cluster import) and \
                 the stores are started with it",
                away.len(),
                map.epoch
            );
        }
        self.has_lost |= away.iter().any(|slot| self.away.binary_search(slot).is_err());
        let owners = away.iter().filter_map(|slot| map.owner(*slot));
        let away_at = owners.map(|owner| map.shards[owner].master.clone()).collect();
        self.has_lost |= !self.away_at.is_superset(&away_at);
        self.away = away;
        self.away_at = away_at;
        self.masters.send_if_modified(|masters| masters.become_those(&map.masters));
        self.map = Some(map);
        Ok(())
    }

    /// The shard that has most of the store's slots.
    fn shard<'a>(&self, map: &'a SlotMap) -> Option<&'a Shard> {
        let mut counts = vec![0; map.shards.len()];
        self.owners(map).filter_map(|(_, owner)| owner).for_each(|owner| counts[owner] += 1);
        let (at, count) = (0..).zip(counts).max_by_key(|(_, count)| *count)?;
        (count > 0).then(|| &map.shards[at])
    }

    fn owners(&self, map: &SlotMap) -> impl Iterator<Item = (u32, Option<usize>)> {
        let slots = self.own.iter().flat_map(|(first, last)| *first..=*last);
        slots.map(|slot| (slot, map.owner(slot)))
    }

    /// The store's slots that are not that shard's.
    fn away(&self, map: &SlotMap) -> Vec<u32> {
        let of_shard = self.shard(map).map(|shard| &shard.id);
        let id = |owner: usize| &map.shards[owner].id;
        let away = self.owners(map).filter(|(_, owner)| owner.map(id) != of_shard);
        let mut away: Vec<u32> = away.map(|(slot, _)| slot).collect();
        away.sort_unstable();
        away
    }

    fn info(&self) -> Option<ConnectionInfo> {
        let map = self.map.as_ref()?;
        // Its own cluster may not have noticed yet that it is gone.
        let shard = self.shard(map).filter(|shard| !map.strangers.contains(&shard.master))?;
        Some(self.reader.info(&shard.master))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::redis::proof::LASTS, slot_map::NodeView};

    fn follower(own: &[(u32, u32)]) -> Follower {
        let seeds = vec!["redis://127.0.0.1:1".parse().unwrap()];
        let dial = Dial::new(None, Duration::from_secs(1));
        Follower::new(seeds, dial, own.to_vec())
    }

    fn map(epoch: u64, a: &str, b: &str) -> SlotMap {
        map_with("b h:2@3", epoch, a, b)
    }

    /// With this name and place of the second master.
    fn map_with(second: &str, epoch: u64, a: &str, b: &str) -> SlotMap {
        let id = &second[..1];
        let text = |own: &str| {
            let flag = |id| if id == own { "myself," } else { "" };
            format!(
                "a h:1@2 {}master - 0 0 1 connected {a}\n{second} {}master - 0 0 {epoch} connected {b}\n",
                flag("a"),
                flag(id)
            )
        };
        let views = ["a", id].map(|own| NodeView::parse(&text(own), "h").unwrap());
        SlotMap::of(&views).unwrap()
    }

    #[test]
    fn the_shard_with_most_of_the_slots_is_followed_and_no_older_map() {
        let mut follower = follower(&[(0, 9)]);
        let port = |follower: &Follower| follower.info().unwrap().addr().to_string();
        let believe = |follower: &mut Follower, map| follower.believe(Ok(map), 0);
        believe(&mut follower, map(2, "0-9", "10-16383")).unwrap();
        assert_eq!((port(&follower), follower.away.len()), ("h:1".into(), 0));
        believe(&mut follower, map(3, "0-5", "6-16383")).unwrap();
        assert_eq!((port(&follower), follower.away.len()), ("h:1".into(), 4));
        assert!(follower.take_lost() && !follower.take_lost());
        let key = |slot| {
            let mut keys = (0..).map(|number: u32| number.to_string());
            keys.find(|key| wire::cluster_slot(key.as_bytes()) == slot).unwrap()
        };
        let is_away = |slot| follower.is_away(key(slot).as_bytes());
        assert_eq!([5, 6, 9].map(is_away), [false, true, true]);
        assert!(believe(&mut follower, map(2, "0-9", "10-16383")).is_err());
        believe(&mut follower, map(3, "0-7", "8-16383")).unwrap();
        assert!(!follower.take_lost(), "some came back");
        // What the other shard's next master has of these slots may be less.
        let successor = map_with("c h:3@4", 4, "0-7", "8-16383");
        believe(&mut follower, successor.clone()).unwrap();
        assert!(follower.take_lost());
        believe(&mut follower, successor).unwrap();
        assert!(!follower.take_lost());
        believe(&mut follower, map(5, "0-2", "3-16383")).unwrap();
        assert_eq!((port(&follower), follower.away.len()), ("h:2".into(), 3));
    }

    #[test]
    fn a_cluster_whose_numbers_have_begun_again_is_believed_after_a_while() {
        let mut follower = follower(&[(0, 9)]);
        let mut hears = |map, at_s: u64| follower.believe(Ok(map), at_s * 1_000_000_000).is_ok();
        assert!(hears(map(9, "0-9", "10-16383"), 0));
        let again = map(2, "0-9", "10-16383");
        assert_eq!([1, 10, 11].map(|at_s| hears(again.clone(), at_s)), [false, false, true]);
    }

    #[test]
    fn what_a_master_tells_counts_for_a_while_after_a_map() {
        let mut follower = follower(&[(0, 9)]);
        let lasts_ns = LASTS.as_nanos() as u64;
        let mut hears = |asked_ns, map| {
            follower.asked_ns = asked_ns;
            let _ = follower.believe(map, asked_ns + 70);
            follower.proven_until() - lasts_ns
        };
        assert_eq!(hears(100, Ok(map(2, "0-9", "10-16383"))), 100);
        assert_eq!(hears(200, Err(anyhow::anyhow!("1 of 3"))), 100);
        assert_eq!(hears(300, Ok(map(1, "0-9", "10-16383"))), 100);
        assert_eq!(hears(400, Ok(map(2, "0-9", "10-16383"))), 400);
    }
}
