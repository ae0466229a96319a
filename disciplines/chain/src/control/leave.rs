//! Members leave: who is silent, has other tables or lost something is taken out of every chain
//! that can be without it; so is who is to leave, in order; and who is one too many out of the
//! chains that have too many.
//!
//! Who leaves in order is in no chain of the new view, but has its slot in it for a while, so that
//! it confirms the view to the others: then nothing is held back for what they granted it before
//! (rule 6). Members grant it nothing once it has done so. Until that is over, no other view comes
//! that can wait: one under which it is not heard would be held back for it.

use std::{collections::BTreeSet, time::Duration};

use super::{
    arrange,
    context::{Context, Facts},
    silence::Reports,
};
use crate::view::{Chain, Member, SLOTS, View};

/// What a member that left was granted is over so long after all have heard the view without it:
/// longer than a lease, and than a member's agent takes to see that it was heard.
const LET_GO: Duration = Duration::from_millis(400);

/// Those who left in order, and are to let go.
#[derive(Debug, Default)]
pub(super) struct Parting {
    /// Since when all have the view of that number.
    since: Option<(u64, Duration)>,
}

impl Parting {
    /// Whether nobody goes by anything any longer that those in these slots were granted.
    fn is_over(&mut self, cx: &Context<'_>, parted: &[u8]) -> bool {
        let has_view = |slot: &u8| {
            let switch = cx.facts.switch_in(*slot);
            switch.is_none_or(|s| cx.facts.confirmed.contains(&s) || !cx.is_attached(s))
        };
        let number = cx.facts.memory.number;
        if parted.is_empty() || !cx.facts.is_confirmed() || !parted.iter().all(has_view) {
            self.since = None;
            return false;
        }
        let since = self.since.filter(|(of, _)| *of == number).map(|(_, since)| since);
        let since = since.unwrap_or(cx.now);
        self.since = Some((number, since));
        cx.now >= since + LET_GO
    }
}

/// Members that are to be in no chain any more, by slot, and what becomes of their slots.
struct Departures {
    /// They must leave, and keep nothing.
    gone: BTreeSet<u8>,
    /// They are to leave, and keep their slots for a while.
    leaving: BTreeSet<u8>,
}

/// The view without those that must leave or are to, as far as chains can be without them; none:
/// nobody can leave.
pub(super) fn go_on(
    cx: &mut Context<'_>,
    silence: &mut Reports,
    parting: &mut Parting,
) -> Option<View> {
    let parted = cx.facts.parted();
    let mut gone = gone(cx, silence);
    gone.retain(|slot| !parted.contains(slot));
    let mut keep: BTreeSet<u8> = parted.iter().copied().collect();
    let is_over = parting.is_over(cx, &parted);
    let mut departures = Departures { leaving: BTreeSet::new(), gone };
    if parted.is_empty() {
        let leaving = cx.facts.leaving.iter().filter_map(|switch| cx.facts.slot_of(*switch));
        departures.leaving = leaving.filter(|slot| !departures.gone.contains(slot)).collect();
        keep.extend(&departures.leaving);
    } else if is_over {
        keep.clear();
    }
    let chains = 0..cx.facts.chains().len();
    let every_chain = |slot: &u8| chains.clone().map(|at| (*slot, at)).collect::<Vec<_>>();
    let departing = departures.gone.iter().chain(&departures.leaving);
    let departing: Vec<_> = departing.flat_map(every_chain).collect();
    let view = without_members(cx.facts, &departing, &keep)?;
    for slot in &departures.gone {
        if let Some(switch) = cx.facts.switch_in(*slot)
            && view.members[usize::from(*slot)].is_none()
        {
            cx.facts.lost.remove(&switch);
            cx.facts.barred.bar(cx.now, switch);
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
        // Who is to leave has another in its place already.
        let members = facts.members_of(at).into_iter().filter(|_| !chain.filling);
        let members = members.filter(|member| !facts.leaving.contains(member));
        let least = arrange::ranked(facts.id, at, members).into_iter().skip(facts.length());
        least.filter_map(move |switch| Some((facts.slot_of(switch)?, at)))
    };
    let surplus: Vec<_> = facts.chains().iter().enumerate().flat_map(surplus).collect();
    without_members(facts, &surplus, &BTreeSet::new())
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
/// be without them, the first ones first: a member that has everything must stay, and one that
/// every chain of the last moments had. `keep` has the slots that stay taken although no chain has
/// them. None: there is nothing to change.
fn without_members(facts: &Facts, leaving: &[(u8, usize)], keep: &BTreeSet<u8>) -> Option<View> {
    let mut view = facts.view()?.clone();
    for (slot, at) in leaving {
        let chain = &mut view.chains[*at];
        if let Some(without) = without(chain, *slot)
            && meets_the_past(facts, *at, &full_members(&without, &view.members))
        {
            *chain = without;
        }
    }
    let stays: Vec<bool> =
        (0..SLOTS as u8).map(|slot| view.is_in_chain(slot) || keep.contains(&slot)).collect();
    let lets_go = |slot: &u8| !stays[usize::from(*slot)];
    if facts.chains() == view.chains && !facts.parted().iter().any(lets_go) {
        return None;
    }
    for (place, stays) in view.members.iter_mut().zip(&stays) {
        *place = place.filter(|_| *stays);
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
