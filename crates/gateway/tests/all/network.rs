//! Reads by the network, to a store that is made up.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use gateway::NetworkUse;
use wire::{Cluster, Flags, Header, Op, Packet, Secret};

use crate::support::{Gateway, MadeUpServer, Redis, command, config, until};

/// What a gateway reads until it reads by the network; such reads do not count.
const FIRST: &str = "first";
/// What Redis says of a key that it does not have. It is asked where the store has not answered
/// within half a second, and where it is not known any more that the client may read all keys.
const NOT_THERE: &str = "$-1\r\n";

/// Answers every read with how many reads came before it, and one that comes again as before.
pub struct Store {
    address: SocketAddr,
    reads: Arc<AtomicU64>,
    mute: Arc<AtomicBool>,
}

impl Store {
    pub fn start() -> Store {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (reads, mute) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, is_mute) = (reads.clone(), mute.clone());
        // Ends with the tests' process.
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            let mut seen = HashMap::new();
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let asked = Packet::decode(&bytes[..len]).unwrap();
                let count = || match asked.key == FIRST.as_bytes() {
                    true => 0,
                    false => counted.fetch_add(1, Relaxed),
                };
                let which = (asked.header.client, asked.header.request);
                let number = *seen.entry(which).or_insert_with(count);
                if is_mute.load(Relaxed) {
                    continue;
                }
                let value = number.to_string().into_bytes();
                let header = Header {
                    op: Op::ReadReply,
                    flags: Flags::CACHED,
                    version: number + 1,
                    total: value.len() as u32,
                    ..asked.header
                };
                let mut reply = vec![];
                let packet = Packet::new(header, asked.key, &value);
                packet.encode(&Secret::NONE, &mut reply).unwrap();
                socket.send_to(&reply, from).unwrap();
            }
        });
        Store { address, reads, mute }
    }

    /// A gateway whose clients may read by the network, which it has found out.
    pub fn gateway(&self, redis: &Redis, network: NetworkUse) -> Gateway {
        let mut config = config(&redis.url());
        config.cluster = Cluster::single(self.address, 1);
        config.network = network;
        let gateway = Gateway::start(config);
        let mut client = gateway.speak();
        until("clients read by the network", || {
            client.say(&command(&format!("GET {FIRST}")).repeat(100));
            (0..100).for_each(|_| drop(client.answer()));
            gateway.counter("network_reads") > 0
        });
        gateway
    }
}

fn number(answer: &str) -> u64 {
    answer.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn reads_of_one_key_that_wait_are_one_read() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let mut client = gateway.speak();
    let mut last = 0;
    until("all are read by the network", || {
        let counts = || ["network_reads", "answered_by_switch"].map(|name| gateway.counter(name));
        let (before, reads) = (counts(), store.reads.load(Relaxed));
        client.say(&command("GET k").repeat(1000));
        let said: Vec<String> = (0..1000).map(|_| client.answer()).collect();
        if said.iter().any(|said| said == NOT_THERE) {
            return false;
        }
        let read: Vec<u64> = said.iter().map(|said| number(said)).collect();
        assert!(read.is_sorted(), "a client's reads do not go back in time");
        let reads = store.reads.load(Relaxed) - reads;
        assert!(reads <= 100, "{reads} reads at the store for 1000");
        assert_eq!(counts(), before.map(|count| count + 1000));
        last = read[999];
        true
    });
    // What is asked after an answer is not answered with it.
    until("it is read by the network again", || {
        let said = client.ask("GET k");
        assert!(said == NOT_THERE || number(&said) > last, "{said:?} after {last}");
        said != NOT_THERE
    });
}

#[test]
fn a_read_is_behind_the_write_before_it() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let mut client = gateway.speak();
    client.say(&[command("SET k mine"), command("GET k"), command("STRLEN k")].concat());
    let said = [client.answer(), client.answer(), client.answer()];
    assert_eq!(said, ["+OK\r\n", "$4\r\nmine\r\n", ":4\r\n"]);
    assert_eq!(store.reads.load(Relaxed), 0);
    until("it is read by the network once nothing is under way", || {
        let said = client.ask("GET k");
        (said != "$4\r\nmine\r\n").then(|| number(&said)).is_some()
    });
}

#[test]
fn only_keys_that_are_read_often_go_by_the_network() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    let gateway = store.gateway(&redis, NetworkUse::Hot);
    let mut client = gateway.speak();
    for key in 0..500 {
        assert_eq!(client.ask(&format!("GET cold{key}")), "$-1\r\n");
    }
    assert_eq!(store.reads.load(Relaxed), 0);
    let mut asks = 0;
    until("a hot key is read by the network", || {
        client.ask("GET hot");
        asks += 1;
        store.reads.load(Relaxed) >= 100
    });
    let reads = store.reads.load(Relaxed);
    assert!(asks >= reads + 60, "{reads} of {asks}: it was cold at first");
}

