//! The half in a switch's agent: it beats, says who is silent, copies to members that are being
//! filled, and asks the tail about versions whose acknowledgement did not come. Nothing that it
//! does or leaves can make a read or a write wrong but what it copies (rule 10).
//!
//! Its packets leave past the switch's own programs, so whatever is to be done here it asks of
//! other members' programs.

mod copy;
mod garbage;
mod repair;
mod saving;
mod silence;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::SocketAddr};

use decide::{AgentAction, AgentHalf, Configuration, Item};
use wire::{Epoch, Header, Op, PORT, Packet};

use self::{
    copy::Copier, garbage::Garbage, repair::Repair, saving::SnapshotSender, silence::Silence,
};
use crate::{
    packets::{Beat, BeatKind, Peer},
    report,
    snapshot::Save,
    state::{self, State},
    view::{self, SLOTS, View},
};

/// A report is repeated after so many ticks.
const REPORT_EVERY: u32 = 5;
/// Items that are looked at at a time.
const ITEMS: usize = 256;

/// The half in a switch's agent.
#[derive(Default)]
pub struct Agent {
    tenants: BTreeMap<u32, Member>,
    /// The switch is to leave.
    leaves: bool,
}

/// Makes the half of one switch.
pub fn agent() -> Box<dyn AgentHalf> {
    Box::<Agent>::default()
}

/// This switch as a member of a tenant's chains.
struct Member {
    tenant: u32,
    place: u32,
    slot: u8,
    view: View,
    silence: Silence,
    /// Slots that have confirmed the view, as a mask.
    confirmed: u16,
    repair: Repair,
    removed: Garbage,
    copying: Copier,
    saving: SnapshotSender,
    /// What was reported last, and how many ticks ago.
    reported: (u16, u16, usize),
    ticks: u32,
    now_ns: u64,
}

impl Agent {
    /// A tenant's view is in force here, if it has one.
    fn adopt(&mut self, tenant: u32, place: u32, view: Option<View>) {
        let before = self.tenants.remove(&tenant);
        let Some((slot, view)) = view.and_then(|view| Some((view.slot?, view))) else { return };
        let before = before.filter(|b| (b.place, b.slot) == (place, slot));
        // Who is in no chain has a slot only to say where the keys are, unless it was in one: then
        // the others wait to hear that it goes by this view.
        if !view.is_in_chain(slot) && (before.is_none() || !self.leaves) {
            return;
        }
        // Told the same once more it goes on where it is.
        let goes_on = before.as_ref().is_some_and(|b| b.view.number == view.number);
        let mut member = before.unwrap_or_else(|| Member {
            tenant,
            place,
            slot,
            view: view.clone(),
            silence: Silence::default(),
            confirmed: 0,
            repair: Repair::default(),
            removed: Garbage::default(),
            copying: Copier::default(),
            saving: SnapshotSender::default(),
            reported: (0, 0, 0),
            ticks: REPORT_EVERY,
            now_ns: 0,
        });
        if !goes_on {
            member.silence = Silence::default();
            member.confirmed = 0;
            member.copying.under(&view, slot);
        }
        member.view = view;
        self.tenants.insert(tenant, member);
    }

    fn at(&mut self, place: u32) -> Option<&mut Member> {
        self.tenants.values_mut().find(|member| member.place == place)
    }
}

impl AgentHalf for Agent {
    fn configured(
        &mut self,
        now_ns: u64,
        tenant: u32,
        place: u32,
        configuration: &Configuration,
        out: &mut Vec<AgentAction>,
    ) {
        let mut rows = configuration.rows.iter();
        let row = rows.find(|row| row.map == view::MAP);
        let view = row.and_then(|row| View::decode(&row.value));
        self.adopt(tenant, place, view);
        // The others wait for it.
        if let Some(member) = self.tenants.get(&tenant) {
            member.beat(now_ns, out);
        }
    }

    fn left(&mut self, _now_ns: u64, tenant: u32, _out: &mut Vec<AgentAction>) {
        self.tenants.remove(&tenant);
    }

