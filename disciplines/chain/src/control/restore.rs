//! Chains whose members have all lost their tables begin anew, with what was kept of their keys.
//! Only if each member that had everything is known to have other tables by now, or no memory any
//! longer: whoever may have the keys is waited for.
//!
//! Every number rises by far more than can have been used since: a version, so also a lock's token,
//! is above all before. Sessions are gone; so the numbers of views get another generation, under
//! which clients send nothing that they sent before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{Action, Change, Key, Outcome, Record, SwitchId};

use chain_wire::chain_of;

use super::{Switches, arrange, tenant::Tenant};
use crate::{
    record::{STRIDES, Version, restored_key},
    snapshot::SavedVersion,
    view::{Chain, Member},
};

/// More versions than a key can have had since it was last saved.
const JUMP: u64 = 1 << 32;
/// Changes of a switch's items that are on their way at a time.
const ASKED_MOST: usize = 1000;
/// Switches that did not come back by now are not waited for.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);
/// After a failure it begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// A switch that is to be a member.
#[derive(Debug)]
struct Place {
    life: u64,
    todo: Vec<(Key, Change)>,
    asked: BTreeMap<Key, Change>,
}

/// Chains that begin anew.
#[derive(Debug)]
pub(crate) struct Restore {
    chains: BTreeMap<usize, Vec<SwitchId>>,
    places: BTreeMap<SwitchId, Place>,
    /// What they have of before is cleared, and what was kept is put.
    is_put: bool,
    failed: bool,
}

/// What is known of a loss.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    since: Option<Duration>,
    not_before: Duration,
    pub restore: Option<Restore>,
}

impl Tenant {
    /// Chains of which nobody has anything any longer.
    fn lost_chains(&self, now: Duration, switches: &Switches) -> Vec<usize> {
        let Some(view) = self.view() else {
            return vec![];
        };
        let is_lost = |slot: &u8| {
            let member = view.members[usize::from(*slot)];
            member.is_none_or(|m| self.has_no_tables(now, &m, switches))
        };
        let all = view.chains.iter().enumerate();
        let lost = all.filter(|(_, chain)| {
            let full = chain.slots.len() - usize::from(chain.filling);
            chain.slots[..full].iter().all(is_lost)
        });
        lost.map(|(number, _)| number).collect()
    }

    /// Goes on with chains that were lost; false: none is.
    pub(super) fn go_on_restoring(
        &mut self,
        now: Duration,
        switches: &Switches,
        out: &mut Vec<Action>,
    ) -> bool {
        let lost = self.lost_chains(now, switches);
        if lost.is_empty() {
            self.losses = Losses::default();
            return false;
        }
        self.join = None;
        let since = *self.losses.since.get_or_insert(now);
        let mut candidates = self.candidates(switches);
        let restore = self.losses.restore.take();
        let is_same = |r: &Restore| {
            let is_there = |(switch, place): (&SwitchId, &Place)| {
                candidates.get(switch).is_some_and(|m| m.life == place.life)
            };
            r.chains.keys().eq(&lost) && !r.failed && r.places.iter().all(is_there)
        };
        match restore {
            Some(restore) if is_same(&restore) => self.losses.restore = Some(restore),
            Some(_) => self.losses.not_before = now + PAUSE,
            None => {
                // One that is cut off has a stream for long.
                candidates.retain(|switch, _| self.confirmed.contains(switch));
                let all_there = candidates.len() >= self.rooms.len();
                let waited = all_there || now >= since + BEGIN_WITHIN;
                // What was confirmed under views before is over.
                let is_quiet = self.memory.past.is_empty() && now >= self.losses.not_before;
                if !waited || !is_quiet || candidates.is_empty() || self.stores.is_none() {
                    return true;
                }
                self.losses.restore = Some(self.begin_restoring(lost, &candidates));
            }
        }
        self.fill_places((&candidates, switches), now, out);
        true
    }

    fn begin_restoring(
        &self,
        lost: Vec<usize>,
        candidates: &BTreeMap<SwitchId, Member>,
    ) -> Restore {
        let length = self.wanted_length(candidates.len());
        let members = |chain: &usize| {
            let ranked = arrange::ranked(self.id, *chain, candidates.keys().copied());
            (*chain, ranked.into_iter().take(length).collect())
        };
        let chains: BTreeMap<usize, Vec<SwitchId>> = lost.iter().map(members).collect();
        // What was asked for before the loss may come to be there yet: each key is removed, so that
        // it is put where nothing is.
        let saved = self.snapshot.saved.keys();
        let maybe: BTreeSet<&Key> = saved
            .chain(self.items.being_made())
            .filter(|key| self.chain_with(key).is_some_and(|c| lost.contains(&c)))
            .collect();
        let clear = |switch: &SwitchId| {
            let mut keys: BTreeSet<Key> = maybe.iter().copied().cloned().collect();
            keys.extend(self.keys_to_clear(*switch, &lost));
            Place {
                life: candidates[switch].life,
                todo: keys.into_iter().map(|key| (key, Change::Remove)).collect(),
                asked: BTreeMap::new(),
            }
        };
        let all = chains.values().flatten();
        Restore {
            places: all.map(|switch| (*switch, clear(switch))).collect(),
            chains,
            is_put: false,
            failed: false,
        }
    }

