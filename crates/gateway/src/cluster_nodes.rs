//! The gateways that clients in cluster mode take for the nodes of a Redis Cluster, and which slots
//! each of them has to these clients. Each gateway has every slot in truth: a command that comes to
//! another one is carried out all the same.
//!
//! A node has whole stores' slots where there are no more nodes than stores: then all that needs
//! one connection to a node, as channels that have slots do, is one store's as far as can be.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use wire::CLUSTER_SLOTS;

/// How often the others are asked whether they are there, and how long they have to say so.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// One that has not said so that many times is away.
const SILENT_TIMES: u32 = 2;

/// First and last slot.
pub(crate) type SlotRange = (u32, u32);

/// Slots that one store has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreSlots {
    pub range: SlotRange,
    /// The number of the store's RESP port.
    pub port: usize,
}

/// All nodes, as far as this gateway knows of them.
#[derive(Debug, Default)]
pub(crate) struct ClusterNodes {
    /// None: a client finds one node, at the address where it has come in.
    addresses: Vec<SocketAddr>,
    /// How often each of them has not said in a row that it is there.
    silent: Vec<AtomicU32>,
    stores: Vec<StoreSlots>,
}

/// What a client is told of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownNode {
    pub address: SocketAddr,
    /// In their order.
    pub slots: Vec<SlotRange>,
    pub is_away: bool,
    /// It is the one that is asked.
    pub is_asked: bool,
}

impl ClusterNodes {
    /// These addresses, the same in the same order at all of them, before stores with these slots.
    pub fn new(addresses: Vec<SocketAddr>, mut stores: Vec<StoreSlots>) -> ClusterNodes {
        stores.sort_by_key(|slots| slots.range);
        let silent = addresses.iter().map(|_| AtomicU32::new(0)).collect();
        ClusterNodes { addresses, silent, stores }
    }

    /// Whether there are others that may be away.
    pub fn has_others(&self) -> bool {
        self.addresses.len() > 1
    }

    /// All of them, to a client that has come in at this address.
    pub fn shown_at(&self, at: SocketAddr) -> Vec<ShownNode> {
        if self.addresses.is_empty() {
            let slots = vec![(0, CLUSTER_SLOTS - 1)];
            return vec![ShownNode { address: at, slots, is_away: false, is_asked: true }];
        }
        let asked = self.asked_at(at);
        let shown = self.addresses.iter().enumerate().map(|(number, address)| ShownNode {
            address: *address,
            slots: vec![],
            is_away: number != asked && self.is_away(number),
            is_asked: number == asked,
        });
        let mut shown: Vec<ShownNode> = shown.collect();
        let mut ports: Vec<usize> = self.stores.iter().map(|slots| slots.port).collect();
        ports.sort_unstable();
        ports.dedup();
        for (place, port) in ports.iter().enumerate() {
            let of_store = self.stores.iter().filter(|slots| slots.port == *port);
            let ranges: Vec<SlotRange> = of_store.map(|slots| slots.range).collect();
            let takers = takers(&shown, place, ports.len());
            for (part, taker) in divided(&ranges, takers.len() as u32).into_iter().zip(takers) {
                shown[taker].slots.extend(part);
            }
        }
        shown.iter_mut().for_each(|node| node.slots.sort_unstable());
        shown
    }

    /// Which of them a client has come to: the one of this address, or, where an address is
    /// translated on the way, of this port.
    fn asked_at(&self, at: SocketAddr) -> usize {
        let at = SocketAddr::new(at.ip().to_canonical(), at.port());
        let is = |test: &dyn Fn(&SocketAddr) -> bool| self.addresses.iter().position(test);
        is(&|node| *node == at).or_else(|| is(&|node| node.port() == at.port())).unwrap_or(0)
    }

    fn is_away(&self, number: usize) -> bool {
        self.silent[number].load(Relaxed) >= SILENT_TIMES
    }

    /// Asks all, this one as well if it is reached by an address of its own, again and again
    /// whether they are there, for as long as it is polled. `speaks`: they answer commands in the
    /// clear.
    pub async fn watch(self: Arc<ClusterNodes>, speaks: bool) {
        loop {
            sleep(ASKED_EVERY).await;
            let answers = self.addresses.iter().enumerate().map(async |(number, address)| {
                let answers = timeout(ASKED_EVERY, answers(*address, speaks)).await;
                let is_there = matches!(answers, Ok(Ok(())));
                let silent = &self.silent[number];
                match is_there {
                    true => silent.store(0, Relaxed),
                    false => _ = silent.fetch_add(1, Relaxed),
                }
            });
            join_all(answers).await;
        }
    }
}

