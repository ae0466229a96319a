//! One tenant at one switch: what is counted there, which keys are redirected there, and what is
//! under way.

mod changes;
mod window;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use decide::{Action, Configuration, Key, Limits, Room, Stores, SwitchId};
use hot::{Capacity, Threshold as Reports};

use super::{
    accuracy::Accuracy,
    copies::Copies,
    estimate::Estimates,
    holdings::Holdings,
    ring::{Position, Ring},
    servers::Servers,
    table::Table,
    threshold::{Rules, Threshold},
    writes::Writes,
};
use crate::{parameters, servers::Server, settings};
use changes::PendingChange;

/// A switch that is away for so long need not be waited for.
const AWAY: Duration = Duration::from_secs(10);

/// What was done since the start.
#[derive(Debug, Default)]
struct Counts {
    reports: u64,
    puts: u64,
    removes: u64,
    no_room: u64,
    not_sent: u64,
    dropped: u64,
}

/// A tenant at a switch.
pub struct Side {
    switch: SwitchId,
    tenant: u32,
    limits: Limits,
    attached: bool,
    /// Since when it is there, or is not.
    since: Duration,
    /// Windows in a row in which too few asked.
    idle: u32,
    estimates: Estimates,
    threshold: Threshold,
    reports: Reports,
    capacity: Capacity,
    ring: Ring,
    servers: Servers,
    writes: Writes,
    /// What is there, or will be when what was asked is done.
    table: Table,
    copies: Copies,
    asked: BTreeMap<Key, PendingChange>,
    /// Items of a controller before us, or of other homes: nobody knows what stands behind them.
    /// One that is to be a copy counts until that is answered.
    inherited: BTreeSet<Key>,
    /// Items that the switch lost, and is to have again.
    missing: BTreeSet<Key>,
    paused: BTreeMap<Key, Duration>,
    /// Places of stores that are not there or do not answer, and since when.
    absent: BTreeMap<usize, Duration>,
    accuracy: Accuracy,
    excess: f64,
    /// Whether what was planned last is there.
    settled: bool,
    /// Changes that were planned last.
    changed: usize,
    wanted: usize,
    configured: Option<Configuration>,
    counts: Counts,
}

impl Side {
    /// Nothing known yet but what an earlier controller left in the parameter words.
    pub fn new(tenant: u32, room: &Room, limits: Limits) -> Side {
        let set = limits.settings;
        let rules = Rules {
            first: f64::from(set[settings::FIRST_MILLIONTHS]) / 1e6,
            bound: f64::from(set[settings::BOUND_PERMILLE]) / 1e3,
            gamma: f64::from(set[settings::GAMMA_PERCENT]) / 1e2,
        };
        let mut threshold = Threshold::new(rules);
        let before = room.parameters.map(parameters::read);
        if let Some(before) = &before {
            threshold.resume(before.part);
        }
        let most = limits.max_items;
        Side {
            switch: room.switch,
            tenant,
            attached: false,
            since: Duration::ZERO,
            idle: 0,
            estimates: Estimates::new(f64::from(set[settings::ALPHA_PERCENT]) / 1e2, most),
            threshold,
            reports: Reports::new(
                before.map(|before| before.reported_from),
                limits.reports_per_window,
            ),
            capacity: Capacity::new(most, room.pages),
            ring: Ring::default(),
            servers: Servers::default(),
            writes: Writes::default(),
            table: Table::default(),
            copies: Copies::new(set[settings::COPIES] == 1, most),
            asked: BTreeMap::new(),
            inherited: BTreeSet::new(),
            missing: BTreeSet::new(),
            paused: BTreeMap::new(),
            absent: BTreeMap::new(),
            accuracy: Accuracy::default(),
            excess: 0.0,
            settled: false,
            changed: 0,
            wanted: 0,
            configured: None,
            counts: Counts::default(),
            limits,
        }
    }

    /// The switch came or went.
    pub fn attached(&mut self, now: Duration, attached: bool) {
        self.attached = attached;
        self.since = now;
        self.configured = None;
    }

    /// A store began anew, by its place: it is empty, and as fast as any.
    pub fn began(&mut self, at: usize) {
        self.servers.began(at);
    }

    /// The tenant has another number of pages there.
    pub fn resize(&mut self, pages: u32) {
        self.capacity.resize(pages, self.items());
    }

    /// Items that are there, of both kinds.
    fn items(&self) -> usize {
        self.table.len() + self.copies.len()
    }

    /// Keys lie at other stores from now on: what is there tells nothing any more, and leads to
    /// where stores were.
    pub fn moved(&mut self, stores: &Stores, holds: &mut Holdings) {
        // Of one whose removal is under way the table knows nothing any more.
        let keys = self.table.iter().map(|(key, _)| key).chain(self.asked.keys());
        let keys: BTreeSet<Key> = keys.cloned().collect();
        for key in keys {
            self.drop_key(&key, stores, holds);
            self.inherited.insert(key);
        }
        self.ring = Ring::new(self.switch, stores);
        self.servers.resize(self.ring.len());
        self.absent.clear();
        self.configured = None;
        self.settled = false;
    }

