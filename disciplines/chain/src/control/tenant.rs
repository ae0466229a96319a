//! One tenant: its chains, and what follows when a switch comes, goes or falls silent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chain_wire::{MEMBERS_MOST, chain_of};
use decide::{Action, Key, Room, Settings, Stores, SwitchId};

use super::{
    Switches, arrange, forget::SessionExpiry, items::Items, join::Join, memory::Memory,
    remove::Removals, restore::Losses, silence::Reports, snapshot::Snapshot,
};
use crate::{
    report::{FilledChain, IdleSessions, RemovableKeys, State},
    snapshot::Part,
    view::{Chain, Member, Protocol, SLOTS, View},
};

/// How long a member may rely on what another one confirmed.
const LEASE_MS: u32 = 250;
/// A chain that was superseded less than this ago may still have members that answer for it.
const RECENT: Duration = Duration::from_secs(2);
/// How long rooms must have stayed as they are before chains begin; and if there are fewer switches
/// than a chain is long.
const SETTLED: Duration = Duration::from_millis(300);
const SETTLED_SHORT: Duration = Duration::from_secs(2);
/// Chains begin without switches that did not attach in this time.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);
/// A switch that had to leave may not join again for so long; twice as long each time.
const BARRED: Duration = Duration::from_secs(1);
const BARRED_DOUBLINGS: u32 = 6;
/// The generation of numbers that a tenant begins with.
const FIRST_NUMBER: u64 = 1 << 48 | 1;

/// One tenant with its chains.
pub(crate) struct Tenant {
    pub(super) id: u32,
    pub(super) protocol: Protocol,
    pub options: Settings,
    pub stores: Option<Stores>,
    pub(super) rooms: BTreeSet<SwitchId>,
    pub(super) rooms_since: Duration,
    pub(super) memory: Memory,
    /// Switches that said that they have the view, members or not.
    pub(super) confirmed: BTreeSet<SwitchId>,
    /// When each of the remembered views before was superseded, or learnt of.
    pub(super) past: Vec<Duration>,
    /// What each switch has of the tenant, once it said so.
    pub(super) held: BTreeMap<SwitchId, BTreeSet<Key>>,
    /// Switches that lost items.
    pub(super) lost: BTreeSet<SwitchId>,
    pub(super) silence: Reports,
    /// Until when a switch may not join, and how often that was said.
    pub(super) barred: BTreeMap<SwitchId, (Duration, u32)>,
    /// Chains that their filling member has all of, by what its predecessor says.
    pub(super) filled: BTreeSet<FilledChain>,
    pub(super) join: Option<Join>,
    pub(super) items: Items,
    pub(super) removals: Removals,
    pub(super) forgetting: SessionExpiry,
    pub(super) snapshot: Snapshot,
    pub(super) losses: Losses,
    pub(super) full: bool,
    /// What the switches were configured with: whether it is full, and the life of each one's
    /// tables.
    pub(super) configured: (bool, BTreeMap<SwitchId, u64>),
    pub(super) is_due: bool,
}

impl Tenant {
    pub fn new(id: u32, protocol: Protocol) -> Tenant {
        Tenant {
            id,
            protocol,
            options: Settings::default(),
            stores: None,
            rooms: BTreeSet::new(),
            rooms_since: Duration::ZERO,
            memory: Memory::default(),
            confirmed: BTreeSet::new(),
            past: vec![],
            held: BTreeMap::new(),
            lost: BTreeSet::new(),
            silence: Reports::default(),
            barred: BTreeMap::new(),
            filled: BTreeSet::new(),
            join: None,
            items: Items::default(),
            removals: Removals::default(),
            forgetting: SessionExpiry::default(),
            snapshot: Snapshot::default(),
            losses: Losses::default(),
            full: false,
            configured: (false, BTreeMap::new()),
            is_due: false,
        }
    }

    // ---- what happens

