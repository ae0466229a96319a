//! The same questions to every backend: in this process, a real Redis, a real memcached.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use store::{BackendConfig, Config};
use wire::{Flags, Header, Op, Status};

use super::support::{
    self, Client, PATIENCE, StoreThread,
    servers::{memcached, memcached_with, redis, redis_command, start_at},
};

fn store_over(backend: &str) -> StoreThread {
    store_of(backend, wire::MAX_VALUE_DEFAULT)
}

/// A store of values of at most so many bytes.
fn store_of(backend: &str, max_value: u32) -> StoreThread {
    let mut config =
        Config { backend: backend.parse::<BackendConfig>().unwrap(), ..support::loopback() };
    config.cluster.max_value = max_value;
    StoreThread::start(config)
}

#[test]
fn what_a_full_memcached_refuses_takes_nothing_with_it() {
    let server = memcached_with(&["-M", "-m", "2"]);
    let store = store_over(&format!("memcached://127.0.0.1:{}", server.port));
    let mut client = Client::to(store.address);
    let value = [b'x'; 1000];
    let key = |n: u32| format!("key{n}").into_bytes();
    assert_eq!(client.write(b"first", &value).header.status, Status::Ok);
    let refused = (0..).find(|n| {
        let header = Header::new(Op::WriteRequest);
        client.ask(header, &key(*n), &value, 0).header.status != Status::Ok
    });
    assert!(refused > Some(100), "it is full: {refused:?}");
    let read = client.read_padded(&key(5), 1400).header;
    let mut only_if = |key: &[u8], version| client.compare_and_write(key, version, &value).header;
    let absent = only_if(&key(5), wire::VERSION_ABSENT);
    assert_eq!(absent.status, Status::Mismatch, "it is there");
    let absent = only_if(b"nosuch", wire::VERSION_PRESENT);
    assert_eq!(absent.status, Status::Mismatch, "it is not");
    let mut version = wire::VERSION_PRESENT;
    for _ in 0..2 {
        let written = client.compare_and_write(&key(5), version, &value).header;
        assert_eq!(written.status, Status::Ok, "it takes no more room");
        version = client.read_padded(&key(5), 1400).header.version;
    }
    assert_eq!(client.write(&key(5), &value).header.status, Status::Ok);
    let now = client.read_padded(&key(5), 1400);
    assert_eq!((now.header.status, &now.value[..]), (Status::Ok, &value[..]));
    assert_ne!(now.header.version, read.version);
}

