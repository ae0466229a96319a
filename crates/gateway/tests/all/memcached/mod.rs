//! memcached clients through a gateway: real stores before real memcached servers.

mod rack;
#[path = "../../../../store/tests/all/memcached_port/rows.rs"]
mod rows;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use authority::Authority;
use client::{Client, Options};
use socket2::SockRef;
use wire::{Secret, TENANT_OPEN};

use crate::{
    secured::{believed_by, shown_by},
    store_thread::{self, StoreThread},
    stores::keys,
    support::{Config, PATIENCE, until},
};
use rack::{Asker, CACHE, Memcached, MemcachedGateway, Rack};
use rows::ROWS;

/// A store takes writes when it has greeted its memcached.
fn written(client: &mut Asker, commands: &str) {
    until("it is written", || {
        let said = client.ask(commands);
        assert!(said == "STORED\r\n" || said.starts_with("SERVER_ERROR "), "{said}");
        said == "STORED\r\n"
    });
}

/// Reads a key until the gateway answers by itself, and often enough that the store finds the copy
/// worth its price; every answer is this one.
fn warm(gateway: &MemcachedGateway, client: &mut Asker, key: &str, answer: &str) {
    let before = gateway.hits();
    until("the gateway keeps the key", || {
        (0..4).for_each(|_| assert_eq!(client.ask(format!("get {key}\r\n")), answer));
        gateway.hits() >= before + 4
    });
}

/// What there is before each row.
const BEFORE: &str = "flush_all\r\nset k 0 0 1\r\n5\r\nset o 3 0 5\r\nother\r\n";

#[test]
fn answers_are_memcached_s_whether_copies_or_stores_give_them() {
    let (rack, alone) = (Rack::start(1), Memcached::start());
    let gateway = rack.gateway();
    let (mut client, mut alone) = (gateway.speak(), alone.speak());
    written(&mut client, "set first 0 0 1\r\nv\r\n");
    alone.ask("set first 0 0 1\r\nv\r\n");
    let first = |answer: &str| answer.split([' ', '\r']).next().map(str::to_owned);
    let mut by_copies = 0;
    for row in ROWS {
        let (row, is_alike) = row.strip_prefix('~').map_or((*row, true), |row| (row, false));
        let set = "OK\r\nSTORED\r\nSTORED\r\n";
        assert_eq!([client.ask(BEFORE), alone.ask(BEFORE)], [set; 2]);
        warm(&gateway, &mut client, "k", "VALUE k 0 1\r\n5\r\nEND\r\n");
        warm(&gateway, &mut client, "o", "VALUE o 3 5\r\nother\r\nEND\r\n");
        let before = gateway.hits();
        let (by_gateway, expected) = (client.ask(row), alone.ask(row));
        by_copies += u32::from(gateway.hits() > before);
        let is_right =
            by_gateway == expected || !is_alike && first(&by_gateway) == first(&expected);
        assert!(is_right, "{row:?}: {by_gateway:?}, by memcached {expected:?}");
        let after = ["get k\r\n", "gets o\r\n", "mg k v f s O7\r\n", "mg n q\r\n", "mg o c\r\n"];
        // Of a value that is stale memcached tells one reader to make it anew; here the store may
        // be that reader.
        let is_stale = row.contains(" I");
        for look in after.iter().filter(|look| !is_stale || !look.starts_with("mg k")) {
            assert_eq!(client.ask(look), alone.ask(look), "{look:?} after {row:?}");
        }
    }
    assert!(by_copies >= 4, "{by_copies} rows were answered from copies");
}

