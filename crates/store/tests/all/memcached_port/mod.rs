//! The memcached port before a real memcached: any command, answered as memcached answers it, and
//! no copy survives one that changed its key.

mod client;
mod gate;
mod rows;

use std::time::Duration;

use lab::port;
use store::{
    Config,
    mutants::Mutant::{
        self, EverythingWithCopies, GrantDuringWrite, HoldForgotten, HoldLetGoEarly, NotHeld,
    },
};
use wire::{Flags, Header, Op, Status};

use super::support::{
    self, StoreThread,
    others::Switch,
    servers::{Process, memcached, memcached_command, memcached_with, start_at},
};
use client::Client;
use gate::Gate;
use rows::ROWS;

/// Of a store before the memcached at this port.
fn config(server: u16) -> Config {
    Config {
        backend: format!("memcached://127.0.0.1:{server}").parse().unwrap(),
        memcached: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    }
}

#[test]
fn a_write_is_answered_when_its_keys_copy_has_gone() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let mut client = Client::by(&store);
    assert_eq!(client.ask("set k 0 0 6\r\nbefore\r\n"), "STORED\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"before");
    client.send("set k 0 0 5\r\nafter\r\nmn\r\n");
    switch.loses(b"k", "set by the memcached port");
    assert_eq!(client.answers(|| {}), "STORED\r\n");
    assert_eq!(switch.copy(b"k"), b"after");
}

/// A name with spaces travels as base64, from the store and from a client.
#[test]
fn a_key_that_travels_as_base64_is_the_key_that_switches_have() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let (mut client, mut packets) = (Client::by(&store), support::Client::to(store.address));
    assert_eq!(packets.write(b"a b", b"before").header.status, Status::Ok);
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"a b"), b"before");
    client.send("ms YSBi 5 b\r\nafter\r\nmn\r\n");
    switch.loses(b"a b", "ms by the memcached port");
    assert_eq!(client.answers(|| {}), "HD\r\n");
    assert_eq!(packets.read(b"a b").value, b"after");
}

/// What there is before each row.
const BEFORE: &str = "flush_all\r\nset k 0 0 1\r\n5\r\nset o 3 0 5\r\nother\r\n";

/// A memcached behind a store and one alone, which are asked the same.
struct Pair {
    behind: Process,
    alone: Process,
    store: StoreThread,
    switch: Switch,
}

impl Pair {
    /// Whose store breaks a rule, and has a memcached at another port than there is one at.
    fn with(mutant: Option<Mutant>, gate: Option<&Gate>, behind: Process) -> Pair {
        let port = gate.map_or(behind.port, |gate| gate.port);
        let store = StoreThread::broken(config(port), mutant);
        let switch = Switch::to(store.address);
        switch.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Pair { behind, alone: memcached(), store, switch }
    }