/// What every backend must do.
fn behaves(store: &StoreThread) {
    let mut client = Client::to(store.address);
    assert_eq!(client.read(b"a").header.status, Status::NotFound);
    let first = client.write(b"a", b"1");
    assert_eq!(first.header.status, Status::Ok);
    let read = client.read(b"a");
    assert_eq!((&read.value[..], read.header.version), (&b"1"[..], first.header.version));
    assert_eq!(read.header.expiry_ms, 0, "it does not expire");

    // (compared version, status, why)
    let rows = [
        (wire::VERSION_ABSENT, Status::Mismatch, "it is there"),
        (first.header.version + 99, Status::Mismatch, "another version"),
        (wire::VERSION_PRESENT, Status::Ok, "it is there"),
    ];
    for (version, status, why) in rows {
        assert_eq!(client.compare_and_write(b"a", version, b"2").header.status, status, "{why}");
    }
    let version = client.read(b"a").header.version;
    assert_eq!(client.compare_and_write(b"a", version, b"3").header.status, Status::Ok);
    assert_eq!(
        client.compare_and_write(b"b", wire::VERSION_PRESENT, b"x").header.status,
        Status::Mismatch
    );
    assert_eq!(
        client.compare_and_write(b"b", wire::VERSION_ABSENT, b"x").header.status,
        Status::Ok
    );
    assert_eq!(client.read(b"b").value, b"x");

    let compared = Header { flags: Flags::COMPARE, version: 1, ..Header::new(Op::DeleteRequest) };
    assert_eq!(client.ask(compared, b"a", &[], 0).header.status, Status::Mismatch);
    let delete = Header::new(Op::DeleteRequest);
    assert_eq!(client.ask(delete, b"a", &[], 0).header.status, Status::Ok);
    assert_eq!(client.ask(delete, b"a", &[], 0).header.status, Status::NotFound);
    assert_eq!(client.read(b"a").header.status, Status::NotFound);

    let odd = [b"with space\r\n\0".as_slice(), &[0xff, 0x20, 0x7f]].concat();
    let value: Vec<u8> = (0..=255).cycle().take(1000).collect();
    assert_eq!(client.write(&odd, &value).header.status, Status::Ok);
    assert_eq!(client.read_padded(&odd, 1400).value, value);

    // Empty is not absent, with a time to live or without, nor is as much as a packet carries
    // too much.
    let most = vec![7; wire::max_value(1)];
    for (value, expiry_ms) in [(&b""[..], 0), (b"", 60_000), (&most, 0), (&most, 60_000)] {
        let header = Header { expiry_ms, ..Header::new(Op::WriteRequest) };
        assert_eq!(client.ask(header, b"e", value, 0).header.status, Status::Ok);
        let read = client.read_padded(b"e", wire::MAX_PAYLOAD);
        assert_eq!((read.header.status, &read.value[..]), (Status::Ok, value));
        assert_eq!(read.header.expiry_ms > 0, expiry_ms > 0);
    }

    // What is deleted only if it is absent is not deleted.
    let header =
        |version| Header { flags: Flags::COMPARE, version, ..Header::new(Op::DeleteRequest) };
    let version = client.write(b"d", b"v").header.version;
    let kept = client.ask(header(wire::VERSION_ABSENT), b"d", &[], 0).header;
    assert_eq!((kept.status, kept.version), (Status::Mismatch, version));
    assert_eq!(client.read(b"d").value, b"v");
    let none = client.ask(header(wire::VERSION_ABSENT), b"nosuch", &[], 0);
    assert_eq!(none.header.status, Status::NotFound);
    let gone = client.ask(header(wire::VERSION_PRESENT), b"d", &[], 0);
    assert_eq!(gone.header.status, Status::Ok);
    assert_eq!(client.read(b"d").header.status, Status::NotFound);
    let none = client.ask(header(wire::VERSION_PRESENT), b"d", &[], 0);
    assert_eq!(none.header.status, Status::Mismatch, "it is absent");

    // Values of any length, over one another.
    for len in [1393, 100_000, 2 * 1024 * 3, 1_000_000, 1500] {
        let value: Vec<u8> = (0..len).map(|at| (at % 251 + at / 1000) as u8).collect();
        let written = client.write_parts(b"l", &value).header;
        assert_eq!(written.status, Status::Ok, "{len}");
        let read = client.read_whole(b"l");
        assert_eq!((read.header.version, read.value), (written.version, value));
        let again = client.read_whole(b"l").header.version;
        assert_eq!(again, written.version, "it did not change");
    }
    assert_eq!(client.write(b"l", b"small").header.status, Status::Ok);
    assert_eq!(client.read_whole(b"l").value, b"small");
    let too_large = vec![1; (1 << 20) + 1];
    let refused = client.write_parts(b"l", &too_large).header.status;
    assert_eq!(refused, Status::TooLarge);
    assert_eq!(client.read_whole(b"l").value, b"small");

    let lasting = Header { expiry_ms: 60_000, ..Header::new(Op::WriteRequest) };
    let written = Instant::now();
    assert_eq!(client.ask(lasting, b"t", b"v", 0).header.status, Status::Ok);
    let left = client.read(b"t").header.expiry_ms;
    // memcached counts seconds.
    let least = 58_000 - written.elapsed().as_millis() as u32;
    assert!((least..=61_000).contains(&left), "{left} ms left of 60,000, expected {least}");
}

#[test]
fn embedded_behaves() {
    behaves(&store_over("embedded"));
}

