//! Packets that the agent itself sends: fetches and lease requests to stores, whose answers are
//! taken by the programs on their way in; and what disciplines' halves say to other switches.

use std::net::SocketAddr;

use decide::ItemKey;
use wire::{Epoch, Flags, Header, KeyHash, Op, Packet, ReadCount, Secret, TENANT_SYSTEM};

/// Carries packets to stores and switches.
pub trait Courier {
    /// Sends a datagram. One that is lost, on the way or here, is sent again by whoever still
    /// needs it.
    fn send(&mut self, store: SocketAddr, datagram: &[u8]);

    /// Hands over what came back: answers that no program took.
    fn receive(&mut self, take: &mut dyn FnMut(SocketAddr, &[u8]));
}

/// A lease that a store gets back.
pub(super) struct ReturnedLease {
    pub store: SocketAddr,
    pub slot: u16,
    pub term: u64,
    /// The switch asks for no lease before this time of its clock.
    pub before_ns: u64,
    /// For how long it serves under the lease still.
    pub serves_ms: u32,
}

/// What stores are asked, and other switches told.
pub(super) struct Requests {
    courier: Box<dyn Courier>,
    buffer: Vec<u8>,
    request: u64,
}

impl Requests {
    pub fn new(courier: Box<dyn Courier>) -> Requests {
        Requests { courier, buffer: vec![], request: 0 }
    }

    /// What came back.
    pub fn receive(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut all = vec![];
        self.courier.receive(&mut |from, datagram| all.push((from, datagram.into())));
        all
    }

    /// Sends a packet of a discipline's half.
    pub fn send_for_half(&mut self, to: SocketAddr, packet: &Packet<'_>, secret: &Secret) {
        self.send(to, packet, 0, secret);
    }

    /// Asks a store to grant a key's value for an epoch. Padded to a whole packet: a store answers
    /// tenant 0 with no more bytes than it asked with.
    pub fn fetch(
        &mut self,
        store: SocketAddr,
        key: &ItemKey,
        hash: KeyHash,
        epoch: Epoch,
        secret: &Secret,
    ) {
        self.request = self.request.wrapping_add(1);
        let header = Header {
            tenant: key.tenant,
            key_hash: hash,
            epoch,
            flags: Flags::GRANT,
            client: epoch.switch().into(),
            request: self.request,
            ..Header::new(Op::FetchRequest)
        };
        let padding = if *secret == Secret::NONE { wire::MAX_PAYLOAD } else { 0 };
        self.send(store, &Packet::new(header, &key.key, &[]), padding, secret);
    }

    /// Asks a store for its lease, dated `now_ns`.
    pub fn ask_for_lease(
        &mut self,
        store: SocketAddr,
        switch: u16,
        slot: u16,
        now_ns: u64,
        secret: &Secret,
    ) {
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            request: slot.into(),
            version: now_ns,
            ..Header::new(Op::LeaseRequest)
        };
        self.send(store, &Packet::new(header, &[], &[]), 0, secret);
    }

    /// Gives a store its lease back, or says that it is going to have it.
    pub fn give_back(&mut self, lease: &ReturnedLease, switch: u16, secret: &Secret) {
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            request: lease.slot.into(),
            client: lease.term,
            version: lease.before_ns,
            expiry_ms: lease.serves_ms,
            ..Header::new(Op::LeaseReturn)
        };
        self.send(lease.store, &Packet::new(header, &[], &[]), 0, secret);
    }

    /// Tells a store how often keys of it were read here.
    pub fn tell_reads(
        &mut self,
        store: SocketAddr,
        switch: u16,
        counts: &[ReadCount],
        secret: &Secret,
    ) {
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(switch, 0),
            ..Header::new(Op::ReadCounts)
        };
        for counts in counts.chunks(ReadCount::MOST) {
            let mut value = vec![];
            counts.iter().for_each(|count| count.encode(&mut value));
            self.send(store, &Packet::new(header, &[], &value), 0, secret);
        }
    }

    fn send(&mut self, store: SocketAddr, packet: &Packet<'_>, padded_to: usize, secret: &Secret) {
        self.buffer.clear();
        if packet.encode(secret, &mut self.buffer).is_ok() {
            let len = self.buffer.len().max(padded_to);
            self.buffer.resize(len, 0);
            self.courier.send(store, &self.buffer);
        }
    }
}