    /// Asks both a row; whether `k` has changed.
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
        let (mut has_copy, switch) = (true, &mut self.switch);
        let by_store = Client::by(&self.store).ask_while(row, || gives_up(switch, &mut has_copy));
        let after = self.state();
        let shown = row.escape_default();
        if has_copy && after != before {
            return Err(format!("{shown}: a copy of k survives the answer {by_store}"));
        }
        let alone = Client::of(&self.alone).ask(row);
        let first = |answer: &str| answer.split([' ', '\r']).next().map(str::to_owned);
        if (is_alike && by_store != alone) || first(&by_store) != first(&alone) {
            return Err(format!("{shown}: answered {by_store:?} and by memcached {alone:?}"));
        }
        Ok(after != before)
    }

    fn ask(&mut self, row: &str) -> bool {
        self.try_row(row).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// Both have what stands in [`BEFORE`], and nobody a copy.
    fn reset(&mut self) {
        let (mut has_copy, switch) = (true, &mut self.switch);
        Client::by(&self.store).ask_while(BEFORE, || gives_up(switch, &mut has_copy));
        Client::of(&self.alone).ask(BEFORE);
    }

    /// What is under `k`, and until when.
    fn state(&self) -> String {
        Client::of(&self.behind).ask("mg k v t c f\r\n")
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

#[test]
fn no_copy_survives_the_answer_to_a_command_that_changed_its_key() {
    let mut pair = Pair::with(None, None, memcached());
    let mut changed = 0;
    for row in ROWS {
        changed += usize::from(pair.ask(row));
    }
    assert!(changed > 40, "{changed} rows changed k");
}

/// The switch acknowledges nothing, and has its lease: whoever answers has not waited for it.
#[test]
fn a_store_that_holds_too_little_is_found_out() {
    for (mutant, commands) in
        [(NotHeld, "set k 0 0 1\r\nv\r\n"), (EverythingWithCopies, "flush_all\r\n")]
    {
        let mut pair = Pair::with(Some(mutant), None, memcached());
        pair.reset();
        assert_eq!(pair.switch.copy(b"k"), b"5");
        let before = pair.state();
        Client::by(&pair.store).ask(commands);
        assert_ne!(pair.state(), before, "{mutant:?}");
    }
}

/// How often a key is asked for that is held.
const FETCHES: usize = 100;

/// Whether a key is granted to nobody. One question may be refused for another reason.
fn is_held(switch: &mut Switch) -> bool {
    (0..FETCHES).all(|_| {
        let (header, value) = switch.fetch(b"k");
        assert_eq!(value, b"5");
        !header.flags.has(Flags::GRANT)
    })
}

/// What becomes of who has sent a command, before memcached has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Stays,
    Leaves,
    /// The connection to memcached is lost on the way.
    IsCutOff,
}

/// While memcached has a command that it has not carried out, its key is not granted. Whether that
/// holds.
fn is_held_until_answered(mutant: Option<Mutant>, sender: Sender) -> bool {
    let behind = memcached();
    Client::of(&behind).ask(BEFORE);
    let gate = Gate::before(behind.port, sender == Sender::IsCutOff);
    let mut pair = Pair::with(mutant, Some(&gate), behind);
    pair.switch.hold_lease();
    let mut client = Client::by(&pair.store);
    client.send("set k 0 0 1\r\nv\r\n");
    gate.has_one();
    match sender {
        Sender::Stays => {}
        Sender::Leaves => drop(client),
        Sender::IsCutOff => {
            let said = client.last_words();
            assert!(said.starts_with("SERVER_ERROR outcome unknown: the memcached at "), "{said}");
        }
    }
    // The store knows: what comes later finds it gone.
    Client::by(&pair.store).ask("version\r\n");
    let is_held = is_held(&mut pair.switch);
    gate.open();
    if is_held && sender != Sender::IsCutOff {
        assert_eq!(pair.switch.copy(b"k"), b"v", "what the command has left");
    }
    is_held
}

#[test]
fn a_key_is_held_until_its_command_is_answered_or_can_take_place_no_more() {
    for sender in [Sender::Stays, Sender::Leaves, Sender::IsCutOff] {
        assert!(is_held_until_answered(None, sender), "{sender:?}");
    }
    assert!(!is_held_until_answered(Some(GrantDuringWrite), Sender::Stays));
    assert!(!is_held_until_answered(Some(HoldLetGoEarly), Sender::Stays));
    assert!(!is_held_until_answered(Some(HoldForgotten), Sender::IsCutOff));
}

/// Of a store whose memcached has a second for each answer.
fn impatient(server: u16) -> Config {
    Config { backend_within: Duration::from_secs(1), ..config(server) }
}

#[test]
fn of_a_memcached_that_answers_late_the_client_is_told_and_the_key_is_held() {
    for (mutant, held) in [(None, true), (Some(HoldForgotten), false)] {
        let behind = memcached();
        Client::of(&behind).ask(BEFORE);
        let gate = Gate::before(behind.port, false);
        let store = StoreThread::broken(impatient(gate.port), mutant);
        let mut switch = Switch::to(store.address);
        switch.hold_lease();
        let mut client = Client::by(&store);
        client.send("set k 0 0 1\r\nv\r\n");
        let said = client.last_words();
        assert!(said.starts_with("SERVER_ERROR outcome unknown: the memcached at "), "{said}");
        assert!(said.contains("does not answer within 1s"), "{said}");
        assert_eq!(is_held(&mut switch), held, "{mutant:?}");
        gate.open();
        if held {
            assert_eq!(switch.copy(b"k"), b"v", "with the answer the key is free");
        }
    }
}

#[test]
fn a_memcached_that_stands_still_and_goes_on_has_left_no_old_copy() {
    let server = memcached();
    let store = StoreThread::start(impatient(server.port));
    let mut client = Client::by(&store);
    client.ask("set k 0 0 6\r\nbefore\r\n");
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"before");
    server.freeze();
    client.send("set k 0 0 5\r\nafter\r\n");
    switch.loses(b"k", "set by the memcached port");
    let said = client.last_words();
    assert!(said.starts_with("SERVER_ERROR outcome unknown: "), "{said}");
    // A read cannot have taken place.
    let said = Client::by(&store).ask("get k\r\n");
    assert!(said.starts_with("SERVER_ERROR nothing was done: "), "{said}");
    server.thaw();
    assert_eq!(switch.copy(b"k"), b"after");
}

