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

use decide::{Answer, Change, Key, Outcome, Record, SwitchId};

use super::{
    arrange,
    barred::Barred,
    context::{Context, Facts},
    items::Items,
};
use crate::{
    record::{STRIDES, Version, restored_key},
    snapshot::SavedVersion,
    view::{Chain, Member, View},
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
struct Restore {
    chains: BTreeMap<usize, Vec<SwitchId>>,
    places: BTreeMap<SwitchId, Place>,
    /// What they have of before is cleared, and what was kept is put.
    is_put: bool,
    failed: bool,
}

/// What is known of a loss.
#[derive(Debug, Default)]
pub(super) struct Losses {
    since: Option<Duration>,
    not_before: Duration,
    /// Switches that had no room for what was kept.
    barred: Barred,
    restore: Option<Restore>,
}

/// Chains of which nobody has anything any longer.
pub(super) fn lost_chains(cx: &Context<'_>) -> Vec<usize> {
    let Some(view) = cx.facts.view() else { return vec![] };
    let is_lost = |slot: &u8| {
        let member = view.members[usize::from(*slot)];
        member.is_none_or(|m| cx.has_no_tables(&m))
    };
    let all = view.chains.iter().enumerate();
    let lost = all.filter(|(_, chain)| {
        let full = chain.slots.len() - usize::from(chain.filling);
        chain.slots[..full].iter().all(is_lost)
    });
    lost.map(|(number, _)| number).collect()
}

impl Losses {
    /// Goes on with chains that were lost; `saved` is what was kept. Returns the view in which they
    /// are there again.
    pub fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        lost: Vec<usize>,
        items: &mut Items,
        saved: &BTreeMap<Key, SavedVersion>,
    ) -> Option<View> {
        let since = *self.since.get_or_insert(cx.now);
        let mut candidates = cx.candidates();
        match self.restore.take() {
            Some(restore) if restore.is_for(&lost, &candidates) => self.restore = Some(restore),
            Some(_) => self.not_before = cx.now + PAUSE,
            None => {
                // One that is cut off has a stream for long.
                candidates.retain(|switch, _| cx.facts.confirmed.contains(switch));
                let all_there = candidates.len() >= cx.facts.rooms.len();
                let waited = all_there || cx.now >= since + BEGIN_WITHIN;
                // What was confirmed under views before is over.
                let is_quiet = cx.facts.memory.past.is_empty() && cx.now >= self.not_before;
                candidates.retain(|switch, _| !self.barred.is_barred(cx.now, *switch));
                if !waited || !is_quiet || candidates.is_empty() || cx.facts.stores.is_none() {
                    return None;
                }
                let maybe = saved.keys().chain(items.being_made());
                self.restore = Some(Restore::begin(cx.facts, lost, &candidates, maybe));
            }
        }
        let restore = self.restore.as_mut()?;
        if restore.is_done() && !restore.is_put {
            restore.is_put = true;
            restore.put_saved(cx, items, saved);
        }
        if restore.is_done() {
            let view = restore.view(cx, &candidates)?;
            self.over(cx);
            return Some(view);
        }
        restore.ask_for_items(cx);
        None
    }

    /// The chains are there again, under numbers of another generation.
    fn over(&mut self, cx: &mut Context<'_>) {
        let restore = std::mem::take(self).restore;
        for switch in restore.iter().flat_map(|restore| restore.places.keys()) {
            cx.facts.lost.remove(switch);
        }
        cx.facts.memory.number = ((cx.facts.memory.number >> 48) + 1) << 48;
    }

    /// A change of an item was answered, of a switch that is to be a member perhaps. One that has
    /// no room for what was kept gives its place to another.
    pub fn answered(&mut self, now: Duration, answer: Answer<'_>) {
        let Some(restore) = &mut self.restore else { return };
        let place = restore.places.get_mut(&answer.switch);
        // The answer to another change is one from before.
        let is_asked = |place: &&mut Place| place.asked.get(answer.key) == Some(answer.change);
        if let Some(place) = place.filter(is_asked) {
            place.asked.remove(answer.key);
            restore.failed |= answer.outcome != Outcome::Done;
            let has_no_room = !matches!(answer.outcome, Outcome::Done | Outcome::NotSent);
            if has_no_room && !self.barred.is_barred(now, answer.switch) {
                self.barred.bar(now, answer.switch);
            }
        }
    }
}