#[test]
fn no_way_to_write_a_key_leaves_a_copy_behind() {
    let rack = Rack::start(2);
    let (gateway, other) = (rack.gateway(), rack.gateway());
    let (mut client, mut writer) = (gateway.speak(), other.speak());
    for key in keys(Secret::NONE, TENANT_OPEN) {
        let get = format!("get {key}\r\n");
        let value = |flags: u32, value: &str| {
            format!("VALUE {key} {flags} {}\r\n{value}\r\nEND\r\n", value.len())
        };
        written(&mut writer, &format!("set {key} 5 0 5\r\nfirst\r\n"));
        warm(&gateway, &mut client, &key, &value(5, "first"));
        assert_eq!(writer.ask(format!("append {key} 0 0 4\r\nmore\r\n")), "STORED\r\n");
        assert_eq!(client.ask(&get), value(5, "firstmore"));
        warm(&gateway, &mut client, &key, &value(5, "firstmore"));
        // The same value, and other flags.
        assert_eq!(writer.ask(format!("set {key} 6 0 9\r\nfirstmore\r\n")), "STORED\r\n");
        assert_eq!(client.ask(&get), value(6, "firstmore"));
        warm(&gateway, &mut client, &key, &value(6, "firstmore"));
        // By a packet.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let port = lab::port::held();
            let cluster = rack.config(&port).cluster.with_lease_ms(60_000);
            let options = Options { deadline: PATIENCE, ..Options::default() };
            let by_packets = Client::connect(&cluster, TENANT_OPEN, options).await.unwrap();
            by_packets.set(key.as_bytes(), b"by a packet", None).await.unwrap();
        });
        assert_eq!(client.ask(&get), value(0, "by a packet"));
        warm(&gateway, &mut client, &key, &value(0, "by a packet"));
        // By the gateway itself, in one pipeline.
        let pipeline = format!("{get}set {key} 0 0 3\r\nown\r\n{get}");
        let said = [&value(0, "by a packet"), "STORED\r\n", &value(0, "own")].concat();
        assert_eq!(client.ask(pipeline), said);
        warm(&gateway, &mut client, &key, &value(0, "own"));
        assert_eq!(writer.ask(format!("delete {key}\r\n")), "DELETED\r\n");
        assert_eq!(client.ask(&get), "END\r\n");
    }
    assert!(gateway.gateway.counter("local_invalidations") >= 10);
}

#[test]
fn keys_of_several_stores_are_answered_as_those_of_one() {
    let rack = Rack::start(2);
    let gateway = rack.gateway();
    let mut client = gateway.speak();
    let [a, b] = keys(Secret::NONE, TENANT_OPEN);
    for (key, value) in [(&a, "1"), (&b, "2")] {
        written(&mut client, &format!("set {key} 0 0 1\r\n{value}\r\n"));
    }
    let (of_a, of_b) = (format!("VALUE {a} 0 1\r\n1\r\n"), format!("VALUE {b} 0 1\r\n2\r\n"));
    // Neither from a copy, then one of them, and then both.
    for warms in [None, Some((&a, &of_a)), Some((&b, &of_b))] {
        if let Some((key, value)) = warms {
            warm(&gateway, &mut client, key, &format!("{value}END\r\n"));
        }
        let all = format!("get {b} none {a} {b} other {a}\r\n");
        assert_eq!(client.ask(all), format!("{of_b}{of_a}{of_b}{of_a}END\r\n"));
        assert_eq!(client.ask("get none other\r\n"), "END\r\n");
        let mixed = format!("get {a} {b}\r\nget {b}\r\nversion\r\nget {a} {b}\r\n");
        let said = client.ask(mixed);
        assert_eq!(said.matches(&of_a).count(), 2, "{said}");
        assert_eq!(said.matches(&of_b).count(), 3, "{said}");
        assert_eq!(said.matches("VERSION 1.").count(), 1, "{said}");
    }
    assert_eq!(client.ask(format!("gat 1000 {a} {b}\r\n")), format!("{of_a}{of_b}END\r\n"));
    for (server, key) in rack.servers.iter().zip([&a, &b]) {
        let said = server.speak().ask(format!("mg {key} t\r\n"));
        assert!(said.starts_with("HD t9") || said == "HD t1000\r\n", "touched: {said}");
    }
    assert!(client.ask(format!("gets {a} {b}\r\n")).starts_with(&format!("VALUE {a} 0 1 ")));
    assert_eq!(client.ask("flush_all\r\n"), "OK\r\n");
    assert_eq!(client.ask(format!("get {a} {b}\r\n")), "END\r\n");
    assert_eq!(client.ask("flush_all noreply\r\n"), "");
    let said = client.ask("stats\r\n");
    assert!(
        said.starts_with("STAT version shortstop-") && said.contains("\r\nSTAT pid "),
        "{said}"
    );
    assert!(client.ask("stats items\r\n").starts_with("CLIENT_ERROR this is not possible"));
    // Many keys, of which memcached has some, and more than are asked for at once.
    let all: Vec<String> = (0..500).map(|at| format!("many{at}")).collect();
    let mut expected = String::new();
    for key in all.iter().step_by(3) {
        assert_eq!(client.ask(format!("set {key} 9 0 1\r\nv\r\n")), "STORED\r\n");
        expected += &format!("VALUE {key} 9 1\r\nv\r\n");
    }
    assert_eq!(client.ask(format!("get {}\r\n", all.join(" "))), format!("{expected}END\r\n"));
}