    /// Has the switch know the stores and the words, if it does not yet.
    pub fn configure(&mut self, stores: &Stores, out: &mut Vec<Action>) {
        let servers = (0..self.ring.len()).flat_map(|server| self.ring.stores(server));
        let rows = servers.map(|at| server_at(&self.ring, stores, *at).row(self.tenant));
        let configuration = Configuration {
            parameters: parameters::Words {
                reported_from: self.reports.requests(),
                fan_out: self.limits.settings[settings::FAN_OUT] == 1,
                on_top: self.ring.position() == Position::OnTop,
                two_choices: self.ring.position() == Position::Above,
                part: self.threshold.part(),
            }
            .words(),
            rows: rows.collect(),
            groups: vec![],
        };
        if self.attached && self.configured.as_ref() != Some(&configuration) {
            self.configured = Some(configuration.clone());
            out.push(Action::Configure { switch: self.switch, tenant: self.tenant, configuration });
        }
    }

    /// The switch came (back) with these items, and without those.
    pub fn holds(&mut self, held: &[Key], lost: &[Key]) {
        let there: BTreeSet<&Key> = held.iter().collect();
        let mine = self.table.iter().map(|(key, _)| key);
        let gone = mine.filter(|key| !there.contains(key) && !self.asked.contains_key(*key));
        self.missing.extend(gone.cloned());
        self.copies.holds(&there);
        let is_mine = |key: &&Key| {
            let is_hot = self.table.servers(key).is_some() || self.asked.contains_key(*key);
            is_hot || self.copies.has(key)
        };
        self.inherited.extend(held.iter().filter(|key| !is_mine(key)).cloned());
        lost.iter().for_each(|key| {
            self.inherited.remove(key);
        });
    }

    /// The switch missed these so often in this window so far.
    pub fn reported(&mut self, keys: &[(Key, u64)]) {
        self.counts.reports += keys.len() as u64;
        self.reports.reported(keys.len());
        for (key, requests) in keys {
            // Of a copy only what it did not answer is reported.
            if !self.copies.missed(key, *requests) {
                self.estimates.count(key, *requests);
            }
        }
    }

    /// Ends: no store holds anything for it any longer.
    pub fn end(&mut self, stores: &Stores, holds: &mut Holdings) {
        self.moved(stores, holds);
    }

    /// Whether nothing that was inherited is at the switch any more, so that stores know of all
    /// that leads to them; or the switch is away for long. Changes of other keys may be under way,
    /// and where load moves always are.
    pub fn is_settled(&self, now: Duration) -> bool {
        if !self.attached && now >= self.since + AWAY {
            return true;
        }
        self.settled
            && self.inherited.is_empty()
            && self.asked.values().all(|change| !change.inherited)
    }

    /// Whether a store of the rack that the switch is at the top of answers nothing any longer.
    /// Other switches do not see the one store.
    pub fn is_silent(&self, at: usize) -> bool {
        let server = self.ring.server_of(at);
        let is_on_top = self.ring.position() == Position::OnTop;
        is_on_top && server.is_some_and(|server| !self.servers.answers(server))
    }

    /// The stores of which is told with this switch's figures: those of its rack, where there are
    /// racks.
    pub fn own_stores<'s>(
        &self,
        stores: &'s Stores,
    ) -> impl Iterator<Item = SocketAddr> + use<'_, 's> {
        let is_above = self.ring.position() == Position::Above;
        let servers = 0..if is_above { 0 } else { self.ring.len() };
        let places = servers.flat_map(|server| self.ring.stores(server));
        places.map(|at| stores.addresses()[*at])
    }

    /// Keys that it would have if there were room.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Figures by name, for `status`.
    pub fn figures(&self) -> [(&'static str, u64); 17] {
        let Counts { reports, puts, removes, no_room, not_sent, dropped } = self.counts;
        [
            ("reports", reports),
            ("puts", puts),
            ("removes", removes),
            ("no_room", no_room),
            ("not_sent", not_sent),
            ("dropped", dropped),
            ("hot_keys", self.table.len() as u64),
            ("copies", self.copies.len() as u64),
            ("copies_unfit", self.copies.unfit() as u64),
            ("replicas", self.table.replicas() as u64),
            ("threshold_millionths", (self.threshold.part() * 1e6) as u64),
            ("excess_permille", (self.excess.max(0.0) * 1e3) as u64),
            ("windows_predicted", self.accuracy.windows()),
            ("predicted_permille", self.accuracy.permille()),
            ("predicted_1000_permille", self.accuracy.permille_of_first()),
            ("writes_permille", (self.writes.part() * 1e3) as u64),
            ("reported_from", self.reports.requests().into()),
        ]
    }
}

/// The store of a place that there is.
fn server_at(ring: &Ring, stores: &Stores, at: usize) -> Server {
    Server {
        holder: stores.node(at),
        address: stores.addresses()[at].ip(),
        place: ring.server_of(at).map_or(u16::MAX, |server| server as u16),
    }
}
