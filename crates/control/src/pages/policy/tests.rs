//! Shares of guaranteed pages on topologies of a line each: the cases that the policies are
//! described by, and what holds of all.

use proptest::prelude::*;

use super::*;
use crate::topology::{DeclaredHost, DeclaredLink, DeclaredSwitch, DeclaredTopology};

/// A topology from `a-b` links; numbers are switches, `c1` is a client at 10.0.0.1, `s1` a store at
/// 10.1.0.1.
fn net(links: &str) -> Topology {
    let mut declared = DeclaredTopology::default();
    let nodes: BTreeSet<&str> = links.split([' ', '-']).collect();
    for node in nodes {
        let number = node.trim_start_matches(['c', 's']).parse().unwrap();
        let name = node.to_string();
        let host = |n: u8, number: u16| DeclaredHost {
            name: name.clone(),
            address: vec![[10, n, 0, number as u8].into()],
            network: vec![],
        };
        match node.chars().next() {
            Some('c') => declared.hosts.push(host(0, number)),
            Some('s') => declared.hosts.push(host(1, number)),
            _ => declared.switches.push(DeclaredSwitch { id: number, name }),
        }
    }
    for link in links.split(' ') {
        let (a, b) = link.split_once('-').unwrap();
        let ends = [a.into(), b.into()];
        declared.links.push(DeclaredLink { ends, cost: 1 });
    }
    declared.check().unwrap();
    Topology::new(declared)
}

fn client(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn store(n: u8) -> IpAddr {
    [10, 1, 0, n].into()
}

fn rooms_of(pages: u32, switches: u16) -> BTreeMap<SwitchId, u32> {
    (1..=switches).map(|id| (id, pages)).collect()
}

fn flow(c: u8, s: u8, rate: f64) -> Flow {
    Flow { client: client(c), store: store(s), rate }
}

static NOWHERE: BTreeMap<SwitchId, u32> = BTreeMap::new();

fn wish(policy: Policy, quota: u32) -> Wish<'static> {
    Wish {
        policy,
        quota,
        clients: &[],
        stores: &[],
        traffic: &[],
        had_traffic: false,
        now: &NOWHERE,
    }
}

#[test]
fn one_client_and_one_store_as_in_the_thesis() {
    use Policy::*;
    let (two, three) = ("c1-1 1-2 2-s1", "c1-1 1-2 2-3 3-s1");
    // (links, pages on each of the switches, policy, quota, rooms, unplaced)
    #[allow(clippy::type_complexity)]
    let rows: &[(&str, u32, Policy, u32, &[(SwitchId, u32)], u32)] = &[
        (two, 32, NearClient, 20, &[(1, 20)], 0),
        (two, 32, NearStore, 20, &[(2, 20)], 0),
        (two, 32, EvenSplit, 20, &[(1, 10), (2, 10)], 0),
        (two, 12, NearClient, 20, &[(1, 12), (2, 8)], 0),
        (two, 12, NearStore, 20, &[(2, 12), (1, 8)], 0),
        (two, 8, EvenSplit, 20, &[(1, 8), (2, 8)], 4),
        (three, 32, EvenSplit, 30, &[(1, 10), (2, 10), (3, 10)], 0),
        (three, 32, EvenSplit, 31, &[(1, 11), (2, 10), (3, 10)], 0),
        (three, 32, EvenSplit, 2, &[(1, 1), (2, 1)], 0),
        (three, 4, NearStore, 10, &[(3, 4), (2, 4), (1, 2)], 0),
        (three, 4, NearClient, 0, &[], 0),
        // One path: a page saves most at the client's end.
        (three, 4, Measured, 10, &[(1, 4), (2, 4), (3, 2)], 0),
    ];
    for &(links, pages, policy, quota, rooms, unplaced) in rows {
        let (clients, stores) = ([client(1)], [store(1)]);
        let wish = Wish { clients: &clients, stores: &stores, ..wish(policy, quota) };
        let placement = place(&wish, &net(links), &rooms_of(pages, 3));
        assert_eq!(placement.rooms, rooms, "{links} {policy} {quota}");
        assert_eq!(placement.unplaced, unplaced);
    }
}

/// Two branches, 1 with client 1 and 2 with client 2, into the core 3 with the store.
const TREE: &str = "c1-1 c2-2 1-3 2-3 3-s1";

