//! The streams of stores: the cluster, where tenants are placed, and messages of disciplines to
//! their halves there.
//!
//! Messages are numbered, wait until they are acknowledged, and are sent again over a new stream.
//! They are not remembered: after a change of the leader a discipline's control half starts anew,
//! and tells again what it has to say. Nor are those for which there is no room: nothing about
//! their tenant is taken in then, so that no part of what it has to hear is missing in the middle,
//! until half of the room is free and the control half is asked to tell all of it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::SocketAddr,
};

use api::proto::{Cluster, StoreHello, ToStore, to_store::Body};
use bytes::Bytes;

use super::{mail::Mail, memory::Rooms};

/// A stream of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreStreamId(u64);

struct Stream {
    /// The store that messages are for; none: its address is no store's, or a newer stream is
    /// that store's.
    store: Option<SocketAddr>,
    /// Version of the cluster that was sent.
    cluster: Option<u64>,
    /// Version of the placements that were sent.
    placements: Option<u64>,
    /// Number of the last message that was sent.
    sent: u64,
}

/// The messages for one store.
#[derive(Default)]
struct Mailbox {
    mail: Mail,
    /// Tenants about whom messages were refused.
    refused: BTreeSet<u32>,
}

/// The tenants for whom an acknowledgement changes something.
#[derive(Debug, Default, PartialEq)]
pub struct Acknowledgement {
    /// The store has all that it was sent about these.
    pub told: BTreeSet<u32>,
    /// Messages about these were refused, and there is room again.
    pub not_told: BTreeSet<u32>,
}

/// All stores of the cluster.
pub struct Stores {
    boxes: BTreeMap<SocketAddr, Mailbox>,
    streams: BTreeMap<StoreStreamId, Stream>,
    generation: u64,
}

impl Stores {
    /// Those at these addresses.
    pub fn new(addresses: impl Iterator<Item = SocketAddr>) -> Stores {
        Stores {
            boxes: addresses.map(|address| (address, Mailbox::default())).collect(),
            streams: BTreeMap::new(),
            generation: 0,
        }
    }

    /// A stream began. One whose address is no store's is told the cluster only.
    pub fn begin(&mut self, hello: &StoreHello) -> StoreStreamId {
        let address = hello.address.parse().ok();
        let store = address.filter(|address| self.boxes.contains_key(address));
        if store.is_some() {
            let streams = self.streams.values_mut();
            let before = streams.filter(|stream| stream.store == store);
            before.for_each(|stream| stream.store = None);
        }
        self.generation += 1;
        let id = StoreStreamId(self.generation);
        let stream = Stream { store, cluster: None, placements: None, sent: 0 };
        self.streams.insert(id, stream);
        id
    }

    /// A stream ended.
    pub fn end(&mut self, id: StoreStreamId) {
        self.streams.remove(&id);
    }

    /// The store of a stream.
    pub fn on(&self, id: StoreStreamId) -> Option<SocketAddr> {
        self.streams.get(&id)?.store
    }

    /// The stores that were not sent the cluster of this version, in the order of their addresses.
    pub fn behind(&self, version: u64) -> impl Iterator<Item = SocketAddr> {
        let has = move |stream: &Stream| stream.cluster == Some(version);
        let told: BTreeSet<SocketAddr> =
            self.streams.values().filter(|stream| has(stream)).filter_map(|s| s.store).collect();
        self.boxes.keys().copied().filter(move |store| !told.contains(store))
    }

    /// Takes a message for a store, if all before it about the tenant were taken.
    ///
    /// # Errors
    /// One line: there is no such store, the message is too long, or too many wait; of messages
    /// about a tenant that is the first.
    pub fn tell(
        &mut self,
        store: SocketAddr,
        discipline: &str,
        tenant: u32,
        message: Bytes,
        next_number: &mut u64,
    ) -> Result<(), String> {
        let Some(Mailbox { mail, refused }) = self.boxes.get_mut(&store) else {
            return Err(format!("{store} is not one of the cluster's stores"));
        };
        if refused.contains(&tenant) {
            return Ok(());
        }
        if !mail.has_room_for(message.len()) {
            refused.insert(tenant);
        }
        mail.tell(discipline, tenant, message, next_number)
            .map_err(|line| format!("{store}: {line}"))
    }

    /// What to send on a stream now: the cluster of this version if it is newer, then where tenants
    /// have rooms if that changed, then messages.
    pub fn next(
        &mut self,
        id: StoreStreamId,
        cluster: Option<(u64, &Cluster)>,
        rooms: &Rooms,
    ) -> Option<ToStore> {
        let stream = self.streams.get_mut(&id)?;
        let body = if let Some((version, cluster)) = cluster
            && stream.cluster != Some(version)
        {
            stream.cluster = Some(version);
            Body::Cluster(Box::new(cluster.clone()))
        } else if stream.cluster.is_some() && stream.placements < rooms.version() {
            stream.placements = rooms.version();
            Body::Placements(rooms.placements())
        } else {
            stream.cluster?;
            let next = self.boxes.get(&stream.store?)?.mail.after(stream.sent)?;
            stream.sent = next.seq;
            Body::Message(next.clone())
        };
        Some(ToStore { body: Some(body) })
    }