#[test]
fn while_memcached_is_away_nothing_is_done_and_that_is_said() {
    let held = port::held();
    let store = StoreThread::start(config(held.number));
    let mut client = Client::by(&store);
    let said = client.ask("set k 0 0 1\r\nv\r\nset k 0 0 1 noreply\r\nv\r\nget k\r\nwrong\r\n");
    let lines: Vec<&str> = said.lines().collect();
    let away = |line: &&str| {
        line.starts_with("SERVER_ERROR nothing was done: the memcached at 127.0.0.1:")
            && line.contains(" is away: ")
    };
    assert!(matches!(&lines[..], [set, get, "ERROR"] if away(set) && away(get)), "{said}");
    let server = start_at(held, memcached_command);
    assert_eq!(client.ask("get k\r\n"), "END\r\n", "the same client");
    assert_eq!(client.ask("set k 0 0 1\r\nv\r\n"), "STORED\r\n");
    // A connection that was idle meanwhile is another's by then.
    let _server = start_at(server.stop(), memcached_command);
    assert_eq!(client.ask("add k 0 0 1\r\nw\r\n"), "STORED\r\n");
}

#[test]
fn answers_come_in_order_whatever_is_said_in_one_go() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let mut client = Client::by(&store);
    let (mut commands, mut expected) = (String::new(), String::new());
    for n in 0..2000 {
        commands += &format!("set k{n} 0 0 4 noreply\r\n{n:04}\r\nget k{n}\r\nincr k{n} 1\r\n");
        expected += &format!("VALUE k{n} 0 4\r\n{n:04}\r\nEND\r\n{}\r\n", n + 1);
        if n % 100 == 0 {
            commands += "wrong\r\n";
            expected += "ERROR\r\n";
        }
    }
    let mut writer = client.0.try_clone().unwrap();
    let writes = std::thread::spawn(move || {
        std::io::Write::write_all(&mut writer, (commands + "quit\r\nget k\r\n").as_bytes())
            .unwrap();
    });
    assert_eq!(client.last_words(), expected);
    writes.join().unwrap();
}

/// As `printf ... | nc` does.
#[test]
fn who_closes_its_half_first_is_answered() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let mut client = Client::by(&store);
    client.send("set k 0 0 1\r\nv\r\nget k\r\nset k 0 0 5\r\nhalf");
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.last_words(), "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
}

#[test]
fn a_client_that_does_not_read_or_does_not_end_keeps_no_key_from_others() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let mut client = Client::by(&store);
    let big = "v".repeat(1_000_000);
    assert_eq!(client.ask(format!("set big 0 0 {}\r\n{big}\r\n", big.len())), "STORED\r\n");
    assert_eq!(
        client.ask("get big\r\n").len(),
        big.len() + "VALUE big 0 1000000\r\n\r\nEND\r\n".len()
    );
    // More than sockets have room for, and more than is kept for a client.
    let mut deaf = Client::by(&store);
    deaf.send("set k 0 0 1\r\nv\r\nget big\r\nget big\r\nset k 0 0 1\r\nw\r\n".repeat(20));
    let mut halting = Client::by(&store);
    halting.send("set k 0 0 100\r\nabc");
    assert_eq!(client.ask("set k 0 0 4\r\nlast\r\n"), "STORED\r\n");
}