#[test]
fn several_clients_share_what_their_paths_share() {
    let (clients, stores) = ([client(1), client(2)], [store(1)]);
    let rooms = |policy, quota| {
        let wish = Wish { clients: &clients, stores: &stores, ..wish(policy, quota) };
        place(&wish, &net(TREE), &rooms_of(4, 9)).rooms
    };
    assert_eq!(rooms(Policy::NearClient, 6), [(1, 4), (2, 2)]);
    assert_eq!(rooms(Policy::NearStore, 6), [(3, 4), (1, 2)]);
    assert_eq!(rooms(Policy::EvenSplit, 6), [(1, 2), (2, 2), (3, 2)]);
}

#[test]
fn traffic_decides_between_the_branches_and_the_core() {
    let place_for = |traffic: &[Flow], quota, now: &BTreeMap<SwitchId, u32>| {
        let wish = Wish { traffic, now, ..wish(Policy::Measured, quota) };
        place(&wish, &net(TREE), &rooms_of(4, 3)).rooms
    };
    // A branch is 2 links from the store, the core 1. Client 1 alone: its branch, 2 x rate.
    assert_eq!(place_for(&[flow(1, 1, 100.0)], 4, &NOWHERE), [(1, 4)]);
    // 60 to 40: the first page saves 120 on branch 1, 80 on branch 2, 100 on the core. The second,
    // with client 1's path at rank 2: 60 on branch 1, 80 on branch 2.
    assert_eq!(place_for(&[flow(1, 1, 60.0), flow(2, 1, 40.0)], 1, &NOWHERE), [(1, 1)]);
    assert_eq!(place_for(&[flow(1, 1, 60.0), flow(2, 1, 40.0)], 2, &NOWHERE), [(1, 1), (2, 1)]);
    // Where it is now is good enough for a small change, but not for a large one.
    let now = BTreeMap::from([(2, 1)]);
    assert_eq!(place_for(&[flow(1, 1, 52.0), flow(2, 1, 48.0)], 1, &now), [(2, 1)]);
    assert_eq!(place_for(&[flow(1, 1, 60.0), flow(2, 1, 40.0)], 1, &now), [(1, 1)]);
}

#[test]
fn in_a_star_of_many_clients_the_centre_serves_all() {
    // Nine leaves of equal rate, each 2 links from the store; the centre, 10, 1 link: 9 x 1 against
    // 1 x 2.
    let mut links: Vec<String> = (1..10).map(|n| format!("c{n}-{n} {n}-10")).collect();
    links.push("10-s1".into());
    let traffic: Vec<Flow> = (1..10).map(|n| flow(n, 1, 10.0)).collect();
    let wish = Wish { traffic: &traffic, ..wish(Policy::Measured, 3) };
    let rooms = place(&wish, &net(&links.join(" ")), &rooms_of(4, 10)).rooms;
    assert_eq!(rooms, [(10, 3)]);
    // Clients that are not declared are learned from traffic by the other policies too.
    let wish = Wish { policy: Policy::NearStore, ..wish };
    let placement = place(&wish, &net(&links.join(" ")), &rooms_of(4, 10));
    assert_eq!(placement.rooms, [(10, 3)]);
}

#[test]
fn with_nothing_known_the_pages_are_split() {
    let stores = [store(1)];
    let wish = Wish { stores: &stores, ..wish(Policy::NearClient, 6) };
    // Switch 4 and 5 are known to be elsewhere.
    let placement = place(&wish, &net("c1-1 1-2 2-s1 4-5"), &rooms_of(4, 5));
    assert_eq!(placement.rooms, [(1, 3), (2, 3)]);
    let placement = place(&wish, &Topology::default(), &rooms_of(1, 5));
    assert_eq!(placement.rooms.len(), 5);
    assert_eq!(placement.unplaced, 1);
}

