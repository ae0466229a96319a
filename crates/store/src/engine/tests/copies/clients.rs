//! What clients do, are told, and say that they were.

use std::net::SocketAddr;

use history::{Effect, Need, Operation};
use wire::{Flags, Header, LIFE_UNKNOWN, Op, Packet, Status, VERSION_ABSENT, VERSION_PRESENT};

use super::{
    super::{KEYED, SECRET},
    MS,
    world::{Call, ClientOp, LEASE_MS, World, address_of, node, store_at},
};

/// A client gives up then, as clients do: three quarters of a lease.
const DEADLINE_NS: u64 = LEASE_MS * MS * 3 / 4;
const RETRY_NS: u64 = 6 * MS;

impl World {
    pub fn is_free(&self, client: usize) -> bool {
        self.clients[client].call.is_none()
    }

    pub fn call(&mut self, client: usize, op: ClientOp) {
        let draw = self.draw() as usize;
        let size = self.sizes[draw % self.sizes.len()];
        let (now_ns, key) = (self.now_ns, self.key.clone());
        let caller = &mut self.clients[client];
        caller.request += 1;
        caller.values += 1;
        let number = (client as u64 + 1) << 32 | caller.values;
        let mut value = number.to_be_bytes().to_vec();
        value.resize(size.max(8), 0);
        let (wire_op, version) = match op {
            ClientOp::Read => (Op::ReadRequest, None),
            ClientOp::Delete => (Op::DeleteRequest, None),
            ClientOp::WriteIfPresent => (Op::WriteRequest, Some(VERSION_PRESENT)),
            ClientOp::WriteIfAbsent => (Op::WriteRequest, Some(VERSION_ABSENT)),
            ClientOp::Write | ClientOp::WriteAround => (Op::WriteRequest, None),
        };
        let is_write = wire_op == Op::WriteRequest;
        let header = Header {
            tenant: KEYED,
            client: 100 + client as u64,
            request: caller.request,
            key_hash: SECRET.key_hash(KEYED, &key),
            version: version.unwrap_or(0),
            flags: version.map_or(Flags::NONE, |_| Flags::COMPARE),
            ..Header::new(wire_op)
        };
        caller.call = Some(Call {
            op,
            header,
            value: if is_write { value } else { vec![] },
            number,
            call_ns: now_ns,
            next_ns: now_ns,
        });
        self.ask(client);
    }

    pub fn ask(&mut self, client: usize) {
        let (now_ns, key) = (self.now_ns, self.key.clone());
        let caller = &mut self.clients[client];
        let Some(call) = &mut caller.call else { return };
        if now_ns >= call.call_ns + DEADLINE_NS {
            return self.ended(client, None);
        }
        call.next_ns = now_ns + RETRY_NS;
        if call.header.op.is_write() {
            call.header.life = caller.life;
        }
        let bytes = Packet::new(call.header, &key, &call.value).to_bytes(&SECRET).unwrap();
        let (around, from) = (call.op == ClientOp::WriteAround, caller.address);
        match around {
            true => self.fly(bytes, from, address_of(0)),
            false => self.send(bytes, from, address_of(0)),
        }
    }

    pub fn answered(&mut self, client: usize, bytes: &[u8], from: SocketAddr) {
        let packet = Packet::decode(bytes).unwrap();
        let header = packet.header;
        let caller = &mut self.clients[client];
        let Some(call) = &caller.call else { return };
        if header.request != call.header.request || Some(header.op) != call.header.op.reply() {
            return;
        }
        let at = store_at(from).expect("stores answer");
        assert!(at == 0 || header.node == node(at), "it says who it is");
        assert!(packet.tag_is_valid(&SECRET) && packet.key == self.key);
        if header.life > LIFE_UNKNOWN {
            caller.life = header.life;
        }
        match header.status {
            Status::OtherLife => {
                let age_ns = u64::from(header.expiry_ms) * MS;
                if self.now_ns.saturating_sub(age_ns) < call.call_ns {
                    return self.ask(client);
                }
                return self.ended(client, None);
            }
            Status::TryAgain => return,
            _ => {}
        }
        self.redirected += u64::from(at > 0);
        let number = |value: &[u8]| {
            let number = u64::from_be_bytes(*value.first_chunk().expect("8 bytes"));
            // What was altered on the way is a value that nobody wrote.
            let end = value.get(8..).and_then(|rest| rest.last());
            number ^ (u64::from(end.copied().unwrap_or(0)) << 60)
        };
        let told = match (call.header.op, header.status) {
            (Op::ReadRequest, Status::Ok) => (Need::Value(number(packet.value)), Effect::Keep),
            (Op::ReadRequest, Status::NotFound) => (Need::Absent, Effect::Keep),
            (Op::WriteRequest, Status::Ok) => (call.need(), Effect::Write(call.number)),
            (Op::WriteRequest, Status::Mismatch) => match call.op {
                ClientOp::WriteIfPresent => (Need::Absent, Effect::Keep),
                _ => (Need::Present, Effect::Keep),
            },
            (Op::DeleteRequest, Status::Ok) => (Need::Present, Effect::Delete),
            (Op::DeleteRequest, Status::NotFound) => (Need::Absent, Effect::Keep),
            other => panic!("{other:?}"),
        };
        self.ended(client, Some(told));
    }

    fn ended(&mut self, client: usize, told: Option<(Need, Effect)>) {
        let Some(call) = self.clients[client].call.take() else {
            return;
        };
        let (need, effect) = match told {
            Some(told) => told,
            None if call.header.op == Op::ReadRequest => return,
            None if call.header.op == Op::DeleteRequest => (Need::Any, Effect::Delete),
            None => (call.need(), Effect::Write(call.number)),
        };
        self.history.push(Operation {
            client: client as u32,
            key: 0,
            call_ns: call.call_ns,
            return_ns: told.map(|_| self.now_ns),
            need,
            effect,
            lapse: None,
        });
    }

    /// Whether one copy could have answered so.
    pub fn judge(&mut self) -> Result<(), String> {
        for client in 0..self.clients.len() {
            self.ended(client, None);
        }
        crate::engine::tests::judge(&self.history)
    }
}

impl Call {
    fn need(&self) -> Need {
        match self.op {
            ClientOp::WriteIfPresent => Need::Present,
            ClientOp::WriteIfAbsent => Need::Absent,
            _ => Need::Any,
        }
    }
}
