//! What the store says to switches about loans, and what they answer.

use bytes::Bytes;
use wire::{Epoch, Flags, Header, Op, Packet, Status};

use super::{Loans, hot_from, other};
use crate::{
    coherence::{RecordAnswer, Role},
    directory::KeyId,
    engine::{context::Context, lease_holder::LeaseHolder},
};

/// Longest UDP payload in bytes over either IP.
const ROOM: usize = wire::MAX_PAYLOAD - 20;

/// Longest value in bytes of a key that can be lent.
pub(super) fn longest(key: &[u8]) -> usize {
    ROOM - wire::HEADER_LEN - key.len()
}

/// Sends a question with room for the longest answer.
pub(super) fn push_padded(cx: &mut Context, header: Header, key: &[u8], home: LeaseHolder) {
    let mut bytes = Vec::with_capacity(ROOM);
    let packet = Packet::new(header, key, &[]);
    if packet.encode(&cx.system_secret(), &mut bytes).is_ok() {
        bytes.resize(ROOM, 0);
        cx.out.push_bytes(&bytes, home.peer);
    }
}

impl Loans {
    /// Asks a switch to prepare (epoch 0) or to begin.
    pub(super) fn send_lend(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        role: Role,
        epoch: u64,
        value: Option<(u64, Bytes)>,
    ) {
        let Some(lent) = self.open.get(&id) else { return };
        let terms = lent.loan.terms();
        let (switch, home) = lent.party(role);
        let mut header = Header::new(Op::LendRequest);
        (header.tenant, header.key_hash) = id;
        header.epoch = Epoch::new(switch, epoch);
        header.life = terms.life;
        header.node = lent.party(other(role)).0;
        header.request = home.slot;
        header.client = terms.base;
        if role == Role::Owner {
            header.flags = Flags::GRANT;
        }
        let (version, value) = value.unwrap_or_default();
        header.version = version;
        cx.send(header, &lent.key, &value, home.peer);
    }

    /// Asks a switch for what it has.
    pub(super) fn send_take(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        role: Role,
        seal: bool,
        newest: u64,
    ) {
        let Some(lent) = self.open.get(&id) else { return };
        let terms = lent.loan.terms();
        let (switch, home) = lent.party(role);
        let mut header = Header::new(Op::TakeRequest);
        (header.tenant, header.key_hash) = id;
        header.life = terms.life;
        header.epoch = Epoch::new(switch, 0);
        header.version = newest;
        if seal {
            header.flags = Flags::GRANT;
        }
        let key = lent.key.clone();
        push_padded(cx, header, &key, home);
    }

    /// A switch says something about a loan.
    pub fn message(&mut self, cx: &mut Context, packet: &Packet<'_>) {
        let header = &packet.header;
        if !packet.tag_is_valid(&cx.system_secret()) {
            cx.counters.denied_tag += 1;
            return;
        }
        let id = (header.tenant, header.key_hash);
        if header.op == Op::KeepRequest {
            self.counters.dropped_keep += 1;
            // One of an earlier loan, that comes late, says nothing of this.
            let lent = self.open.get(&id);
            if lent.is_some_and(|lent| lent.loan.terms().life == header.life) {
                self.recall(cx, id);
            }
            return;
        }
        if header.op == Op::TakeReply && (header.client, header.request) != (0, 0) {
            return self.told(cx, packet);
        }
        if header.op == Op::TakeReply && self.endings.answered(header) {
            return;
        }
        let Some(role) = self.role_of(&id, header.epoch.switch()) else {
            self.counters.dropped_loan += 1;
            return;
        };
        match header.op {
            Op::LendReply => self.lend_reply(cx, id, role, header),
            _ => self.take_reply(cx, id, role, packet),
        }
        self.poll(cx, id);
    }

    fn role_of(&self, id: &KeyId, switch: u16) -> Option<Role> {
        let terms = self.open.get(id)?.loan.terms();
        [(terms.owner, Role::Owner), (terms.keeper, Role::Keeper)]
            .into_iter()
            .find_map(|(number, role)| (number == switch).then_some(role))
    }

    fn lend_reply(&mut self, cx: &mut Context, id: KeyId, role: Role, header: &Header) {
        let Some(lent) = self.open.get_mut(&id) else { return };
        let (life, epoch) = (lent.loan.terms().life, header.epoch.number());
        if header.status == Status::Mismatch && header.life != life {
            // Of a loan that nobody knows any more: the next finds no other one active.
            lent.loan.prepared(role, None, cx.now_ns);
            self.endings.begin_at(id, lent, role, header.life, cx.now_ns);
            return self.tick_endings(cx);
        }
        if header.life != life || header.node != lent.party(other(role)).0 {
            self.counters.dropped_loan += 1;
            return;
        }
        let done = header.status == Status::Ok && epoch > 0;
        lent.loan.begun(role, done, cx.now_ns);
        lent.loan.prepared(role, done.then_some(epoch), cx.now_ns);
    }

    fn take_reply(&mut self, cx: &mut Context, id: KeyId, role: Role, packet: &Packet<'_>) {
        let header = &packet.header;
        let hot_from = hot_from(cx, id.0);
        let Some(lent) = self.open.get_mut(&id) else { return };
        if header.life != lent.loan.terms().life {
            self.counters.dropped_loan += 1;
            return;
        }
        let has_value = !header.flags.has(Flags::COMPARE);
        let taken = RecordAnswer {
            found: header.status == Status::Ok,
            sealed: header.flags.has(Flags::GRANT),
            version: header.version,
            value: has_value.then(|| Bytes::copy_from_slice(packet.value)),
        };
        lent.loan.taken(role, taken, cx.now_ns);
        let pulled = role == Role::Keeper && lent.loan.is_lent();
        if pulled && lent.pace.is_cold(header.version, hot_from, cx.now_ns) {
            self.counters.loans_cold += 1;
            lent.loan.recall(cx.now_ns);
        }
    }
}