#[test]
fn pages_stay_while_the_traffic_that_they_were_placed_by_pauses() {
    let (stores, clients, now) = ([store(1)], [client(9)], BTreeMap::from([(1, 8)]));
    let here = |wish: Wish<'_>, room| place(&wish, &net(TREE), &rooms_of(room, 3)).rooms;
    let silent =
        Wish { stores: &stores, had_traffic: true, now: &now, ..wish(Policy::NearClient, 8) };
    assert_eq!(here(silent, 8), [(1, 8)]);
    // (what else is so, the wish, room)
    let gone = BTreeMap::from([(4, 8)]);
    let strange = [flow(9, 1, 1.0)];
    let rows = [
        ("it never had any", Wish { had_traffic: false, ..silent }, 8),
        ("it is to have more", Wish { quota: 9, ..silent }, 9),
        ("there is no room for it", silent, 7),
        ("declared, and not found", Wish { clients: &clients, ..silent }, 8),
        ("from nobody knows where", Wish { traffic: &strange, ..silent }, 8),
        ("the switch is gone", Wish { now: &gone, ..silent }, 8),
    ];
    for (what, wish, room) in rows {
        assert_eq!(here(wish, room).len(), 3, "{what}");
    }
}

#[test]
fn pages_stay_at_one_of_several_leaves_when_another_has_a_way_more() {
    let topology = net("c1-1 c2-2 c3-1 1-3 2-3 3-s1 3-4 4-s2");
    let now = BTreeMap::from([(2, 8)]);
    for (traffic, at) in [
        (vec![flow(1, 1, 9.0), flow(1, 2, 9.0), flow(2, 1, 9.0)], 2),
        // Nearer is nearer.
        (vec![flow(1, 1, 9.0)], 1),
    ] {
        let wish = Wish { traffic: &traffic, now: &now, ..wish(Policy::NearClient, 8) };
        assert_eq!(place(&wish, &topology, &rooms_of(8, 4)).rooms, [(at, 8)]);
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    use Policy::*;
    proptest::sample::select(vec![NearClient, NearStore, EvenSplit, Measured])
}

proptest! {
    #[test]
    fn never_above_capacity_and_all_that_fits(
        policy in policy(),
        quota in 0..60u32,
        room in proptest::collection::vec(0..20u32, 4),
        rates in proptest::collection::vec(0..100u32, 2),
        declared in any::<bool>(),
    ) {
        let topology = net("c1-1 c2-2 1-3 2-3 3-4 4-s1");
        let capacity: BTreeMap<SwitchId, u32> = (1..).zip(room).collect();
        let traffic: Vec<Flow> =
            (1..).zip(&rates).map(|(c, rate)| flow(c, 1, f64::from(*rate))).collect();
        let (clients, stores) = ([client(1), client(2)], [store(1)]);
        let wish = Wish {
            clients: if declared { &clients } else { &[] },
            stores: &stores,
            traffic: &traffic,
            ..wish(policy, quota)
        };
        let placement = place(&wish, &topology, &capacity);
        let placed: u32 = placement.rooms.iter().map(|(_, n)| n).sum();
        prop_assert_eq!(placed + placement.unplaced, quota);
        prop_assert!(placement.rooms.iter().all(|(id, n)| *n > 0 && *n <= capacity[id]));
        let all: u32 = capacity.values().sum();
        if declared && policy != Policy::Measured {
            prop_assert_eq!(placed, quota.min(all));
        }
        // Placed once, it stays.
        let now: BTreeMap<SwitchId, u32> = placement.rooms.iter().copied().collect();
        let again = place(&Wish { now: &now, ..wish }, &topology, &capacity);
        prop_assert_eq!(&again.rooms, &placement.rooms);
    }

    #[test]
    fn near_client_is_never_further_from_the_client(quota in 1..60u32, room in proptest::collection::vec(0..20u32, 3)) {
        let topology = net("c1-1 1-2 2-3 3-s1");
        let capacity: BTreeMap<SwitchId, u32> = (1..).zip(room).collect();
        let (clients, stores) = ([client(1)], [store(1)]);
        let distance = |policy| {
            let wish = Wish { clients: &clients, stores: &stores, ..wish(policy, quota) };
            let rooms = place(&wish, &topology, &capacity).rooms;
            rooms.into_iter().map(|(id, n)| u32::from(id) * n).sum::<u32>()
        };
        let near = distance(Policy::NearClient);
        prop_assert!(near <= distance(Policy::EvenSplit));
        prop_assert!(near <= distance(Policy::Measured));
        prop_assert!(distance(Policy::EvenSplit) <= distance(Policy::NearStore));
    }
}
