//! Members leave: who is silent, has other tables or lost something is taken out of every chain
//! that can be without it.

use std::{collections::BTreeSet, time::Duration};

use decide::Action;

use super::{
    Switches,
    tenant::{Tenant, next_number},
};
use crate::view::{Chain, Member, SLOTS, View};

/// A member whose memory is taken away leaves after this time: a controller that begins learns of
/// rooms one after the other.
const ROOMLESS: Duration = Duration::from_secs(2);

impl Tenant {
    /// Members that must leave: their tables are others by now or have lost something, they have no
    /// memory any longer, or others do not hear them.
    pub(super) fn gone(&mut self, now: Duration, switches: &Switches) -> BTreeSet<u8> {
        let Some(view) = self.view() else {
            return BTreeSet::new();
        };
        let said = &self.silence;
        let chains: Vec<Vec<u8>> = view.chains.iter().map(|c| c.slots.clone()).collect();
        let weight = |slot: u8| {
            let attached = self
                .switch_in(slot)
                .and_then(|switch| switches.get(&switch))
                .is_some_and(|seen| seen.attached);
            let filling = |c: &&Chain| c.filling && c.slots.last() == Some(&slot);
            let filling = view.chains.iter().any(|c| filling(&c));
            let places = chains.iter().filter_map(|c| c.iter().position(|s| *s == slot));
            let mute = said.is_mute(now, slot);
            (mute, !attached, filling, places.sum::<usize>())
        };
        let mut silence = said.clone();
        let mut gone = silence.leaving(now, &chains, weight);
        for (slot, member) in (0..).zip(&view.members) {
            let Some(member) = member else { continue };
            if self.has_no_tables(now, member, switches) || self.lost.contains(&member.switch) {
                gone.insert(slot);
            }
        }
        self.silence = silence;
        gone
    }

    /// Whether a member has other tables by now, or no memory any longer.
    pub(super) fn has_no_tables(
        &self,
        now: Duration,
        member: &Member,
        switches: &Switches,
    ) -> bool {
        let life = switches.get(&member.switch).map_or(0, |seen| seen.life);
        let is_other = life != 0 && life != member.life;
        let settled = now >= self.rooms_since + ROOMLESS && !self.rooms.is_empty();
        is_other || settled && !self.rooms.contains(&member.switch)
    }

    /// Takes members out of all chains that can be without them: a member that has everything must
    /// stay, and one that every chain of the last moments had.
    pub(super) fn leave(&mut self, now: Duration, gone: &BTreeSet<u8>, out: &mut Vec<Action>) {
        let Some(mut view) = self.memory.view.clone() else {
            return;
        };
        for slot in gone {
            for (at, chain) in view.chains.iter_mut().enumerate() {
                if let Some(without) = without(chain, *slot)
                    && self.meets_the_past(at, &full_members(&without, &view.members))
                {
                    *chain = without;
                }
            }
        }
        if self.view().is_some_and(|before| before.chains == view.chains) {
            return;
        }
        for (slot, place) in (0..).zip(view.members.iter_mut()) {
            let stays = |chain: &Chain| chain.slots.contains(&slot);
            if let Some(member) = place.filter(|_| !view.chains.iter().any(stays)) {
                *place = None;
                self.silence.forget(slot);
                self.lost.remove(&member.switch);
                self.bar(now, member.switch);
            }
        }
        let number = next_number(self.memory.number);
        for (chain, before) in view.chains.iter_mut().zip(self.chains()) {
            let predecessor = |c: &Chain| c.slots.iter().rev().nth(1).copied();
            // Whoever copies is another: what was copied before may not be what this one had.
            if chain.filling && predecessor(chain) != predecessor(&before) {
                chain.fill_number = number;
            }
        }
        self.replace(now, view, out);
    }

    pub(super) fn chains(&self) -> Vec<Chain> {
        self.view().map_or(vec![], |view| view.chains.clone())
    }

    /// Whether a chain with these full members has one of each set that it had in the last moments.
    fn meets_the_past(&self, chain: usize, full: &[Member]) -> bool {
        let meets = |view: &View| {
            let before = view.chains.get(chain);
            let set = before.map_or(vec![], |chain| full_members(chain, &view.members));
            set.is_empty() || set.iter().any(|member| full.contains(member))
        };
        self.memory.past.iter().all(meets)
    }
}

/// A chain without a member; none: it has not that member, or no other that has everything.
fn without(chain: &Chain, slot: u8) -> Option<Chain> {
    let at = chain.slots.iter().position(|s| *s == slot)?;
    let was_filling = chain.filling && at + 1 == chain.slots.len();
    let mut rest = chain.clone();
    rest.slots.remove(at);
    if was_filling {
        (rest.filling, rest.fill_number) = (false, 0);
    }
    let full = rest.slots.len() - usize::from(rest.filling);
    (full > 0).then_some(rest)
}

/// The members of a chain that have everything.
fn full_members(chain: &Chain, members: &[Option<Member>; SLOTS]) -> Vec<Member> {
    let full = chain.slots.len() - usize::from(chain.filling);
    let slots = chain.slots[..full].iter();
    slots.filter_map(|s| members[usize::from(*s)]).collect()
}
