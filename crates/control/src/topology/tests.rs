//! What a topology knows from the switches' interfaces and from a declaration, and the ways that it
//! finds: topologies are written as lines of text.

use proptest::prelude::*;

use super::*;

/// Interfaces from `name=address/length,...`; `-` before the name: down.
fn interfaces(text: &str) -> Vec<Interface> {
    let interface = |part: &str| {
        let (name, addresses) = part.split_once('=').unwrap();
        Interface {
            name: name.trim_start_matches('-').into(),
            up: !name.starts_with('-'),
            addresses: addresses.split(',').map(|a| a.parse().unwrap()).collect(),
            ..Interface::default()
        }
    };
    text.split_whitespace().map(interface).collect()
}

fn learned(switches: &[(SwitchId, &str)]) -> Topology {
    let mut topology = Topology::default();
    for (id, text) in switches {
        topology.learn(*id, &format!("s{id}"), interfaces(text));
    }
    topology
}

/// The switches from a client to a store, where it is known how packets go.
fn switches_on_path(topology: &Topology, client: IpAddr, store: IpAddr) -> Option<Vec<SwitchId>> {
    let (from, to) = (topology.attachment(client)?, topology.attachment(store)?);
    let path = topology.path(&from, &to)?;
    Some(path.iter().filter_map(NodeId::switch).collect())
}