    /// What an earlier controller remembered.
    pub fn remembered(&mut self, now: Duration, bytes: &[u8]) {
        self.memory = Memory::decode(bytes).unwrap_or_default();
        self.past = vec![now; self.memory.past.len()];
        if let Some(view) = &self.memory.view {
            self.is_due = true;
            self.join = Join::under_way(view);
        }
    }

    /// Where its memory is.
    pub fn rooms(&mut self, now: Duration, rooms: &[Room], out: &mut Vec<Action>) {
        let rooms: BTreeSet<SwitchId> =
            rooms.iter().filter(|room| room.pages > 0).map(|room| room.switch).collect();
        if rooms == self.rooms {
            return;
        }
        (self.rooms, self.rooms_since) = (rooms, now);
        self.full = false;
        if self.rooms.is_empty() {
            self.over(out);
        }
    }

    /// The tenant is gone: its numbers stay used.
    fn over(&mut self, out: &mut Vec<Action>) {
        (self.memory.view, self.memory.past) = (None, vec![]);
        self.keep_nothing(out);
        let kept = Tenant { memory: self.memory.clone(), ..Tenant::new(self.id, self.protocol) };
        *self = kept;
        if self.memory.number != 0 {
            self.remember(out);
        }
    }

    /// These switches were there before the tenant had memory on them: nobody says that they hold
    /// nothing.
    pub fn holds_nothing(&mut self, switches: &[SwitchId]) {
        for switch in switches {
            self.held.entry(*switch).or_default();
        }
    }

    /// What a switch has, and what it should have had.
    pub fn holds(&mut self, switch: SwitchId, held: &[Key], lost: &[Key]) {
        self.held.insert(switch, held.iter().cloned().collect());
        if self.is_member(switch) && !lost.is_empty() {
            self.lost.insert(switch);
        }
        self.items.look_at_all();
    }

    /// A switch has the view that it was last sent.
    pub fn configured(&mut self, switch: SwitchId) {
        self.confirmed.insert(switch);
        self.items.look_at_all();
    }

    /// A member's agent reports.
    pub fn reported(
        &mut self,
        now: Duration,
        switch: SwitchId,
        report: &[u8],
        out: &mut Vec<Action>,
    ) {
        if let Some(removable) = RemovableKeys::decode(report) {
            return self.may_remove(switch, removable, out);
        }
        if let Some(idle) = IdleSessions::decode(report) {
            return self.may_forget(switch, idle, out);
        }
        if let Some(part) = Part::decode(report) {
            return self.told(now, switch, part, out);
        }
        let Some(state) = State::decode(report) else {
            return;
        };
        let Some(slot) = self.slot_of(switch) else {
            return;
        };
        self.silence.spoke(now, slot);
        if state.number > self.memory.number {
            return self.overtaken(state.number, out);
        }
        if state.number < self.memory.number {
            return;
        }
        self.silence.say(now, slot, (state.silent, state.unheard));
        self.filled.extend(state.filled);
    }

    /// A member had a view in force that nobody remembers: a row with a lower number is none to it.
    /// Chains that have nothing yet go on above it; over keys that were written in a forgotten past
    /// nobody goes.
    fn overtaken(&mut self, number: u64, out: &mut Vec<Action>) {
        let mut members = self.members().into_iter();
        if members.all(|switch| self.held.get(&switch).is_some_and(BTreeSet::is_empty)) {
            self.memory.number = number;
            self.renew(out);
        }
    }

    // ---- what is

    pub(super) fn view(&self) -> Option<&View> {
        self.memory.view.as_ref()
    }

    pub fn is_member(&self, switch: SwitchId) -> bool {
        self.slot_of(switch).is_some()
    }

    pub(super) fn slot_of(&self, switch: SwitchId) -> Option<u8> {
        let mut slots = (0..).zip(&self.view()?.members);
        let its = slots.find(|(_, m)| m.is_some_and(|m| m.switch == switch));
        its.map(|(slot, _)| slot)
    }

