//! What the controller keeps of one switch: its stream, what it is to have, what it is believed to
//! hold, and its commands.

mod held;
mod next;
mod outbox;
mod rate;
mod stream;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use api::proto::{Counters, Hello, Routes, RoutesApplied, Setup, SwitchStatus};
use decide::{Change, ItemKey, Life, Outcome, SwitchId};
use serde::{Deserialize, Serialize};
use wire::Cluster;

pub use self::{
    held::BelievedItems,
    outbox::{IN_FLIGHT_MAX, QueuedChange},
    stream::{CloseReason, StreamId},
};
use self::{
    outbox::Outbox,
    rate::{Bucket, Rate},
    stream::Stream,
};
use super::{config::CoreConfig, mail::Mail};

/// Keys that a switch may say it holds: bounds what it can make us remember.
const HELD_MAX: usize = 1 << 20;

/// What a switch may say that its kernel refuses, and how long each of its words may be: as above.
const REFUSED_MAX: usize = 32;
const REFUSED_CHARS: usize = 512;

fn shortened(text: &str) -> String {
    text.chars().take(REFUSED_CHARS).collect()
}

/// What is remembered of a switch beside its items, pages and configurations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SwitchRecord {
    /// The name by which the switch called itself.
    pub name: String,
    /// Pages of cache memory.
    pub pages: u32,
}

/// What a switch said of all its items, both sorted.
#[derive(Debug, PartialEq)]
pub struct ItemsReport {
    /// It is the first time on this stream.
    pub greeting: bool,
    /// What it has.
    pub held: Vec<ItemKey>,
    /// What it was believed to have beside.
    pub lost: Vec<ItemKey>,
}

/// A setup, and the journal's position after which it is safe to send.
#[derive(Debug)]
struct WantedSetup {
    setup: Setup,
    safe_after: u64,
    /// Rises with each that is another.
    version: u64,
}

/// One switch.
pub struct Switch {
    known: SwitchRecord,
    /// What it says of itself: the life of its tables, its address, and what its kernel refuses
    /// with why.
    life: u64,
    address: Option<IpAddr>,
    refused: BTreeMap<String, String>,
    stream: Option<Stream>,
    /// The items that it is believed to hold.
    pub held: BelievedItems,
    outbox: Outbox,
    /// For the discipline's half in its agent.
    mail: Mail,
    /// Tenants whose items changed since it counted them last.
    changed: BTreeSet<u32>,
    bucket: Bucket,
    updates: Rate,
    reports: Rate,
    malformed: u64,
    reconciled: u64,
    setup: Option<WantedSetup>,
    /// The journal's position after which its page table is safe to send.
    table_safe_after: u64,
    /// The routes it is to have, those that it said it has, and why it has not all of them.
    routes: Routes,
    routes_applied: Option<u64>,
    routes_failed: Vec<String>,
}

impl Switch {
    /// A switch that is away.
    pub fn new(
        known: SwitchRecord,
        held: BelievedItems,
        config: &CoreConfig,
        now: Duration,
    ) -> Switch {
        Switch {
            known,
            life: 0,
            address: None,
            refused: BTreeMap::new(),
            stream: None,
            held,
            outbox: Outbox::new(4 * config.limits.max_items.max(IN_FLIGHT_MAX)),
            mail: Mail::default(),
            changed: BTreeSet::new(),
            bucket: Bucket::new(config.updates_per_s, now),
            updates: Rate::default(),
            reports: Rate::default(),
            malformed: 0,
            reconciled: 0,
            setup: None,
            table_safe_after: 0,
            routes: Routes::default(),
            routes_applied: None,
            routes_failed: vec![],
        }
    }

    /// Its name and pages.
    pub fn known(&self) -> &SwitchRecord {
        &self.known
    }

    /// Takes a name and pages over; says whether they are others than before.
    pub fn learn(&mut self, known: SwitchRecord) -> bool {
        let is_new = self.known != known;
        self.known = known;
        is_new
    }

