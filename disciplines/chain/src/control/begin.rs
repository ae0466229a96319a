//! The first chains of a tenant, once all switches are there that have memory.

use std::time::Duration;

use decide::SwitchId;

use super::{arrange, context::Context};
use crate::view::{CHAINS, Chain, Member, SLOTS, View};

/// How long a member may rely on what another one confirmed.
const LEASE_MS: u32 = 250;
/// How long rooms must have stayed as they are before chains begin; and if there are fewer switches
/// than a chain is long.
const SETTLED: Duration = Duration::from_millis(300);
const SETTLED_SHORT: Duration = Duration::from_secs(2);
/// Chains begin without switches that did not attach in this time.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);

/// The first view, without its number; none: it is not time yet.
pub(super) fn first_view(cx: &Context<'_>) -> Option<View> {
    let facts = &cx.facts;
    let all = cx.candidates();
    let waited = cx.now.saturating_sub(facts.rooms_since);
    let is_settled = match all.len() {
        0 => return None,
        n if n < facts.rooms.len() => waited >= BEGIN_WITHIN,
        n if n < facts.length() => waited >= SETTLED_SHORT,
        _ => waited >= SETTLED,
    };
    // Items of a past that nobody remembers are not this half's to drop.
    let strange = all.keys().any(|switch| !facts.held[switch].is_empty());
    if !is_settled || facts.stores.is_none() || strange {
        return None;
    }
    let mut members = [None; SLOTS];
    let chosen = arrange::ranked(facts.id, usize::MAX, all.keys().copied());
    for (to, switch) in members.iter_mut().zip(chosen) {
        *to = all.get(&switch).copied();
    }
    let slot = |switch: SwitchId| {
        let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == switch);
        members.iter().position(is_it).map(|slot| slot as u8)
    };
    let chain = |number: usize| {
        let there = members.iter().flatten().map(|m| m.switch);
        let ranked = arrange::ranked(facts.id, number, there);
        let slots = ranked.into_iter().take(facts.length()).filter_map(slot);
        Chain { slots: slots.collect(), filling: false, fill_number: 0 }
    };
    let chains = (facts.options[0] as usize).clamp(1, CHAINS);
    let chains: Vec<Chain> = (0..chains).map(chain).collect();
    // Whoever leaves is waited for, so who is in no chain is no member.
    for (slot, place) in (0u8..).zip(&mut members) {
        if !chains.iter().any(|chain| chain.slots.contains(&slot)) {
            *place = None;
        }
    }
    Some(View {
        number: 0,
        tenant: facts.id,
        slot: None,
        protocol: facts.protocol,
        is_relaxed: facts.is_relaxed(),
        life: 0,
        purge_below: 0,
        lease_ms: LEASE_MS,
        chains,
        members,
    })
}
