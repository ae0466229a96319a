//! What switches are told: the view, each with its own slot in it.

use std::collections::{BTreeMap, BTreeSet};

use decide::{Action, Configuration, Row, SwitchId};

use super::{
    Switches,
    context::{Context, Facts},
};
use crate::view::{Member, View, no_room_row};

/// What the switches were configured with last.
#[derive(Debug, Default)]
pub(super) struct Configurations {
    /// What there is no room for.
    no_room: Vec<Row>,
    /// The life of each one's tables.
    lives: BTreeMap<SwitchId, u64>,
}

impl Configurations {
    /// Tells every switch with memory what it is to go by, if that is another than it was told:
    /// members first, and those before that are none any longer.
    pub fn go_on(&mut self, cx: &mut Context<'_>) {
        let facts = &*cx.facts;
        let Some(view) = facts.view() else { return };
        let life_of = |switch: &SwitchId| cx.switches.get(switch).map_or(0, |state| state.life);
        let members: BTreeSet<SwitchId> = facts.members().into_iter().collect();
        let others = facts.rooms.difference(&members);
        let all: Vec<SwitchId> = members.iter().chain(others).copied().collect();
        let lives = all.iter().map(|switch| (*switch, life_of(switch))).collect();
        let no_room = no_room(facts);
        if !facts.is_due && self.no_room == no_room && self.lives == lives {
            return;
        }
        (self.no_room, self.lives) = (no_room, lives);
        for switch in all {
            let Some(row) = view_of(facts, view, (switch, cx.switches)).row() else { continue };
            let rows = [row].into_iter().chain(self.no_room.iter().cloned()).collect();
            let configuration = Configuration { rows, ..Configuration::default() };
            cx.out.push(Action::Configure { switch, tenant: facts.id, configuration });
        }
        cx.facts.is_due = false;
    }
}

/// What a switch is told. One that is no member has a slot for itself alone, so that it can say
/// who has the keys.
fn view_of(facts: &Facts, view: &View, (switch, switches): (SwitchId, &Switches)) -> View {
    let mut its = View { is_relaxed: facts.is_relaxed(), ..view.clone() };
    let life = switches.get(&switch).map(|state| state.life);
    let is_its = |slot: &u8| {
        let left = view.members[usize::from(*slot)].filter(|_| !view.is_in_chain(*slot));
        // Tables that are there again have nothing to do with those that left.
        left.is_none_or(|left| Some(left.life) == life)
    };
    if let Some(slot) = facts.slot_of(switch).filter(is_its) {
        let member = view.members[usize::from(slot)];
        (its.slot, its.life) = (Some(slot), member.map_or(0, |member| member.life));
        return its;
    }
    let Some(state) = switches.get(&switch) else { return its };
    its.life = state.life;
    let free = view.members.iter().position(Option::is_none);
    let is_ipv6 = view.members.iter().flatten().any(|m| m.address.is_ipv6());
    let address = state.address.filter(|address| address.is_ipv6() == is_ipv6);
    if let Some((slot, address)) = free.zip(address) {
        its.slot = Some(slot as u8);
        its.members[slot] = Some(Member { address, switch, life: state.life });
    }
    its
}

/// What switches say of keys that they have no item of.
fn no_room(facts: &Facts) -> Vec<Row> {
    let stores = facts.stores.iter();
    let hashes = stores.flat_map(|of| facts.crowded.keys().map(move |key| of.hash_of(key)));
    let any = facts.full.then(|| no_room_row(facts.id, None));
    any.into_iter().chain(hashes.map(|hash| no_room_row(facts.id, Some(hash)))).collect()
}
