//! A switch joins chains that are too short: it is cleared, gets an item for each key, and then
//! becomes their filling tail, which takes part in every write while its predecessors' agents copy
//! what came before. One at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use decide::{Action, Change, Key, Outcome, SwitchId};

use super::{Switches, arrange, items, tenant::Tenant};
use crate::{
    report::FilledChain,
    view::{Member, View},
};

/// Changes of its items that are on their way at a time.
const ASKED_MOST: usize = 1000;
/// Who does not answer any of them for so long may be cut off, which its stream tells much later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How far a join is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What it has of an earlier membership goes: versions that were never committed, notes of
    /// writes that never were.
    Clear,
    /// Keys get their items.
    Put,
    /// It is a member.
    Fill,
}

/// A switch that joins.
#[derive(Debug)]
pub(crate) struct Join {
    pub switch: SwitchId,
    /// The life of the tables that were cleared.
    life: u64,
    pub chains: Vec<usize>,
    stage: Stage,
    todo: Vec<Key>,
    asked: BTreeSet<Key>,
    /// Since when none of these was answered.
    since: Duration,
}

impl Join {
    /// The one that a view shows to be under way.
    pub fn under_way(view: &View) -> Option<Join> {
        let filling = |c: &usize| view.chains[*c].filling;
        let chains: Vec<usize> = (0..view.chains.len()).filter(filling).collect();
        let slot = *view.chains[*chains.first()?].slots.last()?;
        let member = view.members[usize::from(slot)]?;
        Some(Join {
            switch: member.switch,
            life: member.life,
            chains,
            stage: Stage::Fill,
            todo: vec![],
            asked: BTreeSet::new(),
            since: Duration::ZERO,
        })
    }

    /// Whether new keys of this chain are to have an item there, although it is no member yet.
    pub fn takes_items(&self, chain: Option<usize>) -> bool {
        self.stage == Stage::Put && chain.is_none_or(|chain| self.chains.contains(&chain))
    }

    /// A change of its items was answered. False: it cannot join, there is no room.
    fn answered(&mut self, now: Duration, key: &Key, outcome: Outcome) -> bool {
        if !self.asked.remove(key) {
            return true;
        }
        self.since = now;
        match outcome {
            Outcome::Done => true,
            Outcome::NotSent => {
                self.todo.push(key.clone());
                true
            }
            _ => false,
        }
    }
}

impl Tenant {
    /// Begins a join where one is needed, and goes on with the one that is under way.
    pub(super) fn go_on_joining(
        &mut self,
        now: Duration,
        switches: &Switches,
        out: &mut Vec<Action>,
    ) {
        match self.join.as_ref().map(|join| join.stage) {
            None => self.begin_join(now, switches),
            Some(Stage::Fill) => return self.end_join(now, out),
            Some(_) => {}
        }
        let candidates = self.candidates(switches);
        let Some(join) = &mut self.join else { return };
        let as_was = |m: &&Member| m.life == join.life;
        let Some(member) = candidates.get(&join.switch).filter(as_was).copied() else {
            self.join = None;
            return;
        };
        if self.ask_for_items(out) {
            return self.wait_for_items(now);
        }
        let Some(join) = &mut self.join else { return };
        join.since = now;
        if join.stage == Stage::Clear {
            join.stage = Stage::Put;
            let todo = self.keys_to_put();
            if let Some(join) = &mut self.join {
                join.todo = todo;
            }
            self.ask_for_items(out);
        } else if self.is_confirmed() {
            self.become_filling(now, member, out);
        }
    }

    /// The best switch for the first chain that is too short, and every chain that it is the best
    /// for.
    fn begin_join(&mut self, now: Duration, switches: &Switches) {
        let Some(view) = &self.memory.view else {
            return;
        };
        if !self.is_confirmed() || !self.knows_all() || !self.removals.is_empty() {
            return;
        }
        let candidates = self.candidates(switches);
        let wanted = self.wanted_length(candidates.len());
        let best = |chain: usize| {
            let slots = &view.chains[chain].slots;
            let there = self.members_of(chain);
            let free = candidates
                .keys()
                .filter(|switch| !there.contains(switch) && !self.is_barred(now, **switch))
                // One that is cut off has a stream for long, and not the view that was made without
                // it.
                .filter(|switch| self.confirmed.contains(*switch));
            let short = slots.len() < wanted;
            let ranked = arrange::ranked(self.id, chain, free.copied());
            ranked.first().copied().filter(|_| short)
        };
        let all: BTreeMap<usize, SwitchId> =
            (0..view.chains.len()).filter_map(|chain| Some((chain, best(chain)?))).collect();
        let Some(switch) = all.values().next().copied() else {
            return;
        };
        let full = view.members.iter().all(Option::is_some);
        if full && !self.is_member(switch) {
            return;
        }
        let chains: Vec<usize> =
            all.iter().filter(|(_, best)| **best == switch).map(|(chain, _)| *chain).collect();
        self.join = Some(Join {
            switch,
            life: candidates[&switch].life,
            todo: self.keys_to_clear(switch, &chains),
            chains,
            stage: Stage::Clear,
            asked: BTreeSet::new(),
            since: now,
        });
    }

