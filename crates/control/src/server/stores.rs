//! The streams of stores: the cluster, where tenants are placed, and messages of disciplines to their halves there.
//!
//! Messages are numbered, wait until they are acknowledged, and are sent again over a new stream. They are not remembered: after
//! a change of the leader a discipline's control half starts anew, and tells again what it has to say.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use api::proto::{Cluster, StoreHello, StoreMessage, ToStore, to_store::Body};
use bytes::Bytes;

use super::memory::Rooms;

/// Longest message, and longest report.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Messages that wait for one store, and their bytes.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A stream of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreStreamId(u64);

struct Stream {
    /// The store that messages are for; none: its address is no store's, or a newer stream is that store's.
    store: Option<SocketAddr>,
    /// Version of the cluster that was sent.
    cluster: Option<u64>,
    /// Version of the placements that were sent.
    placements: Option<u64>,
    /// Number of the last message that was sent.
    sent: u64,
}

/// Messages that a store did not acknowledge yet.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<StoreMessage>,
    bytes: usize,
}

/// All stores of the cluster.
pub struct Stores {
    waiting: BTreeMap<SocketAddr, Waiting>,
    streams: BTreeMap<StoreStreamId, Stream>,
    generation: u64,
}

impl Stores {
    /// Those at these addresses.
    pub fn new(addresses: impl Iterator<Item = SocketAddr>) -> Stores {
        Stores {
            waiting: addresses
                .map(|address| (address, Waiting::default()))
                .collect(),
            streams: BTreeMap::new(),
            generation: 0,
        }
    }

    /// A stream began. One whose address is no store's is told the cluster only.
    pub fn begin(&mut self, hello: &StoreHello) -> StoreStreamId {
        let address = hello.address.parse().ok();
        let store = address.filter(|address| self.waiting.contains_key(address));
        if store.is_some() {
            let streams = self.streams.values_mut();
            let before = streams.filter(|stream| stream.store == store);
            before.for_each(|stream| stream.store = None);
        }
        self.generation += 1;
        let id = StoreStreamId(self.generation);
        let stream = Stream {
            store,
            cluster: None,
            placements: None,
            sent: 0,
        };
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

    /// Takes a message for a store.
    ///
    /// # Errors
    /// One line: there is no such store, the message is too long, or too many wait.
    pub fn tell(
        &mut self,
        store: SocketAddr,
        discipline: &str,
        tenant: u32,
        message: Bytes,
        next_number: &mut u64,
    ) -> Result<(), String> {
        let Some(waiting) = self.waiting.get_mut(&store) else {
            return Err(format!("{store} is not one of the cluster's stores"));
        };
        let length = message.len();
        if length > MESSAGE_MAX {
            return Err(format!(
                "a message of {length} bytes, at most {MESSAGE_MAX} are taken"
            ));
        }
        let bytes = waiting.bytes + length;
        if waiting.messages.len() >= WAITING_MAX || bytes > WAITING_BYTES_MAX {
            let count = waiting.messages.len();
            return Err(format!("{count} messages wait for {store} already"));
        }
        waiting.bytes = bytes;
        waiting.messages.push_back(StoreMessage {
            seq: *next_number,
            discipline: discipline.into(),
            tenant,
            message,
        });
        *next_number += 1;
        Ok(())
    }

    /// What to send on a stream now: the cluster of this version if it is newer, then where tenants have rooms if that changed,
    /// then messages.
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
            Body::Cluster(cluster.clone())
        } else if stream.cluster.is_some() && stream.placements < rooms.version() {
            stream.placements = rooms.version();
            Body::Placements(rooms.placements())
        } else {
            stream.cluster?;
            let messages = &self.waiting.get(&stream.store?)?.messages;
            let next = messages.get(messages.partition_point(|m| m.seq <= stream.sent))?;
            stream.sent = next.seq;
            Body::Message(next.clone())
        };
        Some(ToStore { body: Some(body) })
    }

    /// A store took in every message up to this number. Of these tenants it has all that it was sent.
    pub fn acknowledged(&mut self, id: StoreStreamId, seq: u64) -> BTreeSet<u32> {
        let mut tenants = BTreeSet::new();
        let Some(stream) = self.streams.get(&id) else {
            return tenants;
        };
        let waiting = stream.store.and_then(|store| self.waiting.get_mut(&store));
        let Some(Waiting { messages, bytes }) = waiting else {
            return tenants;
        };
        let seq = seq.min(stream.sent);
        while messages.front().is_some_and(|message| message.seq <= seq) {
            if let Some(message) = messages.pop_front() {
                *bytes -= message.message.len();
                tenants.insert(message.tenant);
            }
        }
        for message in messages {
            tenants.remove(&message.tenant);
        }
        tenants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> SocketAddr {
        "10.0.0.1:7117".parse().unwrap()
    }

    fn hello(address: &str) -> StoreHello {
        StoreHello {
            name: "store".into(),
            address: address.into(),
        }
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
        assert!(
            stores.next(first, None, &Rooms::default()).is_none(),
            "the cluster comes first"
        );
        let all = [None, Some((10, 1)), Some((11, 2)), Some((12, 1))];
        assert_eq!(take(&mut stores, first), all);
        assert_eq!(
            stores.acknowledged(first, 11),
            [2].into(),
            "of 1 there is another"
        );
        let second = stores.begin(&hello("10.0.0.1:7117"));
        assert_eq!(
            stores.acknowledged(first, 12),
            [].into(),
            "not its stream any longer"
        );
        assert_eq!(stores.acknowledged(second, 12), [].into(), "not sent yet");
        assert_eq!(take(&mut stores, second), [None, Some((12, 1))]);
        assert_eq!(stores.acknowledged(second, 12), [1].into());
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
        assert!(
            tell("10.0.0.1:7117", MESSAGE_MAX + 1)
                .unwrap_err()
                .contains("at most")
        );
        let full = (0..).find_map(|_| tell("10.0.0.1:7117", MESSAGE_MAX).err());
        assert!(full.unwrap().contains("messages wait for"));
    }
}
