//! The RESP port before a real Redis: any command, answered as Redis answers it, and no copy
//! survives one that changed its key.

use store::Config;

use super::support::{
    self, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, redis},
};

fn config(server: &Process) -> Config {
    Config {
        backend: format!("redis://127.0.0.1:{}", server.port).parse().unwrap(),
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    }
}

/// A client of a store's RESP port.
fn client(store: &StoreThread) -> Outsider {
    Outsider::at(store.resp.expect("a RESP port"))
}

#[test]
fn a_write_is_answered_when_its_keys_copy_has_gone() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = client(&store);
    assert_eq!(client.command("SET k before"), "+OK\r\n");
    assert_eq!(client.command("GET k"), "$6\r\nbefore\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"before");
    client.send("SET k after");
    switch.loses(b"k", "SET by the RESP port");
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(switch.copy(b"k"), b"after");
}
