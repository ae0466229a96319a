//! Which keys stand at which servers, and what is to change after a window: bounded, the largest gain first.

use std::collections::{BTreeMap, BTreeSet};

use decide::Key;

use super::place::{replicas, ring};

/// A key keeps its servers until it has this much less load than would give it as many.
const KEPT: f64 = 0.7;
/// One more server for this many is no gain.
const ABOUT_RIGHT: usize = 5;

/// Servers, by their place in the ring.
pub type Places = Vec<usize>;

/// What a plan goes by.
pub struct Wants<'a> {
    /// The hottest keys with their loads in requests of a window, the hottest first; no more of them than may be in the table.
    pub hottest: &'a [(Key, f64)],
    /// The load of any other key.
    pub load: &'a dyn Fn(&Key) -> f64,
    /// Requests of a window beyond which a key gets another server.
    pub threshold: f64,
    /// Where a key is at home.
    pub home: &'a dyn Fn(&Key) -> usize,
    /// Which servers may be chosen.
    pub may: &'a [bool],
    /// How many a key may have.
    pub most: usize,
    /// Keys that are left alone for now.
    pub busy: &'a dyn Fn(&Key) -> bool,
    /// Keys that the table may have.
    pub room: usize,
    /// Changes that may be made.
    pub changes: usize,
}

/// What is to change: a key's new servers; none: it leaves the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The key.
    pub key: Key,
    /// Its servers from now on.
    pub servers: Places,
}

/// Keys with their servers: two and more for each, and none for those that only their home has.
#[derive(Debug, Default)]
pub struct Table {
    keys: BTreeMap<Key, Places>,
}

impl Table {
    /// Keys in it.
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

    /// A key has these servers from now on; without any, it is gone.
    pub fn set(&mut self, key: &Key, servers: Places) {
        if servers.is_empty() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.clone(), servers);
        }
    }

    /// What is to change. First what stands at servers that may not be chosen; then, as far as there may be changes, what takes
    /// most load from a server; last what is there for nothing.
    pub fn plan(&self, wants: &Wants<'_>) -> Vec<Planned> {
        let hottest: BTreeSet<&Key> = wants.hottest.iter().map(|(key, _)| key).collect();
        let others = self.keys.keys().filter(|key| !hottest.contains(key));
        let others = others.map(|key| (key.clone(), (wants.load)(key)));
        let all = wants.hottest.iter().cloned().chain(others);
        let all = all.filter(|(key, _)| !(wants.busy)(key));
        let mut changes: Vec<(f64, Planned)> = all
            .filter_map(|(key, load)| {
                let is_hot = hottest.contains(&key);
                let (gain, servers) = self.wanted(&key, load, is_hot, wants)?;
                Some((gain, Planned { key, servers }))
            })
            .collect();
        changes.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key.cmp(&b.1.key)));
        self.within(changes, wants)
    }

    /// A key's new servers and what they gain, if they are to change.
    fn wanted(
        &self,
        key: &Key,
        load: f64,
        is_hot: bool,
        wants: &Wants<'_>,
    ) -> Option<(f64, Places)> {
        let alive = wants.may.iter().filter(|may| **may).count().min(wants.most);
        let home = (wants.home)(key);
        // No replica can be had, and none goes on for long, where nobody is home.
        if !wants.may.get(home).copied().unwrap_or(false) {
            return None;
        }
        let count = match is_hot {
            true => replicas(load, wants.threshold, alive),
            false => 1,
        };
        let Some(present) = self.keys.get(key) else {
            let gain = load - load / count as f64;
            return (count > 1).then(|| (gain, chosen(&[], home, count, wants.may)));
        };
        let left: Places = present
            .iter()
            .copied()
            .filter(|at| wants.may[*at])
            .collect();
        let is_hurt = left.len() < present.len();
        let grown = count > present.len() + present.len() / ABOUT_RIGHT;
        let enough = replicas(load / KEPT, wants.threshold, alive);
        let shrunk = enough < present.len() || !is_hot;
        let count = match (grown, shrunk) {
            (true, _) => count,
            (_, true) => {
                if is_hot {
                    enough
                } else {
                    1
                }
            }
            _ => present.len(),
        };
        if !is_hurt && count == present.len() {
            return None;
        }
        let servers = match count {
            1 => vec![],
            _ => chosen(&left, home, count, wants.may),
        };
        let gain = match is_hurt {
            true => f64::INFINITY,
            false => load / present.len() as f64 - load / count as f64,
        };
        (servers != *present).then_some((gain, servers))
    }

    /// As many of them as may be, and none that finds no room.
    fn within(&self, changes: Vec<(f64, Planned)>, wants: &Wants<'_>) -> Vec<Planned> {
        let (leaving, staying): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|(_, change)| change.servers.is_empty());
        let mut free = wants.room.saturating_sub(self.len());
        let mut out: Vec<Planned> = vec![];
        let mut leaving = leaving.into_iter().rev().map(|(_, change)| change);
        for (_, change) in staying {
            if out.len() >= wants.changes {
                return out;
            }
            if !self.keys.contains_key(&change.key) {
                if free == 0 {
                    // Another makes room, and counts.
                    let Some(gone) = leaving.next() else { continue };
                    out.push(gone);
                    free += 1;
                }
                free -= 1;
            }
            out.push(change);
        }
        let more = wants.changes.saturating_sub(out.len());
        out.extend(leaving.take(more));
        out
    }
}

/// `count` servers for a key: those it has, as far as they fit, and others in the ring from its home.
fn chosen(present: &[usize], home: usize, count: usize, may: &[bool]) -> Places {
    let ring = ring(home, count, may.len(), |at| may[at]);
    let stays = |at: &&usize| present.contains(at);
    // The home first, then what the key has in the ring, then what else it has, then what is new.
    let first = ring.iter().filter(|at| **at == home);
    let kept = ring.iter().filter(stays).chain(present);
    let mut servers = Places::new();
    for at in first.chain(kept).chain(&ring) {
        if servers.len() < count && !servers.contains(at) {
            servers.push(*at);
        }
    }
    servers
}