impl Restore {
    /// Of these chains, with members of the candidates. `maybe` has keys of which something may
    /// come to be there yet that was asked for before the loss: each is removed, so that it is put
    /// where nothing is.
    fn begin<'a>(
        facts: &Facts,
        lost: Vec<usize>,
        candidates: &BTreeMap<SwitchId, Member>,
        maybe: impl Iterator<Item = &'a Key>,
    ) -> Restore {
        let length = facts.wanted_length(candidates.len());
        let members = |chain: &usize| {
            let ranked = arrange::ranked(facts.id, *chain, candidates.keys().copied());
            (*chain, ranked.into_iter().take(length).collect())
        };
        let chains: BTreeMap<usize, Vec<SwitchId>> = lost.iter().map(members).collect();
        let is_lost = |key: &&Key| facts.chain_with(key).is_some_and(|c| lost.contains(&c));
        let maybe: BTreeSet<&Key> = maybe.filter(is_lost).collect();
        let clear = |switch: &SwitchId| {
            let mut keys: BTreeSet<Key> = maybe.iter().copied().cloned().collect();
            keys.extend(facts.keys_to_clear(*switch, &lost));
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

    /// Whether it restores these chains, and can go on: nothing failed, and the switches have the
    /// tables that they had when it began.
    fn is_for(&self, lost: &[usize], candidates: &BTreeMap<SwitchId, Member>) -> bool {
        let is_there = |(switch, place): (&SwitchId, &Place)| {
            candidates.get(switch).is_some_and(|m| m.life == place.life)
        };
        self.chains.keys().eq(lost) && !self.failed && self.places.iter().all(is_there)
    }

    /// Whether no change waits, and none is on its way.
    fn is_done(&self) -> bool {
        let mut places = self.places.values();
        places.all(|place| place.todo.is_empty() && place.asked.is_empty())
    }

    /// Asks for changes that wait.
    fn ask_for_items(&mut self, cx: &mut Context<'_>) {
        for (switch, place) in &mut self.places {
            while place.asked.len() < ASKED_MOST
                && let Some((key, change)) = place.todo.pop()
            {
                place.asked.insert(key.clone(), change.clone());
                cx.ask(*switch, key, change);
            }
        }
    }

    /// What was kept of these chains' keys is to be put, all under one number that no key had.
    fn put_saved(
        &mut self,
        cx: &mut Context<'_>,
        items: &mut Items,
        saved: &BTreeMap<Key, SavedVersion>,
    ) {
        let newest = saved.values().map(|s| s.seq).max().unwrap_or(0);
        let floor = cx.facts.memory.floor.max(newest) + JUMP;
        cx.facts.memory.floor = floor;
        let chain_with = |key: &Key| cx.facts.chain_with(key);
        // Whoever wants them asks again, and they begin above the floor.
        items.give_up(|key| chain_with(key).is_some_and(|chain| self.chains.contains_key(&chain)));
        let (number, shift) = (cx.facts.memory.number, cx.facts.shift());
        for (key, saved) in saved {
            let members = chain_with(key).and_then(|chain| self.chains.get(&chain));
            let record = record_of(saved, (floor, number), shift);
            for switch in members.into_iter().flatten() {
                if let Some(place) = self.places.get_mut(switch) {
                    let change = Change::Put(record.clone());
                    place.todo.push((key.clone(), change));
                }
            }
        }
        cx.remember();
    }

    /// The view with these chains. None: who has lost its tables leaves the other chains first, for
    /// it is no member of theirs.
    fn view(&self, cx: &Context<'_>, candidates: &BTreeMap<SwitchId, Member>) -> Option<View> {
        let mut view = cx.facts.view()?.clone();
        let goes_on = |slot: u8| {
            let chains = view.chains.iter().enumerate();
            let mut others = chains.filter(|(number, _)| !self.chains.contains_key(number));
            others.any(|(_, chain)| chain.slots.contains(&slot))
        };
        let stays: Vec<bool> = (0..view.members.len() as u8).map(goes_on).collect();
        let is_lost = |(place, stays): (&Option<Member>, &bool)| {
            let member = place.as_ref().filter(|_| *stays);
            member.is_some_and(|member| cx.has_no_tables(member))
        };
        if view.members.iter().zip(&stays).any(is_lost) {
            return None;
        }
        for (place, stays) in view.members.iter_mut().zip(stays) {
            *place = place.filter(|_| stays);
        }
        for (number, switches) in &self.chains {
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
        Some(view)
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
