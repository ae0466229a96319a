//! The store with TLS on both sides: clients of its RESP port, and the Redis behind it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::Arc,
};

use authority::Authority;
use store::{ClientFiles, Config, Identity, Resolver, ServerFiles};
use tls::rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use super::support::{
    self, PATIENCE, StoreThread,
    others::{Outsider, Switch},
    servers::{Process, redis, redis_command, start_at},
};

fn shown_by(authority: &Authority, mutual: bool) -> ServerFiles {
    ServerFiles {
        cert: authority.path("server.pem"),
        key: authority.path("server.key"),
        client_ca: mutual.then(|| authority.path("ca.pem")),
    }
}

fn believed_by(authority: &Authority, shows: bool) -> ClientFiles {
    let own = Identity { cert: authority.path("client.pem"), key: authority.path("client.key") };
    ClientFiles { ca: Some(authority.path("ca.pem")), own: shows.then_some(own) }
}

/// A Redis that speaks TLS alone, and asks for certificates; beside that it has its socket.
fn redis_with_tls(authority: &Authority) -> Process {
    start_at(lab::port::held(), |port, directory| {
        let mut command = redis_command(0, directory);
        // Its certificate is not for the second.
        command.args(["--bind", "127.0.0.1", "127.0.0.2"]);
        command.arg("--tls-port").arg(port.to_string());
        command.arg("--tls-ca-cert-file").arg(authority.path("ca.pem"));
        command.arg("--tls-cert-file").arg(authority.path("server.pem"));
        command.arg("--tls-key-file").arg(authority.path("server.key"));
        command
    })
}

/// A store whose RESP port is for clients by TLS.
fn secured(server: &Process, authority: &Authority, mutual: bool) -> Config {
    Config {
        backend: format!("redis://127.0.0.1:{}", server.port).parse().unwrap(),
        resp: vec!["rediss://127.0.0.1:0".parse().unwrap()],
        tls: Some(shown_by(authority, mutual)),
        ..support::loopback()
    }
}

type SecureStream = StreamOwned<ClientConnection, TcpStream>;

fn secure(address: SocketAddr, files: &ClientFiles) -> SecureStream {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(files.config().unwrap()), name).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(connection, socket)
}

fn ask(stream: &mut SecureStream, line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut buffer = [0; 4096];
    let len = stream.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

#[test]
fn clients_of_the_resp_port_come_in_by_tls() {
    let (server, authority) = (redis(), Authority::generate());
    for mutual in [false, true] {
        let store = StoreThread::start(secured(&server, &authority, mutual));
        let port = store.port.unwrap();
        let mut client = secure(port, &believed_by(&authority, mutual));
        assert_eq!(ask(&mut client, "SET k before"), "+OK\r\n");
        // Copies are called back for such a client as for any.
        let mut switch = Switch::to(store.address);
        assert_eq!(switch.copy(b"k"), b"before");
        client.write_all(b"SET k after\r\n").unwrap();
        switch.loses(b"k", "SET by the RESP port, by TLS");
        let mut answer = [0; 5];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
        // More than buffers hold, both ways.
        let value = vec![b'v'; 4 << 20];
        let head = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n", value.len());
        client.write_all(&[head.as_bytes(), &value, b"\r\n"].concat()).unwrap();
        client.read_exact(&mut answer).unwrap();
        client.write_all(b"GET long\r\n").unwrap();
        let mut said = vec![0; format!("${}\r\n\r\n", value.len()).len() + value.len()];
        client.read_exact(&mut said).unwrap();
        assert!(said.ends_with(&[&value[..], b"\r\n"].concat()));
    }
}

#[test]
fn the_client_of_redis_comes_in_by_tls() {
    let (server, authority) = (redis(), Authority::generate());
    let store = StoreThread::start(secured(&server, &authority, true));
    let ask = |certificate: bool, words: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &store.port.unwrap().port().to_string(), "--tls", "--cacert"]);
        cli.arg(authority.path("ca.pem"));
        if certificate {
            cli.arg("--cert").arg(authority.path("client.pem"));
            cli.arg("--key").arg(authority.path("client.key"));
        }
        let output = cli.args(words).output().expect("redis-cli is needed (Debian: redis-tools)");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    assert_eq!(ask(true, &["incr", "visits"]), "1");
    assert_eq!(ask(false, &["incr", "visits"]), "");
    assert_eq!(ask(true, &["-3", "incr", "visits"]), "2");
}