#[test]
fn redis_behaves_over_tcp_and_a_unix_socket() {
    let server = redis();
    behaves(&store_over(&format!("redis://127.0.0.1:{}", server.port)));
    let path = server.directory.path().join("redis.sock");
    let over_unix = store_over(&format!("redis+unix://{}", path.display()));
    assert_eq!(Client::to(over_unix.address).read(b"b").value, b"x", "tenant 0's keys as they are");
}

#[test]
fn memcached_behaves() {
    let server = memcached();
    behaves(&store_over(&format!("memcached://127.0.0.1:{}", server.port)));
}

/// What memcached answers to a line.
fn memcached_says(port: u16, line: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{line}\r\nquit\r\n").as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_life_in_memcached_is_as_long_as_was_asked_and_no_longer() {
    let server = memcached();
    let store = store_over(&format!("memcached://127.0.0.1:{}", server.port));
    let mut client = Client::to(store.address);
    client.write(b"other", b"");
    let lasting = |expiry_ms| Header { expiry_ms, ..Header::new(Op::WriteRequest) };
    // (life, what remains of it at the most and, on whatever machine, at the least)
    for (life_ms, least) in [(2_592_001_000, 2_591_000_000), (100, 1), (1, 1)] {
        for key in [&b"plain"[..], b"not plain"] {
            assert_eq!(client.ask(lasting(life_ms), key, b"v", 0).header.status, Status::Ok);
            let read = client.read(key).header;
            let is_told = (least..=life_ms).contains(&read.expiry_ms);
            assert!(is_told || (life_ms <= 100 && read.status == Status::NotFound), "{read:?}");
        }
    }
    // memcached itself has it for a second or two more, as long as nobody reads it here. A machine
    // that stands still for as long sets it again.
    let began = Instant::now();
    loop {
        assert_eq!(client.ask(lasting(1), b"plain", b"v", 0).header.status, Status::Ok);
        if memcached_says(server.port, "mg plain t").starts_with("HD t") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "memcached has it no longer than was asked");
    }
    // So long is none of these lives.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.read(b"plain").header.status, Status::NotFound);
    assert_eq!(memcached_says(server.port, "mg plain t"), "EN\r\n", "it was removed");
    // Whoever comes next finds nothing, however he asks.
    let present = client.compare_and_write(b"not plain", wire::VERSION_PRESENT, b"w");
    assert_eq!(present.header.status, Status::Mismatch);
    let absent = client.compare_and_write(b"not plain", wire::VERSION_ABSENT, b"w");
    assert_eq!(absent.header.status, Status::Ok);
    assert_eq!(client.read(b"not plain").header.expiry_ms, 0);
    // What another client has written since is another value.
    assert_eq!(client.ask(lasting(1), b"plain", b"v", 0).header.status, Status::Ok);
    assert_eq!(memcached_says(server.port, "set plain 0 0 1\r\nx"), "STORED\r\n");
    assert_eq!(client.read(b"plain").value, b"x");
}

#[test]
fn a_key_that_memcached_cannot_name_is_refused_with_what_it_could() {
    let server = memcached();
    let mut config = Config {
        backend: format!("memcached://127.0.0.1:{}", server.port).parse().unwrap(),
        ..support::loopback()
    };
    config.cluster.tenants.push(wire::Tenant::new(7, "09".repeat(16)));
    let store = StoreThread::start(config);
    let mut client = Client::to(store.address);
    client.secrets = wire::Secrets::one(wire::Secret([9; 16]));
    let mut write = |key: &[u8]| {
        let header = Header { tenant: 7, ..Header::new(Op::WriteRequest) };
        let reply = client.ask(header, key, b"v", 0).header;
        (reply.status, if reply.status == Status::TooLarge { reply.version } else { 0 })
    };
    // The tenant's prefix has 12 bytes; three bytes become four where they are no text.
    for (byte, most) in [(b'k', 238), (b' ', 174)] {
        assert_eq!(write(&vec![byte; most]), (Status::Ok, 0));
        assert_eq!(write(&vec![byte; most + 1]), (Status::TooLarge, most as u64));
        assert_eq!(write(&[byte; 250]), (Status::TooLarge, most as u64));
    }
}