    /// It begins to speak. An address that it does not know of itself the cluster file may have.
    pub fn says(&mut self, hello: &Hello, cluster: &Cluster) {
        let mut listed = cluster.switches.iter();
        let listed = listed.find(|listed| listed.name == hello.name);
        let own = hello.address.parse().ok();
        self.life = hello.life;
        let refused = hello.refused.iter().take(REFUSED_MAX);
        self.refused = refused.map(|r| (shortened(&r.name), shortened(&r.reason))).collect();
        self.address = own.or(listed.map(|listed| listed.address));
    }

    /// What its kernel refuses, disciplines by name and write-back, with why.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// What it says of itself.
    pub fn life(&self, switch: SwitchId) -> Life {
        Life { switch, number: self.life, address: self.address }
    }

    /// Messages for the halves in its agent.
    pub fn mail(&mut self) -> &mut Mail {
        &mut self.mail
    }

    /// Its agent took in every message up to this number.
    pub fn took_mail(&mut self, seq: u64) {
        if let Some(stream) = &self.stream {
            self.mail.acknowledged(seq.min(stream.mail_sent));
        }
    }

    /// Whether it is attached and said what it holds.
    pub fn is_ready(&self) -> bool {
        self.stream.as_ref().is_some_and(|s| s.greeted)
    }

    /// Whether it was sent the setup that it is to have.
    pub fn has_newest_setup(&self) -> bool {
        let wanted = self.setup.as_ref().map(|wanted| wanted.version);
        self.stream.as_ref().is_some_and(|s| s.greeted && s.setup_sent == wanted)
    }

    /// Where packets for it go, if it said so since this controller leads.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Whether items of a tenant are about to change, or did since they were counted.
    pub fn is_busy(&self, tenant: u32) -> bool {
        self.outbox.is_busy(tenant) || self.changed.contains(&tenant)
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration) {
        self.updates.tick(now);
        self.reports.tick(now);
    }

    /// Takes a command; false if too many wait.
    pub fn command(&mut self, change: Change, key: ItemKey) -> bool {
        self.outbox.push(change, key)
    }

    /// A command was answered: what it was, unless it had been answered before.
    pub fn acknowledged(&mut self, seq: u64, outcome: Outcome) -> Option<(ItemKey, QueuedChange)> {
        let (key, asked) = self.outbox.answered(seq)?;
        self.changed.insert(key.tenant);
        match (&asked.change, outcome) {
            (Change::Put(_), Outcome::Done) => self.held.insert(key.clone()),
            (Change::RemoveIf(_), outcome) if outcome != Outcome::Done => {}
            _ => self.held.remove(&key),
        }
        if outcome == Outcome::Done {
            self.updates.add(1);
        }
        Some((key, asked))
    }

    /// Counts keys that it reported, and those that were no keys of tenants.
    pub fn reported(&mut self, keys: u64, malformed: u64) {
        self.reports.add(keys);
        self.malformed += malformed;
    }

    /// It gave these items up.
    pub fn dropped(&mut self, items: &[ItemKey]) {
        items.iter().for_each(|key| self.held.remove(key));
    }

    /// Compares what it holds with what is believed. If that differs, it is asked for a list;
    /// says so.
    pub fn compare(&mut self, counters: &Counters) -> bool {
        self.changed.clear();
        let ours = self.held.digest();
        let theirs = counters.held.map(|theirs| (theirs.count, theirs.sum));
        let differs = theirs.is_some_and(|theirs| theirs != (ours.count, ours.sum));
        let asked = differs && self.stream.as_mut().is_some_and(Stream::want_list);
        self.reconciled += u64::from(asked);
        asked
    }

    /// It tells what it holds, in parts; with the last of them what was believed is put right.
    ///
    /// # Errors
    /// Nobody asked, or there are too many.
    pub fn tells(
        &mut self,
        keys: Vec<ItemKey>,
        last: bool,
    ) -> Result<Option<ItemsReport>, CloseReason> {
        let stream = self.stream.as_mut().ok_or(CloseReason::Replaced)?;
        let Some(all) = stream.take_told(keys, last)? else { return Ok(None) };
        let greeting = !std::mem::replace(&mut stream.greeted, true);
        if greeting {
            self.outbox.reconnected();
        }
        let (held, lost) = self.held.replace(all);
        Ok(Some(ItemsReport { greeting, held, lost }))
    }

