//! Gateways without a store's RESP port: the commands on strings, by packets, at real stores.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use authority::Authority;
use client::Seal;
use proptest::prelude::*;
use wire::{Cluster, TENANT_OPEN, Tenant};

use crate::{
    secured::{believed_by, redis_with_tls, secure, shown_by},
    store_thread::StoreThread,
    support::{
        Config, Gateway, MadeUpServer, PATIENCE, Redis, Speaker, command, config, of_words, until,
    },
};

/// A store with data of its own, and a gateway to it by packets.
struct Rack {
    gateway: Gateway,
    _store: StoreThread,
}

impl Rack {
    fn start(change: impl FnOnce(&mut Config)) -> Rack {
        let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
        let store = StoreThread::start(Cluster::single(listen, 1), None, "embedded");
        let cluster = Cluster::single(store.address, 1);
        let mut config = Config { resp: vec![], cluster, ..config("redis://127.0.0.1:1") };
        change(&mut config);
        Rack { gateway: Gateway::start(config), _store: store }
    }

    fn speak(&self) -> Speaker<TcpStream> {
        self.gateway.speak()
    }

    /// Everything that is answered to these bytes, sent in pieces, until the connection ends.
    fn talk(&self, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut stream = self.gateway.speak().stream;
        let mut writes = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // It may hang up before all is sent.
                let _ = bytes.chunks(piece).try_for_each(|piece| writes.write_all(piece));
                let _ = writes.shutdown(Shutdown::Write);
            });
            let mut out = vec![];
            stream.read_to_end(&mut out).unwrap();
            out
        })
    }
}

/// Whether something was not carried out in time, or is not known to be: nothing comes in time from
/// a store that stands still.
fn is_in_doubt(said: &str) -> bool {
    said.contains("-ERR outcome unknown") || said.contains("-TRYAGAIN ")
}

/// The answer to a command that may be carried out again, once it is not in doubt.
fn sure(client: &mut Speaker<impl Read + Write>, line: &str) -> String {
    let mut said = String::new();
    until("the answer is sure", || {
        said = client.ask(line);
        !is_in_doubt(&said)
    });
    said
}