#[test]
fn values_from_copies_count_once_where_a_server_has_the_others() {
    const KEPT: u64 = 9;
    const TIMES: u64 = 100;
    let rack = Rack::start(1);
    let gateway = rack.gateway();
    let mut client = gateway.speak();
    let keys: Vec<String> = (0..KEPT).map(|at| format!("kept{at}")).collect();
    let mut all = String::new();
    for key in &keys {
        written(&mut client, &format!("set {key} 0 0 1\r\nv\r\n"));
        let value = format!("VALUE {key} 0 1\r\nv\r\n");
        warm(&gateway, &mut client, key, &format!("{value}END\r\n"));
        all += &value;
    }
    all += "END\r\n";
    // Again where a copy went in the midst of it.
    until("each counts once", || {
        let before = gateway.hits();
        for _ in 0..TIMES {
            let said = client.ask(format!("get {} none\r\n", keys.join(" ")));
            assert_eq!(said, all);
        }
        gateway.hits() - before == KEPT * TIMES
    });
}

#[test]
fn while_a_store_is_away_nothing_is_done_there_and_that_is_said() {
    let mut rack = Rack::start(2);
    let gateway = rack.gateway();
    let mut client = gateway.speak();
    let [a, b] = keys(Secret::NONE, TENANT_OPEN);
    for key in [&a, &b] {
        written(&mut client, &format!("set {key} 0 0 1\r\nv\r\n"));
    }
    drop(rack.stores.remove(1));
    let away = "SERVER_ERROR nothing was done: --memcached ";
    for line in [format!("get {b}\r\n"), format!("set {b} 0 0 1\r\nw\r\n")] {
        let said = client.ask(&line);
        assert!(said.starts_with(away) && said.contains(" is away: "), "{line:?}: {said:?}");
        assert_eq!(said.lines().count(), 1);
    }
    assert_eq!(client.ask(format!("set {b} 0 0 1 noreply\r\nw\r\n")), "");
    let said = client.ask(format!("get {a} {b}\r\n"));
    assert!(said.starts_with("SERVER_ERROR --memcached ") && said.lines().count() == 1, "{said}");
    let said = client.ask("flush_all\r\n");
    let unknown = "SERVER_ERROR outcome unknown: some stores may have done it, and of another: ";
    assert!(said.starts_with(unknown) && said.contains(" is away: "), "{said}");
    let said = client.ask(format!("gat 100 {a} {b}\r\n"));
    assert!(said.starts_with("SERVER_ERROR outcome unknown: "), "{said}");
    assert_eq!(client.ask(format!("set {a} 0 0 1\r\nw\r\n")), "STORED\r\n", "the other one's");
}

