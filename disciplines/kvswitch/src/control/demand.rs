//! Which servers a key is to have, when others have theirs.

use decide::Key;

use super::{
    place::ring,
    situation::{Assignment, Places, Situation},
};

/// The demand of a key: it is to be at so many servers; 1: it leaves the table.
pub struct Demand {
    pub key: Key,
    /// The place of its home.
    pub home: usize,
    pub load: f64,
    pub count: usize,
    /// By how much a server that has it is relieved.
    pub gain: f64,
    /// Whether it changes even if its servers stay.
    pub is_due: bool,
    /// It is right where it is, and could serve to give a server something to do that has little;
    /// true: as one more.
    pub fills: Option<bool>,
}

impl Demand {
    /// Chooses its servers beside those that it has, by what each has to do, and adds what it
    /// brings them. None: they stay.
    pub fn place(
        self,
        present: &[usize],
        situation: &Situation<'_>,
        loads: &mut [f64],
    ) -> Option<Assignment> {
        let before = match present {
            [] => &[self.home][..],
            _ => present,
        };
        if let Some(grows) = self.fills {
            let servers = self.filled(present, grows, situation, loads)?;
            situation.add(present, -self.load, loads);
            situation.add(&servers, self.load, loads);
            return Some(Assignment { key: self.key, servers });
        }
        let home = (situation.server_of)(self.home);
        let has_turn = before.contains(&self.home);
        let each = self.load / before.len() as f64;
        let more = self.load - if has_turn { each } else { 0.0 };
        let takes = situation.may[home];
        let stays = !takes || loads[home] + more > (situation.average + situation.full) / 2.0;
        if self.count == 1 && stays && !self.is_due {
            return None;
        }
        situation.add(before, -self.load, loads);
        let is_full = self.is_full(home, loads[home], has_turn, situation);
        let fits = takes && loads[home] + self.load <= situation.full;
        let count = match present.is_empty() && fits && self.load <= situation.threshold {
            // Others made room at its home, for whose sake alone it was to have two.
            true => 1,
            false => self.count,
        };
        let servers = match count {
            1 => vec![],
            _ => self.chosen(present, count, is_full, situation, loads),
        };
        let has = if servers.is_empty() { &[self.home][..] } else { &servers };
        situation.add(has, self.load, loads);
        (self.is_due || servers != present).then_some(Assignment { key: self.key, servers })
    }

    /// Its servers and the one with least to do; if it is to have no more, not the one with most,
    /// its home excepted. None: that would bring nothing.
    fn filled(
        &self,
        present: &[usize],
        grows: bool,
        situation: &Situation<'_>,
        loads: &[f64],
    ) -> Option<Places> {
        let by_load = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
        let load_of = |at: &usize| loads[(situation.server_of)(*at)];
        let has = |server: usize| present.iter().any(|at| (situation.server_of)(*at) == server);
        let idle = (0..loads.len()).filter(|server| situation.is_idle(*server, loads[*server]));
        let least = idle.filter(|server| !has(*server)).min_by(by_load)?;
        let entry = (situation.entry)(&self.key, least)?;
        let mut servers = present.to_vec();
        if !grows {
            let others = (0..present.len()).filter(|n| present[*n] != self.home);
            let most =
                others.max_by(|a, b| load_of(&present[*a]).total_cmp(&load_of(&present[*b])))?;
            if load_of(&present[most]) <= situation.average {
                return None;
            }
            servers.remove(most);
        }
        servers.push(entry);
        let each = self.load / servers.len() as f64;
        (loads[least] + each <= situation.average).then_some(servers)
    }

    /// Whether its home, which has so much to do without it, is to have no turn of it: that has one
    /// while it is not too much, and one that had none only while it has less than most.
    fn is_full(&self, home: usize, load: f64, has_turn: bool, situation: &Situation<'_>) -> bool {
        let with = load + self.load / self.count as f64;
        let most = if has_turn { situation.full } else { situation.average };
        with > most && self.count <= situation.others(home)
    }

    /// `count` servers: its home, unless that is full, those that it has, as far as they fit, and
    /// others in the ring from its home.
    fn chosen(
        &self,
        present: &[usize],
        count: usize,
        is_full: bool,
        situation: &Situation<'_>,
        loads: &[f64],
    ) -> Places {
        let entry = |server: usize| (situation.entry)(&self.key, server);
        let home = (situation.server_of)(self.home);
        let may = |server: usize| situation.may[server] && !(is_full && server == home);
        let ring = ring(home, count, loads, |server| may(server) && entry(server).is_some());
        let present: Vec<usize> = present.iter().map(|at| (situation.server_of)(*at)).collect();
        let present = present.iter().filter(|server| may(**server));
        // The home first, then what the key has in the ring, then what else it has, then what is
        // new.
        let first = ring.iter().filter(|server| **server == home);
        let kept = ring.iter().filter(|server| present.clone().any(|had| had == *server));
        let mut servers = vec![];
        for server in first.chain(kept).chain(present.clone()).chain(&ring) {
            if servers.len() < count && !servers.contains(server) {
                servers.push(*server);
            }
        }
        servers.into_iter().filter_map(entry).collect()
    }
}
