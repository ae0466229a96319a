//! What follows from a window: what is to be a copy, where the threshold goes, which keys are to
//! stand where.

use std::{collections::BTreeSet, time::Duration};

use decide::{Action, Change, Key, Record, Stores, Tallies};

use super::Side;
use crate::{
    control::{copies, situation::Situation},
    servers::HITS,
    settings,
};

/// Average requests of a server in a window below which chance alone would decide what balances
/// them; with as few, those that copies answer counted, nobody asks.
const ENOUGH: f64 = 16.0;
/// What a server is taken to have to do on average at least, where copies answer the rest.
const LITTLE: f64 = 1.0;
/// Windows in a row without them after which a tenant wants no room.
const IDLE: u32 = 10;
/// What may be chance of the highest of some loads: so many times what the square root of the
/// average is.
const CHANCE: f64 = 3.0;
/// Little changes when less than one key in so many does, or one alone.
const STEADY: usize = 10;
/// A key of this part of the threshold may be above it soon.
const SOON: f64 = 0.25;
/// A key with fewer requests in a window than this at each of its servers is not worth another:
/// what it has in the next is chance.
const WORTH: f64 = 8.0;

/// What servers will have to do in a window, in requests, as keys' loads are expected to be.
struct Forecast {
    average: f64,
    /// With more than this a server has too much to do.
    full: f64,
    /// The load of each server, beside its weight.
    loads: Vec<f64>,
    /// Which servers may have something.
    may: Vec<bool>,
}

impl Side {
    /// A window ended in which items had these requests, and the programs counted this. Which
    /// stores are `there` is said by place.
    pub fn window_end(
        &mut self,
        now: Duration,
        items: &[(Key, u64)],
        tallies: &Tallies,
        stores: &Stores,
        there: &[bool],
        out: &mut Vec<Action>,
    ) {
        for (key, requests) in items {
            self.estimates.count(key, *requests);
        }
        self.servers.window_end(tallies);
        self.writes.window_end(tallies);
        let may = self.who_may(there);
        let (average, excess) = self.servers.load(&may);
        let is_loaded = average >= ENOUGH;
        let answered = tallies[HITS] as f64 / may.len().max(1) as f64;
        if !is_loaded && average + answered < ENOUGH {
            return self.idle(&may, out);
        }
        // Of a tenant whose requests copies answer servers may have none at all.
        let average = average.max(LITTLE);
        self.idle = 0;
        self.estimates.window_end(average);
        let expected = self.expected(average, may);
        let hottest = self.estimates.highest(self.limits.max_items);
        self.accuracy.window_end(&self.estimates, &hottest);
        self.reports.window_end(false);
        self.capacity.window_end();
        self.excess = excess;
        self.paused.retain(|_, until| *until > now);
        let worth = self.copies.worth(&hottest);
        let copied = self.plan_copies(now, &expected, &hottest, stores, out);
        let hottest: Vec<(Key, f64)> =
            hottest.into_iter().filter(|(key, _)| !self.copies.takes(key)).collect();
        let most = hottest.first().map(|(_, most)| most / expected.average);
        if is_loaded {
            self.move_threshold(average, &expected.may, most.unwrap_or(0.0));
        }
        let changes = self.limits.settings[settings::CHANGES] as usize - copied;
        if self.attached && expected.may.contains(&true) {
            self.look_who_is_there(now, &expected.may, there);
            self.plan(now, changes, &expected, &hottest, stores, there, out);
        }
        self.wanted = self.wanted.max(worth);
    }

    /// What is to be expected after a window in which a server had so much to do on average.
    fn expected(&self, average: f64, may: Vec<bool>) -> Forecast {
        let expected = self.estimates.average();
        let part = expected / average;
        let loads = self.servers.loads().into_iter().map(|load| load * part);
        Forecast {
            average: expected,
            full: part * (average * (1.0 + self.threshold.bound()) + CHANCE * average.sqrt()),
            loads: loads.collect(),
            may,
        }
    }

