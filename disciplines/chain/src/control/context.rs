//! What the parts of a tenant share while one event is handled: the time, the switches, the way
//! out, and the facts that more than one of them goes by.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chain_wire::{MEMBERS_MOST, chain_of};
use decide::{Action, Change, Key, Settings, Stores, SwitchId};

use super::{Switches, barred::Barred, crowded::Crowded, item, memory::Memory};
use crate::view::{Chain, Member, Protocol, SLOTS, View};

/// A member whose memory is taken away leaves after this time: a controller that begins learns of
/// rooms one after the other.
const ROOMLESS: Duration = Duration::from_secs(2);

/// What is known of a tenant.
pub(super) struct Facts {
    pub id: u32,
    pub protocol: Protocol,
    pub options: Settings,
    pub stores: Option<Stores>,
    /// Switches on which it has memory, and since when it has it on just these.
    pub rooms: BTreeSet<SwitchId>,
    pub rooms_since: Duration,
    pub memory: Memory,
    /// Switches that said that they have the view, members or not.
    pub confirmed: BTreeSet<SwitchId>,
    /// What each switch has of the tenant, once it said so.
    pub held: BTreeMap<SwitchId, BTreeSet<Key>>,
    /// Switches that lost items.
    pub lost: BTreeSet<SwitchId>,
    /// Switches that said that they are to leave, and did not attach anew since.
    pub leaving: BTreeSet<SwitchId>,
    pub barred: Barred,
    /// There is no room for another key.
    pub full: bool,
    pub crowded: Crowded,
    /// The switches are to be told the view, whether or not they were told the same before.
    pub is_due: bool,
}

impl Facts {
    /// Of a tenant of which nothing was heard.
    pub fn new(id: u32, protocol: Protocol) -> Facts {
        Facts {
            id,
            protocol,
            options: Settings::default(),
            stores: None,
            rooms: BTreeSet::new(),
            rooms_since: Duration::ZERO,
            memory: Memory::default(),
            confirmed: BTreeSet::new(),
            held: BTreeMap::new(),
            lost: BTreeSet::new(),
            leaving: BTreeSet::new(),
            barred: Barred::default(),
            full: false,
            crowded: Crowded::default(),
            is_due: false,
        }
    }

    /// The present view; none: the tenant is gone, or has not begun.
    pub fn view(&self) -> Option<&View> {
        self.memory.view.as_ref()
    }

    /// The chains of the view.
    pub fn chains(&self) -> &[Chain] {
        self.view().map_or(&[], |view| &view.chains)
    }

    /// All members of the chains.
    pub fn members(&self) -> Vec<SwitchId> {
        let Some(view) = self.view() else { return vec![] };
        let slots = (0..SLOTS as u8).filter(|slot| view.is_in_chain(*slot));
        slots.filter_map(|slot| self.switch_in(slot)).collect()
    }

    /// Slots of switches that left in order and are in no chain any more, but were granted
    /// something of late, until then, that they are to let go of (rule 6).
    pub fn parted(&self) -> Vec<u8> {
        let Some(view) = self.view() else { return vec![] };
        let is_parted = |slot: &u8| self.switch_in(*slot).is_some() && !view.is_in_chain(*slot);
        (0..SLOTS as u8).filter(is_parted).collect()
    }

    /// The members of a chain that stay, as far as is known.
    pub fn staying(&self, chain: usize) -> usize {
        let mut members = self.members_of(chain);
        members.retain(|switch| !self.leaving.contains(switch));
        members.len()
    }

    /// The members of a chain, the head first.
    pub fn members_of(&self, chain: usize) -> Vec<SwitchId> {
        let slots = self.chains().get(chain).map_or(&[][..], |chain| &chain.slots);
        slots.iter().filter_map(|s| self.switch_in(*s)).collect()
    }

    /// The last member of a chain that has everything.
    pub fn last_full(&self, chain: usize) -> Option<SwitchId> {
        let chain = self.chains().get(chain)?;
        let full = chain.slots.len() - usize::from(chain.filling);
        self.switch_in(*chain.slots.get(full.checked_sub(1)?)?)
    }

    /// Whether a switch is a member of a chain.
    pub fn is_member(&self, switch: SwitchId) -> bool {
        self.members().contains(&switch)
    }

    /// The slot that a switch is in.
    pub fn slot_of(&self, switch: SwitchId) -> Option<u8> {
        let mut slots = (0..).zip(&self.view()?.members);
        let its = slots.find(|(_, m)| m.is_some_and(|m| m.switch == switch));
        its.map(|(slot, _)| slot)
    }

    /// The switch in a slot.
    pub fn switch_in(&self, slot: u8) -> Option<SwitchId> {
        let member = self.view()?.members.get(usize::from(slot))?;
        member.map(|member| member.switch)
    }

    /// Whether it is known what every member holds, and which chain a key is in.
    pub fn knows_all(&self) -> bool {
        let mut members = self.members().into_iter();
        self.stores.is_some() && members.all(|member| self.held.contains_key(&member))
    }

