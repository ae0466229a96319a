//! TLS from clients and to a Redis, with certificates that are right, wrong and missing, and peers
//! that do not finish what they begin.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::Arc,
};

use authority::Authority;
use gateway::{ClientFiles, Config, Identity, ServerFiles};
use lab::port::HeldPort;
use tls::rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use crate::support::{Gateway, PATIENCE, Redis, Speaker, command, config, until};

pub fn shown_by(authority: &Authority, mutual: bool) -> ServerFiles {
    ServerFiles {
        cert: authority.path("server.pem"),
        key: authority.path("server.key"),
        client_ca: mutual.then(|| authority.path("ca.pem")),
    }
}

pub fn believed_by(authority: &Authority, shows: bool) -> ClientFiles {
    let own = Identity { cert: authority.path("client.pem"), key: authority.path("client.key") };
    ClientFiles { ca: Some(authority.path("ca.pem")), own: shows.then_some(own) }
}

/// A gateway that takes clients by TLS alone.
fn secured(redis: &Redis, authority: &Authority, mutual: bool) -> Gateway {
    Gateway::start(Config { tls: Some(shown_by(authority, mutual)), ..config(&redis.url()) })
}

type SecureStream = StreamOwned<ClientConnection, TcpStream>;

pub fn secure(address: SocketAddr, files: &ClientFiles) -> SecureStream {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(files.config().unwrap()), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(connection, socket)
}

/// A Redis that speaks TLS, and its port, which nobody else is given as long as it is held.
pub fn redis_with_tls(authority: &Authority, mutual: bool) -> (Redis, HeldPort) {
    let port = lab::port::held();
    let file = |name: &str| authority.path(name).display().to_string();
    let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let port_text = port.number.to_string();
    let auth = if mutual { "yes" } else { "no" };
    let redis = Redis::start(&[
        "--tls-port",
        &port_text,
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        auth,
    ]);
    (redis, port)
}

#[test]
fn clients_come_in_by_tls() {
    let (redis, authority) = (Redis::start(&[]), Authority::generate());
    for mutual in [false, true] {
        let gateway = secured(&redis, &authority, mutual);
        let mut client = Speaker::new(secure(gateway.address, &believed_by(&authority, mutual)));
        assert_eq!(client.ask("SET k v"), "+OK\r\n");
        assert_eq!(client.ask("GET k"), "$1\r\nv\r\n");
        client.say(&[command("MULTI"), command("INCR n"), command("EXEC")].concat());
        assert_eq!(client.answer(), "+OK\r\n");
        assert_eq!(client.answer(), "+QUEUED\r\n");
        assert!(client.answer().starts_with("*1\r\n:"));
        // More than buffers hold, both ways.
        let long = "v".repeat(1 << 20);
        assert_eq!(client.ask(&format!("SET long {long}")), "+OK\r\n");
        client.say(&command("GET long").repeat(20));
        for _ in 0..20 {
            assert_eq!(client.answer(), format!("${}\r\n{long}\r\n", long.len()));
        }
    }
}

#[test]
fn the_client_of_redis_comes_in_by_tls() {
    let (redis, authority) = (Redis::start(&[]), Authority::generate());
    let gateway = secured(&redis, &authority, true);
    let port = gateway.address.port().to_string();
    let ask = |certificate: bool, words: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "localhost", "-p", &port, "--tls", "--cacert"]);
        cli.arg(authority.path("ca.pem"));
        if certificate {
            cli.arg("--cert").arg(authority.path("client.pem"));
            cli.arg("--key").arg(authority.path("client.key"));
        }
        let output = cli.args(words).output().expect("redis-cli is needed (Debian: redis-tools)");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    assert_eq!(ask(true, &["set", "k", "v"]), "OK");
    assert_eq!(ask(true, &["-3", "get", "k"]), "v");
    assert_eq!(ask(false, &["get", "k"]), "");
}

