//! One tenant: its chains, and what follows when a switch comes, goes or falls silent.
//!
//! The tenant only sequences. What there is to decide the parts decide: `begin`, `leave`,
//! `missing`, `restore`, `join`, `items`, `remove`, `leftovers`, `forget`, `snapshot`, `configure`.
//! Each is a value, or a function where there is nothing to keep; it gets what happened and a
//! [`Context`] with the facts that parts share. One that finds that members are to be others
//! returns the view that takes the place of the present one. A part may be handed one that lies
//! below it (`remove`, `forget` and `restore` the `items`, `items` the `join`), never one above.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use decide::{Answer, Inventory, Key, Outcome, Room, SwitchId};

use super::{
    begin,
    configure::Configurations,
    context::{Context, Facts},
    forget::SessionExpiry,
    item,
    items::Items,
    join::Joins,
    leave::{self, Parting},
    leftovers::Leftovers,
    memory::Memory,
    missing::MissingKeys,
    remove::Removals,
    restore::{self, Losses},
    silence::Reports,
    snapshot::Snapshot,
};
use crate::{
    report::{DepartureRequest, IdleSessions, RemovableKeys, State},
    snapshot::Part,
    view::{Chain, View},
};

/// A chain that was superseded less than this ago may still have members that answer for it.
const RECENT: Duration = Duration::from_secs(2);

/// What goes on with one tenant.
#[derive(Default)]
pub(super) struct Tenant {
    /// When each of the remembered views before was superseded, or learnt of.
    past: Vec<Duration>,
    silence: Reports,
    parting: Parting,
    joins: Joins,
    items: Items,
    removals: Removals,
    leftovers: Leftovers,
    missing: MissingKeys,
    forgetting: SessionExpiry,
    snapshot: Snapshot,
    losses: Losses,
    configurations: Configurations,
}

impl Tenant {
    // ---- what happens

    /// What an earlier controller remembered.
    pub fn remembered(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        cx.facts.memory = Memory::decode(bytes).unwrap_or_default();
        self.past = vec![cx.now; cx.facts.memory.past.len()];
        if let Some(view) = &cx.facts.memory.view {
            cx.facts.is_due = true;
            self.joins = Joins::under_way(view);
        }
    }

    /// What an earlier controller kept.
    pub fn kept(&mut self, kept: &[(Key, Bytes)]) {
        self.snapshot.kept(kept);
    }

    /// There is no room to keep anything of a key.
    pub fn not_kept(&mut self, key: &Key) {
        self.snapshot.not_kept(key);
    }

    /// Where its memory is. A switch that was there before the tenant had memory on it holds
    /// nothing, and nobody says so.
    pub fn rooms(&mut self, cx: &mut Context<'_>, rooms: &[Room]) {
        let rooms: BTreeSet<SwitchId> =
            rooms.iter().filter(|room| room.pages > 0).map(|room| room.switch).collect();
        if rooms != cx.facts.rooms {
            (cx.facts.rooms, cx.facts.rooms_since) = (rooms.clone(), cx.now);
            cx.facts.full = false;
        }
        for switch in rooms {
            if cx.is_attached(switch) {
                cx.facts.held.entry(switch).or_default();
            }
        }
    }

    /// The tenant is gone: its numbers stay used. One that only has no memory now has its view and
    /// what was kept of its keys, and goes on with both when it has memory again, anywhere.
    pub fn gone(&mut self, cx: &mut Context<'_>) {
        self.snapshot.keep_nothing(cx);
        let Memory { number, floor, .. } = cx.facts.memory;
        let memory = Memory { number, floor, ..Memory::default() };
        *cx.facts = Facts { memory, ..Facts::new(cx.facts.id, cx.facts.protocol) };
        *self = Tenant::default();
        if number != 0 {
            cx.remember();
        }
    }

