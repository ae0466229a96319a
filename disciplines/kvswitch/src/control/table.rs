//! Which keys stand at which servers, and what is to change after a window: bounded, the largest gain first.

use std::collections::{BTreeMap, BTreeSet};

use decide::Key;

use super::{
    place::{replicas, turns},
    wanted::Wanted,
};
use crate::record::TURNS_MAX;

/// A key keeps its servers until it has this much less load than would give it as many.
const KEPT: f64 = 0.7;
/// With fewer requests in a window than this a key is not worth a change for its home's sake alone.
const LEAST: f64 = 4.0;
/// One more server for this many is no gain.
const ABOUT_RIGHT: usize = 5;

/// Stores, by their place in the cluster file's list.
pub type Places = Vec<usize>;
/// What turns each of them has, in the same order; none: all have one.
pub type Turns = Vec<usize>;

/// What a plan goes by.
pub struct Wants<'a> {
    /// The hottest keys with their loads in requests of a window, the hottest first; no more of them than may be in the table.
    pub hottest: &'a [(Key, f64)],
    /// The load of any other key.
    pub load: &'a dyn Fn(&Key) -> f64,
    /// Requests of a window beyond which a key gets another server.
    pub threshold: f64,
    /// The place where a key's reads come to by themselves; none: nobody is there, and it leaves the table.
    pub home: &'a dyn Fn(&Key) -> Option<usize>,
    /// The place at which a server has a key; none: it may not have it.
    pub entry: &'a dyn Fn(&Key, usize) -> Option<usize>,
    /// Whose place it is.
    pub server_of: &'a dyn Fn(usize) -> usize,
    /// What each server has to do, in requests of a window beside its weight.
    pub loads: &'a [f64],
    /// With more than this to do, a server has no turn of a key that is at home there.
    pub full: f64,
    /// What a server has to do on average.
    pub average: f64,
    /// How fast the server of a place is: 1, or less.
    pub weight: &'a dyn Fn(usize) -> f64,
    /// Which servers may be chosen.
    pub may: &'a [bool],
    /// How many a key of this load may have.
    pub most: &'a dyn Fn(f64) -> usize,
    /// Keys that are left alone for now.
    pub busy: &'a dyn Fn(&Key) -> bool,
    /// Keys that the table may have.
    pub room: usize,
    /// Changes that may be made.
    pub changes: usize,
}

