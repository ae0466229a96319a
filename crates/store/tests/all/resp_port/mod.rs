//! The RESP port before a real Redis: any command, answered as Redis answers it, and no copy
//! survives one that changed its key.

mod connections;
mod rows;

use std::{
    collections::BTreeSet,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use resp::ReplyScanner;
use store::{
    Config, OutsideWrites,
    mutants::Mutant::{
        self, EverythingWithCopies, ExecKeyForgotten, GrantDuringWrite, HoldForgotten,
        HoldLetGoEarly, NotHeld,
    },
};
use wire::{Flags, Op};

use super::support::{
    self, PATIENCE, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, redis, redis_command, redis_with, start_at},
};
use rows::{NOT_SENT, ROWS};

fn config(server: &Process) -> Config {
    Config {
        backend: format!("redis://127.0.0.1:{}", server.port).parse().unwrap(),
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    }
}

/// A client of a store's RESP port.
fn client(store: &StoreThread) -> Outsider {
    Outsider::at(store.port.expect("a RESP port"))
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

/// COMMAND tells of a command by the name that it had before its operator gave it another.
#[test]
fn a_command_that_was_renamed_is_carried_out_when_copies_have_gone() {
    let server = redis_with(&["--rename-command", "SET", "put"]);
    let store = StoreThread::start(config(&server));
    let mut client = client(&store);
    assert_eq!(client.command("put k before"), "+OK\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"before");
    client.send("PUT k after");
    switch.loses(b"k", "PUT by the RESP port");
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(switch.copy(b"k"), b"after");
    // What Redis does not know it does not carry out.
    assert!(client.command("nosuch k").starts_with("-ERR unknown command"));
    assert_eq!(switch.fetch(b"k").1, b"after");
}

/// Nobody knows what a script has done whose answer is lost, and who asked must not have it done
/// twice.
#[test]
fn a_script_without_an_answer_may_have_been_carried_out() {
    let server = redis_with(&["--lua-time-limit", "1"]);
    let store = StoreThread::start(config(&server));
    let (mut client, mut other) = (client(&store), Outsider::of(&server));
    assert_eq!(client.command("PING"), "+PONG\r\n");
    client.send("EVAL \"while true do end\" 0");
    let deadline = Instant::now() + PATIENCE;
    while !other.command("PING").starts_with("-BUSY ") {
        assert!(Instant::now() < deadline, "Redis has not been asked");
    }
    drop(server);
    let said = client.answer();
    assert!(said.starts_with("-ERR outcome unknown"), "{said}");
}

/// It takes Redis milliseconds to say what commands it has.
#[test]
fn of_many_clients_who_come_at_once_one_has_redis_asked_for_its_commands() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    server.freeze();
    let mut clients: Vec<Outsider> = (0..16).map(|_| client(&store)).collect();
    clients.iter_mut().for_each(|client| client.send("ECHO here"));
    server.thaw();
    for client in &mut clients {
        assert_eq!(client.answer(), "$4\r\nhere\r\n");
    }
    let told = Outsider::of(&server).command("INFO commandstats");
    assert!(told.contains("cmdstat_command:calls=1,"), "{told}");
}

/// A client that reads whole replies, while a switch acknowledges what it is asked to give up.
struct Whole(TcpStream);

impl Whole {
    fn at(server: SocketAddr) -> Whole {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Whole(stream)
    }

    fn of(server: &Process) -> Whole {
        Whole::at(SocketAddr::from(([127, 0, 0, 1], server.port)))
    }

    /// Carries a command out. `waits` is called while there is no answer.
    fn command(&mut self, line: &str, waits: impl FnMut()) -> Vec<u8> {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.answer(line, waits)
    }

    /// Reads an answer.
    fn answer(&mut self, line: &str, mut waits: impl FnMut()) -> Vec<u8> {
        let (mut scanner, mut all) = (ReplyScanner::default(), vec![]);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut byte = [0; 1 << 14];
            match self.0.read(&mut byte) {
                Ok(0) => panic!("{line}: the connection is closed after {all:?}"),
                Ok(len) => {
                    all.extend_from_slice(&byte[..len]);
                    if let Some(reply) = scanner.scan(&byte[..len]).unwrap() {
                        assert_eq!(reply.len, len, "{line}: something behind the answer");
                        return all;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => waits(),
                Err(error) => panic!("{line}: {error}"),
            }
            assert!(Instant::now() < deadline, "{line}: no answer");
        }
    }
}

/// What there is before each row.
const BEFORE: &[&str] = &[
    "MSET k 5 o other",
    "RPUSH l a b c",
    "SADD s a",
    "SADD s2 b",
    "HSET h f 1",
    "ZADD z 1 a 2 b",
    "ZADD z2 1 b",
    "XADD x 1-1 f v",
    "XGROUP CREATE x g 0",
    "GEOADD geo 13.361389 38.115556 here 15.087269 37.502669 far",
    "PFADD p a",
];

/// A Redis behind a store and one alone, which are asked the same.
struct Pair {
    behind: Process,
    alone: Process,
    store: StoreThread,
    switch: Switch,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(None)
    }

    /// Whose store breaks a rule.
    fn with(mutant: Option<Mutant>) -> Pair {
        let behind = redis();
        // Nobody tells of what others write: the holds alone keep copies right.
        let config = Config { outside_writes: OutsideWrites::Ignore, ..config(&behind) };
        let store = StoreThread::broken(config, mutant);
        let switch = Switch::to(store.address);
        switch.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Pair { behind, alone: redis(), store, switch }
    }

    /// Asks both the lines of a row; whether `k` has changed.
    ///
    /// # Errors
    /// A copy of `k` has survived an answer though `k` has changed, or answers differ.
    fn try_row(&mut self, row: &str) -> Result<bool, String> {
        let (row, is_alike) = match row.strip_prefix('~') {
            Some(row) => (row, false),
            None => (row, true),
        };
        self.reset();
        assert_eq!(self.switch.copy(b"k"), b"5");
        let before = self.state();
        let mut has_copy = true;
        let (mut by_store, mut alone) =
            (Whole::at(self.store.port.unwrap()), Whole::of(&self.alone));
        for line in row.split(" ; ") {
            let switch = &mut self.switch;
            let answer = by_store.command(line, || gives_up(switch, &mut has_copy));
            if has_copy {
                let after = self.state();
                if after != before {
                    return Err(format!("{row}: a copy of k survives the answer to {line}"));
                }
            }
            let expected = alone.command(line, || {});
            let (answer, expected) = match is_alike {
                true => (&answer[..], &expected[..]),
                false => (&answer[..1], &expected[..1]),
            };
            if answer != expected {
                let (answer, expected) = (answer.escape_ascii(), expected.escape_ascii());
                return Err(format!("{row}: {line} is answered {answer} and by Redis {expected}"));
            }
        }
        Ok(self.state() != before)
    }

    fn ask(&mut self, row: &str) -> bool {
        self.try_row(row).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Both have what stands in [`BEFORE`], and nobody a copy.
    fn reset(&mut self) {
        let mut has_copy = true;
        let mut client = Whole::at(self.store.port.unwrap());
        let switch = &mut self.switch;
        client.command("FLUSHALL", || gives_up(switch, &mut has_copy));
        for mut server in [Whole::of(&self.behind), Whole::of(&self.alone)] {
            for line in ["FLUSHALL", "FUNCTION FLUSH"].iter().chain(BEFORE) {
                server.command(line, || {});
            }
        }
    }

    /// What is under `k`, and until when.
    fn state(&self) -> [Vec<u8>; 2] {
        let mut server = Whole::of(&self.behind);
        ["DUMP k", "PEXPIRETIME k"].map(|line| server.command(line, || {}))
    }
}

/// A switch gives up what it is asked to give up, if it is.
fn gives_up(switch: &mut Switch, has_copy: &mut bool) {
    if let Some((header, key, _)) = switch.hear()
        && header.op == Op::Invalidate
    {
        *has_copy &= key != b"k";
        switch.acknowledge(&header, &key);
    }
}

/// A row about keys of another type than its commands are for.
fn of_wrong_type(row: &str) -> Option<String> {
    let types = ["l", "s", "s2", "h", "z", "z2", "x", "geo", "p"];
    let is_typed = row.split(' ').skip(1).any(|word| types.contains(&word));
    let other = |word| match word {
        word if is_typed && types.contains(&word) => "k",
        "k" if !is_typed => "l",
        word => word,
    };
    let words: Vec<&str> = row.split(' ').map(other).collect();
    let changed = words.join(" ");
    (changed != row).then_some(changed)
}

#[test]
fn no_copy_survives_the_answer_to_a_command_that_changed_its_key() {
    let mut pair = Pair::new();
    let mut changed = 0;
    for row in ROWS {
        changed += usize::from(pair.ask(row));
        if let Some(row) = of_wrong_type(row) {
            changed += usize::from(pair.ask(&row));
        }
    }
    // Those of strings, of any type, and those with a destination.
    assert!(changed > 80, "{changed} rows changed k");
}

/// What Redis says that it has is in the rows; of a newer one also what no row knows is asked.
#[test]
fn each_command_that_redis_lists_is_asked() {
    let mut pair = Pair::new();
    let mut server = Whole::of(&pair.behind);
    let listed = server.command("COMMAND LIST", || {});
    let listed = String::from_utf8(listed).unwrap();
    let names: BTreeSet<&str> = listed.split("\r\n").skip(2).step_by(2).collect();
    assert!(names.len() > 200, "{names:?}");
    let lines = ROWS.iter().flat_map(|row| row.trim_start_matches('~').split(" ; "));
    let asked: BTreeSet<String> = lines
        .flat_map(|line| {
            let mut words = line.split(' ').map(str::to_lowercase);
            let name = words.next().unwrap_or_default();
            let both = words.next().map(|word| format!("{name}|{word}"));
            [Some(name), both].into_iter().flatten()
        })
        .collect();
    let not_sent = |name: &str| NOT_SENT.iter().any(|(known, _)| *known == name);
    let mut of_no_row = vec![];
    for name in names {
        let container = name.split('|').next().unwrap_or_default();
        let is_known = asked.contains(name) || (container != name && asked.contains(container));
        if !is_known && !not_sent(name) {
            of_no_row.push(name.replace('|', " "));
        }
    }
    // As many words as it may take, all of them the key's name.
    for name in &of_no_row {
        for words in 0..6 {
            pair.ask(&format!("~{name}{}", " k".repeat(words)));
        }
    }
    println!("of no row: {of_no_row:?}");
}

/// The switch acknowledges nothing, and has its lease: whoever answers has not waited for it.
#[test]
fn a_store_that_holds_too_little_is_found_out() {
    let transaction = &["MULTI", "SET k v", "APPEND o x", "EXEC"][..];
    for (mutant, lines) in [
        (NotHeld, &["SET k v"][..]),
        (ExecKeyForgotten, transaction),
        (EverythingWithCopies, &["FLUSHALL"]),
    ] {
        let mut pair = Pair::with(Some(mutant));
        pair.reset();
        assert_eq!(pair.switch.copy(b"k"), b"5");
        let before = pair.state();
        let mut client = Whole::at(pair.store.port.unwrap());
        for line in lines {
            client.command(line, || {});
        }
        assert_ne!(pair.state(), before, "{mutant:?}");
    }
}

/// How often a key is asked for that is held.
const FETCHES: usize = 100;

/// While Redis has a command that it has not carried out, its key is not granted; also when its
/// client has gone. Whether that holds.
fn is_held_until_answered(mutant: Option<Mutant>, client_stays: bool) -> bool {
    let mut pair = Pair::with(mutant);
    pair.reset();
    pair.switch.hold_lease();
    let mut server = Outsider::of(&pair.behind);
    server.command("CLIENT PAUSE 100000 WRITE");
    let mut client = client(&pair.store);
    client.send("SET k v");
    // Redis has it: it is one of the clients that are not carried on with.
    let deadline = Instant::now() + PATIENCE;
    while !server.command("INFO clients").contains("blocked_clients:1") {
        assert!(Instant::now() < deadline, "Redis has not been asked");
    }
    if !client_stays {
        drop(client);
        // The store knows: what comes later on its socket finds it gone.
        let mut other = Outsider::at(pair.store.port.unwrap());
        other.command("PING");
        other.command("PING");
    }
    // One question may be refused for another reason: a key that is held is granted to none of
    // them.
    let is_held = (0..FETCHES).all(|_| {
        let (header, value) = pair.switch.fetch(b"k");
        assert_eq!(value, b"5");
        !header.flags.has(Flags::GRANT)
    });
    server.command("CLIENT UNPAUSE");
    if is_held {
        assert_eq!(pair.switch.copy(b"k"), b"v", "what the command has left");
    }
    is_held
}

#[test]
fn a_key_is_held_until_its_command_is_answered_whether_its_client_stays_or_not() {
    for client_stays in [true, false] {
        assert!(is_held_until_answered(None, client_stays));
    }
    assert!(!is_held_until_answered(Some(GrantDuringWrite), true));
    assert!(!is_held_until_answered(Some(HoldLetGoEarly), true));
    assert!(!is_held_until_answered(Some(HoldForgotten), false));
}

#[test]
fn a_value_of_many_megabytes_passes_both_ways() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = Whole::at(store.port.unwrap());
    let value = vec![b'v'; 9 << 20];
    let mut command = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", value.len()).into_bytes();
    command.extend_from_slice(&value);
    command.extend_from_slice(b"\r\n");
    client.0.write_all(&command).unwrap();
    assert_eq!(client.answer("SET", || {}), b"+OK\r\n");
    let answer = client.command("GET k", || {});
    assert!(answer.ends_with(b"vv\r\n") && answer.len() > value.len());
}

#[test]
fn a_client_that_does_not_read_keeps_no_key_from_others() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut other = Whole::at(store.port.unwrap());
    other.command("SETRANGE big 4000000 x", || {});
    let mut deaf = TcpStream::connect(store.port.unwrap()).unwrap();
    // More than sockets have room for, and more than is kept for a client.
    deaf.write_all("SET k v\r\nGET big\r\nGET big\r\nSET k w\r\n".repeat(20).as_bytes()).unwrap();
    let answer = other.command("SET k last", || {});
    assert_eq!(answer, b"+OK\r\n");
}

