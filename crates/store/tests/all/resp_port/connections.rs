//! What becomes of what a client has said of itself, on the connections to Redis that are made for
//! it one after the other.

use std::io::Read;

use store::Config;

use super::{Whole, config};
use crate::support::{
    PATIENCE, StoreThread,
    others::Outsider,
    servers::{redis, redis_command, redis_with, start_at, until},
};

#[test]
fn a_client_is_in_the_stores_database_whatever_it_says_of_itself() {
    let server = redis_with(&["--requirepass", "pw"]);
    let backend = format!("redis://:pw@127.0.0.1:{}/3", server.port).parse().unwrap();
    let store = StoreThread::start(Config { backend, ..config(&server) });
    let mut outsider = Outsider::of(&server);
    outsider.command("AUTH pw");
    let mut client = Whole::at(store.port.unwrap());
    let mut says = |line: &str| client.command(line, || {});
    let mut third_has = |value: &str| {
        outsider.command("SELECT 3");
        let answer = outsider.command("GET k");
        assert_eq!(answer, format!("${}\r\n{value}\r\n", value.len()));
    };
    assert_eq!(says("AUTH pw"), b"+OK\r\n");
    assert_eq!(says("SET k first"), b"+OK\r\n");
    third_has("first");
    assert_eq!(says("RESET"), b"+RESET\r\n");
    assert!(says("HELLO 3 AUTH default pw").starts_with(b"%"));
    assert_eq!(says("SET k second"), b"+OK\r\n");
    third_has("second");
    // Where it has chosen one itself it stays.
    assert_eq!(says("SELECT 5"), b"+OK\r\n");
    assert_eq!(says("AUTH pw"), b"+OK\r\n");
    assert_eq!(says("GET k"), b"_\r\n");
    assert_eq!(says("RESET"), b"+RESET\r\n");
    assert_eq!(says("AUTH pw"), b"+OK\r\n");
    assert_eq!(says("GET k"), b"$6\r\nsecond\r\n");
}

#[test]
fn who_is_no_user_of_the_next_redis_is_sent_away() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    Outsider::of(&server).command("ACL SETUSER someone on nopass ~* +@all");
    let mut client = Whole::at(store.port.unwrap());
    assert_eq!(client.command("AUTH someone x", || {}), b"+OK\r\n");
    assert_eq!(client.command("SET k v", || {}), b"+OK\r\n");
    let _server = start_at(server.stop(), redis_command);
    client.0.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.0.read(&mut [0; 64]).unwrap(), 0, "it would be somebody else from here on");
}

#[test]
fn clients_for_whom_redis_has_no_room_are_told_so_and_wait() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut outsider = Outsider::of(&server);
    let mut other = Whole::at(store.port.unwrap());
    assert_eq!(other.command("SET k v", || {}), b"+OK\r\n");
    assert_eq!(outsider.command("CONFIG SET maxclients 1"), "+OK\r\n");
    let mut client = Whole::at(store.port.unwrap());
    let told = client.command("GET k", || {});
    assert!(told.starts_with(b"-TRYAGAIN nothing was done: "), "{}", told.escape_ascii());
    assert_eq!(other.command("GET k", || {}), b"$1\r\nv\r\n");
    assert_eq!(outsider.command("CONFIG SET maxclients 1000"), "+OK\r\n");
    until("a connection", || client.command("GET k", || {}) == b"$1\r\nv\r\n");
}
