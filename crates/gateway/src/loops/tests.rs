//! What a loop keeps of its clients and servers, which nobody sees from outside.

use std::sync::Arc;

use ::client::Memory;
use wire::{Cluster, Store};

use super::{joint::Join, spread::Spread, *};
use crate::{Limits, names::Names};

/// A loop with two stores, whose servers say nothing, and a client.
fn with_client() -> (EventLoop, usize) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap();
    let names = Arc::new(Names::new(crate::system_resolver));
    let shared =
        GatewayState::new(Limits::default(), Memory::new(0), Arc::default(), listen, names);
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
