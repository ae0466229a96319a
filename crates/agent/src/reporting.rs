//! Reports what the switch sees: keys that are hot, requests of items, what disciplines' programs
//! count, traffic by client and store, and a digest of what is held.

use std::collections::BTreeMap;

use api::{
    Digest,
    proto::{
        self, Counters, Flow, FromSwitch, HotReports, Tally, TenantTallies, from_switch::Body,
    },
};
use dataplane::{Backing, Event, Events, Sketches, Tallies, Traffic};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::debug;
use wire::KeyHash;

use super::{
    AgentError,
    hot::{Candidates, ReportMoment},
    memory::InWindow,
    tell::{KEYS_PER_MESSAGE, send, tenant_counts, that_fit},
};

pub(super) struct Reporting {
    events: Events,
    sketches: Sketches,
    traffic: Traffic,
    tallies: Tallies,
    /// What was last read of each tenant's.
    tallied: BTreeMap<u32, decide::Tallies>,
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
            tallies: Tallies::open(at)?,
            tallied: BTreeMap::new(),
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

    /// These are the tenants from now on: what was counted at the places of new ones before is
    /// not theirs.
    pub fn fit(&mut self, tenants: impl Iterator<Item = u32>) -> Result<(), AgentError> {
        let mut before = std::mem::take(&mut self.tallied);
        for tenant in tenants {
            let known = before.remove(&tenant);
            let now = known.map_or_else(|| self.tallies.read(tenant), |known| Ok(Some(known)))?;
            self.tallied.extend(now.map(|now| (tenant, now)));
        }
        Ok(())
    }

    /// What the programs counted of each tenant since the last time.
    fn take_tallies(&mut self) -> Result<Vec<TenantTallies>, AgentError> {
        let mut all = vec![];
        for (tenant, before) in &mut self.tallied {
            let Some(now) = self.tallies.read(*tenant)? else { continue };
            let new = |(now, before): (&u64, &u64)| now.saturating_sub(*before);
            let words = now.iter().zip(before.iter()).map(new);
            let tallies = (0..).zip(words).filter(|(_, count)| *count > 0);
            let tallies: Vec<Tally> = tallies.map(|(word, count)| Tally { word, count }).collect();
            *before = now;
            if !tallies.is_empty() {
                all.push(TenantTallies { tenant: *tenant, tallies });
            }
        }
        Ok(all)
    }

    /// What the programs told since the last time.
    pub fn events(&self) -> Result<Vec<Event>, AgentError> {
        Ok(self.events.drain()?.collect())
    }

    /// A program reported a key, of one of so many tenants; the count to tell, if it is news.
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
            let report = HotReports { window: window.into(), keys: tenant_counts(chunk) };
            send(out, Body::Hot(report));
        }
    }

    /// Follows a key in this window, of one of so many tenants, whether or not a program
    /// reported it.
    pub fn follow(&mut self, key: &ItemKey, hash: KeyHash, tenants: usize) {
        let sketches = &self.sketches;
        self.candidates.begin_to_follow(key, hash, tenants, sketches);
    }

    /// Tells of the keys that were read more often than last told; `hits` are reads in this window
    /// that an item answered.
    pub fn tell_risen(
        &mut self,
        when: ReportMoment,
        window: u32,
        hits: impl Fn(&ItemKey) -> u64,
        out: &Sender<FromSwitch>,
    ) {
        let risen = self.candidates.risen(when, &self.sketches, hits);
        self.tell_hot(&risen, window, out);
    }

    /// Tells what a window came to; whether programs have counted anything in it.
    pub fn tell_window(
        &mut self,
        window: u32,
        window_ms: u32,
        seen: InWindow,
        out: &Sender<FromSwitch>,
    ) -> Result<bool, AgentError> {
        let tallies = self.take_tallies()?;
        let any = !tallies.is_empty();
        let counters = Counters {
            window: window.into(),
            window_ms,
            items: tenant_counts(&that_fit(seen.requests)),
            pages: seen.pages,
            tenants: seen.tenants,
            held: Some(proto::Digest { count: self.digest.count, sum: self.digest.sum }),
            tallies,
        };
        send(out, Body::Counters(counters));
        Ok(any)
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