    /// The switch in a slot.
    pub(super) fn switch_in(&self, slot: u8) -> Option<SwitchId> {
        let member = self.view()?.members.get(usize::from(slot))?;
        member.map(|member| member.switch)
    }

    /// Whether it is known what every member holds, and which chain a key is in.
    pub(super) fn knows_all(&self) -> bool {
        let mut members = self.members().into_iter();
        self.stores.is_some() && members.all(|member| self.held.contains_key(&member))
    }

    /// Whether every member has the view.
    pub(super) fn is_confirmed(&self) -> bool {
        let mut members = self.members().into_iter();
        members.all(|member| self.confirmed.contains(&member))
    }

    /// The members of a chain, the head first.
    pub(super) fn members_of(&self, chain: usize) -> Vec<SwitchId> {
        let slots = self.view().and_then(|view| view.chains.get(chain));
        let slots = slots.map_or(&[][..], |chain| &chain.slots);
        slots.iter().filter_map(|s| self.switch_in(*s)).collect()
    }

    /// All members of the view.
    pub(super) fn members(&self) -> Vec<SwitchId> {
        let members = self.view().map(|view| view.members.iter().flatten());
        members.into_iter().flatten().map(|m| m.switch).collect()
    }

    /// The chain that a key is in.
    pub(super) fn chain_with(&self, key: &[u8]) -> Option<usize> {
        let chains = self.view()?.chains.len() as u16;
        let hash = self.stores.as_ref()?.hash_of(key);
        Some(usize::from(chain_of(hash, chains)))
    }

    pub(super) fn shift(&self) -> u8 {
        self.options[2].min(4) as u8
    }

    fn length(&self) -> usize {
        (self.options[1] as usize).clamp(1, MEMBERS_MOST)
    }

    pub(super) fn is_barred(&self, now: Duration, switch: SwitchId) -> bool {
        self.barred.get(&switch).is_some_and(|(until, _)| *until > now)
    }

    pub(super) fn bar(&mut self, now: Duration, switch: SwitchId) {
        let (until, times) = self.barred.entry(switch).or_default();
        if now > *until + BARRED * 128 {
            *times = 0;
        }
        *until = now + BARRED * (1 << (*times).min(BARRED_DOUBLINGS));
        *times += 1;
    }

    /// Switches that may be members, with their addresses: all of one family, which is that of the
    /// members if there are any.
    pub(super) fn candidates(&self, switches: &Switches) -> BTreeMap<SwitchId, Member> {
        let member = |switch: &SwitchId| {
            let seen = switches.get(switch)?;
            let known = seen.attached && seen.life != 0 && self.held.contains_key(switch);
            let member = Member { address: seen.address?, switch: *switch, life: seen.life };
            known.then_some((*switch, member))
        };
        let mut all: BTreeMap<SwitchId, Member> = self.rooms.iter().filter_map(member).collect();
        let there = self.view().map(|view| view.members.iter().flatten());
        let first = there.into_iter().flatten().chain(all.values()).next();
        let is_ipv6 = first.is_some_and(|m| m.address.is_ipv6());
        all.retain(|_, m| m.address.is_ipv6() == is_ipv6);
        all
    }

    // ---- what follows

    /// Whatever is to be done now.
    pub fn step(&mut self, now: Duration, switches: &Switches, out: &mut Vec<Action>) {
        let over = self.past.iter().take_while(|at| **at + RECENT <= now).count();
        self.past.drain(..over);
        self.memory.past.drain(..over);
        if self.memory.view.is_none() {
            self.begin(now, switches, out);
        } else {
            let gone = self.gone(now, switches);
            if !gone.is_empty() {
                self.leave(now, &gone, out);
            }
            if !self.go_on_restoring(now, switches, out) {
                self.go_on_joining(now, switches, out);
                self.go_on_with_items(now, out);
                self.go_on_removing(out);
                self.go_on_forgetting(now, out);
            }
            self.go_on_saving(now, switches, out);
        }
        self.configure(switches, out);
    }

