//! Slots of a Redis Cluster that move away from the shard behind a store and back, and somebody
//! who reads and writes at the node that they are at meanwhile, past the store.
//!
//! To the store that is an outside write of a key that nobody has copies of, if these have had the
//! time to go: so the clients' record is linearizable with it.

use history::{ClientRecord, ClientsConfig, Recorder};
use rand::{RngExt, seq::IndexedRandom};
use seed::rng;
use sim::{KeptData, SLOTS};
use wire::{Cluster, Header, Op};

use crate::{Act, Clients, Deed, HuntPlan, plan::one_in};

/// One plan in so many has stores before a Redis Cluster: seeds that end in 9; where keys are lent,
/// half as many, so that what seldom befalls loans still does in as few plans. Others are what they
/// were before there were any.
const ONE_PLAN_IN: u64 = 10;
/// The number of whoever asks past the stores, above those of others.
const NUMBER: u32 = 900;
/// Keys that he looks at for one that has moved.
const LOOKED_AT: u32 = 32;

impl HuntPlan {
    /// Has slots move in one plan of ten.
    pub(crate) fn draw_slots(&mut self) {
        let plans = if self.writes_back() { 2 * ONE_PLAN_IN } else { ONE_PLAN_IN };
        if self.seed % plans != ONE_PLAN_IN - 1 {
            return;
        }
        let mut rng = rng(self.seed, "slots that move");
        for store in &mut self.stores {
            store.is_shard = true;
            store.data_us = *[200, 1_000, 3_000].choose(&mut rng).expect("some");
        }
        // What others write does not change a key's version: compare-and-set by it says nothing.
        let are_asked_past = !one_in(&mut rng, 3);
        if are_asked_past {
            // And what he writes counts where many read the same few keys just then.
            self.clients = Clients {
                plain: 1.0,
                keys: self.clients.keys.min(2),
                each: self.clients.each.max(4),
                pause_us: 1_000,
                ..self.clients
            };
        }
        let quiet_ms = self.copies_gone_ms();
        self.lasts_ms = self.lasts_ms.max(2 * quiet_ms + 2_000);
        for _ in 0..rng.random_range(1..=4) {
            let store = rng.random_range(0..self.stores.len());
            let slot = rng.random_range(0..SLOTS);
            let takes_ms = *[0, 20, 500].choose(&mut rng).expect("some");
            let at_ms = rng.random_range(0..self.lasts_ms / 2);
            let for_ms = rng.random_range(1..=takes_ms + quiet_ms + 3_000);
            self.deeds.push(Deed { at_ms, for_ms, act: Act::MoveSlot { store, slot, takes_ms } });
            let quiet_until_ms = at_ms + takes_ms + quiet_ms;
            let over_ms = (at_ms + for_ms).min(self.lasts_ms);
            if !are_asked_past || quiet_until_ms >= over_ms {
                continue;
            }
            for _ in 0..rng.random_range(1..=40) {
                let at_ms = rng.random_range(quiet_until_ms..over_ms);
                self.deeds.push(Deed { at_ms, for_ms: 0, act: Act::AskPast { store } });
            }
        }
    }

    /// How long after a slot has left no copy is served that is of before, in milliseconds: a
    /// lease, whatever clocks say.
    pub(crate) fn copies_gone_ms(&self) -> u64 {
        let lease_ms = u64::from(self.longest_lease_ms());
        lease_ms + lease_ms / 50 + 50
    }
}

/// Somebody who asks past the stores.
pub(crate) struct Outsider {
    recorder: Recorder,
    cluster: Cluster,
    tenants: Vec<u32>,
}

impl Outsider {
    /// One that asks for the keys of these clients.
    pub fn new(config: &ClientsConfig) -> Outsider {
        let config = ClientsConfig { plain: 1.0, lives: None, ..config.clone() };
        Outsider {
            recorder: Recorder::new(&config, NUMBER),
            tenants: config.tenants.clone(),
            cluster: config.cluster,
        }
    }

    /// Reads or writes a key of this store whose slot has been away for long enough; whether there
    /// is one.
    pub fn ask(&mut self, store: usize, data: &KeptData, now_ns: u64, quiet_ns: u64) -> bool {
        let address = self.cluster.stores[store].address;
        for _ in 0..LOOKED_AT {
            let question = self.recorder.next(now_ns);
            let tenant = self.tenants[question.tenant];
            let Some(secrets) = self.cluster.secrets_of(tenant) else { continue };
            let bytes = question.key.as_bytes();
            let hash = secrets.hash.key_hash(tenant, bytes);
            if self.cluster.store_of(tenant, hash).address != address {
                continue;
            }
            let key = store::backend::Key { tenant, hash, bytes };
            let (write, op) = match question.operation() {
                client::Operation::Set { value, .. } => (Some(value), Op::WriteReply),
                _ => (None, Op::ReadReply),
            };
            let Some(found) = data.ask_past_store(key, write, now_ns, quiet_ns) else { continue };
            let value_len = write.map_or(0, <[u8]>::len);
            let request = client::kit::Request { tenant, value_len, is_write: write.is_some() };
            let header = match &found {
                Some(item) => Header { version: item.version, ..Header::new(op) },
                None => Header { status: wire::Status::NotFound, ..Header::new(op) },
            };
            let value = match write {
                Some(_) => vec![],
                None => found.map(|item| item.value).unwrap_or_default(),
            };
            let answer = client::Answer::new(address, request, header, value.into());
            return self.recorder.told(Ok(answer), now_ns);
        }
        false
    }

    /// What it has seen.
    pub fn into_recorded(self) -> ClientRecord {
        self.recorder.into_recorded()
    }
}
