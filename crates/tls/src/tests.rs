//! Handshakes in memory, with certificates that are right, wrong and changed. Tests of this crate.

use std::time::{Duration, Instant};

use authority::Authority;
use rustls::{ClientConnection, ServerConnection, pki_types::ServerName};

use super::*;

fn server(authority: &Authority, mutual: bool) -> ServerFiles {
    ServerFiles {
        cert: authority.path("server.pem"),
        key: authority.path("server.key"),
        client_ca: mutual.then(|| authority.path("ca.pem")),
    }
}

fn client(authority: &Authority, shows: bool) -> ClientFiles {
    let own = Identity { cert: authority.path("client.pem"), key: authority.path("client.key") };
    ClientFiles { ca: Some(authority.path("ca.pem")), own: shows.then_some(own) }
}

/// What a handshake ends with, in memory.
fn shake(
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: &'static str,
) -> Result<(), rustls::Error> {
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(server)?;
    loop {
        let mut bytes = vec![];
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets()?;
        let mut bytes = vec![];
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            return Ok(());
        }
    }
}

#[test]
fn who_believes_whom() {
    let (ours, others) = (Authority::generate(), Authority::generate());
    // (the server's, whether it asks, the client's, whether it shows, the name, whether it works)
    let rows = [
        (&ours, false, &ours, false, "localhost", true),
        (&ours, false, &ours, false, "127.0.0.1", true),
        (&ours, false, &ours, false, "elsewhere", false),
        (&ours, false, &others, false, "localhost", false),
        (&ours, true, &ours, true, "localhost", true),
        (&ours, true, &ours, false, "localhost", false),
    ];
    for (theirs, asks, mine, shows, name, works) in rows {
        let server = Acceptor::new(server(theirs, asks)).unwrap().config();
        let client = Connector::new(client(mine, shows)).unwrap().config();
        assert_eq!(shake(server, client, name).is_ok(), works, "{asks} {shows} {name}");
    }
    // A certificate of an authority that the server does not ask for.
    let files = ClientFiles { ca: Some(ours.path("ca.pem")), ..client(&others, true) };
    let theirs = Connector::new(files).unwrap().config();
    let asks = Acceptor::new(server(&ours, true)).unwrap().config();
    assert!(shake(asks, theirs, "localhost").is_err());
    // Without an authority of one's own, only those count that browsers trust.
    let public = Connector::new(ClientFiles::default()).unwrap().config();
    let plain = Acceptor::new(server(&ours, false)).unwrap().config();
    assert!(shake(plain, public, "localhost").is_err());
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let (ours, others) = (Authority::generate(), Authority::generate());
    let good = server(&ours, true);
    let with = |cert: PathBuf, key: PathBuf| ServerFiles { cert, key, client_ca: None };
    let (cert, key) = (ours.path("server.pem"), ours.path("server.key"));
    let rows = [
        (
            with("/nonexistent.pem".into(), key.clone()),
            "/nonexistent.pem: expected certificates in PEM form",
        ),
        (with(key.clone(), key.clone()), "server.key: no certificate in it"),
        (with(cert.clone(), cert.clone()), "server.pem: expected a private key in PEM form"),
        (with(cert, others.path("server.key")), "server.pem: does not go with its key"),
        (
            ServerFiles { client_ca: Some(ours.path("client.key")), ..good },
            "client.key: no certificate in it",
        ),
    ];
    for (files, says) in rows {
        let error = Acceptor::new(files).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} should say {says:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn files_that_change_are_read_again_and_those_that_cannot_be_used_are_not() {
    let (ours, next) = (Authority::generate(), Authority::generate());
    let acceptor = Acceptor::new(server(&ours, false)).unwrap();
    let knows = |authority: &Authority, seconds: u64| {
        let config = acceptor.0.at(Instant::now() + Duration::from_secs(seconds));
        let client = Connector::new(client(authority, false)).unwrap().config();
        shake(config, client, "localhost").is_ok()
    };
    assert!(knows(&ours, 10));
    // The certificate alone does not go with the key that is there still.
    std::fs::write(ours.path("server.pem"), next.bytes("server.pem")).unwrap();
    assert!(knows(&ours, 20), "what was read before is used");
    std::fs::write(ours.path("server.key"), next.bytes("server.key")).unwrap();
    assert!(knows(&next, 30));
    assert!(!knows(&ours, 40));
}