    /// Asks for changes that wait; if none do, and none are on their way, the next thing is done.
    fn fill_places(
        &mut self,
        (candidates, switches): (&BTreeMap<SwitchId, Member>, &Switches),
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let tenant = self.id;
        let Some(mut restore) = self.losses.restore.take() else {
            return;
        };
        if restore.is_done() && !restore.is_put {
            restore.is_put = true;
            self.put_saved(&mut restore, out);
        }
        if restore.is_done() {
            return self.begin_anew(restore, (candidates, switches), now, out);
        }
        for (switch, place) in &mut restore.places {
            while place.asked.len() < ASKED_MOST
                && let Some((key, change)) = place.todo.pop()
            {
                place.asked.insert(key.clone(), change.clone());
                out.push(Action::Change { switch: *switch, tenant, key, change });
            }
        }
        self.losses.restore = Some(restore);
    }

    /// What was kept of these chains' keys is to be put, all under one number that no key had.
    fn put_saved(&mut self, restore: &mut Restore, out: &mut Vec<Action>) {
        let saved = &self.snapshot.saved;
        let newest = saved.values().map(|s| s.seq).max().unwrap_or(0);
        self.memory.floor = self.memory.floor.max(newest) + JUMP;
        // Whoever wants them asks again, and they begin above the floor.
        let stores = self.stores.as_ref();
        let chains = self.memory.view.as_ref().map_or(1, |v| v.chains.len());
        let is_of = |key: &Key| {
            let hash = stores.map(|stores| stores.hash_of(key));
            let chain = hash.map(|hash| usize::from(chain_of(hash, chains as u16)));
            chain.is_some_and(|chain| restore.chains.contains_key(&chain))
        };
        self.items.give_up(is_of);
        let (floor, number, shift) = (self.memory.floor, self.memory.number, self.shift());
        for (key, saved) in saved {
            let chain = self.chain_with(key);
            let members = chain.and_then(|chain| restore.chains.get(&chain));
            let record = record_of(saved, (floor, number), shift);
            for switch in members.into_iter().flatten() {
                if let Some(place) = restore.places.get_mut(switch) {
                    let change = Change::Put(record.clone());
                    place.todo.push((key.clone(), change));
                }
            }
        }
        self.remember(out);
    }

    /// The chains are there again, under numbers of another generation.
    fn begin_anew(
        &mut self,
        restore: Restore,
        (candidates, switches): (&BTreeMap<SwitchId, Member>, &Switches),
        now: Duration,
        out: &mut Vec<Action>,
    ) {
        let Some(mut view) = self.memory.view.clone() else {
            return;
        };
        let goes_on = |slot: u8| {
            let chains = view.chains.iter().enumerate();
            let mut others = chains.filter(|(number, _)| !restore.chains.contains_key(number));
            others.any(|(_, chain)| chain.slots.contains(&slot))
        };
        let stays: Vec<bool> = (0..view.members.len() as u8).map(goes_on).collect();
        // Who has lost its tables leaves the other chains first: it is no member of theirs.
        let is_lost = |(place, stays): (&Option<Member>, &bool)| {
            let member = place.as_ref().filter(|_| *stays);
            member.is_some_and(|member| self.has_no_tables(now, member, switches))
        };
        if view.members.iter().zip(&stays).any(is_lost) {
            self.losses.restore = Some(restore);
            return;
        }
        for (place, stays) in view.members.iter_mut().zip(stays) {
            *place = place.filter(|_| stays);
        }
        for (number, switches) in &restore.chains {
            let mut slots = vec![];
            for switch in switches {
                let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == *switch);
                let own = view.members.iter().position(is_it);
                let free = view.members.iter().position(Option::is_none);
                let Some(slot) = own.or(free) else { continue };
                view.members[slot] = candidates.get(switch).copied();
                slots.push(slot as u8);
            }
            view.chains[*number] = Chain { slots, filling: false, fill_number: 0 };
        }
        for switch in restore.places.keys() {
            self.lost.remove(switch);
        }
        self.memory.number = ((self.memory.number >> 48) + 1) << 48;
        self.losses = Losses::default();
        self.replace(now, view, out);
    }

    /// A change of an item was answered, of a switch that is to be a member perhaps.
    pub(super) fn restore_answered(
        &mut self,
        switch: SwitchId,
        key: &Key,
        (change, outcome): (&Change, Outcome),
    ) {
        let Some(restore) = &mut self.losses.restore else {
            return;
        };
        let place = restore.places.get_mut(&switch);
        // The answer to another change is one from before.
        if let Some(place) = place.filter(|place| place.asked.get(key) == Some(change)) {
            place.asked.remove(key);
            restore.failed |= outcome != Outcome::Done;
        }
    }
}

impl Restore {
    fn is_done(&self) -> bool {
        let mut places = self.places.values();
        places.all(|place| place.todo.is_empty() && place.asked.is_empty())
    }
}

/// A record with one version. Where a value is longer than the keys' versions are now, there are
/// fewer of them.
fn record_of(saved: &SavedVersion, (seq, number): (u64, u64), shift: u8) -> Record {
    let version = Version {
        seq,
        accepted: number,
        client: 0,
        request: 0,
        session: 0,
        value: saved.value.clone(),
    };
    let shifts = (0..=shift.min(STRIDES.len() as u8 - 1)).rev();
    let mut possible = shifts.filter_map(|shift| restored_key(&version, number, shift));
    Record::Given(possible.next().unwrap_or_default())
}