#[test]
fn when_redis_ends_a_connection_its_keys_are_free_again() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut outsider = Outsider::of(&server);
    outsider.command("CLIENT PAUSE 100000 WRITE");
    let mut client = Whole::at(store.port.unwrap());
    client.0.write_all(b"SET k v\r\n").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !outsider.command("INFO clients").contains("blocked_clients:1") {
        assert!(Instant::now() < deadline, "Redis has not been asked");
    }
    outsider.command("CLIENT KILL TYPE normal SKIPME yes");
    outsider.command("CLIENT UNPAUSE");
    // The command was never carried out; the lease of a minute is not waited for.
    let mut next = Whole::at(store.port.unwrap());
    assert_eq!(next.command("SET k w", || {}), b"+OK\r\n");
    let told = client.answer("SET", || {});
    assert!(told.starts_with(b"-ERR outcome unknown: the Redis at "), "{}", told.escape_ascii());
    assert_eq!(client.command("GET k", || {}), b"$1\r\nw\r\n", "it has another connection");
}

#[test]
fn a_user_whom_redis_sends_away_has_to_come_back_by_itself() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut outsider = Outsider::of(&server);
    outsider.command("ACL SETUSER someone on nopass ~* +@all");
    for login in ["AUTH someone x", "HELLO 3 AUTH someone x"] {
        let mut client = Whole::at(store.port.unwrap());
        client.command(login, || {});
        assert_eq!(client.command("SET k v", || {}), b"+OK\r\n");
        assert_eq!(outsider.command("CLIENT KILL USER someone"), ":1\r\n");
        client.0.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(client.0.read(&mut [0; 64]).unwrap(), 0, "after {login}");
        assert!(!outsider.command("CLIENT LIST").contains("user=someone"), "after {login}");
    }
}

#[test]
fn a_user_whose_redis_was_started_again_is_a_user_of_the_new_one() {
    let server = redis();
    let store = StoreThread::start(config(&server));
    let mut client = Whole::at(store.port.unwrap());
    client.command("HELLO 3 AUTH default x", || {});
    assert_eq!(client.command("SET k v", || {}), b"+OK\r\n");
    let server = start_at(server.stop(), redis_command);
    loop {
        let answer = client.command("SET k w", || {});
        if answer == b"+OK\r\n" {
            break;
        }
        let words = answer.escape_ascii().to_string();
        assert!(words.starts_with("-ERR outcome unknown") || words.starts_with("-TRYAGAIN"));
    }
    assert_eq!(client.command("GET k", || {}), b"$1\r\nw\r\n");
    assert!(Outsider::of(&server).command("CLIENT LIST").contains("resp=3"));
}