#[test]
fn the_store_and_its_redis_are_reached_by_tls() {
    let authority = Authority::generate();
    for mutual in [false, true] {
        let (_redis, held) = redis_with_tls(&authority, mutual);
        let url = format!("rediss://localhost:{}", held.number);
        let mut config = config(&url);
        config.backends = vec![url.parse().unwrap()];
        config.backend_tls = believed_by(&authority, mutual);
        let gateway = Gateway::start(config);
        let mut client = gateway.speak();
        let value = "v".repeat(1 << 20);
        // Who stands still while they greet one another is let go.
        until("the store is reached", || {
            let said = client.ask(&format!("SET k {value}"));
            let is_away =
                said.starts_with("-TRYAGAIN ") || said.starts_with("-ERR outcome unknown");
            assert!(is_away || said == "+OK\r\n", "{said}");
            !is_away
        });
        client.say(&command("GET k").repeat(20));
        for _ in 0..20 {
            assert_eq!(client.answer(), format!("${}\r\n{value}\r\n", value.len()));
        }
        assert_eq!(client.ask("CLIENT SETNAME me"), "+OK\r\n");
        assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
        until("reads go to the Redis itself", || {
            client.ask("STRLEN k");
            gateway.counter("direct_reads") > 0
        });
    }
}

#[test]
fn a_server_that_cannot_be_believed_is_told_nothing() {
    let (authority, other) = (Authority::generate(), Authority::generate());
    let (redis, held) = redis_with_tls(&authority, true);
    let port = held.number;
    let expired = Config {
        tls: Some(ServerFiles {
            cert: authority.path("expired.pem"),
            key: authority.path("expired.key"),
            client_ca: None,
        }),
        ..config(&redis.url())
    };
    let expired = Gateway::start(expired);
    // (URL, whom the gateway believes and what it shows)
    let rows = [
        (format!("rediss://localhost:{port}"), believed_by(&other, true)),
        (format!("rediss://127.0.0.2:{port}"), believed_by(&authority, true)),
        (format!("rediss://localhost:{port}"), ClientFiles::default()),
        (format!("rediss://localhost:{}", expired.address.port()), believed_by(&authority, true)),
    ];
    for (url, files) in rows {
        let mut config = config(&url);
        config.backend_tls = files;
        let gateway = Gateway::start(config);
        let mut client = gateway.speak();
        let said = client.ask("SET k v");
        assert!(said.starts_with("-TRYAGAIN nothing was done: the store is away"), "{url}: {said}");
    }
    // One who shows no certificate hears of it only after its handshake.
    let mut config = config(&format!("rediss://localhost:{port}"));
    config.backend_tls = believed_by(&authority, false);
    let gateway = Gateway::start(config);
    let said = gateway.speak().ask("SET k v");
    assert!(said.starts_with("-TRYAGAIN ") || said.starts_with("-ERR outcome unknown"), "{said}");
    assert_eq!(redis.speak().ask("EXISTS k"), ":0\r\n");
}