/// The nodes that take the slots of a store, by its place among so many. Those of one that is away
/// go to the next.
fn takers(nodes: &[ShownNode], place: usize, stores: usize) -> Vec<usize> {
    let homes: Vec<usize> = match nodes.len() >= stores {
        true => (place..nodes.len()).step_by(stores).collect(),
        false => vec![place % nodes.len()],
    };
    let there: Vec<usize> = homes.iter().copied().filter(|node| !nodes[*node].is_away).collect();
    if !there.is_empty() {
        return there;
    }
    let after = (1..nodes.len()).map(|step| (homes[0] + step) % nodes.len());
    after.filter(|node| !nodes[*node].is_away).take(1).collect()
}

/// Slots in so many parts that are as large as one another, in their order.
fn divided(ranges: &[SlotRange], parts: u32) -> Vec<Vec<SlotRange>> {
    let count: u32 = ranges.iter().map(|(first, last)| last - first + 1).sum();
    let mut divided = vec![vec![]; parts as usize];
    let mut before = 0;
    for (first, last) in ranges {
        for (part, slots) in (0..).zip(&mut divided) {
            // Of all slots, those with these places are this part's.
            let (from, to) = (count * part / parts, count * (part + 1) / parts);
            let from = (first + from.saturating_sub(before)).max(*first);
            let to = (first + to).saturating_sub(before).min(last + 1);
            if from < to {
                slots.push((from, to - 1));
            }
        }
        before += last - first + 1;
    }
    divided
}

async fn answers(at: SocketAddr, speaks: bool) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    if speaks {
        // A gateway answers that by itself, whatever its stores do.
        stream.write_all(b"CLUSTER MYID\r\n").await?;
        stream.read_u8().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    fn nodes(count: u16, stores: &[(u32, u32, usize)]) -> ClusterNodes {
        let slots = stores
            .iter()
            .map(|(first, last, port)| StoreSlots { range: (*first, *last), port: *port });
        ClusterNodes::new((0..count).map(|number| at(7000 + number)).collect(), slots.collect())
    }

    fn slots(nodes: &ClusterNodes) -> Vec<Vec<SlotRange>> {
        nodes.shown_at(at(7000)).into_iter().map(|node| node.slots).collect()
    }

    #[test]
    fn a_gateway_alone_has_every_slot_wherever_a_client_comes_in() {
        let alone = nodes(0, &[(0, 16383, 0)]);
        let slots = vec![(0, 16383)];
        let shown = ShownNode { address: at(9), slots, is_away: false, is_asked: true };
        assert_eq!(alone.shown_at(at(9)), [shown]);
    }

    #[test]
    fn nodes_have_whole_stores_or_parts_of_one() {
        let three = [(0, 999, 0), (1000, 8999, 1), (9000, 15999, 2), (16000, 16383, 0)];
        assert_eq!(
            slots(&nodes(3, &three)),
            [vec![(0, 999), (16000, 16383)], vec![(1000, 8999)], vec![(9000, 15999)]]
        );
        let two = slots(&nodes(2, &three));
        assert_eq!(two, [vec![(0, 999), (9000, 15999), (16000, 16383)], vec![(1000, 8999)]]);
        let four = slots(&nodes(4, &three));
        assert_eq!(four[0], [(0, 691)]);
        assert_eq!(four[3], [(692, 999), (16000, 16383)]);
    }

    #[test]
    fn the_slots_of_one_that_is_away_are_the_next_one_s() {
        let three = nodes(3, &[(0, 5460, 0), (5461, 10922, 1), (10923, 16383, 2)]);
        three.silent[1].store(SILENT_TIMES, Relaxed);
        assert_eq!(slots(&three), [vec![(0, 5460)], vec![], vec![(5461, 10922), (10923, 16383)]]);
        assert!(three.shown_at(at(7000))[1].is_away);
        // Whoever is asked is there.
        assert!(!three.shown_at(at(7001))[1].is_away);
        three.silent[2].store(SILENT_TIMES, Relaxed);
        assert_eq!(slots(&three)[0].len(), 3);
    }

    proptest! {
        #[test]
        fn each_slot_is_one_node_s(
            count in 1u16..9,
            bounds in prop::collection::btree_set(1u32..16384, 0..12),
            ports in 1usize..5,
            away in prop::collection::vec(any::<bool>(), 9),
        ) {
            let mut first = 0;
            let mut stores = vec![];
            for (number, bound) in bounds.into_iter().chain([16384]).enumerate() {
                stores.push((first, bound - 1, number % ports));
                first = bound;
            }
            let nodes = nodes(count, &stores);
            for (silent, is_away) in nodes.silent.iter().zip(away) {
                silent.store(if is_away { SILENT_TIMES } else { 0 }, Relaxed);
            }
            let shown = nodes.shown_at(at(7000));
            let mut all: Vec<SlotRange> = shown.iter().flat_map(|node| node.slots.clone()).collect();
            all.sort_unstable();
            let mut next = 0;
            for (first, last) in all {
                prop_assert_eq!(first, next);
                next = last + 1;
            }
            prop_assert_eq!(next, 16384);
            prop_assert!(shown.iter().all(|node| !node.is_away || node.slots.is_empty()));
        }
    }
}
