//! Which servers a key is to have, when others have theirs.

use decide::Key;

use super::{
    place::ring,
    table::{Places, Planned, Wants},
};

/// A key that is to be at so many servers; 1: it leaves the table.
pub struct Wanted {
    pub key: Key,
    /// The place of its home.
    pub home: usize,
    pub load: f64,
    pub count: usize,
    /// By how much a server that has it is relieved.
    pub gain: f64,
    /// Whether it changes even if its servers stay.
    pub is_due: bool,
    /// It is right where it is, and could serve to give a server something to do that has little; true: as one more.
    pub fills: Option<bool>,
}

impl Wanted {
    /// Chooses its servers beside those that it has, by what each has to do, and adds what it brings them. None: they stay.
    pub fn place(self, present: &[usize], wants: &Wants<'_>, loads: &mut [f64]) -> Option<Planned> {
        let before = match present {
            [] => &[self.home][..],
            _ => present,
        };
        if let Some(grows) = self.fills {
            let servers = self.filled(present, grows, wants, loads)?;
            wants.add(present, -self.load, loads);
            wants.add(&servers, self.load, loads);
            return Some(Planned {
                key: self.key,
                servers,
            });
        }
        let home = (wants.server_of)(self.home);
        let has_turn = before.contains(&self.home);
        let each = self.load / before.len() as f64;
        let more = self.load - if has_turn { each } else { 0.0 };
        let takes = wants.may[home];
        let stays = !takes || loads[home] + more > (wants.average + wants.full) / 2.0;
        if self.count == 1 && stays && !self.is_due {
            return None;
        }
        wants.add(before, -self.load, loads);
        let is_full = self.is_full(home, loads[home], has_turn, wants);
        let fits = takes && loads[home] + self.load <= wants.full;
        let count = match present.is_empty() && fits && self.load <= wants.threshold {
            // Others made room at its home, for whose sake alone it was to have two.
            true => 1,
            false => self.count,
        };
        let servers = match count {
            1 => vec![],
            _ => self.chosen(present, count, is_full, wants, loads),
        };
        let has = if servers.is_empty() {
            &[self.home][..]
        } else {
            &servers
        };
        wants.add(has, self.load, loads);
        (self.is_due || servers != present).then_some(Planned {
            key: self.key,
            servers,
        })
    }

    /// Its servers and the one with least to do; if it is to have no more, not the one with most, its home excepted. None: that would bring nothing.
    fn filled(
        &self,
        present: &[usize],
        grows: bool,
        wants: &Wants<'_>,
        loads: &[f64],
    ) -> Option<Places> {
        let by_load = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
        let load_of = |at: &usize| loads[(wants.server_of)(*at)];
        let has = |server: usize| present.iter().any(|at| (wants.server_of)(*at) == server);
        let idle = (0..loads.len()).filter(|server| wants.is_idle(*server, loads[*server]));
        let least = idle.filter(|server| !has(*server)).min_by(by_load)?;
        let entry = (wants.entry)(&self.key, least)?;
        let mut servers = present.to_vec();
        if !grows {
            let others = (0..present.len()).filter(|n| present[*n] != self.home);
            let most =
                others.max_by(|a, b| load_of(&present[*a]).total_cmp(&load_of(&present[*b])))?;
            if load_of(&present[most]) <= wants.average {
                return None;
            }
            servers.remove(most);
        }
        servers.push(entry);
        let each = self.load / servers.len() as f64;
        (loads[least] + each <= wants.average).then_some(servers)
    }

    /// Whether its home, which has so much to do without it, is to have no turn of it: that has one while it is not too much, and one
    /// that had none only while it has less than most.
    fn is_full(&self, home: usize, load: f64, has_turn: bool, wants: &Wants<'_>) -> bool {
        let with = load + self.load / self.count as f64;
        let most = if has_turn { wants.full } else { wants.average };
        with > most && self.count <= wants.others(home)
    }

    /// `count` servers: its home, unless that is full, those that it has, as far as they fit, and others in the ring from its home.
    fn chosen(
        &self,
        present: &[usize],
        count: usize,
        is_full: bool,
        wants: &Wants<'_>,
        loads: &[f64],
    ) -> Places {
        let entry = |server: usize| (wants.entry)(&self.key, server);
        let home = (wants.server_of)(self.home);
        let may = |server: usize| wants.may[server] && !(is_full && server == home);
        let ring = ring(home, count, loads, |server| {
            may(server) && entry(server).is_some()
        });
        let present: Vec<usize> = present.iter().map(|at| (wants.server_of)(*at)).collect();
        let present = present.iter().filter(|server| may(**server));
        // The home first, then what the key has in the ring, then what else it has, then what is new.
        let first = ring.iter().filter(|server| **server == home);
        let kept = ring
            .iter()
            .filter(|server| present.clone().any(|had| had == *server));
        let mut servers = vec![];
        for server in first.chain(kept).chain(present.clone()).chain(&ring) {
            if servers.len() < count && !servers.contains(server) {
                servers.push(*server);
            }
        }
        servers.into_iter().filter_map(entry).collect()
    }
}