    /// What a switch has, and what it should have had.
    pub fn holds(&mut self, cx: &mut Context<'_>, inventory: Inventory<'_>) {
        let Inventory { switch, held, lost, .. } = inventory;
        let (sessions, keys): (Vec<&Key>, Vec<&Key>) =
            lost.iter().partition(|key| item::is_session(key));
        // Each member forgets sessions by itself. So nobody else can say whether one was forgotten,
        // just before this controller began perhaps.
        let lost_one = |key: &&Key| cx.facts.has(switch, key) && !self.forgetting.has(key);
        if sessions.iter().any(lost_one) && cx.facts.is_member(switch) {
            cx.facts.lost.insert(switch);
        }
        self.missing.add(switch, keys.into_iter().cloned());
        cx.facts.held.insert(switch, held.iter().cloned().collect());
        self.items.look_at_all();
    }

    /// A switch has the view that it was last sent.
    pub fn configured(&mut self, cx: &mut Context<'_>, switch: SwitchId) {
        cx.facts.confirmed.insert(switch);
        self.items.look_at_all();
    }

    /// Switches were asked for keys that they have no item of.
    pub fn wants(&mut self, cx: &mut Context<'_>, keys: &[(Key, u64)]) {
        let goes = |key: &Key| self.removals.has(key) || self.forgetting.has(key);
        let sessions = self.items.wants(cx, keys, goes);
        self.forgetting.made(sessions);
    }

    /// A change of an item was answered.
    pub fn answered(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        if answer.outcome == Outcome::Done {
            cx.facts.changed(answer.switch, answer.key, answer.change);
        }
        if self.forgetting.answered(cx, answer) {
            return;
        }
        self.leftovers.answered(cx, answer);
        self.joins.answered(cx, answer);
        self.losses.answered(cx.now, answer);
        self.removals.answered(cx, answer);
        self.items.answered(cx, answer);
    }

    /// A member's agent reports.
    pub fn reported(&mut self, cx: &mut Context<'_>, by: SwitchId, report: &[u8]) {
        let is_quiet = cx.facts.is_confirmed() && self.joins.is_idle();
        if let Some(removable) = RemovableKeys::decode(report) {
            if is_quiet {
                for (key, last) in self.removals.begin(cx, by, removable, &self.items) {
                    self.snapshot.deleted(cx, &key, last);
                }
            }
        } else if let Some(idle) = IdleSessions::decode(report) {
            if is_quiet {
                self.forgetting.begin(cx, by, idle, &self.items);
            }
        } else if let Some(part) = Part::decode(report) {
            self.snapshot.told(cx, by, part);
        } else if DepartureRequest::decode(report).is_some() {
            if cx.facts.is_member(by) {
                cx.facts.leaving.insert(by);
            }
        } else if let Some(state) = State::decode(report) {
            self.says(cx, by, state);
        }
    }

    /// A member says how it finds the others.
    fn says(&mut self, cx: &mut Context<'_>, by: SwitchId, state: State) {
        let Some(slot) = cx.facts.slot_of(by) else { return };
        self.silence.spoke(cx.now, slot);
        if state.number > cx.facts.memory.number {
            return self.overtaken(cx, state.number);
        }
        if state.number < cx.facts.memory.number {
            return;
        }
        self.silence.say(cx.now, slot, (state.silent, state.unheard));
        self.joins.filled(state.filled);
    }

    /// A member had a view in force that nobody remembers: a row with a lower number is none to it.
    /// Chains that have nothing yet go on above it; over keys that were written in a forgotten past
    /// nobody goes.
    fn overtaken(&mut self, cx: &mut Context<'_>, number: u64) {
        let held = &cx.facts.held;
        let mut members = cx.facts.members().into_iter();
        if members.all(|switch| held.get(&switch).is_some_and(BTreeSet::is_empty)) {
            cx.facts.memory.number = number;
            self.renew(cx);
        }
    }

    // ---- what follows

    /// Whatever is to be done now.
    pub fn step(&mut self, cx: &mut Context<'_>) {
        let over = self.past.iter().take_while(|at| **at + RECENT <= cx.now).count();
        self.past.drain(..over);
        cx.facts.memory.past.drain(..over);
        cx.facts.crowded.go_on(cx.now);
        if cx.facts.view().is_some() {
            let lost = self.missing.take_lost(cx.facts);
            cx.facts.lost.extend(lost);
            let view = leave::go_on(cx, &mut self.silence, &mut self.parting);
            self.replace(cx, view);
            self.go_on(cx);
            self.snapshot.go_on(cx);
        } else {
            let view = begin::first_view(cx);
            self.replace(cx, view);
        }
        self.configurations.go_on(cx);
    }