#[test]
fn commands_without_an_end_and_clients_that_do_not_read_hold_up_nobody() {
    let rack = Rack::start(1);
    let gateway = rack.gateway_within(16 << 20);
    let mut client = gateway.speak();
    let long = "v".repeat(900_000);
    written(&mut client, &format!("set long 0 0 {}\r\n{long}\r\n", long.len()));
    let answer = format!("VALUE long 0 {}\r\n{long}\r\nEND\r\n", long.len());
    // By the store, and from a copy.
    for is_kept in [false, true] {
        if is_kept {
            warm(&gateway, &mut client, "long", &answer);
        }
        let mut deaf = gateway.speak();
        deaf.say("get long\r\n".repeat(100));
        deaf.say("set k 0 0 100\r\nabc");
        assert_eq!(client.ask("get long\r\n"), answer);
        assert_eq!(client.ask("set k 0 0 1\r\nw\r\n"), "STORED\r\n");
    }
    // A value that is longer than what all may hold, of which most comes.
    let mut large = gateway.speak();
    let sends = std::thread::spawn(move || {
        large.say("set k 0 0 60000000\r\n");
        let piece = [b'v'; 64 << 10];
        while std::io::Write::write_all(&mut large.0, &piece).is_ok() {}
    });
    until("it is sent away", || gateway.gateway.counter("memory_refusals") > 0);
    sends.join().unwrap();
    assert_eq!(client.ask("get long\r\n"), answer);
    let mut binary = gateway.speak();
    binary.say([0x80, 0, 0, 0]);
    assert!(binary.last_words().starts_with("CLIENT_ERROR the binary protocol"));
    let mut leaves = gateway.speak();
    leaves.say("get long\r\nquit\r\nget long\r\n");
    assert_eq!(leaves.last_words(), answer);
}

/// However many values are here, no more of them are taken at a time than their client may hold.
#[test]
fn many_long_values_that_are_here_are_told_whole() {
    let rack = Rack::start(1);
    let gateway = rack.gateway_within(16 << 20);
    let mut client = gateway.speak();
    let long = "v".repeat(900_000);
    written(&mut client, &format!("set long 0 0 {}\r\n{long}\r\n", long.len()));
    let value = format!("VALUE long 0 {}\r\n{long}\r\n", long.len());
    warm(&gateway, &mut client, "long", &format!("{value}END\r\n"));
    // Behind keys of which little comes many are asked for at once.
    let missing: String = (0..240).map(|at| format!(" m{at}")).collect();
    let said = client.ask(format!("get long{missing}{}\r\n", " long".repeat(256)));
    assert!(said == value.repeat(257) + "END\r\n", "{} bytes", said.len());
    assert_eq!(gateway.gateway.counter("memory_refusals"), 0);
}

/// The connection to the store by which it is answered is others' next.
#[test]
fn who_reads_a_little_now_and_then_is_not_waited_for() {
    let rack = Rack::start(1);
    let gateway = MemcachedGateway::start(|port| Config { cache_bytes: 0, ..rack.config(port) });
    let mut client = gateway.speak();
    let long = "v".repeat(900_000);
    written(&mut client, &format!("set long 0 0 {}\r\n{long}\r\n", long.len()));
    let mut slow = gateway.speak_slowly();
    slow.say("get long\r\n".repeat(40) + "quit\r\n");
    let began = Instant::now();
    let mut read = 0;
    while began.elapsed() < Duration::from_secs(9) {
        read += slow.0.read(&mut [0; 4 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    // What the system has taken for it still comes.
    SockRef::from(&slow.0).set_recv_buffer_size(1 << 20).unwrap();
    read += slow.last_words().len();
    assert!(read < 40 * long.len(), "it was waited for");
}

/// It would ask until the gateway stops waiting for whoever is slow.
#[test]
fn who_goes_on_asking_does_not_keep_a_gateway_that_stops() {
    const LONG: Duration = Duration::from_secs(4);
    let rack = Rack::start(1);
    let gateway = rack.gateway();
    let mut client = TcpStream::connect(gateway.address()).unwrap();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answer = [0; 5];
            while client.write_all(b"get none\r\n").is_ok()
                && client.read_exact(&mut answer).is_ok()
            {
                answered.fetch_add(1, Relaxed);
            }
        });
        until("it asks", || answered.load(Relaxed) > 100);
        let began = Instant::now();
        drop(gateway);
        assert!(began.elapsed() < LONG);
    });
}