#[test]
fn a_store_that_is_gone_is_not_waited_for_and_found_again() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    redis.speak().ask("SET k there");
    let gateway = store.gateway(&redis, NetworkUse::Always);
    store.mute.store(true, Relaxed);
    let mut client = gateway.speak();
    // Reads wait for the network, until one does not.
    let mut waited = 0;
    loop {
        assert_eq!(client.ask("GET k"), "$5\r\nthere\r\n");
        let fell_back = gateway.counter("network_fallbacks");
        if fell_back == waited && waited > 0 {
            break;
        }
        waited = fell_back;
    }
    store.mute.store(false, Relaxed);
    until("it is found again", || client.ask("GET k") != "$5\r\nthere\r\n");
}

#[test]
fn only_the_redis_behind_the_store_is_read_from() {
    let (redis, other) = (Redis::start(&[]), Redis::start(&[]));
    redis.speak().ask("SET k right");
    other.speak().ask("SET k wrong");
    for (direct, is_right) in [(&other, false), (&redis, true)] {
        let mut config = config(&redis.url());
        config.backends = vec![direct.url().parse().unwrap()];
        let gateway = Gateway::start(config);
        let mut client = gateway.speak();
        for _ in 0..200 {
            assert_eq!(client.ask("GET k"), "$5\r\nright\r\n");
        }
        assert_eq!(gateway.counter("direct_reads") > 0, is_right);
    }
}

/// A server that has STRLEN, answers it so, and calls its run so; it is there until the tests' end.
fn made_up(
    answer: &'static [u8],
    run: impl Fn() -> &'static str + Clone + Send + 'static,
) -> String {
    made_up_until(Arc::default(), answer, run)
}

/// The same, which from then on ends connections for an answer.
fn made_up_until(
    ends: Arc<AtomicBool>,
    answer: &'static [u8],
    run: impl Fn() -> &'static str + Clone + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let server = MadeUpServer::with_command(stream.unwrap(), "strlen");
            let mut server = server.of_run(run.clone());
            let ends = ends.clone();
            std::thread::spawn(move || {
                while server.next().is_some() && !ends.load(Relaxed) {
                    server.answer(answer);
                }
            });
        }
    });
    url
}

/// The store's port keeps the gateway's connections when it follows its master to another Redis.
#[test]
fn a_redis_that_the_store_has_left_is_read_from_no_more() {
    let has_left = Arc::new(AtomicBool::new(false));
    let left = has_left.clone();
    let store = made_up(b":1\r\n", move || if left.load(Relaxed) { "next" } else { "first" });
    let mut config = config(&store);
    config.backends = vec![made_up(b":2\r\n", || "first").parse().unwrap()];
    let gateway = Gateway::start(config);
    let mut client = gateway.speak();
    until("the Redis is read from", || client.ask("STRLEN k") == ":2\r\n");
    has_left.store(true, Relaxed);
    until("the store is read from", || client.ask("STRLEN k") == ":1\r\n");
    for _ in 0..100 {
        assert_eq!(client.ask("STRLEN k"), ":1\r\n");
    }
}

/// The next store at its address may have another Redis behind it.
#[test]
fn a_redis_whose_store_has_gone_is_read_from_no_more() {
    let ends = Arc::new(AtomicBool::new(false));
    let mut config = config(&made_up_until(ends.clone(), b":1\r\n", || "first"));
    config.backends = vec![made_up(b":2\r\n", || "first").parse().unwrap()];
    let gateway = Gateway::start(config);
    let mut client = gateway.speak();
    until("the Redis is read from", || client.ask("STRLEN k") == ":2\r\n");
    ends.store(true, Relaxed);
    assert!(client.ask("APPEND k v").starts_with('-'));
    assert!(client.ask("STRLEN k").starts_with('-'));
}

#[test]
fn a_read_of_several_keys_waits_for_those_by_the_network() {
    let (store, redis) = (Store::start(), Redis::start(&[]));
    let gateway = store.gateway(&redis, NetworkUse::Always);
    let mut monitor = redis.speak();
    assert_eq!(monitor.ask("MONITOR"), "+OK\r\n");
    store.mute.store(true, Relaxed);
    let mut client = gateway.speak();
    // Unanswered by the network, the first is asked of Redis in the end.
    client.say(&[command("GET k"), command("MGET k j"), command("SET last 1")].concat());
    let mut seen = vec![];
    while !seen.iter().any(|line: &String| line.contains("\"last\"")) {
        seen.push(monitor.answer());
    }
    let at = |what: &str| seen.iter().position(|line| line.contains(what)).expect(what);
    assert!(at("\"GET\" \"k\"") < at("\"MGET\""), "{seen:?}");
}