/// Whether the other side ends the connection.
fn is_ended(mut socket: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

fn plain(gateway: &Gateway) -> TcpStream {
    let socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn who_speaks_no_tls_or_is_not_believed_is_sent_away() {
    let (redis, authority, other) =
        (Redis::start(&[]), Authority::generate(), Authority::generate());
    let gateway = secured(&redis, &authority, true);
    let mut socket = plain(&gateway);
    socket.write_all(&command("SET k plain")).unwrap();
    assert!(is_ended(&socket), "no TLS");
    let none = believed_by(&authority, false);
    let strange = ClientFiles { ca: Some(authority.path("ca.pem")), ..believed_by(&other, true) };
    let late = ClientFiles {
        own: Some(Identity {
            cert: authority.path("expired.pem"),
            key: authority.path("expired.key"),
        }),
        ..believed_by(&authority, false)
    };
    for files in [none, strange, late] {
        let mut stream = secure(gateway.address, &files);
        let _ = stream.write_all(&command("SET k strange"));
        let _ = stream.flush();
        assert!(stream.read(&mut [0; 64]).is_err(), "{files:?}");
    }
    let mut client = Speaker::new(secure(gateway.address, &believed_by(&authority, true)));
    let told = client.ask("INFO gateway");
    assert!(told.contains("tls_failures:4\r\n"), "{told}");
    assert_eq!(client.ask("EXISTS k"), ":0\r\n");
    // And the other way round: TLS where none is spoken.
    let gateway = Gateway::start(config(&redis.url()));
    let mut stream = secure(gateway.address, &believed_by(&authority, true));
    assert!(stream.write_all(&command("PING")).and_then(|()| stream.read(&mut [0; 64])).is_err());
    assert_eq!(gateway.counter("foreign_protocols"), 1);
}

#[test]
fn handshakes_that_never_end_stop_nobody_and_end() {
    let (redis, authority) = (Redis::start(&[]), Authority::generate());
    let gateway = secured(&redis, &authority, false);
    // Nothing, the head of a record whose rest never comes, and half of a long greeting.
    let head = [0x16, 3, 1, 0x3f, 0xff];
    let half = [&head[..], &[1, 0, 0x80, 0, 3, 3], &[0; 8000]].concat();
    let begun: Vec<TcpStream> = (0..60)
        .map(|number| {
            let mut socket = plain(&gateway);
            let bytes = [&[][..], &head[..], &half[..]][number % 3];
            socket.write_all(bytes).unwrap();
            socket
        })
        .collect();
    let mut client = Speaker::new(secure(gateway.address, &believed_by(&authority, false)));
    for number in 0..100 {
        assert_eq!(client.ask(&format!("SET mine {number}")), "+OK\r\n");
    }
    for socket in &begun {
        assert!(is_ended(socket));
    }
    assert_eq!(client.ask("GET mine"), "$2\r\n99\r\n");
    let told = client.ask("INFO gateway");
    assert!(
        told.contains("tls_failures:60\r\n") && told.contains("connected_clients:1\r\n"),
        "{told}"
    );
}

#[test]
fn who_greets_without_end_is_sent_away() {
    let (redis, authority) = (Redis::start(&[]), Authority::generate());
    let gateway = secured(&redis, &authority, true);
    // A greeting of 60,000 bytes, in records, again and again.
    let record = [&[0x16, 3, 1, 0x20, 0][..], &[1, 0, 0xea, 0x60], &[0; 0x2000 - 4]].concat();
    let mut socket = plain(&gateway);
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    while socket.write_all(&record).is_ok() {}
    assert!(is_ended(&socket));
}

#[test]
fn a_secured_client_that_never_reads_stops_nobody() {
    let (redis, authority) = (Redis::start(&[]), Authority::generate());
    let mut config = config(&redis.url());
    config.tls = Some(shown_by(&authority, false));
    config.limits.memory_bytes = 4 << 20;
    let gateway = Gateway::start(config);
    let files = believed_by(&authority, false);
    let mut client = Speaker::new(secure(gateway.address, &files));
    client.ask(&format!("SET k {}", "v".repeat(4000)));
    let mut silent = secure(gateway.address, &files);
    let closed = (0..100_000)
        .any(|_| silent.write_all(&command("GET k")).and_then(|()| silent.flush()).is_err());
    assert!(closed, "400 MB of answers");
    assert!(client.ask("GET k").starts_with("$4000\r\n"));
    assert!(client.ask("INFO gateway").contains("memory_refusals:1\r\n"));
}

#[test]
fn certificates_that_change_are_shown_to_those_who_come_then() {
    let (redis, ours, next) = (Redis::start(&[]), Authority::generate(), Authority::generate());
    let gateway = secured(&redis, &ours, false);
    let works = |authority: &Authority| {
        let mut stream = secure(gateway.address, &believed_by(authority, false));
        let mut answer = [0; 7];
        let said = stream.write_all(&command("PING")).and_then(|()| stream.read_exact(&mut answer));
        said.is_ok() && &answer == b"+PONG\r\n"
    };
    let mut before = Speaker::new(secure(gateway.address, &believed_by(&ours, false)));
    assert_eq!(before.ask("PING"), "+PONG\r\n");
    for name in ["server.pem", "server.key"] {
        std::fs::write(ours.path(name), next.bytes(name)).unwrap();
    }
    until("the next is shown", || works(&next));
    assert!(!works(&ours));
    assert_eq!(before.ask("PING"), "+PONG\r\n", "who is there stays");
}