#[test]
fn the_redis_behind_a_store_is_reached_by_tls() {
    let authority = Authority::generate();
    let server = redis_with_tls(&authority);
    let config = Config {
        backend: format!("rediss://127.0.0.1:{}", server.port).parse().unwrap(),
        backend_tls: believed_by(&authority, true),
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    };
    let store = StoreThread::start(config);
    let mut packets = support::Client::to(store.address);
    packets.write(b"k", b"by a packet");
    let mut client = Outsider::at(store.port.unwrap());
    assert_eq!(client.command("GET k"), "$11\r\nby a packet\r\n");
    // Its connection tells of outside writes, so copies are granted.
    let mut switch = Switch::to(store.address);
    assert_eq!(switch.copy(b"k"), b"by a packet");
    client.send("SET k other");
    switch.loses(b"k", "SET by the RESP port");
    assert_eq!(client.answer(), "+OK\r\n");
    assert_eq!(packets.read(b"k").value, b"other");
}

#[test]
fn the_certificate_is_for_the_name_and_not_for_the_address_that_it_means() {
    let authority = Authority::generate();
    let server = redis_with_tls(&authority);
    let config = |name: &str| Config {
        backend: format!("rediss://{name}:{}", server.port).parse().unwrap(),
        backend_tls: believed_by(&authority, true),
        resolver: Resolver::new(|_, port| Ok(vec![([127, 0, 0, 2], port).into()])),
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    };
    for (name, said) in
        [("localhost", "+OK"), ("other.test", "-TRYAGAIN"), ("127.0.0.2", "-TRYAGAIN")]
    {
        let store = StoreThread::start(config(name));
        let answer = Outsider::at(store.port.unwrap()).command("SET k v");
        assert!(answer.starts_with(said), "{name}: {answer}");
    }
}

#[test]
fn a_redis_that_cannot_be_believed_is_told_nothing() {
    let (authority, other) = (Authority::generate(), Authority::generate());
    let server = redis_with_tls(&authority);
    let config = |files| Config {
        backend: format!("rediss://127.0.0.1:{}", server.port).parse().unwrap(),
        backend_tls: files,
        resp: vec!["127.0.0.1:0".parse().unwrap()],
        ..support::loopback()
    };
    for files in [believed_by(&other, true), believed_by(&authority, false)] {
        let store = StoreThread::start(config(files));
        let said = Outsider::at(store.port.unwrap()).command("GET k");
        assert!(said.starts_with("-TRYAGAIN nothing was done: "), "{said}");
    }
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

#[test]
fn who_does_not_shake_hands_stops_nobody_and_is_sent_away() {
    let (server, authority) = (redis(), Authority::generate());
    let store = StoreThread::start(secured(&server, &authority, true));
    let port = store.port.unwrap();
    let begun = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(port).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    };
    assert!(is_ended(&begun(b"SET k plain\r\n")), "no TLS");
    // The head of a record whose rest never comes: more of them than there are places.
    let silent: Vec<TcpStream> = (0..600).map(|_| begun(&[0x16, 3, 1, 0x3f, 0xff])).collect();
    let files = believed_by(&authority, true);
    let mut client = secure(port, &files);
    assert_eq!(ask(&mut client, "SET k v"), "+OK\r\n");
    // Those that gave way, and the others when their time is over.
    assert!(silent.iter().all(is_ended));
    assert_eq!(ask(&mut client, "GET k"), "$1\r\nv\r\n");
    let mut stranger = secure(port, &believed_by(&authority, false));
    let _ = stranger.write_all(b"SET k strange\r\n");
    assert!(stranger.read(&mut [0; 64]).is_err(), "no certificate");
    assert_eq!(ask(&mut client, "GET k"), "$1\r\nv\r\n");
}

#[test]
fn a_certificate_is_needed_where_tls_is_and_the_other_way_round() {
    let (server, authority) = (redis(), Authority::generate());
    let both = secured(&server, &authority, false);
    let none = Config { tls: None, ..both.clone() };
    let error = none.check().unwrap_err().to_string();
    assert!(error.contains("--tls-cert FILE --tls-key FILE"), "{error}");
    let unused = Config { resp: vec!["127.0.0.1:0".parse().unwrap()], ..both.clone() };
    assert!(unused.check().unwrap_err().to_string().contains("--resp rediss://ADDR:PORT"));
    both.check().unwrap();
}
