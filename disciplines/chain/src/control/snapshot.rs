//! What is kept of the keys outside of the switches: each chain's last member that has everything
//! is asked at an interval what was committed since, and every key's newest version is kept.
//! Versions of a key only rise, so one that is told late does no harm. Where there is no room to
//! keep a key, it is asked for again once another one is kept no longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use decide::{Action, Key, SwitchId};

use super::context::Context;
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
pub(super) struct Snapshot {
    /// Every key's newest version that was told.
    saved: BTreeMap<Key, SavedVersion>,
    /// Those of them that there was no room for: a controller that comes after this one does not
    /// know them.
    unkept: BTreeSet<Key>,
    rounds: BTreeMap<SwitchId, Round>,
    /// The last one that was used.
    number: u64,
    next_at: Duration,
    /// The last one that was used before the controller was asked to stop.
    ending: Option<u64>,
}

impl Snapshot {
    /// What an earlier controller kept.
    pub fn kept(&mut self, kept: &[(Key, Bytes)]) {
        let read = |(key, bytes): &(Key, Bytes)| Some((key.clone(), SavedVersion::decode(bytes)?));
        self.saved = kept.iter().filter_map(read).collect();
    }

    /// Every key's newest version that is known outside of the switches.
    pub fn saved(&self) -> &BTreeMap<Key, SavedVersion> {
        &self.saved
    }

    /// Of how many of them nothing is kept, for want of room.
    pub fn unkept(&self) -> usize {
        self.unkept.len()
    }

    /// There is no room to keep anything of a key.
    pub fn not_kept(&mut self, key: &Key) {
        if self.saved.contains_key(key) {
            self.unkept.insert(key.clone());
        }
    }

    /// Asks who can tell, if it is time.
    pub fn go_on(&mut self, cx: &mut Context<'_>) {
        let every = Duration::from_secs(cx.facts.options[3].into());
        if every.is_zero() || cx.now < self.next_at || self.ending.is_some() {
            return;
        }
        self.next_at = cx.now + every;
        self.ask_for_rounds(cx);
    }

    /// The controller is to stop: asks for a last round, and for patience until it is over.
    pub fn ending(&mut self, cx: &mut Context<'_>) {
        if cx.facts.options[3] == 0 {
            return;
        }
        self.ending.get_or_insert(self.number);
        self.ask_for_rounds(cx);
        let is_awaited = |(switch, round): (&SwitchId, &Round)| {
            cx.is_attached(*switch) && !round.is_last(self.ending)
        };
        if self.rounds.iter().any(is_awaited) {
            cx.out.push(Action::NotYet);
        }
    }

    fn ask_for_rounds(&mut self, cx: &mut Context<'_>) {
        let chains = 0..cx.facts.chains().len();
        let asked: BTreeSet<SwitchId> = chains.filter_map(|c| cx.facts.last_full(c)).collect();
        self.rounds.retain(|switch, _| asked.contains(switch));
        for switch in asked {
            if !cx.is_attached(switch) {
                continue;
            }
            let before = self.rounds.get(&switch);
            let all = before.is_none_or(|round| !round.is_over);
            let goes_on = |r: &Round| !r.is_over && cx.now < r.heard + LOST_AFTER;
            if before.is_some_and(|r| goes_on(r) || r.is_last(self.ending)) {
                continue;
            }
            self.number += 1;
            let number = self.number;
            let round = Round { number, parts: 0, heard: cx.now, is_over: false };
            self.rounds.insert(switch, round);
            let message = Save { round: number, all }.encode();
            cx.out.push(Action::TellSwitch { switch, tenant: cx.facts.id, message });
        }
    }

    /// A member tells what is committed.
    pub fn told(&mut self, cx: &mut Context<'_>, by: SwitchId, part: Part) {
        let round = self.rounds.get_mut(&by);
        let Some(round) = round.filter(|r| (r.number, r.parts) == (part.round, part.nth)) else {
            return;
        };
        (round.parts, round.heard) = (round.parts + 1, cx.now);
        round.is_over = part.is_last;
        let mut news = vec![];
        for (key, saved) in part.keys {
            let chain = cx.facts.chain_with(&key);
            let is_its = chain.and_then(|chain| cx.facts.last_full(chain)) == Some(by);
            if is_its && self.save(cx, &key, saved) {
                news.push(key);
            }
        }
        // In the end: of what is told at once some may go, which makes room for others.
        news.into_iter().for_each(|key| self.keep(cx, key));
    }

    /// Takes note of a version that was told; whether its key is to be kept with it.
    fn save(&mut self, cx: &mut Context<'_>, key: &Key, saved: SavedVersion) -> bool {
        let before = self.saved.get(key).map(|before| before.seq);
        match saved.value.is_some() {
            _ if before.is_some_and(|before| before >= saved.seq) => false,
            true => {
                self.saved.insert(key.clone(), saved);
                true
            }
            false => {
                if before.is_some() {
                    self.forget(cx, key);
                }
                false
            }
        }
    }

    /// A key is to be kept as it was told last. Whether there is room for it is answered.
    fn keep(&mut self, cx: &mut Context<'_>, key: Key) {
        self.unkept.remove(&key);
        if let Some(bytes) = self.saved.get(&key).and_then(SavedVersion::encode) {
            cx.out.push(Action::Keep { tenant: cx.facts.id, key, bytes: Some(bytes) });
        }
    }

    /// Nothing is to be kept of a key any longer; there is room for another one, then.
    fn forget(&mut self, cx: &mut Context<'_>, key: &Key) {
        self.saved.remove(key);
        cx.out.push(Action::Keep { tenant: cx.facts.id, key: key.clone(), bytes: None });
        if !self.unkept.remove(key)
            && let Some(other) = self.unkept.pop_first()
        {
            self.keep(cx, other);
        }
    }

    /// A key's last version, which is committed, is a delete, and its items go. They may be gone
    /// before a round tells: then no round ever would.
    pub fn deleted(&mut self, cx: &mut Context<'_>, key: &Key, last: u64) {
        let is_older = |saved: &SavedVersion| saved.seq <= last;
        if self.saved.get(key).is_some_and(is_older) {
            self.forget(cx, key);
        }
    }

    /// Nothing is kept of these any longer.
    pub fn keep_nothing(&self, cx: &mut Context<'_>) {
        let tenant = cx.facts.id;
        let keys = self.saved.keys().cloned();
        cx.out.extend(keys.map(|key| Action::Keep { tenant, key, bytes: None }));
    }
}
