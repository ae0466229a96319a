//! Reads that a switch has sent here in the place of their keys' homes.

use std::collections::{BTreeMap, btree_map};

use bytes::Bytes;
use wire::{Header, Op, PART_BYTES, Packet, Status};

use super::{
    super::{
        Engine,
        pushes::is_at,
        read::answer,
        reply::{Answer, Origin},
    },
    CONFIRM_MOST_NS, PATIENCE_NS, Passed, Read,
};
use crate::{
    backend::{Item, Key},
    coherence::{Copied, Nanos, answers},
    directory::KeyId,
    net::{Outbox, Peer},
};

impl Engine {
    /// Whether a packet is a read that was sent here in its key's home's place.
    pub(in crate::engine) fn is_redirected(&self, header: &Header) -> bool {
        header.op == Op::ReadRequest && header.node != 0 && Some(header.node) == self.replicas.me
    }

    /// A read that a switch has sent here.
    pub(in crate::engine) fn redirected(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        peer: Peer,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let Some((mut origin, owned)) = self.admit(packet, room, peer, true, now_ns, out) else {
            return;
        };
        let key = Key {
            tenant: packet.header.tenant,
            hash: packet.header.key_hash,
            bytes: packet.key,
        };
        if owned {
            return self.read(origin, key, now_ns, out);
        }
        origin.wants_grant = false;
        self.counters.replica_reads += 1;
        let id = (key.tenant, key.hash);
        let Some((held, lender)) = self.replicas.held.get_mut(&id).and_then(|held| {
            let lender = self.replicas.lenders.get(&held.home)?;
            (*held.key == *key.bytes).then_some((held, lender))
        }) else {
            return self.pass_on(origin, key.bytes, now_ns, out);
        };
        let Some(copy) = held.replica.serve(&lender.lease, now_ns) else {
            return self.pass_on(origin, key.bytes, now_ns, out);
        };
        let len = copy.value.len();
        if origin.fits(key.bytes, len) && !origin.takes_whole(key.bytes, len) {
            // It came here in one piece, so its version need not tell it from another whose parts are read at its home.
            return self.pass_on(origin, key.bytes, now_ns, out);
        }
        held.confirm_ns = now_ns + CONFIRM_MOST_NS;
        let most = self.config.cluster.max_value;
        let answer = answer(
            &origin,
            key.bytes,
            Some(as_item(copy, now_ns)),
            most,
            &mut self.counters,
        );
        self.replies.send(&origin, key.bytes, &answer, now_ns, out);
    }

    /// Has a read answered by its key's home.
    pub(super) fn pass_on(&mut self, origin: Origin, key: &[u8], now_ns: u64, out: &mut Outbox) {
        self.counters.replica_reads_passed += 1;
        let Some((id, home)) = self.abroad(origin.tenant, key) else {
            self.counters.replica_reads_lost += 1;
            return;
        };
        if !self.replicas.reads.has_room(id.0) {
            self.counters.dropped_replica_busy += 1;
            return;
        }
        let read = Read {
            origin,
            after: self.replicas.newest,
            since_ns: now_ns,
        };
        if origin.wanted.total > 0 {
            return self.pass_part_on(id, home.0, read, key, out);
        }
        self.replicas.enter(id, key, home, now_ns);
        let Some(held) = self.replicas.held.get_mut(&id) else {
            return;
        };
        let read_id = (origin.peer.address, origin.client, origin.request);
        let btree_map::Entry::Vacant(place) = held.reads.entry(read_id) else {
            return;
        };
        place.insert(read);
        if held.asked == 0 {
            held.next_ask_ns = now_ns;
        }
        self.replicas.reads.take(id.0, 1);
        self.drive_replica(id, now_ns, out);
    }

    /// A read of a part: its version says what it is to be answered with, so nobody else's answer does.
    fn pass_part_on(
        &mut self,
        id: KeyId,
        home: wire::NodeId,
        read: Read,
        key: &[u8],
        out: &mut Outbox,
    ) {
        let replicas = &mut self.replicas;
        replicas.newest += 1;
        let mut header = Header::new(Op::FetchRequest);
        header.request = replicas.newest;
        header.part = read.origin.wanted.part;
        header.total = read.origin.wanted.total;
        header.version = read.origin.wanted.version;
        replicas.reads.take(id.0, 1);
        let room = read.origin.room;
        let passed = Passed {
            read,
            home,
            key: key.into(),
        };
        replicas.passed.insert(replicas.newest, passed);
        self.fetch_of(id, home, key, header, room, out);
    }