    /// Sets the setup that it is to have, with the journal's position after which it is safe
    /// to send.
    pub fn want_setup(&mut self, setup: Setup, safe_after: u64) {
        let before = self.setup.as_ref();
        if before.is_none_or(|before| before.setup != setup) {
            self.setup = Some(WantedSetup {
                setup,
                safe_after,
                version: before.map_or(1, |before| before.version + 1),
            });
        }
    }

    /// Whether a tenant is in the setup that it is to have.
    pub fn lists(&self, tenant: u32) -> bool {
        let tenants = self.setup.iter().flat_map(|wanted| &wanted.setup.tenants);
        tenants.into_iter().any(|t| t.tenant == tenant)
    }

    /// The tenants that may use it: whose packets reach a discipline there, by number.
    pub fn users(&self) -> Vec<u32> {
        let tenants = self.setup.iter().flat_map(|wanted| &wanted.setup.tenants);
        let users = tenants.filter(|t| !t.discipline.is_empty());
        users.map(|t| t.tenant).collect()
    }

    /// Its page table changed; from that position of the journal on it is safe to send.
    pub fn table_changed(&mut self, safe_after: u64) {
        self.table_safe_after = safe_after;
    }

    /// It has a page table in force.
    pub fn table_applied(&mut self, version: u64) {
        if let Some(stream) = &mut self.stream {
            stream.table_applied = stream.table_applied.max(Some(version));
        }
    }

    /// Sets the routes that it is to have.
    pub fn want_routes(&mut self, term: u64, routes: Vec<api::proto::Route>) {
        if self.routes.version == 0 || self.routes.routes != routes {
            self.routes = Routes { term, version: self.routes.version + 1, routes };
        }
    }

    /// It has installed its routes, as far as it could. What a lead before this one gave it counts
    /// for nothing; an agent of an earlier version does not say whose routes they were.
    pub fn routes_applied(&mut self, id: SwitchId, term: u64, applied: RoutesApplied) {
        let sent = self.stream.as_ref().and_then(|stream| stream.routes_sent);
        let is_ours = match applied.term {
            0 => sent.is_some_and(|(sent, _)| applied.version <= sent),
            its => its == term,
        };
        if !is_ours {
            return;
        }
        for line in applied.failed.iter().take(16) {
            tracing::warn!(switch = id, "route not installed: {line}");
        }
        self.routes_applied = Some(applied.version);
        self.routes_failed = applied.failed;
    }

    /// Whether the routes that it is to have are in force, but for those that failed.
    pub fn has_its_routes(&self) -> bool {
        self.routes_applied == Some(self.routes.version)
    }

    /// Why a route was not installed when it was tried last.
    pub fn route_failure(&self, prefix: &str) -> Option<&String> {
        let mut failed = self.routes_failed.iter();
        failed.find(|line| line.starts_with(prefix))
    }

    /// What the status shows of it, with a discipline's counters.
    pub fn status<'a>(
        &self,
        id: SwitchId,
        now: Duration,
        counters: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> SwitchStatus {
        let own = [("malformed_keys", self.malformed), ("reconciliations", self.reconciled)];
        let all = counters.into_iter().chain(own);
        SwitchStatus {
            switch_id: u32::from(id),
            name: self.known.name.clone(),
            attached: self.is_ready(),
            pages: self.known.pages,
            items: self.held.len() as u64,
            commands_waiting: self.outbox.waiting() as u64,
            commands_in_flight: self.outbox.in_flight() as u64,
            updates_per_s: self.updates.per_s(now),
            reports_per_s: self.reports.per_s(now),
            counters: all.map(|(name, n)| (name.to_string(), n)).collect(),
        }
    }

    /// Whether it has a stream.
    pub fn is_attached(&self) -> bool {
        self.stream.is_some()
    }
}