#[test]
fn what_memcached_has_no_room_for_takes_the_copy_along_with_the_value() {
    let mut pair = Pair::with(None, None, memcached_with(&["-I", "2m"]));
    let long = "v".repeat(3 << 20);
    for row in [
        format!("set k 0 0 {}\r\n{long}\r\n", long.len()),
        format!("ms k {} q\r\n{long}\r\n", long.len()),
    ] {
        assert!(pair.ask(&row), "memcached removes what the key had");
    }
}

/// A touch leaves a value as the store has written it: its life is another all the same.
#[test]
fn a_life_that_a_client_makes_longer_is_not_ended_by_the_store() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let mut packets = support::Client::to(store.address);
    for touch in ["touch k 1000\r\n", "gat 1000 k\r\n", "mg k T1000\r\n"] {
        let header = Header { expiry_ms: 60_000, ..Header::new(Op::WriteRequest) };
        assert_eq!(packets.ask(header, b"k", b"v", 0).header.status, Status::Ok);
        assert!(packets.read(b"k").header.expiry_ms <= 60_000);
        Client::by(&store).ask(touch);
        let expiry_ms = packets.read(b"k").header.expiry_ms;
        assert!(expiry_ms > 900_000, "{touch}: {expiry_ms}");
    }
}

/// Packets have no room for the flags that clients give values.
#[test]
fn flags_of_clients_are_theirs_alone() {
    let server = memcached();
    let store = StoreThread::start(config(server.port));
    let (mut client, mut packets) = (Client::by(&store), support::Client::to(store.address));
    client.ask("set k 7 0 1\r\nv\r\n");
    assert_eq!(packets.read(b"k").value, b"v");
    assert_eq!(client.ask("get k\r\n"), "VALUE k 7 1\r\nv\r\nEND\r\n");
    assert_eq!(packets.write(b"k", b"w").header.status, Status::Ok);
    assert_eq!(client.ask("get k\r\n"), "VALUE k 0 1\r\nw\r\nEND\r\n");
}

/// With another store for half of the keys.
#[test]
fn a_key_of_another_store_is_not_written_and_that_is_said() {
    let server = memcached();
    let mut config = config(server.port);
    let own = "127.0.0.1:7117".parse().unwrap();
    let mut cluster = wire::Cluster::single(own, 2).with_lease_ms(60_000);
    cluster.stores = vec![
        wire::Store::new(own, 0, 0),
        wire::Store::new("127.0.0.1:7118".parse().unwrap(), 1, 1),
    ];
    (config.cluster, config.identity) = (cluster, Some(own));
    let store = StoreThread::start(config);
    let mut client = Client::by(&store);
    let (mut stored, mut refused) = (0, 0);
    for n in 0..32 {
        let said = client.ask(format!("set k{n} 0 0 1\r\nv\r\nget k{n}\r\n"));
        let value = format!("VALUE k{n} 0 1\r\nv\r\nEND\r\n");
        match said.strip_prefix("STORED\r\n") {
            Some(rest) => {
                assert_eq!(rest, value);
                stored += 1;
            }
            None => {
                let why = format!("SERVER_ERROR nothing was done: the key k{n} is another store's");
                assert!(said.starts_with(&why), "{said}");
                assert_eq!(client.ask(format!("get k{n}\r\n")), "END\r\n");
                refused += 1;
            }
        }
    }
    assert!(stored > 0 && refused > 0, "{stored} of this store's keys, {refused} of the other's");
}

#[test]
fn a_port_is_for_the_protocol_of_the_server_behind_the_store() {
    let wrong = Config { backend: "embedded".parse().unwrap(), ..config(1) };
    let error = wrong.check().unwrap_err().to_string();
    assert!(error.contains("--backend memcached://HOST:PORT"), "{error}");
}