    fn leave(&mut self, _now_ns: u64, out: &mut Vec<AgentAction>) {
        self.leaves = true;
        self.tenants.values().for_each(|member| member.ask_to_leave(out));
    }

    fn is_needed(&self) -> bool {
        self.leaves && !self.tenants.values().all(Member::has_parted)
    }

    fn tick(&mut self, now_ns: u64, out: &mut Vec<AgentAction>) {
        self.tenants.retain(|_, member| !member.has_parted());
        for member in self.tenants.values_mut() {
            member.tick(now_ns, out);
            if self.leaves {
                member.ask_to_leave(out);
            }
        }
    }

    fn row(
        &mut self,
        _now_ns: u64,
        map: &str,
        key: &[u8],
        value: Option<&[u8]>,
        out: &mut Vec<AgentAction>,
    ) {
        let place = key.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let state = value.and_then(State::decode);
        if map == state::MAP
            && let Some((place, state)) = place.zip(state)
            && let Some(member) = self.at(place)
        {
            member.look(&state, out);
        }
    }

    fn item(&mut self, _now_ns: u64, item: Item<'_>, out: &mut Vec<AgentAction>) {
        if let Some(member) = self.tenants.get_mut(&item.tenant) {
            member.item(&item, out);
        }
    }

    fn items_end(
        &mut self,
        _now_ns: u64,
        tenant: u32,
        next: Option<u32>,
        out: &mut Vec<AgentAction>,
    ) {
        if let Some(member) = self.tenants.get_mut(&tenant) {
            member.walked(next, out);
        }
    }

    fn packet(
        &mut self,
        _now_ns: u64,
        _from: SocketAddr,
        packet: &Packet<'_>,
        out: &mut Vec<AgentAction>,
    ) {
        let header = &packet.header;
        if let Some(member) = self.tenants.get_mut(&header.tenant)
            && header.epoch == Epoch(member.view.number)
            && header.op == Op::PeerMessage
            && let Some((peer, _)) = Peer::decode(packet.value)
        {
            member.copying.answered(header, &peer);
            member.copy_on(out);
        }
    }

    fn told(&mut self, _now_ns: u64, tenant: u32, message: &[u8], _out: &mut Vec<AgentAction>) {
        let member = self.tenants.get_mut(&tenant);
        if let Some((member, save)) = member.zip(Save::decode(message)) {
            member.saving.ask(save);
        }
    }
}

impl Member {
    fn tick(&mut self, now_ns: u64, out: &mut Vec<AgentAction>) {
        self.now_ns = now_ns;
        self.beat(now_ns, out);
        self.silence.sent();
        out.push(AgentAction::Look {
            map: state::MAP,
            key: self.place.to_ne_bytes().to_vec().into(),
        });
    }

    /// Has the control half take this member out of the chains that can be without it.
    fn ask_to_leave(&self, out: &mut Vec<AgentAction>) {
        if self.view.is_in_chain(self.slot) {
            let report = report::DepartureRequest.encode().into();
            out.push(AgentAction::Report { tenant: self.tenant, report });
        }
    }

    /// Whether it is in no chain any longer, and all who are have heard that it goes by this view:
    /// nothing is held back for it.
    fn has_parted(&self) -> bool {
        let is_missed = |slot: &u8| self.view.is_in_chain(*slot) && !self.is_confirmed_by(*slot);
        !self.view.is_in_chain(self.slot) && !(0..SLOTS as u8).any(|slot| is_missed(&slot))
    }

    fn is_confirmed_by(&self, slot: u8) -> bool {
        self.confirmed & 1 << slot != 0
    }