#[test]
fn a_long_command_is_carried_out_when_the_gateway_stops() {
    let rack = Rack::start(1);
    let gateway = rack.gateway();
    let mut client = gateway.speak();
    written(&mut client, "set k 0 0 1\r\nv\r\n");
    let long = "v".repeat(100_000);
    rack.servers[0].process.stands_still();
    client.say(format!("gets none\r\nset k 0 0 {}\r\n{long}\r\n", long.len()));
    let address = gateway.address();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(gateway));
        until("it takes nobody any more", || TcpStream::connect(address).is_err());
        rack.servers[0].process.goes_on();
        assert_eq!(client.last_words(), "END\r\nSTORED\r\n");
    });
}

/// As `printf ... | nc` does.
#[test]
fn who_closes_its_half_first_is_answered() {
    let rack = Rack::start(1);
    let gateway = rack.gateway();
    written(&mut gateway.speak(), "set k 0 0 1\r\nv\r\n");
    let mut client = gateway.speak();
    client.say("set k 0 0 1\r\nw\r\nget k\r\nset k 0 0 5\r\nhalf");
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.last_words(), "STORED\r\nVALUE k 0 1\r\nw\r\nEND\r\n");
}

#[test]
fn a_store_is_reached_by_tls_and_lets_nobody_in_without_a_certificate() {
    let (server, authority) = (Memcached::start(), Authority::generate());
    let own: SocketAddr = ([10, 9, 9, 1], 7117).into();
    let cluster = wire::Cluster::single(own, 1);
    let backend = format!("memcached://{}", server.address());
    let mut config = store_thread::config(cluster, Some(own), &backend);
    config.memcached = vec!["memcacheds://127.0.0.1:0".parse().unwrap()];
    config.tls = Some(shown_by(&authority, true));
    let store = StoreThread::of(config);
    let at = store.port.unwrap().port();
    for shows in [true, false] {
        let gateway = MemcachedGateway::start(|port| {
            let url = format!("memcacheds://localhost:{at}");
            Config {
                resp: vec![],
                memcached_listen: Some(([127, 0, 0, 1], port.number).into()),
                memcached: vec![gateway::BackendAddress::of_memcached(&url).unwrap()],
                cluster: wire::Cluster::single(store.address, 1),
                cache_bytes: CACHE,
                backend_tls: believed_by(&authority, shows),
                ..crate::support::config("redis://127.0.0.1:1")
            }
        });
        let mut client = gateway.speak();
        if !shows {
            client.say("get k\r\nquit\r\n");
            let said = client.last_words();
            assert!(said.starts_with("SERVER_ERROR n"), "{said}");
            continue;
        }
        let long = "v".repeat(300_000);
        written(&mut client, &format!("set k 4 0 {}\r\n{long}\r\n", long.len()));
        warm(&gateway, &mut client, "k", &format!("VALUE k 4 {}\r\n{long}\r\nEND\r\n", long.len()));
    }
}