    /// Whether every member has the view.
    pub fn is_confirmed(&self) -> bool {
        let mut members = self.members().into_iter();
        members.all(|member| self.confirmed.contains(&member))
    }

    /// The chain that a key is in.
    pub fn chain_with(&self, key: &[u8]) -> Option<usize> {
        let chains = self.view()?.chains.len() as u16;
        let hash = self.stores.as_ref()?.hash_of(key);
        Some(usize::from(chain_of(hash, chains)))
    }

    /// Whether a switch has an item of a key.
    pub fn has(&self, switch: SwitchId, key: &Key) -> bool {
        self.held.get(&switch).is_some_and(|held| held.contains(key))
    }

    /// A switch has made a change of its items.
    pub fn changed(&mut self, switch: SwitchId, key: &Key, change: &Change) {
        let Some(held) = self.held.get_mut(&switch) else { return };
        match change {
            Change::Put(_) => held.insert(key.clone()),
            Change::Remove | Change::RemoveIf(_) => held.remove(key),
        };
    }

    /// What a switch has of these chains. Sessions of a member stay: they are about its other
    /// chains too.
    pub fn keys_to_clear(&self, switch: SwitchId, chains: &[usize]) -> Vec<Key> {
        let is_member = self.is_member(switch);
        let goes = |key: &&Key| match item::is_session(key) {
            true => !is_member,
            false => {
                let chain = self.chain_with(key);
                !is_member || chain.is_some_and(|chain| chains.contains(&chain))
            }
        };
        let held = self.held.get(&switch);
        held.into_iter().flatten().filter(goes).cloned().collect()
    }

    /// The versions that a key may have on their way, as a power of two.
    pub fn shift(&self) -> u8 {
        self.options[2].min(4) as u8
    }

    /// Whether clients may read what is not known to be committed.
    pub fn is_relaxed(&self) -> bool {
        self.options[4] != 0
    }

    /// How many members a chain is to have.
    pub fn length(&self) -> usize {
        (self.options[1] as usize).clamp(1, MEMBERS_MOST)
    }

    /// How many members a chain can have of so many candidates.
    pub fn wanted_length(&self, candidates: usize) -> usize {
        self.length().min(candidates)
    }

    /// For one event, at `now`, whose actions are appended to `out`.
    pub fn at<'a>(
        &'a mut self,
        now: Duration,
        switches: &'a Switches,
        out: &'a mut Vec<Action>,
    ) -> Context<'a> {
        Context { now, switches, facts: self, out }
    }
}

/// A tenant's facts for the time of one event.
pub(super) struct Context<'a> {
    /// The time of the event.
    pub now: Duration,
    /// All switches that were heard of.
    pub switches: &'a Switches,
    pub facts: &'a mut Facts,
    /// What is to be done.
    pub out: &'a mut Vec<Action>,
}

impl Context<'_> {
    /// Whether a switch's stream is there.
    pub fn is_attached(&self, switch: SwitchId) -> bool {
        self.switches.get(&switch).is_some_and(|state| state.attached)
    }

    /// Switches that may be members, with their addresses: all of one family, which is that of the
    /// members if there are any.
    pub fn candidates(&self) -> BTreeMap<SwitchId, Member> {
        let facts = &self.facts;
        let member = |switch: &SwitchId| {
            let state = self.switches.get(switch)?;
            let stays = state.attached && !facts.leaving.contains(switch);
            let known = stays && state.life != 0 && facts.held.contains_key(switch);
            let member = Member { address: state.address?, switch: *switch, life: state.life };
            known.then_some((*switch, member))
        };
        let mut all: BTreeMap<SwitchId, Member> = facts.rooms.iter().filter_map(member).collect();
        let there = facts.view().map(|view| view.members.iter().flatten());
        let first = there.into_iter().flatten().chain(all.values()).next();
        let is_ipv6 = first.is_some_and(|m| m.address.is_ipv6());
        all.retain(|_, m| m.address.is_ipv6() == is_ipv6);
        all
    }

    /// Whether a member has other tables by now, or no memory any longer.
    pub fn has_no_tables(&self, member: &Member) -> bool {
        let life = self.switches.get(&member.switch).map_or(0, |state| state.life);
        let is_other = life != 0 && life != member.life;
        let rooms = &self.facts.rooms;
        let settled = self.now >= self.facts.rooms_since + ROOMLESS && !rooms.is_empty();
        is_other || settled && !rooms.contains(&member.switch)
    }

    /// Asks a switch for a change of its items.
    pub fn ask(&mut self, switch: SwitchId, key: Key, change: Change) {
        self.out.push(Action::Change { switch, tenant: self.facts.id, key, change });
    }

    /// Has the memory kept, for a controller that comes after this one.
    pub fn remember(&mut self) {
        let bytes = self.facts.memory.encode();
        self.out.push(Action::Remember { tenant: self.facts.id, bytes });
    }
}
