//! Which keys stand at which servers, and what is to change after a window: bounded, the largest
//! gain first.

use std::collections::{BTreeMap, BTreeSet};

use decide::Key;

use super::{
    demand::Demand,
    place::{replicas, turns},
    situation::{Assignment, Places, Situation, Turns},
};
use crate::record::TURNS_MAX;

/// A key keeps its servers until it has this much less load than would give it as many.
const KEPT: f64 = 0.7;
/// With fewer requests in a window than this a key is not worth a change for its home's sake alone.
const LEAST: f64 = 4.0;
/// One more server for this many is no gain.
const ABOUT_RIGHT: usize = 5;

/// Keys with their servers: two and more for each, and none for those that only their home has.
#[derive(Debug, Default)]
pub struct Table {
    keys: BTreeMap<Key, Places>,
    /// The turns of keys whose servers have not all one turn.
    turns: BTreeMap<Key, Turns>,
    /// Where keys are at home that have no turn there.
    left: BTreeMap<Key, usize>,
}

impl Table {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Places of all keys.
    pub fn replicas(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }

    /// Servers of a key, if it is there.
    pub fn servers(&self, key: &Key) -> Option<&Places> {
        self.keys.get(key)
    }

    /// All keys with their servers.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Places)> {
        self.keys.iter()
    }

    /// Turns of a key's servers.
    pub fn turns(&self, key: &Key) -> Turns {
        self.turns.get(key).cloned().unwrap_or_default()
    }

    /// The servers that a key has now have these turns.
    pub fn set_turns(&mut self, key: &Key, turns: Turns) {
        if turns.iter().any(|count| *count != 1) {
            self.turns.insert(key.clone(), turns);
        } else {
            self.turns.remove(key);
        }
    }

    /// The servers that a key has now were chosen for this home.
    pub fn set_home(&mut self, key: &Key, home: usize) {
        if self.keys.get(key).is_some_and(|servers| !servers.contains(&home)) {
            self.left.insert(key.clone(), home);
        }
    }

    /// A key has these servers from now on, a turn each; without any, it is gone.
    pub fn set(&mut self, key: &Key, servers: Places) {
        self.turns.remove(key);
        self.left.remove(key);
        if servers.is_empty() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.clone(), servers);
        }
    }

    /// What is to change. First what nobody is at home for, or stands at servers that may not be
    /// chosen; then, as far as there may be changes, what takes most load from a server; last what
    /// is there for nothing.
    pub fn plan(&self, situation: &Situation<'_>) -> Vec<Assignment> {
        let hottest: BTreeSet<&Key> = situation.hottest.iter().map(|(key, _)| key).collect();
        let others = self.keys.keys().filter(|key| !hottest.contains(key));
        let others = others.map(|key| (key.clone(), (situation.load)(key)));
        let all = situation.hottest.iter().cloned().chain(others);
        let all = all.filter(|(key, _)| !(situation.busy)(key));
        let wanted = all.filter_map(|(key, load)| {
            let is_hot = hottest.contains(&key);
            self.wanted(key, load, is_hot, situation)
        });
        let mut wanted: Vec<Demand> = wanted.collect();
        wanted.sort_by(|a, b| b.gain.total_cmp(&a.gain).then_with(|| a.key.cmp(&b.key)));
        let mut loads = situation.loads.to_vec();
        let within = self.within(wanted, situation);
        let planned = within.into_iter().filter_map(|wanted| {
            let present = self.keys.get(&wanted.key);
            wanted.place(present.map_or(&[], Vec::as_slice), situation, &mut loads)
        });
        self.orphans(situation).chain(planned).take(situation.changes).collect()
    }

    /// Keys whose home is away, where that changes something. Replicas go on for a lease, and have
    /// all turns for so long; no further ones can be had. Then reads would cost them and get no
    /// answer.
    fn orphans(&self, situation: &Situation<'_>) -> impl Iterator<Item = Assignment> {
        let is_orphan = |key| (situation.home)(key).is_none() && !(situation.busy)(key);
        let orphans = self.keys.iter().filter(move |(key, _)| is_orphan(key));
        orphans.filter_map(|(key, servers)| {
            let stays = |at: &&usize| situation.may[(situation.server_of)(**at)];
            let left: Places = match (situation.is_lapsed)(key) {
                true => vec![],
                false => servers.iter().filter(stays).copied().collect(),
            };
            let key = key.clone();
            (left.len() < servers.len()).then_some(Assignment { key, servers: left })
        })
    }

    /// What a key is to have, if that is to change.
    fn wanted(
        &self,
        key: Key,
        load: f64,
        is_hot: bool,
        situation: &Situation<'_>,
    ) -> Option<Demand> {
        let home = (situation.home)(&key)?;
        let alive = situation.may.iter().filter(|may| **may).count();
        let count_for = |load: f64| match is_hot {
            true => replicas(load, situation.threshold, alive.min((situation.most)(load))),
            false => 1,
        };
        let present: &[usize] = self.keys.get(&key).map_or(&[], Vec::as_slice);
        let stands = |at: &usize| (situation.entry)(&key, (situation.server_of)(*at)) == Some(*at);
        let is_hurt =
            !present.is_empty() && (!self.knows(&key, home) || !present.iter().all(stands));
        let had = present.len();
        let count = match count_for(load) {
            count if had == 0 || count > had + had / ABOUT_RIGHT => count,
            // What is worth a turn of every server has one of those, too, that were away or behind.
            count if count == alive => count,
            _ => count_for(load / KEPT).min(had),
        };
        let misplaced = load * self.misplaced(&key, present, situation.weight);
        let is_due = is_hurt || misplaced > 0.0 || !is_hot || (situation.most)(load) < 2;
        let for_home = is_hot && load >= LEAST && self.burdens(&key, home, load, situation);
        let server = (situation.server_of)(home);
        let comes_home =
            self.left.contains_key(&key) && situation.is_idle(server, situation.loads[server]);
        let stays = count == had.max(1) && misplaced == 0.0;
        let fills = stays && !for_home && !comes_home && !is_hurt;
        // Where writes limit replicas, they are what its servers have to do for it, and nobody
        // would do it instead.
        let is_limited = (situation.most)(load) < alive;
        if fills && (had < 2 || is_limited || !situation.has_idle()) {
            return None;
        }
        let each = load / had.max(1) as f64;
        let (count, gain) = match () {
            () if for_home => (count.max(2), each),
            () if is_hurt => (count, f64::INFINITY),
            () if comes_home || fills => (count, each),
            () => (count, misplaced.max(each - load / count as f64)),
        };
        Some(Demand {
            key,
            home,
            load,
            count,
            gain,
            is_due,
            fills: fills.then(|| count_for(load) > had),
        })
    }

    /// Whether a key's home has too much to do, and others could have the key alone.
    fn burdens(&self, key: &Key, home: usize, load: f64, situation: &Situation<'_>) -> bool {
        let server = (situation.server_of)(home);
        let (is_there, count) = match self.keys.get(key) {
            Some(servers) => (servers.contains(&home), servers.len()),
            None => (true, 2),
        };
        let others = situation.others(server);
        is_there && situation.is_full(server) && count <= others && (situation.most)(load) >= 2
    }

    /// Whether what a key has was chosen for this home: that has a turn, or had too much to do.
    fn knows(&self, key: &Key, home: usize) -> bool {
        let has_turn = |servers: &Places| servers.contains(&home);
        self.keys.get(key).is_some_and(has_turn) || self.left.get(key) == Some(&home)
    }

    /// What part of a key's requests comes to a server that would not if turns were as weights are
    /// now.
    fn misplaced(&self, key: &Key, present: &[usize], weight: &dyn Fn(usize) -> f64) -> f64 {
        let have = self.turns.get(key);
        let wanted = turns_of(present, weight);
        if have.is_none() && wanted.iter().all(|turns| *turns == 1) {
            return 0.0;
        }
        let have = have.cloned().unwrap_or_else(|| vec![1; present.len()]);
        let share = |turns: &[usize]| -> Vec<f64> {
            let sum: usize = turns.iter().sum();
            turns.iter().map(|n| *n as f64 / sum.max(1) as f64).collect()
        };
        let shares = share(&have).into_iter().zip(share(&wanted));
        shares.map(|(have, wanted)| have - wanted).fold(0.0, f64::max)
    }

    /// As many of these demands as may be, and none that finds no room.
    fn within(&self, wanted: Vec<Demand>, situation: &Situation<'_>) -> Vec<Demand> {
        let (leaving, staying): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|wanted| wanted.count == 1);
        let mut free = situation.room.saturating_sub(self.len());
        let mut out: Vec<Demand> = vec![];
        let mut leaving = leaving.into_iter().rev();
        for wanted in staying {
            if out.len() >= situation.changes {
                return out;
            }
            if !self.keys.contains_key(&wanted.key) {
                if free == 0 {
                    // Another makes room, and counts.
                    if out.len() + 2 > situation.changes {
                        continue;
                    }
                    let Some(mut gone) = leaving.next() else { continue };
                    gone.is_due = true;
                    out.push(gone);
                    free += 1;
                }
                free -= 1;
            }
            out.push(wanted);
        }
        let more = situation.changes.saturating_sub(out.len());
        out.extend(leaving.take(more));
        out
    }
}

/// Turns of these servers.
pub fn turns_of(servers: &[usize], weight: &dyn Fn(usize) -> f64) -> Turns {
    let weights: Vec<f64> = servers.iter().map(|at| weight(*at)).collect();
    turns(&weights, TURNS_MAX)
}

#[cfg(test)]
mod tests;
