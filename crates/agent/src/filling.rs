//! Fills items that are copies with their stores' values: keeps the leases, sends fetches. The
//! answers are the programs' affair. And tells the stores how often the copies were read, which
//! they see nothing of.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Instant,
};

use dataplane::{Backing, Leases, Place};
use decide::{ItemKey, Items};
use tracing::warn;
use wire::{Cluster, ReadCount, Store};

use super::{
    AgentError,
    courier::Requests,
    fetches::{FetchRound, Fetches},
    memory::Memory,
    served::ServedCluster,
};

const LEASE_LOW_MS: u64 = 700;

pub(super) struct Filling {
    leases: Leases,
    fetches: Fetches,
    /// The stores whose packets no program takes: they have no lease, and it is said once of each.
    unseen: BTreeSet<SocketAddr>,
    /// One read in 2^this is counted.
    sample_shift: u32,
}

impl Filling {
    pub fn open(at: &Backing) -> Result<Filling, AgentError> {
        Ok(Filling {
            leases: Leases::open(at)?,
            fetches: Fetches::default(),
            unseen: BTreeSet::new(),
            sample_shift: 0,
        })
    }

    /// From now on one read in 2^`sample_shift` is counted.
    pub fn set_sampling(&mut self, sample_shift: u32) {
        self.sample_shift = sample_shift.min(31);
    }

    /// The slots of the stores' leases, taken where there are none yet. A store at another port
    /// than ours gets none: its answers would pass by the programs, and writes of what it had
    /// granted would wait for a lease.
    pub fn slots(&mut self, cluster: &Cluster) -> BTreeMap<SocketAddr, u16> {
        let stores = cluster.stores.iter().map(|store| store.address);
        let (unseen, seen): (BTreeSet<_>, BTreeSet<_>) =
            stores.partition(|store| Store::unseen_by_switches(*store).is_some());
        let new = unseen.difference(&self.unseen);
        new.filter_map(|store| Store::unseen_by_switches(*store)).for_each(|why| warn!("{why}"));
        self.unseen = unseen;
        let slot = |store: SocketAddr| {
            let slot = self.leases.slot_of(store);
            if slot.is_none() {
                warn!("no lease slot left for store {store}: its items are not cached");
            }
            Some((store, slot?))
        };
        seen.into_iter().filter_map(slot).collect()
    }

    /// Lets go of the slots of all stores but these, whose items are gone.
    pub fn let_go(&self, slots: &BTreeMap<SocketAddr, u16>) -> Result<(), AgentError> {
        let stay = slots.keys().map(|store| store.ip());
        Ok(self.leases.keep_only(&stay.collect())?)
    }

    /// Wants the value of a new item.
    pub fn fetch(&mut self, key: ItemKey, place: Place, now: Instant) {
        self.fetches.add(key, place, now);
    }

    /// Wants the values of items that were read and have none.
    pub fn fetch_missing(&mut self, read: &[(ItemKey, u64)], memory: &Memory, now: Instant) {
        let missing = read.iter().filter_map(|(key, _)| {
            let place = memory.place_of(key)?;
            memory.wants_value(key, place, &self.leases)?;
            Some((key.clone(), place))
        });
        self.fetches.add_again(missing, now);
    }

    /// Sends what is due. Returns the keys that have no value.
    pub fn send(
        &mut self,
        now: Instant,
        memory: &Memory,
        served: Option<&ServedCluster>,
        requests: &mut Requests,
    ) -> Vec<ItemKey> {
        let Some(served) = served else { return vec![] };
        let FetchRound { send, without_value } =
            self.fetches.due(now, |key, place| memory.wants_value(key, place, &self.leases));
        for (key, epoch) in send {
            let Some(hash) = served.hash_of(&key) else { continue };
            let store = served.cluster.store_of(key.tenant, hash).address;
            requests.fetch(store, &key, hash, epoch, &served.system_secret());
        }
        without_value
    }

    /// Tells stores how often their keys were read here in a window. Keys of which no store has the
    /// data are nobody's business.
    pub fn tell_reads(
        &self,
        read: &[(ItemKey, u64)],
        switch: u16,
        served: &ServedCluster,
        requests: &mut Requests,
    ) {
        let mut by_store = BTreeMap::<SocketAddr, Vec<ReadCount>>::new();
        for (key, reads) in read {
            let here = served.tenants.get(&key.tenant);
            let are_copies = here.is_some_and(|here| here.items() == Some(Items::Copies));
            let Some(hash) = served.hash_of(key).filter(|_| are_copies) else { continue };
            let reads = u32::try_from(*reads << self.sample_shift).unwrap_or(u32::MAX);
            let store = served.cluster.store_of(key.tenant, hash).address;
            let counts = by_store.entry(store).or_default();
            counts.push(ReadCount { tenant: key.tenant, hash, reads });
        }
        let secret = served.system_secret();
        for (store, counts) in by_store {
            requests.tell_reads(store, switch, &counts, &secret);
        }
    }

    /// Asks for leases that run out. The data plane renews them itself when stores offer to.
    pub fn ask_for_leases(&mut self, switch: u16, served: &ServedCluster, requests: &mut Requests) {
        let secret = served.system_secret();
        for (store, slot) in &served.slots {
            if self.leases.state(*slot).remaining_ms < LEASE_LOW_MS {
                let now_ns = self.leases.now_ns();
                requests.ask_for_lease(*store, switch, *slot, now_ns, &secret);
            }
        }
    }
}