    /// Goes on with chains that were lost, or, if none is, with joins and everything else.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        let lost = restore::lost_chains(cx);
        if !lost.is_empty() {
            return self.go_on_with_losses(cx, &lost);
        }
        self.losses = Losses::default();
        // Another number now would have writes wait for what those who left were granted.
        let has_parted = !cx.facts.parted().is_empty();
        if !has_parted {
            let may_join = self.removals.is_empty() && self.leftovers.is_idle();
            let view = self.joins.go_on(cx, may_join);
            self.replace(cx, view);
        }
        self.items.go_on(cx, self.joins.current(), &[]);
        self.removals.go_on(cx);
        if !has_parted && self.joins.is_idle() && self.removals.is_empty() {
            let view = leave::shorten(cx);
            view.iter().for_each(|view| self.leftovers.note(cx.facts, view));
            self.replace(cx, view);
        }
        // Who joins is cleared by that, and then has items that are to stay.
        if self.joins.is_idle() {
            self.leftovers.go_on(cx);
        }
        let is_quiet = self.joins.is_idle() && self.removals.is_empty() && !has_parted;
        let view = self.forgetting.go_on(cx, is_quiet);
        self.replace(cx, view);
    }

    /// Goes on with chains that were lost. Nobody joins meanwhile, for who is to have such a chain
    /// is cleared for that. The other chains have what they need, which makes room, too.
    fn go_on_with_losses(&mut self, cx: &mut Context<'_>, lost: &[usize]) {
        self.joins.give_up();
        let view = self.losses.go_on(cx, lost.to_vec(), &mut self.items, self.snapshot.saved());
        if view.is_some() {
            return self.replace(cx, view);
        }
        self.items.go_on(cx, self.joins.current(), lost);
        self.removals.go_on(cx);
        let is_quiet = self.removals.is_empty() && cx.facts.parted().is_empty();
        let view = self.forgetting.go_on(cx, is_quiet);
        self.replace(cx, view);
    }

    /// Another view in the place of the present one, if there is one.
    fn replace(&mut self, cx: &mut Context<'_>, view: Option<View>) {
        if view.is_none() {
            return;
        }
        if let Some(before) = std::mem::replace(&mut cx.facts.memory.view, view) {
            let now = cx.facts.view().map(|view| view.members);
            for (slot, member) in (0..).zip(&before.members) {
                if now.is_some_and(|members| members[usize::from(slot)] != *member) {
                    self.silence.forget(slot);
                }
            }
            self.past.push(cx.now);
            cx.facts.memory.past.push(before);
        }
        self.renew(cx);
    }

    /// The view gets the next number, which is remembered before anybody is told.
    fn renew(&mut self, cx: &mut Context<'_>) {
        let memory = &mut cx.facts.memory;
        memory.number = memory.next_number();
        if let Some(view) = &mut memory.view {
            view.number = memory.number;
        }
        self.silence.clear();
        self.joins.forget_filled();
        self.removals.stop();
        self.items.look_at_all();
        cx.facts.confirmed.clear();
        cx.facts.is_due = true;
        cx.remember();
    }

    /// The controller is to stop.
    pub fn ending(&mut self, cx: &mut Context<'_>) {
        self.snapshot.ending(cx);
    }

    /// Adds numbers for the status of a switch.
    pub fn count(
        &self,
        facts: &Facts,
        switch: SwitchId,
        counters: &mut BTreeMap<&'static str, u64>,
    ) {
        let chains = facts.chains();
        let slot = facts.slot_of(switch);
        let mut add = |name, n: usize| *counters.entry(name).or_default() += n as u64;
        let is_in = |c: &&Chain| slot.is_some_and(|slot| c.slots.contains(&slot));
        add("chain_memberships", chains.iter().filter(is_in).count());
        let short = |c: &&Chain| c.slots.len() < facts.length() || c.filling;
        let unkept = self.snapshot.unkept();
        add("chain_kept_keys", self.snapshot.saved().len() - unkept);
        add("chain_unkept_keys", unkept);
        add("chain_short", chains.iter().filter(short).count());
    }
}