#[test]
fn a_large_value_in_memcached_is_read_past() {
    let server = memcached();
    let store = store_of(&format!("memcached://127.0.0.1:{}", server.port), 500_000);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let large = [
        b"set large 0 0 1000000\r\n".as_slice(),
        &[b'\n'; 1_000_000],
        b"\r\nset small 0 0 1\r\nv\r\nquit\r\n",
    ];
    stream.write_all(&large.concat()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "STORED\r\nSTORED\r\n");
    let mut client = Client::to(store.address);
    for _ in 0..10 {
        let large = client.read(b"large");
        assert_eq!((large.header.status, large.value), (Status::TooLarge, vec![]));
        assert_eq!(client.read(b"small").value, b"v");
    }
}

#[test]
fn what_memcached_cannot_hold_leaves_what_it_holds() {
    let server = memcached();
    let store = store_over(&format!("memcached://127.0.0.1:{}", server.port));
    let mut client = Client::to(store.address);
    // The bound leaves room for what memcached adds.
    let most = vec![3; (1 << 20) - 129];
    assert_eq!(client.write_parts(b"k", &most).header.status, Status::Ok);
    let mib = vec![4; 1 << 20];
    let refused = client.write_parts(b"k", &mib).header.status;
    assert_eq!(refused, Status::TooLarge);
    assert_eq!(client.read_whole(b"k").value, most);
}

#[test]
fn a_value_that_nobody_may_read_costs_redis_a_packets_worth() {
    let server = redis();
    let store = store_of(&format!("redis://127.0.0.1:{}", server.port), 500_000);
    let direct = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut direct = direct.get_connection().unwrap();
    let large = vec![1u8; 64 << 20];
    let () = redis::cmd("SET").arg("large").arg(&large[..]).query(&mut direct).unwrap();
    let mut sent = || -> u64 {
        let stats: String = redis::cmd("INFO").arg("stats").query(&mut direct).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.unwrap().trim().parse().unwrap()
    };
    let mut client = Client::to(store.address);
    let before = sent();
    for _ in 0..10 {
        assert_eq!(client.read(b"large").header.status, Status::TooLarge);
    }
    let cost = sent() - before;
    assert!(cost < 100_000, "{cost} bytes for ten reads");
}

#[test]
fn parts_of_one_version_are_of_one_value_whoever_writes() {
    let server = redis();
    let store = store_over(&format!("redis://127.0.0.1:{}", server.port));
    let direct = redis::Client::open(format!("redis://127.0.0.1:{}", server.port)).unwrap();
    let mut direct = direct.get_connection().unwrap();
    let mut set = |byte: u8| {
        let value = vec![byte; 3000];
        let () = redis::cmd("SET").arg("k").arg(value).query(&mut direct).unwrap();
    };
    let mut client = Client::to(store.address);
    set(1);
    let first = client.read_padded(b"k", wire::MAX_PAYLOAD);
    let part = |part| Header {
        part,
        total: first.header.total,
        version: first.header.version,
        ..Header::new(Op::ReadRequest)
    };
    set(2);
    // No packet of ours passed, nobody was granted a copy, so nothing told the store.
    let second = client.ask(part(4), b"k", &[], wire::MAX_PAYLOAD);
    assert_eq!((second.header.part, &second.value[..]), (4, &[1; 1024][..]));
    let anew = client.read_padded(b"k", wire::MAX_PAYLOAD);
    assert_eq!(anew.value, [2; 1024]);
    assert!(anew.header.version > first.header.version);
    let third = client.ask(part(8), b"k", &[], wire::MAX_PAYLOAD);
    assert_eq!((third.header.version, third.value), (anew.header.version, anew.value));
}

