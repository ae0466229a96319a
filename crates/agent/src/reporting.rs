//! Reports what the switch sees: keys that are hot, requests of items, traffic by client and store, and a digest of
//! what is held.

use api::{
    Digest,
    proto::{self, Counters, Flow, FromSwitch, HotReports, from_switch::Body},
};
use dataplane::{Backing, Event, Events, Sketches, Traffic};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::debug;
use wire::KeyHash;

use super::{
    AgentError,
    hot::Candidates,
    memory::InWindow,
    tell::{KEYS_PER_MESSAGE, send, tenant_counts},
};

pub(super) struct Reporting {
    events: Events,
    sketches: Sketches,
    traffic: Traffic,
    candidates: Candidates,
    /// Of everything that is held.
    digest: Digest,
}

impl Reporting {
    pub fn open(at: &Backing) -> Result<Reporting, AgentError> {
        Ok(Reporting {
            events: Events::open(at)?,
            sketches: Sketches::open(at)?,
            traffic: Traffic::open(at)?,
            candidates: Candidates::default(),
            digest: Digest::default(),
        })
    }

    /// An item is there now: its key is no candidate any longer.
    pub fn add(&mut self, key: &ItemKey) {
        self.digest.add(key);
        self.candidates.forget(key);
    }

    /// An item is gone.
    pub fn remove(&mut self, key: &ItemKey) {
        self.digest.remove(key);
    }

    /// What the programs told since the last time.
    pub fn events(&self) -> Result<Vec<Event>, AgentError> {
        Ok(self.events.drain()?.collect())
    }

    /// A program reported a key that is not held, of one of so many tenants; the count to tell, if it is news.
    pub fn hot(
        &mut self,
        key: &ItemKey,
        hash: KeyHash,
        window: u32,
        tenants: usize,
    ) -> Option<u64> {
        let sketches = &self.sketches;
        self.candidates.report(key, hash, window, tenants, sketches)
    }

    /// Tells of hot keys in this window.
    pub fn tell_hot(&self, counts: &[(ItemKey, u64)], window: u32, out: &Sender<FromSwitch>) {
        for chunk in counts.chunks(KEYS_PER_MESSAGE) {
            let report = HotReports {
                window: window.into(),
                keys: tenant_counts(chunk),
            };
            send(out, Body::Hot(report));
        }
    }

    /// Tells of the keys that were read `factor` times as often as last told.
    pub fn tell_risen(&mut self, factor: f64, window: u32, out: &Sender<FromSwitch>) {
        let risen = self.candidates.risen(factor, &self.sketches);
        self.tell_hot(&risen, window, out);
    }

    /// Tells what a window came to.
    pub fn tell_window(
        &self,
        window: u32,
        window_ms: u32,
        seen: InWindow,
        out: &Sender<FromSwitch>,
    ) {
        let counters = Counters {
            window: window.into(),
            window_ms,
            items: tenant_counts(&seen.requests),
            pages: seen.pages,
            tenants: seen.tenants,
            held: Some(proto::Digest {
                count: self.digest.count,
                sum: self.digest.sum,
            }),
        };
        send(out, Body::Counters(counters));
    }

    /// Tells of measured tenants' traffic since the last time.
    pub fn tell_traffic(&self, out: &Sender<FromSwitch>) {
        let flows = match self.traffic.drain() {
            Ok(flows) => flows,
            Err(e) => return debug!("traffic by client and store: {e}"),
        };
        let flow = |f: &dataplane::FlowCount| Flow {
            tenant: f.tenant,
            client: f.client.octets().to_vec().into(),
            store: f.store.octets().to_vec().into(),
            requests: f.requests,
        };
        if !flows.is_empty() {
            let flows = flows.iter().map(flow).collect();
            send(out, Body::Traffic(proto::Traffic { flows }));
        }
    }

    /// Starts over for the next window.
    pub fn begin(&mut self, window: u32) {
        self.candidates.begin(window);
    }
}
