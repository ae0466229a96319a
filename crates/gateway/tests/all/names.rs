//! A gateway whose server has a name, which comes to mean another address.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

use lab::port;

use super::support::{Config, Gateway, Redis, config, until};

/// The port at which the name is.
static AT: AtomicU16 = AtomicU16::new(0);

fn resolver(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    assert_eq!((name, port), ("cache.test", 6379));
    Ok(vec![SocketAddr::from(([127, 0, 0, 1], AT.load(Relaxed)))])
}

#[test]
fn a_server_is_asked_where_its_name_leads_while_the_one_before_goes_on() {
    let held = [port::held(), port::held()];
    let servers = held.each_ref().map(|held| Redis::start(&["--port", &held.number.to_string()]));
    AT.store(held[0].number, Relaxed);
    let gateway = Gateway::start(Config { resolver, ..config("redis://cache.test:6379") });
    let mut client = gateway.speak();
    assert_eq!(client.ask("SET k one"), "+OK\r\n");
    assert_eq!(servers[0].speak().ask("GET k"), "$3\r\none\r\n");
    assert_eq!(servers[1].speak().ask("SET k two"), "+OK\r\n");
    AT.store(held[1].number, Relaxed);
    until("the name is not followed", || client.ask("GET k") == "$3\r\ntwo\r\n");
    assert_eq!(client.ask("SET l here"), "+OK\r\n");
    assert_eq!(servers[1].speak().ask("GET l"), "$4\r\nhere\r\n");
}