#[test]
fn a_backend_that_dies_is_an_error_and_one_that_returns_is_found_again() {
    let server = redis();
    let store = store_over(&format!("redis://127.0.0.1:{}", server.port));
    let mut client = Client::to(store.address);
    assert_eq!(client.write(b"k", b"1").header.status, Status::Ok);
    let port = server.stop();
    assert_eq!(client.read(b"k").header.status, Status::BackendError);
    let _again = start_at(port, redis_command);
    let found = Instant::now();
    while client.write(b"k", b"2").header.status != Status::Ok {
        assert!(found.elapsed() < PATIENCE, "it is there");
    }
    assert_eq!(client.read(b"k").value, b"2");
}

#[test]
fn a_write_whose_answer_was_lost_holds_nobody_up_once_redis_has_ended_its_connection() {
    // (what Redis lets the store do, whether the next write of the key waits for a lease)
    let rows: [(&[&str], bool); 3] =
        [(&["allcommands"], false), (&["-client|kill"], true), (&["-info"], true)];
    for (rights, waits) in rows {
        let server = redis();
        let url = format!("redis://127.0.0.1:{}", server.port);
        let mut direct = redis::Client::open(&url[..]).unwrap().get_connection().unwrap();
        let mut say = |words: &[&str]| -> redis::Value {
            redis::cmd(words[0]).arg(&words[1..]).query(&mut direct).unwrap()
        };
        say(&["ACL", "SETUSER", "keeper", "on", "nopass", "~*", "+@all"]);
        say(&[&["ACL", "SETUSER", "keeper"], rights].concat());
        let store = store_over(&format!("redis://keeper:x@127.0.0.1:{}", server.port));
        let (mut writer, mut reader) = (Client::to(store.address), Client::to(store.address));
        assert_eq!(writer.write(b"k", b"1").header.status, Status::Ok);

        // Redis has the write, and does not carry it out before it has lost the connection.
        say(&["CLIENT", "PAUSE", "1000000", "WRITE"]);
        writer.tell(Header::new(Op::WriteRequest), b"k", b"2");
        let deadline = Instant::now() + PATIENCE;
        while !format!("{:?}", say(&["INFO", "clients"])).contains("blocked_clients:1") {
            assert!(Instant::now() < deadline, "it has been asked");
        }
        say(&["CLIENT", "KILL", "USER", "keeper"]);
        let lost = writer.write(b"k", b"2").header;
        assert_eq!((lost.status, lost.version), (Status::BackendError, 0), "nobody knows");
        while reader.read(b"k").header.status != Status::Ok {
            assert!(Instant::now() < deadline, "it is connected to again");
        }
        say(&["CLIENT", "UNPAUSE"]);

        // Either it is with Redis before the read, or it waits for longer than that takes.
        writer.tell(Header::new(Op::WriteRequest), b"k", b"3");
        let read = reader.read(b"k").value;
        assert_eq!(read, if waits { b"1" } else { b"3" }, "{rights:?}");
    }
}

#[test]
fn a_redis_that_takes_most_of_a_second_is_waited_for() {
    let usual = Config::new("127.0.0.1:0".parse().unwrap()).backend_within;
    assert!(usual >= Duration::from_secs(1));
    let server = redis();
    let url = format!("redis://127.0.0.1:{}", server.port);
    let store = store_over(&url);
    let mut client = Client::to(store.address);
    assert_eq!(client.write(b"k", b"1").header.status, Status::Ok);
    let mut direct = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut pause = redis::cmd("CLIENT");
    let () = pause.arg("PAUSE").arg(700).query(&mut direct).unwrap();
    assert_eq!(client.read(b"k").value, b"1");
}

#[test]
fn an_embedded_expiry_is_kept() {
    let store = store_over("embedded");
    let mut client = Client::to(store.address);
    client.write(b"other", b"");
    let short = Header { expiry_ms: 1, ..Header::new(Op::WriteRequest) };
    assert_eq!(client.ask(short, b"t", b"v", 0).header.status, Status::Ok);
    let deadline = Instant::now() + PATIENCE;
    while client.read(b"t").header.status == Status::Ok {
        assert!(Instant::now() < deadline, "it outlived its millisecond by far");
    }
}