    /// Nobody asks: what is there stays for when somebody does, but claims no room for long, and
    /// nothing is left of a leader before.
    fn idle(&mut self, may: &[bool], out: &mut Vec<Action>) {
        self.estimates.skip_window();
        self.reports.window_end(false);
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

    /// What of the hottest keys is to be a copy here, and what no longer. Returns how many changes
    /// that takes.
    fn plan_copies(
        &mut self,
        now: Duration,
        expected: &Forecast,
        hottest: &[(Key, f64)],
        stores: &Stores,
        out: &mut Vec<Action>,
    ) -> usize {
        if !self.attached {
            return 0;
        }
        let (writes, set) = (&self.writes, self.most_set());
        let Forecast { average, full, loads, .. } = expected;
        let planned = self.copies.plan(
            now,
            &copies::Situation {
                hottest,
                load: &|key| self.estimates.of(key),
                threshold: (self.threshold.part() * average).max(WORTH),
                most: &|load: f64| writes.most_of(load / average).min(set),
                home: &|key| self.ring.server_of(stores.home_of(key)),
                loads,
                average: *average,
                full: *full,
                writes: self.writes.part(),
                room: self.capacity.items(),
                records: self.table.len(),
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
                // What stands there is to be replaced, or removed when nothing else is left to do.
                copies::CopyChange::Yield(key) => {
                    self.inherited.insert(key);
                    continue;
                }
                copies::CopyChange::Put(key) => {
                    self.counts.puts += 1;
                    (key, Change::Put(Record::Fetched))
                }
                copies::CopyChange::Remove(key) => {
                    self.counts.removes += 1;
                    (key, Change::Remove)
                }
            };
            self.send(key, change, out);
        }
        count
    }

    /// The threshold moves by windows that show what it does: not by one in which much changed,
    /// unless that is far from balance.
    fn move_threshold(&mut self, average: f64, may: &[bool], hottest: f64) {
        if self.limits.settings[settings::FIXED] == 1 {
            return;
        }
        self.threshold.hottest(hottest);
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

    /// Which servers may have something.
    fn who_may(&self, there: &[bool]) -> Vec<bool> {
        let may = |server| {
            let mut its = self.ring.stores(server).iter();
            its.any(|at| there[*at]) && self.servers.answers(server)
        };
        (0..self.ring.len()).map(may).collect()
    }

    /// How fast the server of a place is.
    pub(super) fn weight(&self, at: usize) -> f64 {
        let server = self.ring.server_of(at);
        server.map_or(1.0, |server| self.servers.weight(server))
    }

    fn look_who_is_there(&mut self, now: Duration, may: &[bool], there: &[bool]) {
        for (at, is_there) in there.iter().enumerate() {
            let answers = self.ring.server_of(at).is_none_or(|server| may[server]);
            if *is_there && answers {
                self.absent.remove(&at);
            } else {
                self.absent.entry(at).or_insert(now);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is of the window that ended")]
    fn plan(
        &mut self,
        now: Duration,
        mut changes: usize,
        expected: &Forecast,
        hottest: &[(Key, f64)],
        stores: &Stores,
        there: &[bool],
        out: &mut Vec<Action>,
    ) {
        let again: Vec<Key> = self.missing.iter().take(changes).cloned().collect();
        changes -= again.len();
        for key in again {
            self.missing.remove(&key);
            if let Some(servers) = self.table.servers(&key).cloned() {
                self.put(&key, servers, true, stores, there, out);
            }
        }
        // Items that nobody wants make room first.
        let hot: BTreeSet<&Key> = hottest.iter().map(|(key, _)| key).collect();
        changes -= self.end_inherited(changes / 2, |key| !hot.contains(key), out);
        let (average, may) = (expected.average, &expected.may);
        let threshold = (self.threshold.part() * average).max(WORTH);
        // Room for what comes next is there before it comes.
        let worth = |load: f64| load > SOON * threshold;
        let worth = hottest.iter().take_while(|(_, load)| worth(*load)).count();
        self.wanted = worth.max(self.items());
        let server_of = |at| self.ring.server_of(at).unwrap_or(0);
        let takes = |server: usize| may[server] && !self.servers.is_behind(server);
        let takes: Vec<bool> = (0..may.len()).map(takes).collect();
        let planned = self.table.plan(&Situation {
            hottest,
            load: &|key| self.estimates.of(key),
            threshold,
            home: &|key| {
                let home = self.ring.home(key, stores, there);
                home.filter(|at| there[*at] && may[server_of(*at)])
            },
            is_lapsed: &|key| {
                let since = self.absent.get(&stores.home_of(key));
                since.is_none_or(|since| now >= *since + self.limits.lease)
            },
            entry: &|key, server| {
                let entry = self.ring.entry(server, key, stores, there);
                entry.filter(|_| takes[server])
            },
            server_of: &server_of,
            loads: &expected.loads,
            full: expected.full,
            average,
            weight: &|at| self.weight(at),
            may: &takes,
            most: &|load| self.writes.most_of(load / average).min(self.most_set()),
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
                false => self.put(&change.key, change.servers, false, stores, there, out),
            }
        }
        if self.settled {
            // What was to be taken over has been.
            let left = changes.saturating_sub(self.changed);
            self.end_inherited(left, |_| true, out);
        }
    }

    /// Stores moved: no record leads to where they were for longer than it takes to remove it, as
    /// far as there may be changes.
    pub fn end_moved(&mut self, out: &mut Vec<Action>) {
        let changes = self.limits.settings[settings::CHANGES] as usize;
        if self.attached {
            self.end_inherited(changes, |_| true, out);
        }
    }

    /// Most servers that any key may have.
    fn most_set(&self) -> usize {
        self.limits.settings[settings::REPLICAS] as usize
    }

    /// Removes inherited items, of those that `which` chooses `most` at most. Returns how many.
    fn end_inherited(
        &mut self,
        most: usize,
        which: impl Fn(&Key) -> bool,
        out: &mut Vec<Action>,
    ) -> usize {
        let (table, copies) = (&self.table, &self.copies);
        self.inherited.retain(|key| table.servers(key).is_none());
        let free = |key: &&Key| !self.asked.contains_key(*key) && !copies.has(key);
        let gone = self.inherited.iter().filter(free).filter(|key| which(key));
        let gone: Vec<Key> = gone.take(most).cloned().collect();
        gone.iter().for_each(|key| self.remove(key, out));
        gone.len()
    }
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
