//! What becomes of what a client has said of itself, on the connections to Redis that are made for
//! it one after the other.

use std::{
    io::{Read, Write},
    net::Shutdown,
    time::{Duration, Instant},
};

use store::Config;
use wire::{Op, Status};

use super::{Whole, config};
use crate::support::{
    Client, PATIENCE, StoreThread,
    others::{Outsider, Switch},
    servers::{asked, redis, redis_command, redis_with, start_at, until},
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

/// Whoever reaches the port would have all copies called back by what Redis refuses.
#[test]
fn who_has_not_logged_in_has_no_copy_called_back() {
    let server = redis_with(&["--requirepass", "pw"]);
    let backend = format!("redis://:pw@127.0.0.1:{}", server.port).parse().unwrap();
    let store = StoreThread::start(Config { backend, ..config(&server) });
    let mut outsider = Outsider::of(&server);
    outsider.command("AUTH pw");
    outsider.command("SET k v");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"v");
    let mut client = Whole::at(store.port.unwrap());
    let is_called_back = |switch: &Switch| {
        let heard = std::iter::from_fn(|| switch.hear());
        heard.take(16).any(|(header, ..)| header.op == Op::Invalidate)
    };
    for line in ["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "SET k w", "DEL k", "FLUSHALL"] {
        let told = client.command(line, || assert!(!is_called_back(&switch), "{line}"));
        assert!(told.starts_with(b"-NOAUTH "), "{line}: {}", told.escape_ascii());
    }
    assert!(!is_called_back(&switch));
    // A password that is not wanted any more is not wanted on this connection either.
    outsider.command("CONFIG SET requirepass \"\"");
    assert_eq!(client.command("APPEND j w", || {}), b":1\r\n");
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

/// Gateways may read at the one before, past the store, for as long as they were told so by it.
#[test]
fn nothing_is_written_at_another_master_while_the_word_of_the_one_before_may_hold() {
    let master = redis();
    let replica = redis_with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    until("it does not follow", || {
        asked(&replica, "INFO replication").contains("master_link_status:up")
    });
    let both = [&master, &replica].map(|one| format!("redis://127.0.0.1:{}", one.port)).join(",");
    let store = StoreThread::start(Config { backend: both.parse().unwrap(), ..config(&master) });
    let mut client = Outsider::at(store.port.unwrap());
    let told = Instant::now();
    assert!(client.command("INFO server").contains("run_id"));
    asked(&replica, "REPLICAOF NO ONE");
    asked(&master, &format!("REPLICAOF 127.0.0.1 {}", replica.port));
    until("nothing is written", || client.command("SET k v") == "+OK\r\n");
    assert_eq!(asked(&replica, "GET k"), "$1\r\nv\r\n");
    assert!(told.elapsed() > resp::MASTER_HOLDS, "{:?}", told.elapsed());
}

#[test]
fn what_redis_never_answers_is_not_counted_for_an_answer() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = Whole::at(store.port.unwrap());
    client.0.write_all(b"REPLCONF GETACK *\r\nREPLCONF capa eof ACK 0\r\n").unwrap();
    assert_eq!(client.command("SET k v", || {}), b"+OK\r\n");
    assert_eq!(client.command("MULTI", || {}), b"+OK\r\n");
    for line in ["REPLCONF GETACK *", "MONITOR"] {
        assert!(client.command(line, || {}).starts_with(b"-ERR "), "{line}");
    }
    assert_eq!(client.command("SET k w", || {}), b"+QUEUED\r\n");
    assert_eq!(client.command("EXEC", || {}), b"*1\r\n+OK\r\n");
    let mut writer = Client::to(store.address);
    assert_eq!(writer.write(b"k", b"v").header.status, Status::Ok);
}

/// Redis finds no end of such a line, and would never answer it.
#[test]
fn a_line_with_a_zero_byte_holds_nothing() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = Whole::at(store.port.unwrap());
    let told = client.command("FLUSHALL\0", || {});
    assert!(told.starts_with(b"-ERR Protocol error"), "{}", told.escape_ascii());
    drop(client);
    let mut writer = Client::to(store.address);
    assert_eq!(writer.write(b"k", b"v").header.status, Status::Ok);
}

#[test]
fn what_redis_does_not_answer_is_not_waited_for_when_its_client_has_gone() {
    let server = redis();
    let config = Config { backend_within: Duration::from_secs(1), ..config(&server) };
    let store = StoreThread::start(config);
    let mut outsider = Outsider::of(&server);
    let mut client = Whole::at(store.port.unwrap());
    client.command("GET k", || {});
    // Whom Redis puts off it does not answer, and others it does.
    outsider.command("CLIENT PAUSE 1000000 WRITE");
    client.0.write_all(b"SET k v\r\n").unwrap();
    until("Redis has it", || outsider.command("INFO clients").contains("blocked_clients:1"));
    drop(client);
    until("it is given up", || outsider.command("INFO clients").contains("blocked_clients:0"));
    outsider.command("CLIENT UNPAUSE");
    // It has been ended, so its key is free, and has the value of before.
    let mut other = Whole::at(store.port.unwrap());
    assert_eq!(other.command("APPEND k w", || {}), b":1\r\n");
}

/// Of a slow command the answer is waited for, as Redis is in the midst of it.
#[test]
fn a_client_that_has_said_its_last_waits_for_a_slow_script() {
    let server = redis_with(&["--lua-time-limit", "1"]);
    let config = Config { backend_within: Duration::from_millis(500), ..config(&server) };
    let store = StoreThread::start(config);
    let mut client = Whole::at(store.port.unwrap());
    client.command("GET k", || {});
    let script = "EVAL \"local to = redis.call('time')[1] + 3 \
        while tonumber(redis.call('time')[1]) < to do end \
        return redis.call('set', KEYS[1], 'v')\" 1 k\r\n";
    client.0.write_all(script.as_bytes()).unwrap();
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer("EVAL", || {}), b"+OK\r\n");
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