    /// What the programs know.
    fn look(&mut self, state: &State, out: &mut Vec<AgentAction>) {
        // Another tenant's, until the first packet of this one.
        let nothing = State::nothing();
        let state = match state.tenant == self.tenant {
            true => state,
            false => &nothing,
        };
        let number = self.view.number;
        for (slot, peer) in state.peers.iter().enumerate() {
            self.confirmed |= u16::from(peer.confirmed_number == number) << slot;
        }
        // Whom another view has, its own reports say.
        let (silent, unheard) = match state.number > number {
            true => (0, 0),
            false => self.silence.look(state, &self.view, self.slot),
        };
        let held = state.is_held(self.now_ns, number, self.view.lease_ms);
        self.copying.may(!held);
        let filled = self.copying.filled();
        let now = (silent, unheard, filled.len());
        self.ticks += 1;
        if now != self.reported || self.ticks >= REPORT_EVERY {
            (self.reported, self.ticks) = (now, 0);
            let report = report::State {
                // What was in force here once stays, whatever the view says.
                number: number.max(state.number),
                silent,
                unheard,
                filled,
            };
            out.push(AgentAction::Report { tenant: self.tenant, report: report.encode().into() });
        }
        let from = match self.copying.next() {
            None => self.repair.next(self.now_ns),
            from => from,
        };
        if let Some(from) = from {
            self.walk(from, out);
        }
    }

    /// More is copied as soon as the tail has some of it.
    fn copy_on(&mut self, out: &mut Vec<AgentAction>) {
        if let Some(from) = self.copying.more() {
            self.walk(from, out);
        }
    }

    fn walk(&mut self, from: u32, out: &mut Vec<AgentAction>) {
        if from == 0 {
            self.saving.begins();
        }
        out.push(AgentAction::Walk { tenant: self.tenant, from, most: ITEMS });
    }

    /// A walk ended, and what it showed is reported.
    fn walked(&mut self, next: Option<u32>, out: &mut Vec<AgentAction>) {
        let tenant = self.tenant;
        self.repair.walked(next);
        if next.is_none() {
            self.removed.passed();
        }
        let number = self.view.number;
        let removable = self.removed.take(number).map(|of| of.encode());
        let idle = self.removed.take_idle(number).map(|of| of.encode());
        let reports = removable.into_iter().chain(idle);
        out.extend(reports.map(|report| AgentAction::Report { tenant, report: report.into() }));
        self.copying.walked(next);
        self.copy_on(out);
        let parts = self.saving.walked(next.is_none());
        out.extend(parts.iter().map(|part| AgentAction::Report { tenant, report: part.encode() }));
    }

    fn item(&mut self, item: &Item<'_>, out: &mut Vec<AgentAction>) {
        let copied = self.copying.item(&self.view, item);
        self.removed.item(&self.view, self.slot, self.now_ns, item);
        self.saving.item(&self.view, self.slot, item);
        let asked = self.repair.item(&self.view, self.slot, self.now_ns, item);
        for (slot, header, value) in copied.into_iter().chain(asked) {
            self.send(slot, header, item.key, &value, out);
        }
    }

    /// Sends a packet to the member in a slot.
    fn send(&self, slot: u8, header: Header, key: &[u8], value: &[u8], out: &mut Vec<AgentAction>) {
        let Some(member) = self.view.members[usize::from(slot)] else { return };
        out.push(AgentAction::Send {
            to: (member.address, PORT).into(),
            header: Header {
                tenant: self.tenant,
                epoch: Epoch(self.view.number),
                node: u16::from(self.slot) + 1,
                ..header
            },
            key: key.to_vec().into(),
            value: value.to_vec().into(),
        });
    }

    /// Sends a beat to every other member. One that is in no chain any longer is granted nothing
    /// more once it has confirmed that: the next view is held back for what it was granted last.
    fn beat(&self, now_ns: u64, out: &mut Vec<AgentAction>) {
        for (to, member) in (0u8..).zip(&self.view.members) {
            let has_left = !self.view.is_in_chain(to) && self.is_confirmed_by(to);
            if member.is_none() || to == self.slot || has_left {
                continue;
            }
            let beat = Beat {
                kind: BeatKind::Beat,
                from: self.slot,
                to,
                t_from_ns: now_ns,
                t_to_ns: 0,
                life: self.view.life,
            };
            self.send(to, Header::new(Op::PeerSignal), &[], &beat.encode(), out);
        }
    }
}
