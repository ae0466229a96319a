//! What is kept of the keys outside of the switches: each chain's last member that has everything
//! is asked at an interval what was committed since, and every key's newest version is kept.
//! Versions of a key only rise, so one that is told late does no harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use decide::{Action, Key, SwitchId};

use super::{Switches, tenant::Tenant};
use crate::snapshot::{Part, Save, SavedVersion};

/// A round that nothing was heard of for this time is begun anew, with everything.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// What one switch was asked for.
#[derive(Debug)]
struct Round {
    number: u64,
    /// The number of its parts that came.
    parts: u32,
    heard: Duration,
    is_over: bool,
}

impl Round {
    /// It is over, and was asked for after the controller was asked to stop.
    fn is_last(&self, ending: Option<u64>) -> bool {
        self.is_over && ending.is_some_and(|before| self.number > before)
    }
}

/// What is kept, and how far the others are.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub saved: BTreeMap<Key, SavedVersion>,
    rounds: BTreeMap<SwitchId, Round>,
    /// The last one that was used.
    number: u64,
    next_at: Duration,
    /// The last one that was used before the controller was asked to stop.
    ending: Option<u64>,
}

impl Tenant {
    /// What an earlier controller kept.
    pub fn kept(&mut self, kept: &[(Key, Bytes)]) {
        let read = |(key, bytes): &(Key, Bytes)| Some((key.clone(), SavedVersion::decode(bytes)?));
        self.snapshot.saved = kept.iter().filter_map(read).collect();
    }

    /// The last member of a chain that has everything.
    fn last_full(&self, chain: usize) -> Option<SwitchId> {
        let chain = self.view()?.chains.get(chain)?;
        let full = chain.slots.len() - usize::from(chain.filling);
        self.switch_in(*chain.slots.get(full.checked_sub(1)?)?)
    }

    /// Asks who can tell, if it is time.
    pub(super) fn go_on_saving(
        &mut self,
        now: Duration,
        switches: &Switches,
        out: &mut Vec<Action>,
    ) {
        let every = Duration::from_secs(self.options[3].into());
        if every.is_zero() || now < self.snapshot.next_at || self.snapshot.ending.is_some() {
            return;
        }
        self.snapshot.next_at = now + every;
        self.ask_for_rounds(now, switches, out);
    }

    /// Asks for a last round, and for patience until it is over.
    pub(super) fn save_the_last(
        &mut self,
        now: Duration,
        switches: &Switches,
        out: &mut Vec<Action>,
    ) {
        if self.options[3] == 0 {
            return;
        }
        self.snapshot.ending.get_or_insert(self.snapshot.number);
        self.ask_for_rounds(now, switches, out);
        let Snapshot { rounds, ending, .. } = &self.snapshot;
        let is_awaited = |(switch, round): (&SwitchId, &Round)| {
            switches.get(switch).is_some_and(|s| s.attached) && !round.is_last(*ending)
        };
        if rounds.iter().any(is_awaited) {
            out.push(Action::NotYet);
        }
    }

    fn ask_for_rounds(&mut self, now: Duration, switches: &Switches, out: &mut Vec<Action>) {
        let chains = 0..self.chains().len();
        let asked: BTreeSet<SwitchId> = chains.filter_map(|c| self.last_full(c)).collect();
        let is_there = |switch: &SwitchId| switches.get(switch).is_some_and(|s| s.attached);
        let Snapshot { rounds, number, ending, .. } = &mut self.snapshot;
        rounds.retain(|switch, _| asked.contains(switch));
        for switch in asked.into_iter().filter(is_there) {
            let before = rounds.get(&switch);
            let all = before.is_none_or(|round| !round.is_over);
            let goes_on = |r: &Round| !r.is_over && now < r.heard + LOST_AFTER;
            if before.is_some_and(|r| goes_on(r) || r.is_last(*ending)) {
                continue;
            }
            *number += 1;
            let round = *number;
            rounds.insert(switch, Round { number: round, parts: 0, heard: now, is_over: false });
            out.push(Action::TellSwitch {
                switch,
                tenant: self.id,
                message: Save { round, all }.encode(),
            });
        }
    }

    /// A member tells what is committed.
    pub(super) fn told(&mut self, now: Duration, by: SwitchId, part: Part, out: &mut Vec<Action>) {
        let round = self.snapshot.rounds.get_mut(&by);
        let Some(round) = round.filter(|r| (r.number, r.parts) == (part.round, part.nth)) else {
            return;
        };
        (round.parts, round.heard) = (round.parts + 1, now);
        round.is_over = part.is_last;
        for (key, saved) in part.keys {
            let chain = self.chain_with(&key);
            if chain.and_then(|chain| self.last_full(chain)) == Some(by) {
                self.save(key, saved, out);
            }
        }
    }

    fn save(&mut self, key: Key, saved: SavedVersion, out: &mut Vec<Action>) {
        let before = self.snapshot.saved.get(&key);
        let is_old = before.is_some_and(|before| before.seq >= saved.seq);
        let bytes = saved.encode();
        if is_old || (before.is_none() && bytes.is_none()) {
            return;
        }
        match bytes {
            Some(_) => self.snapshot.saved.insert(key.clone(), saved),
            None => self.snapshot.saved.remove(&key),
        };
        let tenant = self.id;
        out.push(Action::Keep { tenant, key, bytes });
    }

    /// Nothing is kept of these any longer.
    pub(super) fn keep_nothing(&self, out: &mut Vec<Action>) {
        out.extend(self.snapshot.saved.keys().map(|key| Action::Keep {
            tenant: self.id,
            key: key.clone(),
            bytes: None,
        }));
    }
}