    /// A store took in every message up to this number.
    pub fn acknowledged(&mut self, id: StoreStreamId, seq: u64) -> Acknowledgement {
        let Some(stream) = self.streams.get(&id) else { return Acknowledgement::default() };
        let of_store = stream.store.and_then(|store| self.boxes.get_mut(&store));
        let Some(Mailbox { mail, refused }) = of_store else { return Acknowledgement::default() };
        let mut told = mail.acknowledged(seq.min(stream.sent));
        told.retain(|tenant| !refused.contains(tenant));
        let not_told = if mail.is_half_empty() { mem::take(refused) } else { BTreeSet::new() };
        Acknowledgement { told, not_told }
    }
}

#[cfg(test)]
mod tests {
    use decide::MESSAGE_MAX;

    use super::*;

    fn address() -> SocketAddr {
        "10.0.0.1:7117".parse().unwrap()
    }

    fn hello(address: &str) -> StoreHello {
        StoreHello { name: "store".into(), address: address.into() }
    }

    fn message(message: ToStore) -> Option<(u64, u32)> {
        match message.body? {
            Body::Message(m) => Some((m.seq, m.tenant)),
            Body::Cluster(_) | Body::Placements(_) => None,
        }
    }

    #[test]
    fn messages_are_sent_in_order_and_again_until_they_are_acknowledged() {
        let (mut stores, mut next) = (Stores::new([address()].into_iter()), 10);
        for tenant in [1, 2, 1] {
            let told = stores.tell(address(), "d", tenant, Bytes::from_static(b"m"), &mut next);
            told.unwrap();
        }
        let cluster = Cluster::default();
        let take = |stores: &mut Stores, id| {
            let messages =
                std::iter::from_fn(|| stores.next(id, Some((1, &cluster)), &Rooms::default()));
            messages.map(message).collect::<Vec<_>>()
        };
        let first = stores.begin(&hello("10.0.0.1:7117"));
        assert!(stores.next(first, None, &Rooms::default()).is_none(), "the cluster comes first");
        let all = [None, Some((10, 1)), Some((11, 2)), Some((12, 1))];
        assert_eq!(take(&mut stores, first), all);
        assert_eq!(stores.acknowledged(first, 11).told, [2].into(), "of 1 there is another");
        let second = stores.begin(&hello("10.0.0.1:7117"));
        assert_eq!(stores.acknowledged(first, 12).told, [].into(), "not its stream any longer");
        assert_eq!(stores.acknowledged(second, 12).told, [].into(), "not sent yet");
        assert_eq!(take(&mut stores, second), [None, Some((12, 1))]);
        assert_eq!(stores.acknowledged(second, 12).told, [1].into());
        stores.end(second);
        let stranger = stores.begin(&hello("nowhere"));
        assert_eq!(take(&mut stores, stranger), [None]);
        assert_eq!(stores.on(stranger), None);
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        let (mut stores, mut next) = (Stores::new([address()].into_iter()), 1);
        let mut tell = |store: &str, length: usize| {
            let message = vec![0; length].into();
            stores.tell(store.parse().unwrap(), "d", 1, message, &mut next)
        };
        assert!(tell("10.0.0.2:7117", 1).unwrap_err().contains("not one of"));
        assert!(tell("10.0.0.1:7117", MESSAGE_MAX + 1).unwrap_err().contains("at most"));
        let full = (0..).find_map(|_| tell("10.0.0.1:7117", MESSAGE_MAX).err());
        assert!(full.unwrap().contains("messages wait for"));
    }

    #[test]
    fn nothing_is_left_out_in_the_middle_of_what_is_told() {
        let (mut stores, mut next) = (Stores::new([address()].into_iter()), 1);
        let store = stores.begin(&hello("10.0.0.1:7117"));
        let cluster = Cluster::default();
        let mut tell = |stores: &mut Stores, tenant: u32, length: usize| {
            stores.tell(address(), "d", tenant, vec![0; length].into(), &mut next)
        };
        while tell(&mut stores, 1, MESSAGE_MAX).is_ok() {}
        // A short one would fit, and about another tenant does.
        tell(&mut stores, 1, 0).unwrap();
        tell(&mut stores, 2, 0).unwrap();
        let sent =
            std::iter::from_fn(|| stores.next(store, Some((1, &cluster)), &Rooms::default()));
        let sent: Vec<(u64, u32)> = sent.filter_map(message).collect();
        let about = |tenant| sent.iter().filter(|(_, of)| *of == tenant).count();
        assert_eq!((about(1), about(2)), (sent.len() - 1, 1));
        let (first, last) = (sent[0].0, sent[sent.len() - 1].0);
        assert_eq!(stores.acknowledged(store, first), Acknowledgement::default(), "it is full");
        tell(&mut stores, 1, 0).unwrap();
        let told = Acknowledgement { told: [2].into(), not_told: [1].into() };
        assert_eq!(stores.acknowledged(store, last), told);
        tell(&mut stores, 1, 0).unwrap();
        let again = stores.next(store, Some((1, &cluster)), &Rooms::default());
        assert_eq!(again.and_then(message).map(|(_, tenant)| tenant), Some(1));
        let told = Acknowledgement { told: [1].into(), not_told: [].into() };
        assert_eq!(stores.acknowledged(store, u64::MAX), told);
    }
}