    /// What a switch has of these chains. Sessions of a member stay: they are about its other
    /// chains too.
    pub(super) fn keys_to_clear(&self, switch: SwitchId, chains: &[usize]) -> Vec<Key> {
        let is_member = self.is_member(switch);
        let goes = |key: &&Key| match items::is_session(key) {
            true => !is_member,
            false => {
                let chain = self.chain_with(key);
                !is_member || chain.is_some_and(|chain| chains.contains(&chain))
            }
        };
        let held = self.held.get(&switch);
        held.into_iter().flatten().filter(goes).cloned().collect()
    }

    /// Every key that a member of its chains has, and every session.
    fn keys_to_put(&self) -> Vec<Key> {
        let Some(join) = &self.join else {
            return vec![];
        };
        let mut all = BTreeSet::new();
        for member in self.members() {
            let held = self.held.get(&member).into_iter().flatten();
            all.extend(held.filter(|key| {
                let chain = self.chain_with(key);
                items::is_session(key) || chain.is_some_and(|c| join.chains.contains(&c))
            }));
        }
        let has = |key: &Key| self.held.get(&join.switch).is_some_and(|h| h.contains(key));
        all.into_iter().filter(|key| !has(key)).cloned().collect()
    }

    /// Asks for changes that wait; false if none do, and none are on their way.
    fn ask_for_items(&mut self, out: &mut Vec<Action>) -> bool {
        let (tenant, floor, shift) = (self.id, self.memory.floor, self.shift());
        let number = self.memory.number;
        let Some(join) = &mut self.join else {
            return false;
        };
        while join.asked.len() < ASKED_MOST
            && let Some(key) = join.todo.pop()
        {
            let change = match join.stage {
                Stage::Clear => Change::Remove,
                _ => Change::Put(items::record(&key, floor, (number, 0), shift)),
            };
            join.asked.insert(key.clone());
            out.push(Action::Change { switch: join.switch, tenant, key, change });
        }
        !join.asked.is_empty()
    }

    /// Who does not answer gives its place to another one, until it says once more that it has the
    /// view.
    fn wait_for_items(&mut self, now: Duration) {
        let silent = self.join.take_if(|join| now >= join.since + ANSWERS_WITHIN);
        if let Some(join) = silent {
            self.confirmed.remove(&join.switch);
            self.is_due = true;
        }
    }

    /// A change of an item of who joins was answered, if it is one.
    pub(super) fn join_answered(
        &mut self,
        now: Duration,
        switch: SwitchId,
        key: &Key,
        outcome: Outcome,
    ) {
        let join = self.join.as_mut().filter(|join| join.switch == switch);
        if join.is_some_and(|join| !join.answered(now, key, outcome)) {
            self.join = None;
            self.bar(now, switch);
        }
    }

    /// From now on it takes part in every write.
    fn become_filling(&mut self, now: Duration, member: Member, out: &mut Vec<Action>) {
        let Some(mut view) = self.memory.view.clone() else {
            return;
        };
        let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == member.switch);
        let own = view.members.iter().position(is_it);
        let free = view.members.iter().position(Option::is_none);
        let Some(slot) = own.or(free) else {
            self.join = None;
            return;
        };
        let Some(join) = &mut self.join else { return };
        view.members[slot] = Some(member);
        for chain in &join.chains {
            let chain = &mut view.chains[*chain];
            chain.slots.push(slot as u8);
            chain.filling = true;
            chain.fill_number = view.number + 1;
        }
        join.stage = Stage::Fill;
        self.replace(now, view, out);
    }

    /// It is a member like the others once it has all of every chain, or it is gone again.
    fn end_join(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(mut view) = self.memory.view.clone() else {
            return;
        };
        let mut filling = (0u16..).zip(&view.chains).filter(|(_, c)| c.filling).peekable();
        if filling.peek().is_none() {
            self.join = None;
            return;
        }
        let is_filled = |(chain, of): (u16, &crate::view::Chain)| {
            let fill_number = of.fill_number;
            self.filled.contains(&FilledChain { chain, fill_number })
        };
        if !self.is_confirmed() || !filling.all(is_filled) {
            return;
        }
        for chain in &mut view.chains {
            (chain.filling, chain.fill_number) = (false, 0);
        }
        self.join = None;
        self.replace(now, view, out);
    }
}