    /// Forgets reads of parts that were not answered.
    pub(super) fn forget_passed(&mut self, now_ns: Nanos) {
        let replicas = &mut self.replicas;
        while let Some((&oldest, Passed { read, .. })) = replicas.passed.first_key_value()
            && read.since_ns + PATIENCE_NS <= now_ns
        {
            replicas.reads.give_back(read.origin.tenant, 1);
            replicas.passed.remove(&oldest);
            self.counters.replica_reads_lost += 1;
        }
    }

    /// Answers a read of a part that was passed on as this request. False if there is none.
    pub(super) fn answer_passed(
        &mut self,
        packet: &Packet<'_>,
        peer: Peer,
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let replicas = &mut self.replicas;
        let btree_map::Entry::Occupied(passed) = replicas.passed.entry(packet.header.request)
        else {
            return false;
        };
        let Passed { home, key, .. } = passed.get();
        let store = self.config.cluster.store_numbered(*home);
        let is_home = store.is_some_and(|store| is_at(store.address, peer));
        if !is_home || **key != *packet.key {
            self.counters.dropped_replica += 1;
            return true;
        }
        let origin = passed.remove().read.origin;
        replicas.reads.give_back(origin.tenant, 1);
        self.relay(&origin, packet, now_ns, out);
        true
    }

    /// The copy is valid: every read that waits is answered from it.
    pub(super) fn answer_waiting(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(held) = self.replicas.held.get_mut(&id) else {
            return;
        };
        if held.reads.is_empty() {
            return;
        }
        let Some(lender) = self.replicas.lenders.get(&held.home) else {
            return;
        };
        let Some(copy) = held.replica.serve(&lender.lease, now_ns) else {
            return;
        };
        self.replicas.reads.give_back(id.0, held.reads.len());
        let most = self.config.cluster.max_value;
        for Read { origin, .. } in std::mem::take(&mut held.reads).into_values() {
            let item = Some(as_item(copy, now_ns));
            let answer = answer(&origin, &held.key, item, most, &mut self.counters);
            self.replies.send(&origin, &held.key, &answer, now_ns, out);
        }
    }

    /// A home has said what a key holds, in answer to this request: reads that came before it was asked are answered so.
    pub(super) fn answer_older(
        &mut self,
        id: KeyId,
        packet: &Packet<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let asked = packet.header.request;
        let Some(held) = self.replicas.held.get_mut(&id) else {
            return;
        };
        let reads = std::mem::take(&mut held.reads).into_iter();
        let (older, newer): (BTreeMap<_, _>, _) =
            reads.partition(|(_, read)| answers(asked, read.after));
        held.reads = newer;
        self.replicas.reads.give_back(id.0, older.len());
        for read in older.into_values() {
            self.relay(&read.origin, packet, now_ns, out);
        }
    }

    /// Answers a read with what its home has answered us.
    fn relay(&mut self, origin: &Origin, packet: &Packet<'_>, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let answer = match header.status {
            Status::Ok if !header.is_part() => {
                let item = Item {
                    value: packet.value,
                    version: header.version,
                    expiry_ms: header.expiry_ms,
                };
                let most = self.config.cluster.max_value;
                answer(origin, packet.key, Some(item), most, &mut self.counters)
            }
            // Ours are mistakes of the home and us, which its client cannot mend.
            Status::WrongPartition | Status::Denied => {
                self.counters.replica_reads_lost += 1;
                return;
            }
            Status::Ok if packet.value.len() > PART_BYTES => {
                self.counters.replica_reads_lost += 1;
                return;
            }
            Status::Ok if !origin.allows(packet.key, packet.value.len()) => {
                self.counters.need_padding += 1;
                Answer {
                    version: header.version,
                    total: header.total,
                    ..Answer::status(Status::NeedPadding)
                }
            }
            status => Answer {
                version: header.version,
                expiry_ms: header.expiry_ms,
                part: header.part,
                total: header.total,
                value: packet.value,
                ..Answer::status(status)
            },
        };
        self.replies.send(origin, packet.key, &answer, now_ns, out);
    }
}

fn as_item(copy: &Copied<Bytes>, now_ns: Nanos) -> Item<&[u8]> {
    let left_ms = copy.expires_ns.saturating_sub(now_ns) / 1_000_000;
    Item {
        value: &copy.value,
        version: copy.version,
        expiry_ms: match copy.expires_ns {
            0 => 0,
            _ => u32::try_from(left_ms).unwrap_or(u32::MAX).max(1),
        },
    }
}
