//! One tenant at one switch: what is counted there, which keys are redirected there, and what is under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{
    Action, Change, Configuration, Key, Limits, Outcome, Record, Room, Stores, SwitchId, Tallies,
};
use hot::{Capacity, Threshold as Reports};

use super::{
    accuracy::Accuracy,
    copies::{self, Copies},
    estimate::Estimates,
    holds::Holds,
    servers::Servers,
    table::{Places, Table, Turns, Wants, turns_of},
    threshold::{Rules, Threshold},
    writes::Writes,
};
use crate::{
    parameters,
    record::Replicas,
    servers::{EACH, Server},
    settings,
};

/// Average requests of a server in a window below which chance alone would decide.
const ENOUGH: f64 = 16.0;
/// Windows in a row without them after which a tenant wants no room.
const IDLE: u32 = 10;
/// What may be chance of the highest of some loads: so many times what the square root of the average is.
const CHANCE: f64 = 3.0;
/// Little changes when less than one key in so many does, or one alone.
const STEADY: usize = 10;
/// A key of this part of the threshold may be above it soon.
const SOON: f64 = 0.25;
/// A key with fewer requests in a window than this at each of its servers is not worth another.
const WORTH: f64 = 2.0;
/// A switch that is away for so long need not be waited for.
const AWAY: Duration = Duration::from_secs(10);
/// For so long a key is left alone that cannot be at the switch; for a short time, if it only found no room.
const PAUSE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_secs(1);

/// A change that the switch has not answered.
#[derive(Debug)]
struct Asked {
    /// Where the key was before.
    before: Places,
    turns: Turns,
    /// Whether its stores are to be told all anew.
    anew: bool,
    /// Whether an inherited item was there before.
    inherited: bool,
}

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

