//! Which datagram answers which request.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use hashbrown::HashMap;
use wire::{HEADER_LEN, Header, Op, Packet, Secret, Status, store_at};

/// What came for a request.
pub(crate) enum Reply {
    /// An answer to this very request, about this very key.
    Answer(Header, Bytes),
    /// An answer to this read that carries another key.
    WrongKey,
}

/// A packet that may be an answer.
pub(crate) struct Incoming<'a> {
    packet: Packet<'a>,
    /// Whether its tag is the tenant's.
    signed: bool,
}

impl<'a> Incoming<'a> {
    /// None: the datagram can be no answer, whatever was asked.
    pub fn read(datagram: &'a [u8], secret: &Secret) -> Option<Incoming<'a>> {
        let packet = Packet::decode(datagram).ok()?;
        let signed = packet.tag_is_valid(secret);
        (signed || packet.header.status == Status::Denied).then_some(Incoming { packet, signed })
    }
}

/// Who is told of an answer.
pub(crate) trait Recipient: Sized {
    /// The same, if more answers to the same request are to be told.
    fn again(&self) -> Option<Self>;
}

/// The requests that wait for answers, each with whom to tell.
pub(crate) struct RequestTable<T> {
    requests: HashMap<u64, Request<T>>,
    /// The cluster's, in its order: one that a switch chose for a read answers in its own name.
    stores: Arc<[SocketAddr]>,
}

/// A request that waits: its datagram says what must come back.
struct Request<T> {
    datagram: Bytes,
    store: SocketAddr,
    /// An answer without a valid tag said that the request was denied.
    denied: bool,
    recipient: T,
}

impl<T: Recipient> RequestTable<T> {
    /// None, to these stores.
    pub fn new(stores: Arc<[SocketAddr]>) -> RequestTable<T> {
        RequestTable { requests: HashMap::new(), stores }
    }

    /// From now on answers to the request with this id are waited for, if they are not already.
    pub fn insert(&mut self, request: u64, datagram: Bytes, store: SocketAddr, recipient: T) {
        self.requests.entry(request).or_insert(Request {
            datagram,
            store,
            denied: false,
            recipient,
        });
    }

    pub fn remove(&mut self, request: u64) {
        self.requests.remove(&request);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether somebody who cannot sign in this tenant's name denied the request: a store that has
    /// another secret, or a forger.
    pub fn was_denied(&self, request: u64) -> bool {
        self.requests.get(&request).is_some_and(|waiting| waiting.denied)
    }

    /// Takes out the request that this answers, if there is one and no more answers to it are
    /// expected.
    pub fn take(&mut self, incoming: &Incoming<'_>, from: SocketAddr) -> Option<(T, Reply)> {
        let request = incoming.packet.header.request;
        let waiting = self.requests.get_mut(&request)?;
        let reply = waiting.judge(&incoming.packet, from, &self.stores)?;
        if !incoming.signed {
            // It ends nothing: it only explains, should nothing better come.
            waiting.denied = true;
            return None;
        }
        let recipient = match waiting.recipient.again() {
            Some(recipient) => recipient,
            None => self.requests.remove(&request)?.recipient,
        };
        Some((recipient, reply))
    }
}

impl<T> Request<T> {
    /// What this packet is to the request; `None` if it is not its answer. Checks no tag.
    fn judge(&self, packet: &Packet<'_>, from: SocketAddr, stores: &[SocketAddr]) -> Option<Reply> {
        let header = &packet.header;
        let sent = Header::from_bytes(self.datagram.first_chunk()?).ok()?;
        let key = &self.datagram[HEADER_LEN..][..usize::from(sent.key_len)];
        let is_from = |store: &SocketAddr| (from.ip(), from.port()) == (store.ip(), store.port());
        // A switch sends nothing but reads to others than the key's home.
        let chosen = store_at(header.node).filter(|_| sent.op == Op::ReadRequest);
        let chosen = chosen.and_then(|at| stores.get(at));
        let same = (is_from(&self.store) || chosen.is_some_and(is_from))
            && (header.client, header.request, header.tenant)
                == (sent.client, sent.request, sent.tenant)
            && Some(header.op) == sent.op.reply();
        if !same {
            return None;
        }
        if packet.key != key {
            return (header.op == Op::ReadReply).then_some(Reply::WrongKey);
        }
        if header.key_hash != sent.key_hash {
            return None;
        }
        Some(Reply::Answer(*header, Bytes::copy_from_slice(packet.value)))
    }
}
