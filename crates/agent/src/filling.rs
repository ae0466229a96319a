//! Fills items that are copies with their stores' values: keeps the leases, sends fetches. The
//! answers are the programs' affair.

use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

use dataplane::{Backing, Leases, Place};
use decide::ItemKey;
use tracing::warn;
use wire::Cluster;

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
}

impl Filling {
    pub fn open(at: &Backing) -> Result<Filling, AgentError> {
        Ok(Filling { leases: Leases::open(at)?, fetches: Fetches::default() })
    }

    /// The slots of the stores' leases, taken where there are none yet.
    pub fn slots(&self, cluster: &Cluster) -> BTreeMap<SocketAddr, u16> {
        let slot = |store: SocketAddr| {
            let slot = self.leases.slot_of(store);
            if slot.is_none() {
                warn!("no lease slot left for store {store}: its items are not cached");
            }
            Some((store, slot?))
        };
        let stores = cluster.stores.iter().map(|store| store.address);
        stores.filter_map(slot).collect()
    }

    /// Lets go of the slots of stores that have left, whose items are gone.
    pub fn let_go(&self, cluster: &Cluster) -> Result<(), AgentError> {
        let stay = cluster.stores.iter().map(|store| store.address.ip());
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
