//! Members leave: who is silent, has other tables or lost something is taken out of every chain
//! that can be without it; and who is one too many out of the chains that have too many.

use std::collections::BTreeSet;

use super::{
    arrange,
    context::{Context, Facts},
    silence::Reports,
};
use crate::view::{Chain, Member, SLOTS, View};

/// The view without those that must leave, as far as chains can be without them; none: nobody can
/// leave.
pub(super) fn go_on(cx: &mut Context<'_>, silence: &mut Reports) -> Option<View> {
    let gone = gone(cx, silence);
    let chains = cx.facts.chains().len();
    let every_chain = |slot: u8| (0..chains).map(move |at| (slot, at));
    let leaving: BTreeSet<_> = gone.iter().copied().flat_map(every_chain).collect();
    let view = (!leaving.is_empty()).then(|| without_members(cx.facts, &leaving)).flatten()?;
    for (slot, before) in (0..).zip(cx.facts.memory.view.iter().flat_map(|view| view.members)) {
        if let Some(member) = before.filter(|_| view.members[slot].is_none()) {
            cx.facts.lost.remove(&member.switch);
            cx.facts.barred.bar(cx.now, member.switch);
        }
    }
    Some(view)
}

/// The view in which no chain has more members than it is to have, as the tenant's `length` may be
/// less by now: those leave that the chain wants least. None: nobody is one too many, or it is no
/// time for it. While somebody is not there, or is just being told of another view, nobody who has
/// everything goes.
pub(super) fn shorten(cx: &Context<'_>) -> Option<View> {
    let facts = &*cx.facts;
    if !facts.is_confirmed() || !facts.members().iter().all(|member| cx.is_attached(*member)) {
        return None;
    }
    let surplus = |(at, chain): (usize, &Chain)| {
        let members = facts.members_of(at).into_iter().filter(|_| !chain.filling);
        let least = arrange::ranked(facts.id, at, members).into_iter().skip(facts.length());
        least.filter_map(move |switch| Some((facts.slot_of(switch)?, at)))
    };
    let surplus: BTreeSet<_> = facts.chains().iter().enumerate().flat_map(surplus).collect();
    (!surplus.is_empty()).then(|| without_members(facts, &surplus)).flatten()
}

/// Members that must leave: their tables are others by now or have lost something, they have no
/// memory any longer, or others do not hear them.
fn gone(cx: &Context<'_>, silence: &mut Reports) -> BTreeSet<u8> {
    let Some(view) = cx.facts.view() else { return BTreeSet::new() };
    let chains: Vec<Vec<u8>> = view.chains.iter().map(|c| c.slots.clone()).collect();
    let mute: Vec<bool> = (0..SLOTS as u8).map(|slot| silence.is_mute(cx.now, slot)).collect();
    let weight = |slot: u8| {
        let switch = cx.facts.switch_in(slot);
        let is_attached = switch.is_some_and(|switch| cx.is_attached(switch));
        let filling = |c: &Chain| c.filling && c.slots.last() == Some(&slot);
        let filling = view.chains.iter().any(filling);
        let places = chains.iter().filter_map(|c| c.iter().position(|s| *s == slot));
        (mute[usize::from(slot)], !is_attached, filling, places.sum::<usize>())
    };
    let mut gone = silence.leaving(cx.now, &chains, weight);
    for (slot, member) in (0..).zip(&view.members) {
        let Some(member) = member else { continue };
        if cx.has_no_tables(member) || cx.facts.lost.contains(&member.switch) {
            gone.insert(slot);
        }
    }
    gone
}

/// The view without these members, each a slot and the chain that it leaves, as far as chains can
/// be without them: a member that has everything must stay, and one that every chain of the last
/// moments had. None: no chain can.
fn without_members(facts: &Facts, leaving: &BTreeSet<(u8, usize)>) -> Option<View> {
    let mut view = facts.view()?.clone();
    for (slot, at) in leaving {
        let chain = &mut view.chains[*at];
        if let Some(without) = without(chain, *slot)
            && meets_the_past(facts, *at, &full_members(&without, &view.members))
        {
            *chain = without;
        }
    }
    if facts.chains() == view.chains {
        return None;
    }
    for (slot, place) in (0..).zip(view.members.iter_mut()) {
        let stays = |chain: &Chain| chain.slots.contains(&slot);
        *place = place.filter(|_| view.chains.iter().any(stays));
    }
    let number = facts.memory.next_number();
    for (chain, before) in view.chains.iter_mut().zip(facts.chains()) {
        let predecessor = |c: &Chain| c.slots.iter().rev().nth(1).copied();
        // Whoever copies is another: what was copied before may not be what this one had.
        if chain.filling && predecessor(chain) != predecessor(before) {
            chain.fill_number = number;
        }
    }
    Some(view)
}

/// Whether a chain with these full members has one of each set that it had in the last moments.
fn meets_the_past(facts: &Facts, chain: usize, full: &[Member]) -> bool {
    let meets = |view: &View| {
        let before = view.chains.get(chain);
        let set = before.map_or(vec![], |chain| full_members(chain, &view.members));
        set.is_empty() || set.iter().any(|member| full.contains(member))
    };
    facts.memory.past.iter().all(meets)
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
