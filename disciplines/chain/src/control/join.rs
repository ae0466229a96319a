//! A switch joins chains that are too short: it is cleared, gets an item for each key, and then
//! becomes their filling tail, which takes part in every write while its predecessors' agents copy
//! what came before. One at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chain_wire::MEMBERS_MOST;
use decide::{Answer, Change, Key, Outcome, SwitchId};

use super::{
    arrange,
    context::{Context, Facts},
    item,
};
use crate::{
    report::FilledChain,
    view::{Chain, Member, View},
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
pub(super) struct Join {
    pub switch: SwitchId,
    /// The life of the tables that were cleared.
    life: u64,
    chains: Vec<usize>,
    stage: Stage,
    todo: Vec<Key>,
    asked: BTreeSet<Key>,
    /// Since when none of these was answered.
    since: Duration,
}

impl Join {
    /// The one that a view shows to be under way.
    fn under_way(view: &View) -> Option<Join> {
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

    /// Into the first chain that is too short, of the best switch for it, and into every chain that
    /// this one is the best for. Who is to leave does not count: a chain that nobody else has is
    /// handed on before.
    fn begin(cx: &Context<'_>) -> Option<Join> {
        let facts = &*cx.facts;
        let view = facts.view()?;
        if !facts.is_confirmed() || !facts.knows_all() {
            return None;
        }
        let candidates = cx.candidates();
        let wanted = facts.wanted_length(candidates.len());
        let best = |chain: usize| {
            let is_short =
                facts.staying(chain) < wanted && view.chains[chain].slots.len() < MEMBERS_MOST;
            let there = facts.members_of(chain);
            let free = candidates
                .keys()
                .filter(|switch| !there.contains(switch))
                .filter(|switch| !facts.barred.is_barred(cx.now, **switch))
                // One that is cut off has a stream for long, and not the view that was made without
                // it.
                .filter(|switch| facts.confirmed.contains(*switch));
            let ranked = arrange::ranked(facts.id, chain, free.copied());
            ranked.first().copied().filter(|_| is_short)
        };
        let all: BTreeMap<usize, SwitchId> =
            (0..view.chains.len()).filter_map(|chain| Some((chain, best(chain)?))).collect();
        let switch = all.values().next().copied()?;
        let full = view.members.iter().all(Option::is_some);
        if full && facts.slot_of(switch).is_none() {
            return None;
        }
        let chains: Vec<usize> =
            all.iter().filter(|(_, best)| **best == switch).map(|(chain, _)| *chain).collect();
        Some(Join {
            switch,
            life: candidates[&switch].life,
            todo: facts.keys_to_clear(switch, &chains),
            chains,
            stage: Stage::Clear,
            asked: BTreeSet::new(),
            since: cx.now,
        })
    }

    /// Every key that a member of its chains has, and every session.
    fn keys_to_put(&self, facts: &Facts) -> Vec<Key> {
        let mut all = BTreeSet::new();
        for member in facts.members() {
            let held = facts.held.get(&member).into_iter().flatten();
            all.extend(held.filter(|key| {
                let chain = facts.chain_with(key);
                item::is_session(key) || chain.is_some_and(|c| self.chains.contains(&c))
            }));
        }
        all.into_iter().filter(|key| !facts.has(self.switch, key)).cloned().collect()
    }

    /// Asks for changes that wait; false if none do, and none are on their way.
    fn ask_for_items(&mut self, cx: &mut Context<'_>) -> bool {
        let (floor, number, shift) =
            (cx.facts.memory.floor, cx.facts.memory.number, cx.facts.shift());
        while self.asked.len() < ASKED_MOST
            && let Some(key) = self.todo.pop()
        {
            let change = match self.stage {
                Stage::Clear => Change::Remove,
                _ => Change::Put(item::record(&key, floor, (number, 0), shift)),
            };
            self.asked.insert(key.clone());
            cx.ask(self.switch, key, change);
        }
        !self.asked.is_empty()
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

/// The join that is under way, if one is.
#[derive(Debug, Default)]
pub(super) struct Joins {
    current: Option<Join>,
    /// Chains that their filling member has all of, by what its predecessor says.
    filled: BTreeSet<FilledChain>,
}

impl Joins {
    /// Those that a view shows to be under way.
    pub fn under_way(view: &View) -> Joins {
        Joins { current: Join::under_way(view), filled: BTreeSet::new() }
    }

    /// The one that is under way.
    pub fn current(&self) -> Option<&Join> {
        self.current.as_ref()
    }

    /// Whether nobody joins.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Nobody is prepared any longer. Who is a member already stays one, and nobody else joins
    /// until it has all of its chains.
    pub fn give_up(&mut self) {
        self.current.take_if(|join| join.stage != Stage::Fill);
    }

    /// Filling members have all of these chains.
    pub fn filled(&mut self, chains: Vec<FilledChain>) {
        self.filled.extend(chains);
    }

    /// The view is another: what was said of filling members was said under the one before.
    pub fn forget_filled(&mut self) {
        self.filled.clear();
    }

    /// Begins a join where one is needed, if it may, and goes on with the one that is under way.
    /// Returns a view in which it is further.
    pub fn go_on(&mut self, cx: &mut Context<'_>, may_begin: bool) -> Option<View> {
        if self.current.is_none() && may_begin {
            self.current = Join::begin(cx);
        }
        let join = self.current.as_mut()?;
        if join.stage == Stage::Fill {
            return self.end(cx.facts);
        }
        let candidates = cx.candidates();
        let member = candidates.get(&join.switch).filter(|m| m.life == join.life).copied();
        let Some(member) = member else {
            self.current = None;
            return None;
        };
        if join.ask_for_items(cx) {
            self.wait_for_items(cx);
            return None;
        }
        join.since = cx.now;
        if join.stage == Stage::Clear {
            join.stage = Stage::Put;
            join.todo = join.keys_to_put(cx.facts);
            join.ask_for_items(cx);
            return None;
        }
        self.become_filling(cx.facts, member)
    }

    /// Who does not answer gives its place to another one, until it says once more that it has the
    /// view.
    fn wait_for_items(&mut self, cx: &mut Context<'_>) {
        let silent = self.current.take_if(|join| cx.now >= join.since + ANSWERS_WITHIN);
        if let Some(join) = silent {
            cx.facts.confirmed.remove(&join.switch);
            cx.facts.is_due = true;
        }
    }

    /// A change of an item was answered, of the switch that joins perhaps.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { switch, key, outcome, .. } = answer;
        let join = self.current.as_mut().filter(|join| join.switch == switch);
        if join.is_some_and(|join| !join.answered(cx.now, key, outcome)) {
            self.current = None;
            cx.facts.barred.bar(cx.now, switch);
        }
    }

    /// Once every member has the view: from now on it takes part in every write.
    fn become_filling(&mut self, facts: &Facts, member: Member) -> Option<View> {
        let join = self.current.as_mut().filter(|_| facts.is_confirmed())?;
        let mut view = facts.view()?.clone();
        let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == member.switch);
        let own = view.members.iter().position(is_it);
        let free = view.members.iter().position(Option::is_none);
        let Some(slot) = own.or(free) else {
            self.current = None;
            return None;
        };
        view.members[slot] = Some(member);
        for chain in &join.chains {
            let chain = &mut view.chains[*chain];
            chain.slots.push(slot as u8);
            chain.filling = true;
            chain.fill_number = view.number + 1;
        }
        join.stage = Stage::Fill;
        Some(view)
    }

    /// It is a member like the others once it has all of every chain, or it is gone again.
    fn end(&mut self, facts: &Facts) -> Option<View> {
        let mut view = facts.view()?.clone();
        let mut filling = (0u16..).zip(&view.chains).filter(|(_, c)| c.filling).peekable();
        if filling.peek().is_none() {
            self.current = None;
            return None;
        }
        let is_filled = |(chain, of): (u16, &Chain)| {
            let fill_number = of.fill_number;
            self.filled.contains(&FilledChain { chain, fill_number })
        };
        if !facts.is_confirmed() || !filling.all(is_filled) {
            return None;
        }
        for chain in &mut view.chains {
            (chain.filling, chain.fill_number) = (false, 0);
        }
        self.current = None;
        Some(view)
    }
}
