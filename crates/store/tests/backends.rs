//! The same questions to every backend: in this process, a real Redis, a real memcached.

mod support;

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use store::{BackendConfig, Config};
use support::{
    Client, Running,
    servers::{memcached, redis, redis_command, start_at},
};
use wire::{Flags, Header, Op, Status};

fn store_over(backend: &str) -> Running {
    let backend: BackendConfig = backend.parse().unwrap();
    Running::start(Config {
        backend,
        ..support::loopback()
    })
}

/// What every backend must do.
fn behaves(store: &Running) {
    let mut client = Client::to(store.address);
    assert_eq!(client.read(b"a").header.status, Status::NotFound);
    let first = client.write(b"a", b"1");
    assert_eq!(first.header.status, Status::Ok);
    let read = client.read(b"a");
    assert_eq!(
        (&read.value[..], read.header.version),
        (&b"1"[..], first.header.version)
    );
    assert_eq!(read.header.expiry_ms, 0, "it does not expire");

    // (compared version, status, why)
    let rows = [
        (wire::VERSION_ABSENT, Status::Mismatch, "it is there"),
        (
            first.header.version + 99,
            Status::Mismatch,
            "another version",
        ),
        (wire::VERSION_PRESENT, Status::Ok, "it is there"),
    ];
    for (version, status, why) in rows {
        assert_eq!(
            client.compare_and_write(b"a", version, b"2").header.status,
            status,
            "{why}"
        );
    }
    let version = client.read(b"a").header.version;
    assert_eq!(
        client.compare_and_write(b"a", version, b"3").header.status,
        Status::Ok
    );
    assert_eq!(
        client
            .compare_and_write(b"b", wire::VERSION_PRESENT, b"x")
            .header
            .status,
        Status::Mismatch
    );
    assert_eq!(
        client
            .compare_and_write(b"b", wire::VERSION_ABSENT, b"x")
            .header
            .status,
        Status::Ok
    );
    assert_eq!(client.read(b"b").value, b"x");

    let compared = Header {
        flags: Flags::COMPARE,
        version: 1,
        ..Header::new(Op::DeleteRequest)
    };
    assert_eq!(
        client.ask(compared, b"a", &[], 0).header.status,
        Status::Mismatch
    );
    let delete = Header::new(Op::DeleteRequest);
    assert_eq!(client.ask(delete, b"a", &[], 0).header.status, Status::Ok);
    assert_eq!(
        client.ask(delete, b"a", &[], 0).header.status,
        Status::NotFound
    );
    assert_eq!(client.read(b"a").header.status, Status::NotFound);

    let odd = [b"with space\r\n\0".as_slice(), &[0xff, 0x20, 0x7f]].concat();
    let value: Vec<u8> = (0..=255).cycle().take(1000).collect();
    assert_eq!(client.write(&odd, &value).header.status, Status::Ok);
    assert_eq!(client.read_padded(&odd, 1400).value, value);

    // Empty is not absent, with a time to live or without, nor is as much as a packet carries too much.
    let most = vec![7; wire::max_value(1)];
    for (value, expiry_ms) in [(&b""[..], 0), (b"", 60_000), (&most, 0), (&most, 60_000)] {
        let header = Header {
            expiry_ms,
            ..Header::new(Op::WriteRequest)
        };
        assert_eq!(client.ask(header, b"e", value, 0).header.status, Status::Ok);
        let read = client.read_padded(b"e", wire::MAX_PAYLOAD);
        assert_eq!((read.header.status, &read.value[..]), (Status::Ok, value));
        assert_eq!(read.header.expiry_ms > 0, expiry_ms > 0);
    }

    // What is deleted only if it is absent is not deleted.
    let header = |version| Header {
        flags: Flags::COMPARE,
        version,
        ..Header::new(Op::DeleteRequest)
    };
    let version = client.write(b"d", b"v").header.version;
    let kept = client
        .ask(header(wire::VERSION_ABSENT), b"d", &[], 0)
        .header;
    assert_eq!((kept.status, kept.version), (Status::Mismatch, version));
    assert_eq!(client.read(b"d").value, b"v");
    let none = client.ask(header(wire::VERSION_ABSENT), b"nosuch", &[], 0);
    assert_eq!(none.header.status, Status::NotFound);
    let gone = client.ask(header(wire::VERSION_PRESENT), b"d", &[], 0);
    assert_eq!(gone.header.status, Status::Ok);
    assert_eq!(client.read(b"d").header.status, Status::NotFound);
    let none = client.ask(header(wire::VERSION_PRESENT), b"d", &[], 0);
    assert_eq!(none.header.status, Status::Mismatch, "it is absent");

    let lasting = Header {
        expiry_ms: 60_000,
        ..Header::new(Op::WriteRequest)
    };
    assert_eq!(client.ask(lasting, b"t", b"v", 0).header.status, Status::Ok);
    let left = client.read(b"t").header.expiry_ms;
    assert!(
        (50_000..=61_000).contains(&left),
        "{left} ms left of 60,000"
    );
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
    assert_eq!(
        Client::to(over_unix.address).read(b"b").value,
        b"x",
        "tenant 0's keys as they are"
    );
}

#[test]
fn memcached_behaves() {
    let server = memcached();
    behaves(&store_over(&format!(
        "memcached://127.0.0.1:{}",
        server.port
    )));
}

#[test]
fn a_large_value_in_memcached_is_read_past() {
    let server = memcached();
    let store = store_over(&format!("memcached://127.0.0.1:{}", server.port));
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
        assert_eq!(
            (large.header.status, large.value),
            (Status::TooLarge, vec![])
        );
        assert_eq!(client.read(b"small").value, b"v");
    }
}

#[test]
fn a_backend_that_dies_is_an_error_and_one_that_returns_is_found_again() {
    let server = redis();
    let port = server.port;
    let store = store_over(&format!("redis://127.0.0.1:{port}"));
    let mut client = Client::to(store.address);
    assert_eq!(client.write(b"k", b"1").header.status, Status::Ok);
    drop(server);
    assert_eq!(client.read(b"k").header.status, Status::BackendError);
    let _again = start_at(Some(port), redis_command);
    assert_eq!(client.write(b"k", b"2").header.status, Status::Ok);
    assert_eq!(client.read(b"k").value, b"2");
}

#[test]
fn an_embedded_expiry_is_kept() {
    let store = store_over("embedded");
    let mut client = Client::to(store.address);
    client.write(b"other", b"");
    let short = Header {
        expiry_ms: 1,
        ..Header::new(Op::WriteRequest)
    };
    assert_eq!(client.ask(short, b"t", b"v", 0).header.status, Status::Ok);
    let deadline = Instant::now() + Duration::from_secs(5);
    while client.read(b"t").header.status == Status::Ok {
        assert!(
            Instant::now() < deadline,
            "it outlived its millisecond by far"
        );
    }
}