/// Commands, one per line; what is answered, `~` for the end of each line in it.
#[rustfmt::skip]
const ROWS: &[(&str, &str)] = &[
    // connection
    ("PING", "+PONG~"),
    ("ping hi", "$2~hi~"),
    ("ping a b", "-ERR wrong number of arguments for 'ping' command~"),
    ("echo 'a b'", "$3~a b~"),
    ("echo", "-ERR wrong number of arguments for 'echo' command~"),
    ("select 0\nselect 1\nselect x", "+OK~-ERR DB index is out of range~-ERR value is not an integer or out of range~"),
    ("quit\nping", "+OK~"),
    ("reset", "+RESET~"),
    ("hello 3\nget a\nreset\nget a", "%7~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:3~$2~id~:1~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~_~+RESET~$-1~"),
    ("hello 4", "-NOPROTO unsupported protocol version~"),
    ("hello x", "-ERR Protocol version is not an integer or out of range~"),
    ("hello 3 auth a b", "-WRONGPASS invalid username-password pair or user is disabled: this gateway has no users.~"),
    ("hello 2 setname", "-ERR Syntax error in HELLO option 'setname'~"),
    ("hello 2 setname x\nclient getname", "*14~$6~server~$5~redis~$7~version~$5~7.0.0~$5~proto~:2~$2~id~:1~$4~mode~$10~standalone~$4~role~$6~master~$7~modules~*0~$1~x~"),
    ("auth secret", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?~"),
    ("client id", ":1~"),
    ("client getname\nclient setname a\nclient getname", "$-1~+OK~$1~a~"),
    ("client setname 'a b'", "-ERR Client names cannot contain spaces, newlines or special characters.~"),
    ("client setname", "-ERR wrong number of arguments for 'client|setname' command~"),
    ("client setinfo lib-name x\nclient setinfo foo x", "+OK~-ERR Unrecognized option 'foo'~"),
    ("client no-evict on\nclient no-evict x", "+OK~-ERR syntax error~"),
    ("client kill x", "-ERR unknown subcommand 'kill'. Try CLIENT HELP.~"),
    ("client", "-ERR wrong number of arguments for 'client' command~"),
    // server
    ("config get save", "*2~$4~save~$0~~"),
    ("config get appendonly MAX*ORY", "*4~$10~appendonly~$2~no~$9~maxmemory~$9~268435456~"),
    ("config get", "-ERR wrong number of arguments for 'config|get' command~"),
    ("config rewrite", "-ERR unknown subcommand 'rewrite'. Try CONFIG HELP.~"),
    ("command count", ":30~"),
    ("command info get nosuch", "*2~*10~$3~get~:2~*2~+readonly~+fast~:1~:1~:1~*0~*0~*0~*0~$-1~"),
    ("command docs nosuch", "*0~"),
    ("foo a b", "-ERR unknown command 'foo': it needs the store's RESP port: start the store with --resp, and the gateway with --resp~"),
    ("\"a\\r\\nb\"", "-ERR unknown command 'a  b': it needs the store's RESP port: start the store with --resp, and the gateway with --resp~"),
    // transactions
    ("multi\nset a 1\nexec\nget a", "+OK~-ERR no command of a transaction is carried out: it needs the store's RESP port: start the store with --resp, and the gateway with --resp~-EXECABORT Transaction discarded because of previous errors.~$-1~"),
    ("set a 1\nmulti\ndel a\nping\ndiscard\nget a\ndiscard", "+OK~+OK~-ERR no command of a transaction is carried out: it needs the store's RESP port: start the store with --resp, and the gateway with --resp~-ERR no command of a transaction is carried out: it needs the store's RESP port: start the store with --resp, and the gateway with --resp~+OK~$1~1~-ERR DISCARD without MULTI~"),
    ("multi\nmulti\nexec\nexec\nping", "+OK~-ERR MULTI calls can not be nested~*0~-ERR EXEC without MULTI~+PONG~"),
    ("multi\nfoo\nexec\nmulti\nset a\nexec", "+OK~-ERR unknown command 'foo': it needs the store's RESP port: start the store with --resp, and the gateway with --resp~-EXECABORT Transaction discarded because of previous errors.~+OK~-ERR wrong number of arguments for 'set' command~-EXECABORT Transaction discarded because of previous errors.~"),
    ("multi\nset a 1\nreset\nset a 2\nget a", "+OK~-ERR no command of a transaction is carried out: it needs the store's RESP port: start the store with --resp, and the gateway with --resp~+RESET~+OK~$1~2~"),
    // keys
    ("get a\nset a 1\nget a", "$-1~+OK~$1~1~"),
    ("get\nget a b", "-ERR wrong number of arguments for 'get' command~-ERR wrong number of arguments for 'get' command~"),
    ("set a 1 zz\nset a 1 nx xx\nset a 1 ex\nset a 1 ex 1 px 1\nset a 1 keepttl ex 1", "-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex x\nset a 1 ex 0\nset a 1 px -5", "-ERR value is not an integer or out of range~-ERR invalid expire time in 'set' command~-ERR invalid expire time in 'set' command~"),
    ("set a 1 ex 9223372036854775807", "-ERR invalid expire time in 'set' command~"),
    ("set a 1 exat 0\nset a 1 exat 1\npttl a", "-ERR invalid expire time in 'set' command~+OK~:-2~"),
    ("set a 1 xx pxat 1\nset a 1\nset a 2 nx pxat 1\nset a 2 xx get pxat 1\nget a", "$-1~+OK~$-1~$1~1~$-1~"),
    ("set a 1 ex 05\nset a 1 ex +5\nset a 1 ex ' 5'\nset a 1 px -0\nselect 00", "-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~-ERR value is not an integer or out of range~"),
    ("set a 1 ex 5 ex 60\nttl a\nset a 2 keepttl keepttl\nttl a\nset a 1 ex 5 px 5\nset a 1 ex 5 keepttl", "+OK~:60~+OK~:60~-ERR syntax error~-ERR syntax error~"),
    ("set a 1 ex 10\nttl a\nset a 2 keepttl\nttl a\nset a 3\nttl a\nttl b", "+OK~:10~+OK~:10~+OK~:-1~:-2~"),
    ("set a 1 xx\nset a 1 nx\nset a 2 nx\nget a", "$-1~+OK~$-1~$1~1~"),
    ("set a 1 get\nset a 2 get\nset a 3 nx get\nget a", "$-1~$1~1~$1~2~$1~2~"),
    ("setex a 10 v\nttl a\nsetex a 0 v\npsetex a 1500000 v\nttl a", "+OK~:10~-ERR invalid expire time in 'setex' command~+OK~:1500~"),
    ("setnx a 1\nsetnx a 2\ngetset a 3\nget a", ":1~:0~$1~1~$1~3~"),
    ("mset a 1 b 2 a 3\nmget a b c", "+OK~*3~$1~3~$1~2~$-1~"),
    ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command~"),
    ("mset a 1\nexists a a b\ndel a b\nunlink a", "+OK~:2~:1~:0~"),
    ("set a abc\nstrlen a\nstrlen b\ntype a\ntype b", "+OK~:3~:0~+string~+none~"),
    ("set a 1\ngetdel a\ngetdel a", "+OK~$1~1~$-1~"),
    // protocol
    ("set a 1\n*1\n", "+OK~-ERR Protocol error: invalid multibulk length~"),
    ("set a 1\nping \"a", "+OK~-ERR Protocol error: unbalanced quotes in request~"),
];

#[test]
fn commands_are_answered_as_redis_does_it() {
    for (commands, expected) in ROWS {
        let bytes = format!("{commands}\n").replace("*1\n", "*x\r\n");
        let expected = expected.replace('~', "\r\n");
        for piece in [7, 4096] {
            let began = Instant::now();
            // Where the machine stands still something is in doubt, or a life has become shorter.
            loop {
                let out = Rack::start(|_| ()).talk(bytes.as_bytes(), piece);
                let out = String::from_utf8_lossy(&out);
                let is_late = is_in_doubt(&out) || commands.contains("ttl") && out != expected;
                if !is_late || began.elapsed() > PATIENCE {
                    assert_eq!(out, expected, "{commands}");
                    break;
                }
            }
        }
    }
}

/// What browsers send for a page that knows the port: by a form, by a script, after its name was
/// made to mean this machine, and over TLS with a line of the page's own in the greeting.
#[test]
fn a_web_page_cannot_write() {
    let rows: [&[u8]; 4] = [
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1:6380\r\nContent-Type: text/plain\r\n\r\nSET pwn 1\r\n",
        b"GET /?pwn HTTP/1.1\r\nHost: 127.0.0.1:6380\r\n\r\nSET pwn 1\r\n",
        b"DEL pwn HTTP/1.1\r\nHost: evil.example:6380\r\n\r\nSET pwn 1\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\nSET pwn 1\r\n",
    ];
    let rack = Rack::start(|_| ());
    for bytes in rows {
        let out = rack.talk(&[b"GET pwn\n", bytes].concat(), 4096);
        assert!(b"$-1\r\n".starts_with(&out), "{}", bytes.escape_ascii());
    }
    assert_eq!(rack.gateway.counter("foreign_protocols"), 4);
    assert_eq!(rack.speak().ask("EXISTS pwn"), ":0\r\n");
}

#[test]
fn info_and_docs_name_what_there_is() {
    let rack = Rack::start(|_| ());
    let mut client = rack.speak();
    let stats = client.ask("INFO stats");
    assert!(stats.contains("# Stats\r\ntotal_connections_received:"), "{stats}");
    assert!(!stats.contains("# Server"), "{stats}");
    let all = client.ask("INFO");
    let port = format!("tcp_port:{}", rack.gateway.address.port());
    // What test suites and libraries read before they begin.
    for field in [
        "# Clients",
        "# Memory",
        "# Persistence",
        "# Replication",
        "# Cluster",
        "# Stats",
        "redis_version:7.0.0",
        "redis_mode:standalone",
        "arch_bits:64",
        &port,
        "process_id:",
        "uptime_in_seconds:",
        "maxmemory_policy:noeviction",
        "loading:0",
        "role:master",
        "cluster_enabled:0",
    ] {
        assert!(all.contains(&format!("\r\n{field}")), "{field}: {all}");
    }
    assert!(client.ask("INFO gateway").contains("\r\ncmdstat_info:calls=2,"));
    client.ask("HELLO 3");
    let from = client.stream.local_addr().unwrap();
    let described = client.ask("CLIENT INFO");
    assert!(described.contains(&format!("txt:id=1 addr={from} ")), "{described}");
    assert!(client.ask("COMMAND DOCS").contains("The value of a key"));
}

#[test]
fn a_pipeline_is_answered_in_order_and_sees_its_own_writes() {
    let (mut commands, mut expected) = (String::new(), String::new());
    for round in 0..500 {
        let (key, other) = (round % 3, round % 7);
        commands += &format!(
            "set k{key} v{round}\nget k{key}\nget k{key}\nping {round}\nset o{other} x{round} get\n\
             mget k{key} o{other}\n"
        );
        let value = bulk(&format!("v{round}"));
        expected += &format!("+OK\r\n{value}{value}{}", bulk(&round.to_string()));
        expected += &if round < 7 { "$-1\r\n".into() } else { bulk(&format!("x{}", round - 7)) };
        expected += &format!("*2\r\n{value}{}", bulk(&format!("x{round}")));
    }
    for piece in [61, 1 << 16] {
        until("nothing is in doubt", || {
            let out = Rack::start(|config| config.threads = 2).talk(commands.as_bytes(), piece);
            let is_sure = !is_in_doubt(&String::from_utf8_lossy(&out));
            assert!(!is_sure || out == expected.as_bytes(), "an answer is out of order");
            is_sure
        });
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn set(key: &str, len: usize) -> String {
    format!("*3\r\n$3\r\nset\r\n{}{}", bulk(key), bulk(&"x".repeat(len)))
}

/// Bytes that large commands and values hold.
fn large_requests(rack: &Rack) -> u64 {
    let text = rack.speak().ask("INFO memory");
    let line = text.lines().find_map(|line| line.strip_prefix("large_requests_memory:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn large_values_use_the_memory_that_there_is() {
    let rack = Rack::start(|config| config.limits.memory_bytes = 2 << 20);
    let mut client = rack.speak();
    client.say(set("a", 300_000).as_bytes());
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(client.ask("STRLEN a"), ":300000\r\n");
    assert_eq!(client.ask("GET a").len(), bulk(&"x".repeat(300_000)).len());
    // Four values of that length are more than there is.
    let refused = client.ask("MGET a a a a");
    assert!(refused.starts_with("-OOM "), "{refused}");
    let many = format!("MGET{}", " k".repeat(1000));
    assert!(client.ask(&many).starts_with("-OOM "));
    // It is closed when it has sent more of one than half of what is there for connections, which
    // is as much as there is for large values.
    let _ = client.stream.write_all(set("a", 700_000).as_bytes());
    assert_eq!(client.answer(), "");
    assert_eq!(rack.gateway.counter("memory_refusals"), 3);
    assert_eq!(large_requests(&rack), 0);
}

/// Whoever does not read what it asked for goes, and with it what it held.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let rack = Rack::start(|config| config.limits.memory_bytes = 32 << 20);
    rack.speak().say(set("a", 1_000_000).as_bytes());
    until("it is written", || rack.speak().ask("STRLEN a") == ":1000000\r\n");
    let greedy: Vec<_> = (0..4)
        .map(|_| {
            let mut client = rack.speak();
            client.say("get a\n".repeat(200).as_bytes());
            client
        })
        .collect();
    until("they are closed", || rack.gateway.counter("memory_refusals") >= 4);
    until("nothing is held", || {
        large_requests(&rack) == 0 && rack.gateway.counter("held_memory") == 0
    });
    drop(greedy);
}

/// A connection that is dropped with commands at work gives everything back.
#[test]
fn clients_may_vanish() {
    let rack = Rack::start(|_| ());
    for _ in 0..20 {
        let mut client = rack.speak();
        client.say(set("a", 200_000).as_bytes());
        client.say(b"get a\nmget a b c\n*3\r\n$3\r\nset\r\n$9");
    }
    until("all have gone", || rack.gateway.counter("connected_clients") == 1);
    until("nothing is held", || {
        large_requests(&rack) == 0 && rack.gateway.counter("held_memory") == 0
    });
}

/// By a store that says nothing each command takes as long as it may; where as many are under way
/// as there may be, others' come when there is room, however often somebody says a little more.
#[test]
fn who_waits_for_room_is_not_forgotten_for_those_who_say_much() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::single(silent.local_addr().unwrap(), 1);
    let gateway = Gateway::start(Config { resp: vec![], cluster, ..config("redis://127.0.0.1:1") });
    let mut hasty: Vec<Speaker<TcpStream>> = (0..20).map(|_| gateway.speak()).collect();
    let mut last = gateway.speak();
    for client in hasty.iter_mut().chain([&mut last]) {
        assert_eq!(client.ask("PING"), "+PONG\r\n");
    }
    let many = |client: u32| (0..256).map(move |at| command(&format!("SET k{client}.{at} v")));
    let mut fill: Vec<Speaker<TcpStream>> = (0..17).map(|_| gateway.speak()).collect();
    for (client, number) in fill.iter_mut().zip(0..) {
        client.say(&many(number).collect::<Vec<_>>().concat());
    }
    // With the greetings, and the questions for the counter.
    until("there is no room", || gateway.counter("total_commands_processed") >= 4096 + 30);
    for (client, number) in hasty.iter_mut().zip(0..) {
        client.say(&command(&format!("SET hasty{number} v")));
    }
    // Each of these bytes has the gateway look at what waits.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        hasty.iter_mut().for_each(|client| client.say(b"x"));
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(is_in_doubt(&last.ask("SET last v")));
    for client in &mut hasty {
        assert!(is_in_doubt(&client.answer()));
    }
}

#[test]
fn two_gateways_do_not_share_an_address() {
    let rack = Rack::start(|_| ());
    let second =
        Config { listen: rack.gateway.address, resp: vec![], ..config("redis://127.0.0.1:1") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(gateway::run(second, |_| (), async {})).unwrap_err();
    assert!(refused.to_string().contains("cannot listen"), "{refused}");
}

/// A gateway that stops answers what it was sent.
#[test]
fn who_is_in_the_middle_of_something_is_answered_when_the_gateway_stops() {
    let rack = Rack::start(|_| ());
    let mut client = rack.speak();
    // Once it is answered, the gateway has this connection.
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    client.say(b"set a 1\r\nget a\r\nget");
    drop(rack.gateway);
    assert_eq!([client.answer(), client.answer()], ["+OK\r\n", "$1\r\n1\r\n"]);
    assert_eq!(client.answer(), "");
}

/// A store before a Redis, and that Redis.
fn store_before(redis: &Redis, cluster: Cluster) -> StoreThread {
    let identity = cluster.stores[0].address;
    StoreThread::start(cluster, Some(identity), &redis.url())
}

/// The client library and the gateway read what the other has sealed, under the same names.
#[test]
fn values_are_sealed_as_every_client_seals_them() {
    let redis = Redis::start(&[]);
    let store = store_before(&redis, Cluster::single(([127, 0, 0, 1], 9).into(), 1));
    let cluster = Cluster::single(store.address, 1);
    let seal = Seal::new([0x5a; 32]);
    let gateway = Gateway::start(Config {
        resp: vec![],
        cluster: cluster.clone(),
        seal: Some(seal.clone()),
        backends: vec![redis.url().parse().unwrap()],
        ..config("redis://127.0.0.1:1")
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut client = gateway.speak();
    let (long, long_value) = ("k".repeat(300), "v".repeat(20_000));
    runtime.block_on(async {
        // Its leases are as long as the store's own: a write takes no longer than they allow.
        let cluster = cluster.with_lease_ms(60_000);
        let options =
            client::Options { seal: Some(seal.clone()), deadline: PATIENCE, ..Default::default() };
        let library = client::Client::connect(&cluster, TENANT_OPEN, options).await.unwrap();
        for (key, value) in [("a", "1"), ("b", &long_value)] {
            library.set(key, value, None).await.unwrap();
            assert_eq!(sure(&mut client, &format!("GET {key}")), bulk(value));
            let len = format!(":{}\r\n", value.len());
            assert_eq!(sure(&mut client, &format!("STRLEN {key}")), len);
            assert_eq!(sure(&mut client, &format!("SET {key} x{value}")), "+OK\r\n");
            let read = library.get(key).await.unwrap().unwrap();
            assert_eq!(read.bytes, format!("x{value}"));
        }
    });
    // Also what goes past the store.
    assert_eq!(sure(&mut client, &format!("SET {long} secret")), "+OK\r\n");
    let hidden = seal.of_tenant(TENANT_OPEN).hide(long.as_bytes());
    let mut plain = redis.speak();
    plain.say(&of_words(&[b"STRLEN", hidden.as_ref()]));
    assert_eq!(plain.answer(), format!(":{}\r\n", 6 + Seal::OVERHEAD));
    // What is no string of bytes in Redis is said to be none, and what is not sealed does not open.
    let hidden = seal.of_tenant(TENANT_OPEN).hide(b"a");
    plain.say(&of_words(&[b"SET", hidden.as_ref(), b"forged"]));
    assert_eq!(plain.answer(), "+OK\r\n");
    let refused = sure(&mut client, "GET a");
    assert!(refused.starts_with("-ERR ") && refused.contains("no sealed value"), "{refused}");
    let refused = client.ask("APPEND a x");
    assert!(refused.starts_with("-ERR unknown command 'APPEND': --seal-key: "), "{refused}");
}

#[test]
fn keys_that_are_written_back_go_by_packets() {
    let redis = Redis::start(&[]);
    let tenant =
        Tenant { write_back_ms: 100, ..Tenant::new(7, "000102030405060708090a0b0c0d0e0f") };
    let single = |at| Cluster { tenants: vec![tenant.clone()], ..Cluster::single(at, 1) };
    let store = store_before(&redis, single(([127, 0, 0, 1], 9).into()));
    let mut cluster = single(store.address);
    // It has a RESP port, which does not have what switches have.
    cluster.stores[0].resp = store.port.map(|at| format!("redis://{at}"));
    let config = Config { resp: vec![], cluster, tenant: 7, ..config("redis://127.0.0.1:1") };
    let gateway = Gateway::start(config.clone());
    let mut client = gateway.speak();
    until("nothing is in doubt", || {
        assert_eq!(sure(&mut client, "SET k v"), "+OK\r\n");
        assert_eq!(sure(&mut client, "GET k"), bulk("v"));
        let said = client.ask("GETSET k w");
        assert!(said == bulk("v") || is_in_doubt(&said), "{said}");
        said == bulk("v")
    });
    assert_eq!(redis.speak().ask("GET shortstop:7:k"), bulk("w"));
    let refused = client.ask("LPUSH l x");
    assert!(refused.contains("tenant 7: its keys are written back"), "{refused}");
    let resp = vec!["redis://127.0.0.1:1".parse().unwrap()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(gateway::run(Config { resp, ..config }, |_| (), async {}));
    assert!(refused.unwrap_err().to_string().contains("written back"));
}

/// A Redis of the stores' with a database of its own, by TLS, which clients use as well.
#[test]
fn what_no_packet_carries_goes_to_its_database_by_tls() {
    let authority = Authority::generate();
    let (redis, held) = redis_with_tls(&authority, true);
    let backend = format!("rediss://localhost:{}/3", held.number);
    let rack = Rack::start(|config| {
        config.backends = vec![backend.parse().unwrap()];
        config.backend_tls = believed_by(&authority, true);
        config.tls = Some(shown_by(&authority, false));
    });
    let believed = believed_by(&authority, false);
    let mut client = Speaker::new(secure(rack.gateway.address, &believed));
    let long = "k".repeat(300);
    assert_eq!(sure(&mut client, "SET short v"), "+OK\r\n");
    assert_eq!(sure(&mut client, &format!("SET {long} v")), "+OK\r\n");
    let both = format!("*2\r\n{0}{0}", bulk("v"));
    assert_eq!(sure(&mut client, &format!("MGET {long} short")), both);
    let mut plain = redis.speak();
    assert_eq!(plain.ask("DBSIZE"), ":0\r\n");
    assert_eq!(plain.ask("SELECT 3"), "+OK\r\n");
    assert_eq!(plain.ask(&format!("GET {long}")), bulk("v"));
}

/// It takes connections, greets them, and says nothing more.
#[test]
fn a_backend_that_does_not_answer_is_not_waited_for_without_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("redis://{}", listener.local_addr().unwrap());
    let silent = std::thread::spawn(move || {
        let mut server = MadeUpServer::new(listener.accept().unwrap().0);
        assert_eq!(server.next().as_deref(), Some("PING"));
        server.answer(b"+PONG\r\n");
        while server.next().is_some() {}
    });
    let rack = Rack::start(|config| config.backends = vec![backend.parse().unwrap()]);
    let long = "k".repeat(300);
    let mut client = rack.speak();
    client.say(&[command(&format!("SET {long} v")), command("SET short v")].concat());
    assert_eq!(client.answer(), "-ERR outcome unknown: no answer from the backend\r\n");
    assert_eq!(client.answer(), "+OK\r\n");
    silent.join().unwrap();
}

/// The line that is said in its place could be taken for the rest of it.
#[test]
fn half_a_value_of_a_backend_that_is_lost_is_no_value() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("redis://{}", listener.local_addr().unwrap());
    let line = "-TRYAGAIN no answer from the backend\r\n";
    std::thread::spawn(move || {
        let half = format!("${}\r\n", line.len() - 2);
        while let Ok((stream, _)) = listener.accept() {
            let mut server = MadeUpServer::new(stream);
            while let Some(said) = server.next() {
                if said != "PING" {
                    server.answer(half.as_bytes());
                    break;
                }
                server.answer(b"+PONG\r\n");
            }
        }
    });
    let rack = Rack::start(|config| config.backends = vec![backend.parse().unwrap()]);
    let long = "k".repeat(300);
    assert_eq!(rack.speak().ask(&format!("GET {long}")), line);
}

/// It says so to whoever connects, and closes.
#[test]
fn a_backend_that_lets_nobody_in_is_quoted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = format!("redis://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"-DENIED Redis is running in protected mode\r\n");
            let _ = stream.shutdown(Shutdown::Write);
            // What is unread when a socket is closed would take the line back.
            let _ = stream.read_to_end(&mut vec![]);
        }
    });
    let rack = Rack::start(|config| config.backends = vec![backend.parse().unwrap()]);
    let long = "k".repeat(300);
    let mut client = rack.speak();
    let mut said = String::new();
    until("it is quoted", || {
        said = client.ask(&format!("SET {long} v"));
        !said.contains("the backend is away")
    });
    assert_eq!(said, "-DENIED Redis is running in protected mode\r\n");
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (0..ROWS.len()).prop_map(|row| format!("{}\n", ROWS[row].0).into_bytes()),
        Just(b"*2\r\n$3\r\nget\r\n$1\r\na\r\n".to_vec()),
        Just(b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$70\r\n".to_vec()),
        Just(b"*1000\r\n$4\r\nmget\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_bytes_break_a_connection(bytes in noise(), piece in 1usize..300) {
        let rack = Rack::start(|config| {
            config.limits.word_bytes = 1000;
            config.limits.words = 2000;
            config.limits.pipeline = 4;
        });
        rack.talk(&bytes, piece);
        assert_eq!(rack.speak().ask("PING"), "+PONG\r\n");
    }
}