/// Links on the shortest path.
fn hops(topology: &Topology, from: &NodeId, to: &NodeId) -> Option<u32> {
    Some(topology.path(from, to)?.len() as u32 - 1)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A client at 10.0.1.x, a store at 10.0.2.x, and three switches in between.
fn line() -> Topology {
    learned(&[
        (1, "c=10.0.1.254/24 r=10.1.0.1/30,fd01::1/64,fe80::1/64"),
        (2, "l=10.1.0.2/30,fd01::2/64,fe80::2/64 r=10.2.0.1/30 lo=127.0.0.1/8"),
        (3, "l=10.2.0.2/30 s=10.0.2.254/24,fd02::1/64 lo=127.0.0.1/8 v=10.9.9.9/32"),
    ])
}

fn route_text(topology: &Topology, id: SwitchId) -> Vec<String> {
    let route = |r: &Route| format!("{} {} {}", r.prefix, r.via, r.interface);
    topology.routes()[&id].iter().map(route).collect()
}

/// Two leaves below two spines.
fn two_paths() -> [(SwitchId, &'static str); 4] {
    [
        (1, "c=10.0.1.254/24 a=10.1.0.1/30 b=10.3.0.1/30"),
        (2, "a=10.2.0.2/30 b=10.4.0.2/30 s=10.0.2.254/24"),
        (3, "a=10.1.0.2/30 b=10.2.0.1/30"),
        (4, "a=10.3.0.2/30 b=10.4.0.1/30"),
    ]
}

#[test]
fn a_silent_link_is_the_way_of_last_resort() {
    let mut topology = learned(&two_paths());
    let way = |topology: &Topology| {
        let routes = route_text(topology, 1);
        let to_store = routes.into_iter().find(|r| r.starts_with("10.0.2.0/24"));
        (switches_on_path(topology, ip("10.0.1.1"), ip("10.0.2.1")).unwrap(), to_store.unwrap())
    };
    let first = (vec![1, 3, 2], "10.0.2.0/24 10.1.0.2 a".to_owned());
    let second = (vec![1, 4, 2], "10.0.2.0/24 10.3.0.2 b".to_owned());
    let hears = |topology: &mut Topology, id: SwitchId, on: &str, silent: &[SwitchId]| {
        let mut ports = interfaces(two_paths()[usize::from(id) - 1].1);
        let port = ports.iter_mut().find(|port| port.name == on).unwrap();
        port.silent = silent.into();
        topology.learn(id, "", ports);
    };
    assert_eq!(way(&topology), first);
    let all = topology.links_up();
    // Either end may be the one that says it.
    for (id, on, far) in [(1, "a", 3), (3, "a", 1)] {
        hears(&mut topology, id, on, &[far]);
        assert_eq!(way(&topology), second);
        assert_eq!(all.difference(&topology.links_up()).count(), 1);
        hears(&mut topology, id, on, &[]);
        assert_eq!(way(&topology), first);
    }
    // Both ways: what is left is as good as the other.
    hears(&mut topology, 3, "a", &[1]);
    hears(&mut topology, 4, "a", &[1]);
    assert_eq!(way(&topology), first);
    // Another switch's silence on the same wire is no affair of these two.
    hears(&mut topology, 3, "a", &[9]);
    assert_eq!(way(&topology), first);
}

#[test]
fn neighbours_are_those_across_a_wire_once_each() {
    let of = |topology: &Topology, id| -> Vec<String> {
        let neighbours = topology.neighbours();
        let text = |n: &Neighbour| format!("{} {} {}", n.switch, n.address, n.interface);
        neighbours[&id].iter().map(text).collect()
    };
    let topology = line();
    assert_eq!(of(&topology, 1), ["2 10.1.0.2 r"]);
    assert_eq!(of(&topology, 2), ["1 10.1.0.1 l", "3 10.2.0.2 r"]);
    assert_eq!(of(&learned(&two_paths()), 1), ["3 10.1.0.2 a", "4 10.3.0.2 b"]);
}

#[test]
fn a_learned_line() {
    let mut topology = line();
    let (client, store) = (ip("10.0.1.1"), ip("10.0.2.1"));
    assert_eq!(switches_on_path(&topology, client, store), Some(vec![1, 2, 3]));
    assert_eq!(switches_on_path(&topology, store, client), Some(vec![3, 2, 1]));
    assert_eq!(topology.attachment(ip("::ffff:10.0.1.9")), Some(NodeId::Switch(1)));
    assert_eq!(topology.attachment(ip("10.1.0.2")), Some(NodeId::Switch(2)), "its own");
    assert_eq!(topology.attachment(ip("10.7.0.1")), None);
    assert_eq!(topology.attachment(ip("127.0.0.1")), None);
    assert_eq!(hops(&topology, &NodeId::Switch(1), &NodeId::Switch(3)), Some(2));
    assert_eq!(
        route_text(&topology, 1),
        ["10.0.2.0/24 10.1.0.2 r", "10.2.0.0/30 10.1.0.2 r", "10.9.9.9/32 10.1.0.2 r"],
        "no IPv6 route: switches 2 and 3 share no IPv6 subnet"
    );
    let expected = ["10.0.1.0/24 10.1.0.1 l", "10.0.2.0/24 10.2.0.2 r", "10.9.9.9/32 10.2.0.2 r"];
    assert_eq!(route_text(&topology, 2), expected);
    assert_eq!(route_text(&topology, 3)[2..], [] as [String; 0]);
    // Nothing changes.
    assert!(!topology.learn(3, "s3", topology.switches[&3].interfaces.clone()));
    // An interface goes down, at one end.
    assert!(topology.learn(2, "s2", interfaces("l=10.1.0.2/30 -r=10.2.0.1/30")));
    assert_eq!(switches_on_path(&topology, client, store), None);
    assert_eq!(route_text(&topology, 1), [] as [String; 0], "what is behind is out of reach");
}

#[test]
fn the_other_way_round_a_square_when_a_link_or_switch_is_down() {
    let switches = [
        (1, "a=10.0.12.1/24 b=10.0.13.1/24 c=10.0.1.254/24"),
        (2, "a=10.0.12.2/24 b=10.0.24.2/24"),
        (3, "a=10.0.13.3/24 b=10.0.34.3/24"),
        (4, "a=10.0.24.4/24 b=10.0.34.4/24 s=10.0.4.254/24"),
    ];
    let mut topology = learned(&switches);
    // Interfaces as above, or all of them down.
    let report = |t: &mut Topology, id: SwitchId, up: bool| {
        let text = switches[usize::from(id) - 1].1;
        let mut told = interfaces(text);
        told.iter_mut().for_each(|i| i.up = up);
        t.learn(id, &format!("s{id}"), told)
    };
    let path = |t: &Topology| switches_on_path(t, ip("10.0.1.1"), ip("10.0.4.1"));
    let route = |t: &Topology| route_text(t, 1)[0].clone();
    assert_eq!(path(&topology), Some(vec![1, 2, 4]), "the lower of two equal ones");
    assert_eq!(route(&topology), "10.0.4.0/24 10.0.12.2 a");
    // One end of the link between 2 and 4 is down.
    let down = interfaces("a=10.0.12.2/24 -b=10.0.24.2/24");
    assert!(topology.learn(2, "s2", down.clone()));
    assert!(!topology.learn(2, "s2", down));
    assert_eq!(path(&topology), Some(vec![1, 3, 4]));
    assert_eq!(route(&topology), "10.0.4.0/24 10.0.13.3 b");
    assert!(report(&mut topology, 2, true));
    assert_eq!(path(&topology), Some(vec![1, 2, 4]));
    assert!(report(&mut topology, 2, false));
    assert_eq!(path(&topology), Some(vec![1, 3, 4]));
    assert_eq!(route_text(&topology, 2), [] as [String; 0]);
    assert!(report(&mut topology, 3, false));
    assert_eq!(path(&topology), None);
    let down = topology.view().links.iter().filter(|l| !l.up).count();
    assert_eq!(down, 4);
}

/// A core with two switches below it; a client at both of these, a store at the core.
fn tree() -> DeclaredTopology {
    let switch = |id, name: &str| DeclaredSwitch { id, name: name.into() };
    let host = |name: &str, address: &[&str]| DeclaredHost {
        name: name.into(),
        address: address.iter().map(|a| ip(a)).collect(),
        network: vec![],
    };
    let link = |a: &str, b: &str, cost| DeclaredLink { ends: [a.into(), b.into()], cost };
    let declared = DeclaredTopology {
        switches: vec![switch(1, "core"), switch(2, "left"), switch(3, "right")],
        hosts: vec![
            host("client", &["10.0.2.1", "fd00::1"]),
            host("store", &["10.0.1.1"]),
            host("nowhere", &["10.0.3.1"]),
        ],
        links: vec![
            link("client", "left", 1),
            link("client", "right", 5),
            link("core", "left", 3),
            link("core", "right", 1),
            link("store", "core", 1),
        ],
    };
    assert_eq!(declared.check(), Ok(()));
    declared
}

#[test]
fn a_declared_tree_and_what_is_learned_beside_it() {
    let mut topology = Topology::new(tree());
    let (client, store) = (ip("10.0.2.1"), ip("10.0.1.1"));
    assert_eq!(switches_on_path(&topology, client, store), Some(vec![2, 1]));
    assert_eq!(switches_on_path(&topology, ip("fd00::1"), store), Some(vec![2, 1]));
    assert_eq!(switches_on_path(&topology, ip("10.0.3.1"), store), None);
    // A cheaper link that was not declared is used too; a host does not forward.
    topology.learn(2, "tor-2", interfaces("r=10.9.0.2/24 c=10.8.0.2/24"));
    assert_eq!(
        hops(&topology, &NodeId::Switch(2), &NodeId::Switch(3)),
        Some(2),
        "over the core, not over the client"
    );
    topology.learn(3, "tor-3", interfaces("l=10.9.0.3/24 h=10.0.3.254/24"));
    assert_eq!(switches_on_path(&topology, client, store), Some(vec![2, 3, 1]));
    assert_eq!(topology.attachment(ip("10.0.3.1")), Some(NodeId::Host("nowhere".into())));
    assert_eq!(switches_on_path(&topology, ip("10.0.3.1"), store), Some(vec![3, 1]));
    // A declared link is down as far as interfaces say so, and keeps its cost.
    topology.learn(1, "", interfaces("-l=10.8.0.1/24"));
    let view = topology.view();
    let link = view.links.iter().find(|l| l.ends == ["core", "left"]).unwrap();
    assert_eq!((link.cost, link.up, link.source), (3, false, Source::Declared));
    let link = view.links.iter().find(|l| l.ends == ["left", "right"]).unwrap();
    assert_eq!((link.cost, link.up, link.source), (1, true, Source::Learned));
}

#[test]
fn subnets_that_are_only_numbered_alike_link_nothing() {
    let topology = learned(&[
        (1, "br=172.17.0.1/16 a=fe80::1/64 v=10.9.9.1/32"),
        (2, "br=172.17.0.1/16 a=fe80::2/64 v=10.9.9.2/32"),
    ]);
    assert_eq!(topology.view().links, []);
    assert_eq!(topology.path(&NodeId::Switch(1), &NodeId::Switch(2)), None);
}

#[test]
fn a_shared_subnet_belongs_to_the_switch_that_sees_the_address() {
    let mut topology = learned(&[(1, "a=10.0.0.1/24"), (2, "a=10.0.0.2/24")]);
    assert_eq!(topology.attachment(ip("10.0.0.9")), Some(NodeId::Switch(1)));
    let mut seen = interfaces("a=10.0.0.2/24");
    seen[0].neighbours.push(ip("10.0.0.9"));
    topology.learn(2, "s2", seen);
    assert_eq!(topology.attachment(ip("10.0.0.9")), Some(NodeId::Switch(2)));
}

proptest! {
    /// Random graphs of eight switches: routes lead to where they should, in as many steps as the
    /// path has.
    #[test]
    fn routes_follow_the_shortest_paths(
        edges in proptest::collection::btree_set((1..9u16, 1..9u16), 0..16),
        down in 0..9u16,
    ) {
        let mut topology = Topology::default();
        for id in 1..9u16 {
            let mut text = format!("h=10.0.{id}.254/24");
            for (a, b) in edges.iter().filter(|(a, b)| a < b && (id == *a || id == *b)) {
                text += &format!(" e{a}-{b}=10.{a}.{b}.{id}/24");
            }
            let mut told = interfaces(&text);
            told.iter_mut().for_each(|i| i.up = id != down);
            topology.learn(id, "", told);
        }
        let routes = topology.routes();
        for (from, to) in (1..9u16).flat_map(|a| (1..9).map(move |b| (a, b))) {
            if from == to || from == down || to == down {
                continue;
            }
            let prefix = format!("10.0.{to}.0/24").parse::<IpNet>().unwrap();
            let mut at = from;
            let mut steps = 0;
            while at != to && steps < 9 {
                let Some(route) = routes[&at].iter().find(|r| r.prefix == prefix) else { break };
                let IpAddr::V4(via) = route.via else { unreachable!() };
                at = u16::from(via.octets()[3]);
                steps += 1;
            }
            let hops = hops(&topology, &NodeId::Switch(from), &NodeId::Switch(to));
            prop_assert_eq!((at == to).then_some(steps), hops);
        }
    }
}