#[test]
fn what_cannot_be_is_refused_at_the_start() {
    let (rack, one_store) = (Rack::start(2), Rack::start(1));
    let port = lab::port::held();
    let refused = |config: Config| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ends = gateway::run(config, |_| panic!("it starts"), std::future::pending());
        format!("{:#}", runtime.block_on(ends).unwrap_err())
    };
    let usual = || rack.config(&port);
    let without = Config { memcached_listen: None, ..usual() };
    assert!(refused(without).contains("--memcached-listen ADDR:PORT"));
    let one = Config { memcached: usual().memcached[..1].to_vec(), ..usual() };
    assert!(refused(one).contains("partitions 1 to 1, of store"));
    let address = |url: &str| vec![gateway::BackendAddress::of_memcached(url).unwrap()];
    for url in ["memcached://:secret@127.0.0.1:1", "memcached://127.0.0.1:1/3"] {
        let with_more = Config { memcached: address(url), ..one_store.config(&port) };
        assert!(refused(with_more).contains("memcached has no passwords, and one database"));
    }
    let several = Config { memcached: address("memcached://127.0.0.1:1"), ..usual() };
    assert!(refused(several).contains("have a memcached port each"));
    let unsaid = |url| Config { memcached: address(url), ..one_store.config(&port) };
    assert!(refused(unsaid("memcached://localhost")).contains("expected a port"));
    let seal = Some(client::Seal::new([7; 32]));
    assert!(refused(Config { seal, ..usual() }).contains("leave --tenant and --seal-key out"));
}

/// Who writes at a memcached itself, past the store, is noticed by no copy.
#[test]
fn a_memcached_and_a_gateway_are_no_store_s_port() {
    let (rack, server) = (Rack::start(1), Memcached::start());
    let first = rack.gateway();
    for at in [server.address(), first.address()] {
        let url = format!("memcached://{at}");
        let other = MemcachedGateway::start(|port| Config {
            memcached: vec![gateway::BackendAddress::of_memcached(&url).unwrap()],
            ..rack.config(port)
        });
        let said = other.speak().ask("get k\r\n");
        assert!(said.contains("it is no store's memcached port"), "{said}");
    }
    assert_eq!(first.speak().ask("shortstop\r\n"), "ERROR\r\n");
}

/// A client's half commands, and answers that it does not read, are what it is sent away for, and
/// nobody else is.
#[test]
fn who_holds_most_for_longest_is_sent_away() {
    let rack = Rack::start(2);
    let gateway = rack.gateway_within(64 << 20);
    let mut client = gateway.speak();
    let [a, b] = keys(Secret::NONE, TENANT_OPEN);
    let long = "v".repeat(900_000);
    for key in [&a, &b] {
        written(&mut client, &format!("set {key} 0 0 {}\r\n{long}\r\n", long.len()));
    }
    let value = |key: &str| format!("VALUE {key} 0 {}\r\n{long}\r\n", long.len());
    // Half commands: of each 4 MB, which is less than one may hold.
    let mut hoarders: Vec<Asker> = (0..20).map(|_| gateway.speak()).collect();
    for hoarder in &mut hoarders {
        hoarder.say("set half 0 0 60000000\r\n");
        let _ = std::io::Write::write_all(&mut hoarder.0, &vec![b'v'; 4 << 20]);
        assert_eq!(client.ask(format!("get {a}\r\n")), value(&a) + "END\r\n");
    }
    assert!(gateway.gateway.counter("memory_refusals") >= 10);
    // Answers of several stores, which are put together.
    let both = format!("get {a} {b} {a} {b} {a} {b} {a} {b}\r\n");
    let expected = (value(&a) + &value(&b)).repeat(4) + "END\r\n";
    let mut deaf: Vec<Asker> = (0..10).map(|_| gateway.speak()).collect();
    for one in &mut deaf {
        one.say(both.repeat(10));
        assert_eq!(client.ask(format!("set {b} 0 0 {}\r\n{long}\r\n", long.len())), "STORED\r\n");
    }
    // And who reads is served whole.
    for _ in 0..3 {
        assert_eq!(client.ask(&both), expected);
    }
    drop((hoarders, deaf));
    until("what they held is given back", || gateway.gateway.counter("held_memory") < 1 << 20);
}
