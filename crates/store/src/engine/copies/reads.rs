//! Reads that a switch has sent here in the place of their keys' homes.

use std::collections::{BTreeMap, btree_map};

use bytes::Bytes;
use holder::left_ms;
use wire::{Header, Op, PART_BYTES, Packet, Status};

use super::{CONFIRM_MOST_NS, ForeignCopies, PATIENCE_NS, PartRead, PendingRead};
use crate::{
    backend::{Item, Key},
    coherence::{CopiedValue, Nanos, answers},
    directory::KeyId,
    engine::{
        context::Context,
        reads::answer,
        replies::{Answer, Origin},
    },
    net::Peer,
};

impl ForeignCopies {
    /// Whether a packet is a read that was sent here in its key's home's place.
    pub fn is_redirected(&self, header: &Header) -> bool {
        header.op == Op::ReadRequest && header.node != 0 && Some(header.node) == self.me
    }

    /// A read of another store's key that a switch has sent here.
    pub fn read(&mut self, cx: &mut Context, mut origin: Origin, key: Key<'_>) {
        origin.wants_grant = false;
        self.counters.replica_reads += 1;
        let id = (key.tenant, key.hash);
        let Some((held, lender)) = self.held.get_mut(&id).and_then(|held| {
            let lender = self.lenders.get(&held.home)?;
            (*held.key == *key.bytes).then_some((held, lender))
        }) else {
            return self.pass_on(cx, origin, key.bytes);
        };
        let Some(copy) = held.replica.serve(&lender.lease, cx.now_ns) else {
            return self.pass_on(cx, origin, key.bytes);
        };
        let len = copy.value.len();
        if origin.fits(key.bytes, len) && !origin.takes_whole(key.bytes, len) {
            // It came here in one piece, so its version need not tell it from another whose parts
            // are read at its home.
            return self.pass_on(cx, origin, key.bytes);
        }
        held.confirm_ns = cx.now_ns + CONFIRM_MOST_NS;
        let most = cx.config.cluster.max_value;
        let item = Some(as_item(copy, cx.now_ns));
        let answer = answer(&origin, key.bytes, item, most, &mut cx.counters);
        cx.reply(&origin, key.bytes, &answer);
    }

    /// Has a read answered by its key's home.
    pub(super) fn pass_on(&mut self, cx: &mut Context, origin: Origin, key: &[u8]) {
        self.counters.replica_reads_passed += 1;
        let Some((id, home)) = self.abroad(cx, origin.tenant, key) else {
            self.counters.replica_reads_lost += 1;
            return;
        };
        if !self.reads.has_room(id.0) {
            self.counters.dropped_replica_busy += 1;
            return;
        }
        let read = PendingRead { origin, after: self.newest, since_ns: cx.now_ns };
        if origin.wanted.total > 0 {
            return self.pass_part_on(cx, id, home.0, read, key);
        }
        self.enter(id, key, home, cx.now_ns);
        let Some(held) = self.held.get_mut(&id) else { return };
        let read_id = (origin.peer.address, origin.client, origin.request);
        let btree_map::Entry::Vacant(place) = held.reads.entry(read_id) else { return };
        place.insert(read);
        if held.asked == 0 {
            held.next_ask_ns = cx.now_ns;
        }
        self.reads.take(id.0, 1);
        self.drive(cx, id);
    }

    /// A read of a part: its version says what it is to be answered with, so nobody else's
    /// answer does.
    fn pass_part_on(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        home: wire::NodeId,
        read: PendingRead,
        key: &[u8],
    ) {
        self.newest += 1;
        let mut header = Header::new(Op::FetchRequest);
        header.request = self.newest;
        header.part = read.origin.wanted.part;
        header.total = read.origin.wanted.total;
        header.version = read.origin.wanted.version;
        self.reads.take(id.0, 1);
        let room = read.origin.room;
        let passed = PartRead { read, home, key: key.into() };
        self.passed.insert(self.newest, passed);
        self.fetch_of(cx, id, home, key, header, room);
    }

    /// Forgets reads of parts that were not answered.
    pub(super) fn forget_passed(&mut self, cx: &Context) {
        while let Some((&oldest, PartRead { read, .. })) = self.passed.first_key_value()
            && read.since_ns + PATIENCE_NS <= cx.now_ns
        {
            self.reads.give_back(read.origin.tenant, 1);
            self.passed.remove(&oldest);
            self.counters.replica_reads_lost += 1;
        }
    }

    /// Answers a read of a part that was passed on as this request. False if there is none.
    pub(super) fn answer_passed(
        &mut self,
        cx: &mut Context,
        packet: &Packet<'_>,
        peer: Peer,
    ) -> bool {
        let btree_map::Entry::Occupied(passed) = self.passed.entry(packet.header.request) else {
            return false;
        };
        let PartRead { home, key, .. } = passed.get();
        let store = cx.config.cluster.store_numbered(*home);
        let is_home = store.is_some_and(|store| peer.is_at(store.address));
        if !is_home || **key != *packet.key {
            self.counters.dropped_replica += 1;
            return true;
        }
        let origin = passed.remove().read.origin;
        self.reads.give_back(origin.tenant, 1);
        self.relay(cx, &origin, packet);
        true
    }

    /// The copy is valid: every read that waits is answered from it.
    pub(super) fn answer_waiting(&mut self, cx: &mut Context, id: KeyId) {
        let Some(held) = self.held.get_mut(&id) else { return };
        if held.reads.is_empty() {
            return;
        }
        let Some(lender) = self.lenders.get(&held.home) else { return };
        let Some(copy) = held.replica.serve(&lender.lease, cx.now_ns) else { return };
        self.reads.give_back(id.0, held.reads.len());
        let most = cx.config.cluster.max_value;
        for PendingRead { origin, .. } in std::mem::take(&mut held.reads).into_values() {
            let item = Some(as_item(copy, cx.now_ns));
            let answer = answer(&origin, &held.key, item, most, &mut cx.counters);
            cx.reply(&origin, &held.key, &answer);
        }
    }

    /// A home has said what a key holds, in answer to this request: reads that came before it was
    /// asked are answered so.
    pub(super) fn answer_older(&mut self, cx: &mut Context, id: KeyId, packet: &Packet<'_>) {
        let asked = packet.header.request;
        let Some(held) = self.held.get_mut(&id) else { return };
        let reads = std::mem::take(&mut held.reads).into_iter();
        let (older, newer): (BTreeMap<_, _>, _) =
            reads.partition(|(_, read)| answers(asked, read.after));
        held.reads = newer;
        self.reads.give_back(id.0, older.len());
        for read in older.into_values() {
            self.relay(cx, &read.origin, packet);
        }
    }

    /// Answers a read with what its home has answered us.
    fn relay(&mut self, cx: &mut Context, origin: &Origin, packet: &Packet<'_>) {
        let header = &packet.header;
        let answer = match header.status {
            Status::Ok if !header.is_part() => {
                let item = Item {
                    value: packet.value,
                    version: header.version,
                    expiry_ms: header.expiry_ms,
                };
                let most = cx.config.cluster.max_value;
                answer(origin, packet.key, Some(item), most, &mut cx.counters)
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
                cx.counters.need_padding += 1;
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
        cx.reply(origin, packet.key, &answer);
    }
}

fn as_item(copy: &CopiedValue<Bytes>, now_ns: Nanos) -> Item<&[u8]> {
    let expiry_ms = left_ms(copy.expires_ns, now_ns);
    Item { value: &copy.value, version: copy.version, expiry_ms }
}