    /// The first chains, once all switches are there that have memory.
    fn begin(&mut self, now: Duration, switches: &Switches, out: &mut Vec<Action>) {
        let all = self.candidates(switches);
        let waited = now.saturating_sub(self.rooms_since);
        let is_settled = match all.len() {
            0 => return,
            n if n < self.rooms.len() => waited >= BEGIN_WITHIN,
            n if n < self.length() => waited >= SETTLED_SHORT,
            _ => waited >= SETTLED,
        };
        // Items of a past that nobody remembers are not this half's to drop.
        let strange = all.keys().any(|switch| !self.held[switch].is_empty());
        if !is_settled || self.stores.is_none() || strange {
            return;
        }
        let mut members = [None; SLOTS];
        let chosen = arrange::ranked(self.id, usize::MAX, all.keys().copied());
        for (to, switch) in members.iter_mut().zip(chosen) {
            *to = all.get(&switch).copied();
        }
        let slot = |switch: SwitchId| {
            let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == switch);
            members.iter().position(is_it).map(|slot| slot as u8)
        };
        let chain = |number: usize| {
            let there = members.iter().flatten().map(|m| m.switch);
            let ranked = arrange::ranked(self.id, number, there);
            let slots = ranked.into_iter().take(self.length()).filter_map(slot);
            Chain { slots: slots.collect(), filling: false, fill_number: 0 }
        };
        let chains = (self.options[0] as usize).clamp(1, crate::view::CHAINS);
        let chains: Vec<Chain> = (0..chains).map(chain).collect();
        // Whoever leaves is waited for, so who is in no chain is no member.
        for (slot, place) in (0u8..).zip(&mut members) {
            if !chains.iter().any(|chain| chain.slots.contains(&slot)) {
                *place = None;
            }
        }
        self.memory.view = Some(View {
            number: 0,
            tenant: self.id,
            slot: None,
            protocol: self.protocol,
            life: 0,
            purge_below: 0,
            lease_ms: LEASE_MS,
            chains,
            members,
        });
        self.renew(out);
    }

    /// Another view in the place of the present one.
    pub(super) fn replace(&mut self, now: Duration, view: View, out: &mut Vec<Action>) {
        if let Some(before) = self.memory.view.take() {
            self.past.push(now);
            self.memory.past.push(before);
        }
        self.memory.view = Some(view);
        self.renew(out);
    }

    /// The view gets the next number, which is remembered before anybody is told.
    fn renew(&mut self, out: &mut Vec<Action>) {
        self.memory.number = next_number(self.memory.number);
        if let Some(view) = &mut self.memory.view {
            view.number = self.memory.number;
        }
        self.silence.clear();
        self.filled.clear();
        self.stop_removing();
        self.items.look_at_all();
        self.confirmed.clear();
        self.is_due = true;
        self.remember(out);
    }

    pub(super) fn remember(&self, out: &mut Vec<Action>) {
        out.push(Action::Remember { tenant: self.id, bytes: self.memory.encode() });
    }

    /// Numbers for the status.
    pub fn count(&self, switch: SwitchId, counters: &mut BTreeMap<&'static str, u64>) {
        let chains = self.chains();
        let slot = self.slot_of(switch);
        let mut add = |name, n: usize| *counters.entry(name).or_default() += n as u64;
        let is_in = |c: &&Chain| slot.is_some_and(|slot| c.slots.contains(&slot));
        add("chain_memberships", chains.iter().filter(is_in).count());
        let short = |c: &&Chain| c.slots.len() < self.length() || c.filling;
        add("chain_kept_keys", self.snapshot.saved.len());
        add("chain_short", chains.iter().filter(short).count());
    }

    pub(super) fn wanted_length(&self, candidates: usize) -> usize {
        self.length().min(candidates)
    }
}

pub(super) fn next_number(number: u64) -> u64 {
    match number {
        0 => FIRST_NUMBER,
        before => before + 1,
    }
}