impl Wants<'_> {
    /// Adds a key's load to the loads of the servers that share it.
    pub(super) fn add(&self, places: &[usize], load: f64, loads: &mut [f64]) {
        let each = load / places.len() as f64;
        let servers = places.iter().map(|at| (self.server_of)(*at));
        servers.for_each(|server| loads[server] += each);
    }
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
    /// Of keys whose servers have not all one turn.
    turns: BTreeMap<Key, Turns>,
    /// Where keys are at home that have no turn there.
    left: BTreeMap<Key, usize>,
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
        if self
            .keys
            .get(key)
            .is_some_and(|servers| !servers.contains(&home))
        {
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

    /// What is to change. First what nobody is at home for, or stands at servers that may not be chosen; then, as far as there may be changes, what takes
    /// most load from a server; last what is there for nothing.
    pub fn plan(&self, wants: &Wants<'_>) -> Vec<Planned> {
        let hottest: BTreeSet<&Key> = wants.hottest.iter().map(|(key, _)| key).collect();
        let others = self.keys.keys().filter(|key| !hottest.contains(key));
        let others = others.map(|key| (key.clone(), (wants.load)(key)));
        let all = wants.hottest.iter().cloned().chain(others);
        let all = all.filter(|(key, _)| !(wants.busy)(key));
        let wanted = all.filter_map(|(key, load)| {
            let is_hot = hottest.contains(&key);
            self.wanted(key, load, is_hot, wants)
        });
        let mut wanted: Vec<Wanted> = wanted.collect();
        wanted.sort_by(|a, b| b.gain.total_cmp(&a.gain).then_with(|| a.key.cmp(&b.key)));
        let mut loads = wants.loads.to_vec();
        let within = self.within(wanted, wants);
        let planned = within.into_iter().filter_map(|wanted| {
            let present = self.keys.get(&wanted.key);
            wanted.place(present.map_or(&[], Vec::as_slice), wants, &mut loads)
        });
        self.orphans(wants)
            .chain(planned)
            .take(wants.changes)
            .collect()
    }

    /// Keys whose home is away: no replica can be had there, and none goes on for long, so reads of it would cost others and get no
    /// answer.
    fn orphans(&self, wants: &Wants<'_>) -> impl Iterator<Item = Planned> {
        let orphans = self.keys.keys().filter(|key| (wants.home)(key).is_none());
        orphans.filter(|key| !(wants.busy)(key)).map(|key| Planned {
            key: key.clone(),
            servers: vec![],
        })
    }

    /// What a key is to have, if that is to change.
    fn wanted(&self, key: Key, load: f64, is_hot: bool, wants: &Wants<'_>) -> Option<Wanted> {
        let home = (wants.home)(&key)?;
        let alive = wants.may.iter().filter(|may| **may).count();
        let count_for = |load: f64| match is_hot {
            true => replicas(load, wants.threshold, alive.min((wants.most)(load))),
            false => 1,
        };
        let present: &[usize] = self.keys.get(&key).map_or(&[], Vec::as_slice);
        let stands = |at: &usize| (wants.entry)(&key, (wants.server_of)(*at)) == Some(*at);
        let is_hurt =
            !present.is_empty() && (!self.knows(&key, home) || !present.iter().all(stands));
        let had = present.len();
        let count = match count_for(load) {
            count if had == 0 || count > had + had / ABOUT_RIGHT => count,
            _ => count_for(load / KEPT).min(had),
        };
        let misplaced = load * self.misplaced(&key, present, wants.weight);
        let is_due = is_hurt || misplaced > 0.0 || !is_hot || (wants.most)(load) < 2;
        let for_home = is_hot && load >= LEAST && self.burdens(&key, home, load, wants);
        if !for_home && !is_hurt && count == had.max(1) && misplaced == 0.0 {
            return None;
        }
        let each = load / had.max(1) as f64;
        let (count, gain) = match () {
            () if for_home => (count.max(2), each),
            () if is_hurt => (count, f64::INFINITY),
            () => (count, misplaced.max(each - load / count as f64)),
        };
        Some(Wanted {
            key,
            home,
            load,
            count,
            gain,
            is_due,
        })
    }

    /// Whether a key's home has too much to do, and others could have the key alone.
    fn burdens(&self, key: &Key, home: usize, load: f64, wants: &Wants<'_>) -> bool {
        let others = wants.may.iter().filter(|may| **may).count() - 1;
        let (is_there, count) = match self.keys.get(key) {
            Some(servers) => (servers.contains(&home), servers.len()),
            None => (true, 2),
        };
        let is_full = wants.loads[(wants.server_of)(home)] > wants.full;
        is_there && is_full && count <= others && (wants.most)(load) >= 2
    }

    /// Whether what a key has was chosen for this home: that has a turn, or had too much to do.
    fn knows(&self, key: &Key, home: usize) -> bool {
        let has_turn = |servers: &Places| servers.contains(&home);
        self.keys.get(key).is_some_and(has_turn) || self.left.get(key) == Some(&home)
    }

    /// What part of a key's requests comes to a server that would not if turns were as weights are now.
    fn misplaced(&self, key: &Key, present: &[usize], weight: &dyn Fn(usize) -> f64) -> f64 {
        let have = self.turns.get(key);
        let wanted = turns_of(present, weight);
        if have.is_none() && wanted.iter().all(|turns| *turns == 1) {
            return 0.0;
        }
        let have = have.cloned().unwrap_or_else(|| vec![1; present.len()]);
        let share = |turns: &[usize]| -> Vec<f64> {
            let sum: usize = turns.iter().sum();
            turns
                .iter()
                .map(|n| *n as f64 / sum.max(1) as f64)
                .collect()
        };
        let shares = share(&have).into_iter().zip(share(&wanted));
        shares
            .map(|(have, wanted)| have - wanted)
            .fold(0.0, f64::max)
    }

    /// As many of them as may be, and none that finds no room.
    fn within(&self, wanted: Vec<Wanted>, wants: &Wants<'_>) -> Vec<Wanted> {
        let (leaving, staying): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|wanted| wanted.count == 1);
        let mut free = wants.room.saturating_sub(self.len());
        let mut out: Vec<Wanted> = vec![];
        let mut leaving = leaving.into_iter().rev();
        for wanted in staying {
            if out.len() >= wants.changes {
                return out;
            }
            if !self.keys.contains_key(&wanted.key) {
                if free == 0 {
                    // Another makes room, and counts.
                    if out.len() + 2 > wants.changes {
                        continue;
                    }
                    let Some(mut gone) = leaving.next() else {
                        continue;
                    };
                    gone.is_due = true;
                    out.push(gone);
                    free += 1;
                }
                free -= 1;
            }
            out.push(wanted);
        }
        let more = wants.changes.saturating_sub(out.len());
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u32) -> Key {
        Key::copy_from_slice(&n.to_be_bytes())
    }

    /// Of keys that are at home at the server of their number.
    fn home(key: &Key) -> usize {
        usize::from(key[3]) % 8
    }

    struct Given {
        loads: Vec<(Key, f64)>,
        may: Vec<bool>,
        room: usize,
        changes: usize,
        weights: [f64; 8],
        full: f64,
    }

    impl Given {
        fn of(loads: &[(u32, f64)]) -> Given {
            Given {
                loads: loads.iter().map(|(n, load)| (key(*n), *load)).collect(),
                may: vec![true; 8],
                room: 100,
                changes: 100,
                weights: [1.0; 8],
                full: f64::INFINITY,
            }
        }

        fn plan(&self, table: &Table) -> Vec<Planned> {
            table.plan(&Wants {
                hottest: &self.loads,
                load: &|_| 0.0,
                threshold: 100.0,
                home: &|key| Some(home(key)).filter(|at| self.may[*at]),
                entry: &|_, at| Some(at).filter(|at| self.may[*at]),
                server_of: &|at| at,
                loads: &self.present(table),
                full: self.full,
                average: self.full / 1.1,
                weight: &|at| self.weights[at],
                may: &self.may,
                most: &|_| 64,
                busy: &|_| false,
                room: self.room,
                changes: self.changes,
            })
        }

        /// What each server has to do.
        fn present(&self, table: &Table) -> [f64; 8] {
            let mut loads = [0.0; 8];
            for (key, load) in &self.loads {
                let at_home = vec![home(key)];
                let servers = table.servers(key).unwrap_or(&at_home);
                let each = load / servers.len() as f64;
                servers.iter().for_each(|at| loads[*at] += each);
            }
            loads
        }

        /// Plans and does it, until nothing is left.
        fn carry_out(&self, table: &mut Table) -> usize {
            let mut done = 0;
            loop {
                let plan = self.plan(table);
                if plan.is_empty() {
                    return done;
                }
                done += plan.len();
                assert!(done < 1000, "it never ends");
                for change in plan {
                    let turns = turns_of(&change.servers, &|at| self.weights[at]);
                    table.set(&change.key, change.servers);
                    table.set_turns(&change.key, turns);
                    table.set_home(&change.key, home(&change.key));
                }
            }
        }
    }

    #[test]
    fn a_key_has_as_many_servers_as_its_load_says_and_its_home_is_one() {
        let mut table = Table::default();
        Given::of(&[(1, 350.0), (2, 150.0), (3, 90.0)]).carry_out(&mut table);
        assert_eq!(table.servers(&key(1)).unwrap(), &[1, 4, 5, 7]);
        assert_eq!(table.servers(&key(2)).unwrap(), &[2, 6]);
        assert_eq!((table.len(), table.replicas()), (2, 6));
    }

    #[test]
    fn a_home_with_too_much_to_do_has_no_turns_until_it_has_less_than_others() {
        let mut table = Table::default();
        let mut given = Given::of(&[(1, 350.0), (9, 60.0), (17, 40.0), (2, 20.0)]);
        given.carry_out(&mut table);
        assert_eq!(table.len(), 1, "the others are below the threshold");
        // The home has 87 + 60 + 40.
        given.full = 110.0;
        given.carry_out(&mut table);
        assert!(!table.servers(&key(1)).unwrap().contains(&1));
        let servers = table.servers(&key(9)).cloned();
        assert_eq!(servers, None, "the first sufficed");
        given.full = 95.0;
        given.carry_out(&mut table);
        let servers = table.servers(&key(9)).unwrap();
        assert_eq!(servers.len(), 2, "{servers:?}");
        assert_eq!(table.servers(&key(17)), None);
        assert_eq!(given.plan(&table), [], "it settles");
        given.full = 1000.0;
        given.carry_out(&mut table);
        assert_eq!(table.servers(&key(9)), None, "it may come back");
    }

    #[test]
    fn about_right_stays_as_it_is() {
        let mut table = Table::default();
        Given::of(&[(1, 350.0), (2, 150.0)]).carry_out(&mut table);
        for loads in [[300.0, 101.0], [390.0, 190.0], [250.0, 80.0]] {
            let given = Given::of(&[(1, loads[0]), (2, loads[1])]);
            assert_eq!(given.plan(&table), [], "{loads:?}");
        }
        let plan = Given::of(&[(1, 150.0), (2, 60.0)]).plan(&table);
        let counts: Vec<usize> = plan.iter().map(|change| change.servers.len()).collect();
        assert_eq!(counts, [3, 0], "the one has fewer, the other goes");
    }

    #[test]
    fn what_grows_keeps_what_it_has() {
        let mut table = Table::default();
        Given::of(&[(1, 350.0)]).carry_out(&mut table);
        Given::of(&[(1, 650.0)]).carry_out(&mut table);
        let servers = table.servers(&key(1)).unwrap();
        assert_eq!(servers.len(), 7);
        assert!([1, 3, 5, 7].iter().all(|at| servers.contains(at)));
    }

    #[test]
    fn a_server_that_turns_slow_has_fewer_turns_of_what_it_has_and_all_when_it_is_fast() {
        let mut table = Table::default();
        let mut given = Given::of(&[(1, 350.0), (2, 150.0)]);
        given.carry_out(&mut table);
        let servers = table.servers(&key(1)).unwrap().clone();
        assert_eq!(servers, [1, 3, 5, 7]);
        given.weights[5] = 0.5;
        given.changes = 1;
        assert_eq!(given.carry_out(&mut table), 1, "the other is not at it");
        assert_eq!(table.servers(&key(1)), Some(&servers));
        assert_eq!(table.turns(&key(1)), [4, 4, 2, 4]);
        given.weights[5] = 0.55;
        assert_eq!(given.plan(&table), [], "about the same");
        given.weights[5] = 1.0;
        assert_eq!(given.carry_out(&mut table), 1);
        assert_eq!(table.turns(&key(1)), [0; 0]);
    }

    #[test]
    fn a_dead_server_is_left_at_once_and_has_nothing_until_it_is_back() {
        let mut table = Table::default();
        Given::of(&[(1, 350.0), (2, 150.0), (4, 150.0)]).carry_out(&mut table);
        let mut given = Given::of(&[(1, 350.0), (2, 150.0), (4, 150.0)]);
        given.may[5] = false;
        given.changes = 1;
        assert_eq!(given.plan(&table)[0].key, key(1));
        given.carry_out(&mut table);
        let servers = table.servers(&key(1)).unwrap();
        assert!(servers.len() == 4 && !servers.contains(&5), "{servers:?}");
        // Whose home is dead has no use of others: soon they may not answer either.
        given.may[2] = false;
        given.changes = 10;
        given.carry_out(&mut table);
        assert_eq!(table.servers(&key(2)), None);
        assert!(table.servers(&key(4)).is_some());
    }

    #[test]
    fn without_room_the_colder_make_it() {
        let mut table = Table::default();
        Given::of(&[(1, 150.0), (2, 160.0)]).carry_out(&mut table);
        let mut given = Given::of(&[(3, 400.0), (2, 160.0)]);
        given.room = 2;
        given.carry_out(&mut table);
        assert!(table.servers(&key(3)).is_some() && table.servers(&key(1)).is_none());
        assert_eq!(table.len(), 2);
    }

    proptest! {
        /// Whatever the loads: a plan keeps to its bounds, comes to an end, and no key stands at a server that may not have it.
        #[test]
        fn plans_keep_their_bounds(loads in prop::collection::vec(0.0f64..2000.0, 0..60), others in prop::collection::vec(0.0f64..2000.0, 0..60), room in 1usize..40, changes in 1usize..20, dead in 0usize..8) {
            let numbered = |loads: &[f64]| -> Vec<(u32, f64)> { (0..).zip(loads.iter().copied()).collect() };
            let mut table = Table::default();
            for loads in [loads, others] {
                let mut given = Given::of(&numbered(&loads));
                given.room = room;
                given.changes = changes;
                given.may[dead] = false;
                prop_assert!(given.plan(&table).len() <= changes);
                given.carry_out(&mut table);
                prop_assert!(table.len() <= room);
                for (key, servers) in table.iter() {
                    prop_assert!(servers.len() >= 2 && servers.contains(&home(key)));
                    prop_assert!(!servers.contains(&dead));
                }
            }
        }
    }
}
