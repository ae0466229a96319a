//! What a loop keeps of its clients and servers, which nobody sees from outside.

use std::sync::Arc;

use ::client::Memory;
use wire::{Cluster, Store};

use super::{
    client::Way, commands::Command, dispatch::CommandText, joint::Join, spread::Spread,
    upstream::Waiter, upstreams::direct_lane, *,
};
use crate::{Limits, names::Names};

/// A loop with two stores, whose servers say nothing, and a client.
fn with_client() -> (EventLoop, usize) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap();
    let names = Arc::new(Names::new(crate::system_resolver));
    let mut shared =
        GatewayState::new(Limits::default(), Memory::new(0), Arc::default(), listen, names);
    shared.sharers = 2;
    let stores = [0, 1].map(|at| Store::new(([127, 0, 0, 1], 1 + at as u16).into(), at, at));
    let single = Cluster::single(listen, 2);
    let cluster = Cluster { stores: stores.to_vec(), ..single };
    let target = |name: &str| Target {
        name: name.into(),
        role: "the store",
        place: Place::Tcp(listen),
        named: None,
        trust: None,
        login: None,
        database: 0,
    };
    let port = StorePort { store: target("store"), direct: Some(target("direct")) };
    let parts = Parts {
        listener: listener.try_clone().unwrap(),
        acceptor: None,
        ports: vec![port; 2],
        owners: Owners::new(&cluster, wire::TENANT_OPEN, &[0, 1]),
        tenant: None,
        network: None,
        local: None,
        stores: vec![],
        strings: None,
        shared: Arc::new(shared),
    };
    let (mut event_loop, _) = EventLoop::new(parts).unwrap();
    let near = std::net::TcpStream::connect(listen).unwrap();
    near.set_nonblocking(true).unwrap();
    event_loop.take_in(TcpStream::from_std(near), listen);
    (event_loop, 0)
}

#[test]
fn what_a_client_asked_several_stores_goes_with_it() {
    let (mut event_loop, at) = with_client();
    event_loop.open_all(at);
    let command = event_loop.commands.find(b"mget");
    let parts = vec![(0, b"PING\r\n".to_vec()), (1, b"PING\r\n".to_vec())];
    event_loop.by_several(at, false, command, Spread { parts, how: Join::First });
    assert_eq!(event_loop.joints.len(), 1);
    event_loop.close(at);
    assert_eq!((event_loop.joints.len(), event_loop.upstreams.len()), (0, 0));
}

/// By another connection it would be carried out first, or not.
#[test]
fn what_comes_behind_a_read_that_the_network_did_not_answer_goes_the_same_way() {
    let (mut event_loop, at) = with_client();
    let (now_ns, run_id) = (kit::now_ns(), Some("run".to_string()));
    let speaker = event_loop.clients[at].speaker();
    let key = (0..).map(|number| format!("k{number}")).find(|key| {
        let key = key.as_bytes();
        event_loop.owners.port_of(key) == 0
    });
    let key = key.unwrap();
    for lane in [direct_lane(false), direct_lane(true)] {
        let direct = event_loop.common(2, speaker, lane);
        event_loop.revive(direct);
        let known = &mut event_loop.upstreams[direct].known;
        (known.run_id, known.master) = (run_id.clone(), Some(now_ns));
    }
    (event_loop.stores[0].run_id, event_loop.stores[0].run_id_asked) = (run_id, Some(now_ns));
    // It wrote by another connection before.
    event_loop.clients[at].lane = direct_lane(true);
    let get = event_loop.commands.find(b"get");
    let answer = event_loop.clients[at].place(Way::Network, 1, false);
    let number = event_loop.clients[at].number;
    let pending = event_loop.pending(Waiter::Client { place: at, number, answer }, get);
    event_loop.read_upstream_instead(pending, key.as_bytes());
    assert_eq!(event_loop.clients[at].under_way(Way::Direct), 1);
    let line = format!("LPUSH {key} 1\r\n");
    let (mut parser, mut skipped) = (RequestParser::default(), 0);
    let limits = resp::Limits::default();
    let request = parser.next(line.as_bytes(), &limits, &mut skipped).unwrap().unwrap();
    let said = CommandText { bytes: line.as_bytes(), words: request.words };
    let write = Command { writes: true, ..get };
    event_loop.by(at, Way::Direct, 0, write, said, 0);
    let asked = event_loop.upstreams.iter().map(|(_, upstream)| {
        let waiters = upstream.pending.iter().map(|pending| pending.waiter);
        waiters.filter(|waiter| matches!(waiter, Waiter::Client { .. })).count()
    });
    assert_eq!(asked.max(), Some(2));
}

#[test]
fn who_holds_too_much_at_another_loop_ends_nobody_here() {
    let (mut event_loop, at) = with_client();
    let most = event_loop.shared.most_held;
    event_loop.shared.hold(most);
    event_loop.clients[at].input = vec![0; most / 8];
    event_loop.count(at);
    assert!(event_loop.clients.contains(at));
    event_loop.shared.release(most);
    // Room that it has, and more than this loop's share.
    event_loop.clients[at].input.reserve(most / 2);
    event_loop.count(at);
    event_loop.keep_within();
    assert!(event_loop.clients.contains(at));
    // Others come to what is left of it, and nothing happens here.
    event_loop.shared.hold(most / 2);
    event_loop.keep_within();
    assert!(!event_loop.clients.contains(at));
    assert_eq!((event_loop.held, event_loop.shared.held()), (0, most / 2));
}
