//! Replies: to whom, how large at most, how soon at the earliest.

use std::{cmp::Reverse, collections::BinaryHeap};

use wire::{
    Epoch, Flags, Header, KeyHash, NodeId, Op, PART_BYTES, Packet, Secret, Status, VERSION_PRESENT,
};

use crate::{
    clients::RequestId,
    net::{Outbox, Peer},
};

/// The part of a value that a read names. With a `total` of 0 it names none, and the version
/// means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedPart {
    pub part: u16,
    pub total: u32,
    pub version: u64,
}

impl NamedPart {
    /// Whether it goes on with a version that it knows. Who names one that no value has begins to
    /// read, and takes a part at most of whatever is there.
    pub fn goes_on(&self) -> bool {
        self.total > 0 && self.version != VERSION_PRESENT
    }
}

/// Where a request came from and what its reply must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub op: Op,
    pub peer: Peer,
    pub tenant: u32,
    /// What the request was signed with, and its reply will be.
    pub secret: Secret,
    pub client: u64,
    pub request: u64,
    pub key_hash: KeyHash,
    /// The part that a read names; the whole: none.
    pub wanted: NamedPart,
    /// (X, e) of the request, and whether X asks for a grant.
    pub epoch: Epoch,
    pub wants_grant: bool,
    /// Length of the request's payload in bytes: what a reply to tenant 0 must not exceed.
    pub room: usize,
    /// The reply leaves no sooner than this; 0: at once.
    pub not_before_ns: u64,
    /// The life of its key that a write named, which its reply repeats; 0: the store's.
    pub key_life: u16,
    /// This store, if it answers in the place of the key's home; 0: it is the home.
    pub node: NodeId,
    /// Whoever is pushed a value has it already, if its digest is the same.
    pub has_value: bool,
}

impl Origin {
    pub(super) fn of(header: &Header, room: usize, peer: Peer) -> Origin {
        Origin {
            op: header.op,
            peer,
            tenant: header.tenant,
            secret: Secret::NONE,
            client: header.client,
            request: header.request,
            key_hash: header.key_hash,
            wanted: NamedPart { part: header.part, total: header.total, version: header.version },
            epoch: header.epoch,
            wants_grant: header.flags.has(Flags::GRANT) && header.op != Op::CorrectionRequest,
            room,
            not_before_ns: 0,
            key_life: 0,
            node: 0,
            has_value: false,
        }
    }

    /// The client, as rule 7 tells clients apart, and its number for this request.
    pub(super) fn request_id(&self) -> RequestId {
        ((self.tenant, self.client), self.request)
    }

    /// What answers it. A push is answered by nothing but itself: it was asked for by an
    /// acknowledgement.
    pub(super) fn answer_op(&self) -> Option<Op> {
        match self.op {
            Op::ReplicaPush => Some(Op::ReplicaPush),
            op => op.reply(),
        }
    }

    /// Whether a value of this length fits one packet on its way back.
    pub(super) fn fits(&self, key: &[u8], value_len: usize) -> bool {
        let over_ipv4 = self.peer.address.ip().to_canonical().is_ipv4();
        let longest = wire::max_value(key.len());
        value_len <= longest - if over_ipv4 { 0 } else { IPV6_MORE }
    }

    /// Whether a value of this length goes to it in one packet: it fits, and no part of it is
    /// named. Who names a part may have a path that carries no more than that.
    pub(super) fn takes_whole(&self, key: &[u8], value_len: usize) -> bool {
        self.fits(key, value_len) && (self.wanted.total == 0 || value_len <= PART_BYTES)
    }

    /// Whether a reply with a value of this length may be sent: tenant 0 needs no secret, and
    /// whoever needs none gets no more bytes than he sent, so that nobody is amplified.
    pub(super) fn allows(&self, key: &[u8], value_len: usize) -> bool {
        self.tenant != wire::TENANT_OPEN || wire::HEADER_LEN + key.len() + value_len <= self.room
    }
}

/// Bytes of an IPv6 header that an IPv4 header has not.
pub(super) const IPV6_MORE: usize = 20;