/// See the module.
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
    servers: Servers,
    writes: Writes,
    /// What is there, or will be when what was asked is done.
    table: Table,
    copies: Copies,
    asked: BTreeMap<Key, Asked>,
    /// Items of a controller before us, or of other homes: nobody knows what stands behind them.
    inherited: BTreeSet<Key>,
    /// Items that the switch lost, and is to have again.
    missing: BTreeSet<Key>,
    paused: BTreeMap<Key, Duration>,
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
            servers: Servers::default(),
            writes: Writes::default(),
            table: Table::default(),
            copies: Copies::new(set[settings::COPIES] == 1, most),
            asked: BTreeMap::new(),
            inherited: BTreeSet::new(),
            missing: BTreeSet::new(),
            paused: BTreeMap::new(),
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

    /// The tenant has another number of pages there.
    pub fn resize(&mut self, pages: u32) {
        self.capacity.resize(pages, self.items());
    }

    /// Items that are there, of both kinds.
    fn items(&self) -> usize {
        self.table.len() + self.copies.len()
    }

    /// Keys lie at other stores from now on: what is there tells nothing any more.
    pub fn moved(&mut self, stores: &Stores, holds: &mut Holds) {
        let keys: Vec<Key> = self.table.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.drop_key(&key, stores, holds);
            self.inherited.insert(key);
        }
        self.servers.resize(stores.addresses().len());
        self.configured = None;
        self.settled = false;
    }

    /// Has the switch know the stores and the words, if it does not yet.
    pub fn configure(&mut self, stores: &Stores, out: &mut Vec<Action>) {
        let places = stores.addresses().iter().enumerate();
        let places = places.filter(|(place, _)| takes_part(stores, *place));
        let rows = places.flat_map(|(place, address)| {
            let server = Server {
                holder: stores.node(place),
                address: address.ip(),
                place: place as u16,
            };
            server.rows(self.tenant)
        });
        let configuration = Configuration {
            parameters: parameters::Words {
                reported_from: self.reports.requests(),
                fan_out: self.limits.settings[settings::FAN_OUT] == 1,
                part: self.threshold.part(),
            }
            .words(),
            rows: rows.collect(),
            groups: vec![],
        };
        if self.attached && self.configured.as_ref() != Some(&configuration) {
            self.configured = Some(configuration.clone());
            out.push(Action::Configure {
                switch: self.switch,
                tenant: self.tenant,
                configuration,
            });
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
        self.inherited
            .extend(held.iter().filter(|key| !is_mine(key)).cloned());
        lost.iter().for_each(|key| {
            self.inherited.remove(key);
        });
    }

    /// The switch missed these so often in this window so far.
    pub fn reported(&mut self, keys: &[(Key, u64)]) {
        self.counts.reports += keys.len() as u64;
        self.reports.reported(keys.len());
        for (key, requests) in keys {
            self.estimates.count(key, *requests);
        }
    }

    /// A window ended in which items had these requests, and the programs counted this.
    pub fn window_end(
        &mut self,
        now: Duration,
        items: &[(Key, u64)],
        tallies: &Tallies,
        stores: &Stores,
        holds: &Holds,
        out: &mut Vec<Action>,
    ) {
        for (key, requests) in items {
            self.estimates.count(key, *requests);
        }
        self.servers.window_end(tallies);
        self.writes.window_end(tallies);
        let may = self.who_may(stores, holds);
        let (average, excess) = self.servers.load(&may);
        if average < ENOUGH {
            return self.idle(&may, out);
        }
        self.idle = 0;
        self.estimates.window_end();
        let hottest = self.estimates.highest(self.limits.max_items);
        self.accuracy.window_end(&self.estimates, &hottest);
        self.reports.window_end(false);
        self.capacity.window_end();
        self.excess = excess;
        self.paused.retain(|_, until| *until > now);
        let worth = self.copies.worth(&hottest);
        let copied = self.plan_copies(now, average, &hottest, out);
        let hottest: Vec<(Key, f64)> = hottest
            .into_iter()
            .filter(|(key, _)| !self.copies.takes(key))
            .collect();
        self.move_threshold(average, &may, &hottest);
        let changes = self.limits.settings[settings::CHANGES] as usize - copied;
        self.plan(changes, average, &hottest, &may, stores, out);
        self.wanted = self.wanted.max(worth);
    }

    /// Nobody asks: what is there stays for when somebody does, but claims no room for long, and nothing is left of a leader before.
    fn idle(&mut self, may: &[bool], out: &mut Vec<Action>) {
        self.estimates.skip_window();
        if !self.attached || !may.contains(&true) {
            return;
        }
        self.idle = self.idle.saturating_add(1);
        if self.idle >= IDLE {
            self.wanted = 0;
            self.settled = true;
            let changes = self.limits.settings[settings::CHANGES] as usize;
            self.end_inherited(changes, |_| true, out);
        }
    }

    /// What of the hottest keys is to be a copy here, and what no longer. Returns how many changes that takes.
    fn plan_copies(
        &mut self,
        now: Duration,
        average: f64,
        hottest: &[(Key, f64)],
        out: &mut Vec<Action>,
    ) -> usize {
        if !self.attached {
            return 0;
        }
        let planned = self.copies.plan(
            now,
            &copies::Wants {
                hottest,
                load: &|key| self.estimates.of(key),
                threshold: (self.threshold.part() * average).max(WORTH),
                writes: self.writes.part(),
                room: self.capacity.items(),
                changes: self.limits.settings[settings::CHANGES] as usize / 2,
                busy: &|key| {
                    self.table.servers(key).is_some()
                        || self.asked.contains_key(key)
                        || self.missing.contains(key)
                },
            },
        );
        let count = planned.len();
        for change in planned {
            let (key, change) = match change {
                copies::Planned::Put(key) => {
                    self.counts.puts += 1;
                    (key, Change::Put(Record::Fetched))
                }
                copies::Planned::Remove(key) => {
                    self.counts.removes += 1;
                    (key, Change::Remove)
                }
            };
            self.send(key, change, out);
        }
        count
    }

    /// The threshold moves by windows that show what it does: not by one in which much changed, unless that is far from balance.
    fn move_threshold(&mut self, average: f64, may: &[bool], hottest: &[(Key, f64)]) {
        if self.limits.settings[settings::FIXED] == 1 {
            return;
        }
        if let Some((_, most)) = hottest.first() {
            self.threshold.hottest(most / average);
        }
        let chance = |average: f64| CHANCE / average.sqrt();
        let moved = if !self.settled {
            true
        } else if !is_steady(self.changed, self.table.len()) {
            if self.threshold.is_far(self.excess, chance(average)) {
                self.threshold.window_end(self.excess, chance(average));
            }
            true
        } else {
            self.servers.remember();
            let (requests, excess) = self.servers.lately(may);
            self.threshold.window_end(excess, chance(requests))
        };
        if moved {
            self.servers.forget();
        }
    }

    fn who_may(&self, stores: &Stores, holds: &Holds) -> Vec<bool> {
        let places = stores.addresses().iter().enumerate();
        places
            .map(|(at, store)| {
                takes_part(stores, at) && holds.is_attached(store) && self.servers.answers(at)
            })
            .collect()
    }

    fn plan(
        &mut self,
        mut changes: usize,
        average: f64,
        hottest: &[(Key, f64)],
        may: &[bool],
        stores: &Stores,
        out: &mut Vec<Action>,
    ) {
        if !self.attached || !may.contains(&true) {
            return;
        }
        let again: Vec<Key> = self.missing.iter().take(changes).cloned().collect();
        changes -= again.len();
        for key in again {
            self.missing.remove(&key);
            if let Some(servers) = self.table.servers(&key).cloned() {
                self.put(&key, servers, true, may, stores, out);
            }
        }
        // Items that nobody wants make room first.
        let hot: BTreeSet<&Key> = hottest.iter().map(|(key, _)| key).collect();
        changes -= self.end_inherited(changes / 2, |key| !hot.contains(key), out);
        let threshold = (self.threshold.part() * average).max(WORTH);
        // Room for what comes next is there before it comes.
        let worth = |load: f64| load > SOON * threshold;
        let worth = hottest.iter().take_while(|(_, load)| worth(*load)).count();
        self.wanted = worth.max(self.items());
        let planned = self.table.plan(&Wants {
            hottest,
            load: &|key| self.estimates.of(key),
            threshold,
            home: &|key| stores.home_of(key),
            loads: &self.servers.loads(),
            weight: &|at| self.servers.weight(at),
            may,
            most: self
                .writes
                .most()
                .min(self.limits.settings[settings::REPLICAS] as usize),
            busy: &|key| {
                self.asked.contains_key(key)
                    || self.paused.contains_key(key)
                    || self.missing.contains(key)
                    || self.copies.has(key)
            },
            room: self.capacity.items().saturating_sub(self.copies.len()),
            changes,
        });
        self.settled = planned.len() < changes.max(2) / 2 && self.missing.is_empty();
        self.changed = planned.len();
        for change in planned {
            match change.servers.is_empty() {
                true => self.remove(&change.key, out),
                false => self.put(&change.key, change.servers, false, may, stores, out),
            }
        }
        if self.settled {
            // What was to be taken over has been.
            let left = changes.saturating_sub(self.changed);
            self.end_inherited(left, |_| true, out);
        }
    }

    /// Removes inherited items, of those that `which` chooses `most` at most. Returns how many.
    fn end_inherited(
        &mut self,
        most: usize,
        which: impl Fn(&Key) -> bool,
        out: &mut Vec<Action>,
    ) -> usize {
        let (table, copies) = (&self.table, &self.copies);
        self.inherited
            .retain(|key| table.servers(key).is_none() && !copies.has(key));
        let gone = self.inherited.iter().filter(|key| which(key));
        let gone: Vec<Key> = gone.take(most).cloned().collect();
        gone.iter().for_each(|key| self.remove(key, out));
        gone.len()
    }

    fn put(
        &mut self,
        key: &Key,
        servers: Places,
        anew: bool,
        may: &[bool],
        stores: &Stores,
        out: &mut Vec<Action>,
    ) {
        let before = self.table.servers(key).cloned().unwrap_or_default();
        let was_there = |at: &usize| !anew && before.contains(at) && may[*at];
        let valid: Vec<usize> = servers.iter().copied().filter(was_there).collect();
        let turns = turns_of(&servers, &|at| self.servers.weight(at));
        let Some(record) = record(key, &servers, &turns, &valid, stores) else {
            return;
        };
        self.counts.puts += 1;
        let turns_before = self.table.turns(key);
        self.table.set(key, servers);
        self.table.set_turns(key, turns);
        self.ask(
            key,
            Change::Put(Record::Given(record)),
            Asked {
                before,
                turns: turns_before,
                anew,
                inherited: false,
            },
            out,
        );
    }

    fn remove(&mut self, key: &Key, out: &mut Vec<Action>) {
        self.counts.removes += 1;
        let before = self.table.servers(key).cloned().unwrap_or_default();
        let turns = self.table.turns(key);
        self.table.set(key, vec![]);
        let asked = Asked {
            before,
            turns,
            anew: false,
            inherited: false,
        };
        self.ask(key, Change::Remove, asked, out);
    }

    fn ask(&mut self, key: &Key, change: Change, mut asked: Asked, out: &mut Vec<Action>) {
        asked.inherited = self.inherited.remove(key);
        self.asked.insert(key.clone(), asked);
        self.send(key.clone(), change, out);
    }

    fn send(&self, key: Key, change: Change, out: &mut Vec<Action>) {
        out.push(Action::Change {
            switch: self.switch,
            tenant: self.tenant,
            key,
            change,
        });
    }

    /// A change was answered: stores hear of it now.
    pub fn answered(
        &mut self,
        now: Duration,
        key: &Key,
        outcome: Outcome,
        stores: &Stores,
        holds: &mut Holds,
    ) {
        if self.copies.answered(now, key, outcome) {
            return self.copy_answered(outcome);
        }
        let Some(asked) = self.asked.remove(key) else {
            return;
        };
        let servers = self.table.servers(key).cloned().unwrap_or_default();
        if outcome != Outcome::Done {
            return self.failed(now, key, outcome, asked, stores, holds);
        }
        let home = stores.home_of(key);
        let store = |at: &usize| stores.addresses().get(*at).copied();
        let gone = asked
            .before
            .iter()
            .filter(|at| **at != home && !servers.contains(at));
        for store in gone.filter_map(store) {
            holds.release(self.tenant, store, key);
        }
        for at in servers.iter().filter(|at| **at != home) {
            let Some(store) = store(at) else { continue };
            if !asked.before.contains(at) {
                holds.hold(self.tenant, store, key);
            } else if asked.anew {
                holds.again(self.tenant, store, key);
            }
        }
    }

    fn copy_answered(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::NoRoom => {
                self.counts.no_room += 1;
                self.capacity.no_room(self.items());
            }
            Outcome::NotSent => self.counts.not_sent += 1,
            _ => {}
        }
    }

    fn failed(
        &mut self,
        now: Duration,
        key: &Key,
        outcome: Outcome,
        asked: Asked,
        stores: &Stores,
        holds: &mut Holds,
    ) {
        let pause = match outcome {
            Outcome::NotSent => {
                self.counts.not_sent += 1;
                SHORT
            }
            Outcome::NoRoom => {
                self.counts.no_room += 1;
                self.capacity.no_room(self.items().saturating_sub(1));
                SHORT
            }
            _ => PAUSE,
        };
        self.paused.insert(key.clone(), now + pause);
        if outcome == Outcome::NotSent {
            if asked.anew {
                self.missing.insert(key.clone());
            }
            if asked.inherited {
                self.inherited.insert(key.clone());
            }
            self.table.set(key, asked.before);
            return self.table.set_turns(key, asked.turns);
        }
        self.table.set(key, asked.before);
        self.drop_key(key, stores, holds);
    }

    /// The switch gave items up; `unfit`: it cannot have copies of them.
    pub fn dropped(
        &mut self,
        now: Duration,
        keys: &[Key],
        unfit: bool,
        stores: &Stores,
        holds: &mut Holds,
    ) {
        for key in keys {
            if self.copies.dropped(now, key, unfit) {
                self.counts.dropped += 1;
                continue;
            }
            // Its answer says more.
            if self.asked.contains_key(key) {
                continue;
            }
            self.counts.dropped += 1;
            self.paused.insert(key.clone(), now + SHORT);
            self.inherited.remove(key);
            self.drop_key(key, stores, holds);
        }
    }

    /// A key stands nowhere any more.
    fn drop_key(&mut self, key: &Key, stores: &Stores, holds: &mut Holds) {
        let servers = match self.asked.get_mut(key) {
            Some(asked) => std::mem::take(&mut asked.before),
            None => self.table.servers(key).cloned().unwrap_or_default(),
        };
        let home = stores.home_of(key);
        let others = servers.iter().filter(|at| **at != home);
        for store in others.filter_map(|at| stores.addresses().get(*at)) {
            holds.release(self.tenant, *store, key);
        }
        self.table.set(key, vec![]);
        self.missing.remove(key);
    }

    /// Ends: no store holds anything for it any longer.
    pub fn end(&mut self, stores: &Stores, holds: &mut Holds) {
        self.moved(stores, holds);
    }

    /// Whether everything that is at the switch is known, and there as planned, or the switch is away for long.
    pub fn is_settled(&self, now: Duration) -> bool {
        if !self.attached && now >= self.since + AWAY {
            return true;
        }
        self.settled
            && self.inherited.is_empty()
            && self.asked.is_empty()
            && self.copies.is_settled()
    }

    /// Keys that it would have if there were room.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Figures by name, for `status`.
    pub fn figures(&self) -> [(&'static str, u64); 17] {
        let Counts {
            reports,
            puts,
            removes,
            no_room,
            not_sent,
            dropped,
        } = self.counts;
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

/// The record of a key that is at these servers, with so many turns each; what `valid` are has confirmed it, as far as we know.
fn record(
    key: &Key,
    servers: &[usize],
    turns: &[usize],
    valid: &[usize],
    stores: &Stores,
) -> Option<bytes::Bytes> {
    let home = stores.home_of(key);
    let again = servers.iter().zip(turns).flat_map(|(at, turns)| {
        let turns = turns - usize::from(*at != home);
        std::iter::repeat_n(stores.node(*at), turns)
    });
    let nodes = |places: &[usize]| -> Vec<u16> {
        let others = places.iter().filter(|at| **at != home);
        others.map(|at| stores.node(*at)).collect()
    };
    let record = Replicas {
        home: stores.node(home),
        replicas: nodes(servers),
        again: again.collect(),
        valid: nodes(valid),
    };
    record.encode()
}

/// Whether a place may be in a record: only what is counted there says what it can take.
fn takes_part(stores: &Stores, at: usize) -> bool {
    at < EACH as usize && stores.is_server(at)
}

/// Whether so many changes of a table of so many keys leave the load where it was.
fn is_steady(changed: usize, keys: usize) -> bool {
    changed <= (keys / STEADY).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_key_that_comes_and_goes_is_no_change() {
        let steady = |changed, keys| super::is_steady(changed, keys);
        assert!(steady(0, 0) && steady(1, 8) && steady(10, 100));
        assert!(!steady(2, 8) && !steady(11, 100));
    }
}
