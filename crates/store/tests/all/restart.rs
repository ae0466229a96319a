//! A store that is stopped, and the next one over the same data.

use std::{fs, time::Duration};

use store::Config;
use wire::{Header, Op, Status};

use super::support::{self, Client, StoreThread, servers::redis};

/// What the first store leaves makes the difference, and nothing else: without it the next one
/// takes no writes for a minute.
#[test]
fn after_a_store_that_ended_in_order_the_next_one_takes_writes_at_once() {
    let server = redis();
    let state = tempfile::tempdir().unwrap();
    let config = |born_ago| Config {
        backend: format!("redis://127.0.0.1:{}", server.port).parse().unwrap(),
        state: Some(state.path().into()),
        born_ago,
        ..support::loopback()
    };
    let first = StoreThread::start(config(support::loopback().born_ago));
    let written = Client::to(first.address).write(b"k", b"1").header;
    assert_eq!(written.status, Status::Ok);
    first.end();
    let left = state.path().join("ended");
    assert!(left.exists());

    let second = StoreThread::start(config(Duration::ZERO));
    assert!(!left.exists(), "it holds once");
    let mut client = Client::to(second.address);
    assert_eq!(client.read(b"k").value, b"1");
    let again = client.ask(Header::new(Op::WriteRequest), b"k", b"2", 0).header;
    assert_eq!((again.status, again.life), (Status::Ok, written.life), "the same life");
    assert!(again.version > written.version);
    second.end();

    // One that was killed leaves nothing.
    fs::remove_file(&left).unwrap();
    let third = StoreThread::start(config(Duration::ZERO));
    let mut client = Client::to(third.address);
    let refused = client.ask(Header::new(Op::WriteRequest), b"k", b"3", 0).header;
    assert_eq!(refused.status, Status::TryAgain);
    assert_ne!(refused.life, written.life);
    assert_eq!(client.read(b"k").value, b"2");
    third.end();
    assert!(!left.exists(), "it waited itself");
}