/// What a reply says.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    pub status: Status,
    pub version: u64,
    pub expiry_ms: u32,
    /// Where the bytes here begin in the value, in steps of [`wire::PART`].
    pub part: u16,
    /// Length of the whole value in bytes, where it is not all here.
    pub total: u32,
    pub value: &'a [u8],
    /// Whether it is a grant for the request's (X, e).
    pub grant: bool,
    /// The value is a digest of it.
    pub is_digest: bool,
    /// The life that the key has, where it is not the store's: the reply says so with CACHED.
    pub key_life: Option<u16>,
}

impl Answer<'_> {
    pub(super) fn status(status: Status) -> Answer<'static> {
        Answer {
            status,
            version: 0,
            expiry_ms: 0,
            part: 0,
            total: 0,
            value: &[],
            grant: false,
            is_digest: false,
            key_life: None,
        }
    }
}

/// Sends replies: signs them as their requests were and holds back those whose time has not come.
pub(super) struct Replies {
    /// The store's own.
    pub life: u16,
    /// Replies of partitions whose rate is limited.
    pub delayed: DelayedReplies,
}

impl Replies {
    /// Of a store in this life.
    pub(super) fn new(life: u16) -> Replies {
        Replies { life, delayed: DelayedReplies::default() }
    }

    /// Answers a request; one whose partition is behind is answered later.
    pub(super) fn send(
        &mut self,
        origin: &Origin,
        key: &[u8],
        answer: &Answer<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let Some(op) = origin.answer_op() else { return };
        let mut header = Header::new(op);
        header.node = origin.node;
        header.status = answer.status;
        header.version = answer.version;
        header.expiry_ms = answer.expiry_ms;
        header.part = answer.part;
        header.total = answer.total;
        if answer.grant {
            header.flags = Flags::GRANT;
        }
        if answer.grant || op == Op::HolderGrant {
            header.epoch = origin.epoch;
        }
        header.life = match origin.key_life {
            // Its client would take it for the home's.
            _ if origin.node != 0 => 0,
            0 => self.life,
            life => life,
        };
        if answer.is_digest {
            header.flags = header.flags.with(Flags::COMPARE);
        }
        if let Some(life) = answer.key_life {
            header.life = life;
            header.flags = header.flags.with(Flags::CACHED);
        }
        let sent = self.sign(header, origin, key, answer.value, now_ns, out);
        debug_assert!(sent, "callers check that the value fits");
    }

    /// Answers a request with this header, but for what a reply repeats. False if that makes
    /// no packet.
    pub(super) fn send_as(
        &mut self,
        header: Header,
        origin: &Origin,
        key: &[u8],
        value: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let life = self.life;
        self.sign(Header { life, ..header }, origin, key, value, now_ns, out)
    }

    fn sign(
        &mut self,
        header: Header,
        origin: &Origin,
        key: &[u8],
        value: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let header = Header {
            tenant: origin.tenant,
            client: origin.client,
            request: origin.request,
            key_hash: origin.key_hash,
            ..header
        };
        let packet = Packet::new(header, key, value);
        if out.push(&packet, &origin.secret, origin.peer).is_err() {
            return false;
        }
        if origin.not_before_ns > now_ns {
            self.delayed.delay_newest(origin.not_before_ns, out);
        }
        true
    }
}

/// Replies that wait for their time.
#[derive(Default)]
pub(super) struct DelayedReplies {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// The replies, by the second number in the heap.
    replies: hashbrown::HashMap<u64, (Vec<u8>, Peer)>,
    count: u64,
}

impl DelayedReplies {
    /// Takes the newest reply out of `out` and keeps it until `at_ns`. Bounded by the
    /// partitions' queues.
    fn delay_newest(&mut self, at_ns: u64, out: &mut Outbox) {
        if let Some(reply) = out.pop() {
            self.count += 1;
            self.heap.push(Reverse((at_ns, self.count)));
            self.replies.insert(self.count, reply);
        }
    }

    pub(super) fn release(&mut self, now_ns: u64, out: &mut Outbox) {
        while let Some(&Reverse((at_ns, id))) = self.heap.peek()
            && at_ns <= now_ns
        {
            self.heap.pop();
            if let Some((bytes, peer)) = self.replies.remove(&id) {
                out.push_bytes(&bytes, peer);
            }
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, _))| *at_ns)
    }
}
