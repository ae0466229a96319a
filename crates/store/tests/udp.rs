//! A whole store over loopback: bytes in, bytes out.

use std::net::{SocketAddr, UdpSocket};

use store::{Config, Populate, Server};
use wire::{Header, Op, Packet, Secret, Status};

/// A store that runs in a thread of its own until it is dropped.
struct Running {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl Running {
    fn start(config: Config) -> Running {
        let (tell_address, address) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let server = Server::start(config).await?;
                tell_address.send(server.local_address()?)?;
                server.run(async { drop(stopped.await) }).await
            })
        });
        let address = address.recv().expect("the store starts");
        Running {
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread
            .take()
            .map(|t| t.join().expect("no panic").expect("no error"));
    }
}

/// A client with one socket, that asks one question at a time and repeats it until it is answered.
struct Client {
    socket: UdpSocket,
    request: u32,
}

struct Reply {
    header: Header,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client {
    fn to(server: SocketAddr) -> Client {
        let local: SocketAddr = if server.is_ipv4() {
            "127.0.0.1:0".parse().unwrap()
        } else {
            "[::1]:0".parse().unwrap()
        };
        let socket = UdpSocket::bind(local).unwrap();
        socket.connect(server).unwrap();
        socket
            .set_read_timeout(Some(std::time::Duration::from_secs(1)))
            .unwrap();
        Client { socket, request: 0 }
    }

    fn ask(&mut self, mut header: Header, key: &[u8], value: &[u8], padded_to: usize) -> Reply {
        self.request += 1;
        header.request = self.request;
        header.client = 77;
        header.key_hash = Secret::NONE.key_hash(header.tenant, key);
        let mut bytes = Vec::new();
        Packet::new(header, key, value)
            .encode(&Secret::NONE, &mut bytes)
            .unwrap();
        bytes.resize(bytes.len().max(padded_to), 0);
        let mut buffer = [0; 2048];
        for _ in 0..10 {
            self.socket.send(&bytes).unwrap();
            let Ok(len) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let packet = Packet::decode(&buffer[..len]).unwrap();
            if packet.header.request == self.request {
                let (key, value) = (packet.key.to_vec(), packet.value.to_vec());
                return Reply {
                    header: packet.header,
                    key,
                    value,
                };
            }
        }
        panic!("no reply to {header:?}");
    }

    fn read(&mut self, key: &[u8]) -> Reply {
        self.ask(Header::new(Op::ReadRequest), key, &[], 512)
    }

    /// Writes, and again while the store says to try again.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Reply {
        loop {
            let reply = self.ask(Header::new(Op::WriteRequest), key, value, 0);
            if reply.header.status != Status::TryAgain {
                return reply;
            }
        }
    }
}

fn loopback() -> Config {
    Config {
        lease_ms: 1000,
        ..Config::new("127.0.0.1:0".parse().unwrap())
    }
}

#[test]
fn reads_writes_and_deletes() {
    let store = Running::start(loopback());
    let mut client = Client::to(store.address);
    assert_eq!(client.read(b"k").header.status, Status::NotFound);
    let written = client.write(b"k", b"hello");
    assert_eq!(
        (written.header.op, written.header.status),
        (Op::WriteReply, Status::Ok)
    );
    let read = client.read(b"k");
    assert_eq!((&read.key[..], &read.value[..]), (&b"k"[..], &b"hello"[..]));
    assert_eq!(read.header.version, written.header.version);
    let deleted = client.ask(Header::new(Op::DeleteRequest), b"k", &[], 0);
    assert_eq!(
        (deleted.header.op, deleted.header.status),
        (Op::DeleteReply, Status::Ok)
    );
    assert_eq!(client.read(b"k").header.status, Status::NotFound);
}

#[test]
fn populated_items_are_there_and_padding_is_asked_for() {
    let populate = Some(Populate {
        count: 1000,
        value_len: 128,
    });
    let store = Running::start(Config {
        populate,
        ..loopback()
    });
    let mut client = Client::to(store.address);
    let read = client.read(b"key0000000000999");
    assert_eq!(read.value, b"key0000000000999".repeat(8));
    let small = client.ask(Header::new(Op::ReadRequest), b"key0000000000999", &[], 0);
    assert_eq!(
        (small.header.status, small.header.expiry_ms),
        (Status::NeedPadding, 128)
    );
    assert!(small.value.is_empty());
}

#[test]
fn ipv6_works_too() {
    let listen = "[::1]:0".parse().unwrap();
    let store = Running::start(Config {
        populate: Some(Populate {
            count: 1,
            value_len: 5,
        }),
        ..Config::new(listen)
    });
    assert_eq!(
        Client::to(store.address).read(b"key0000000000000").value,
        b"key00"
    );
}

#[test]
fn a_wildcard_address_answers_from_where_it_was_asked() {
    let store = Running::start(Config {
        populate: Some(Populate {
            count: 1,
            value_len: 5,
        }),
        ..Config::new("0.0.0.0:0".parse().unwrap())
    });
    // A connected client socket takes nothing from any other source address.
    let asked = SocketAddr::from(([127, 0, 0, 9], store.address.port()));
    assert_eq!(Client::to(asked).read(b"key0000000000000").value, b"key00");
}

#[test]
fn a_wrong_key_hash_is_denied() {
    let store = Running::start(loopback());
    let mut client = Client::to(store.address);
    let header = Header {
        tenant: 5,
        ..Header::new(Op::ReadRequest)
    };
    assert_eq!(
        client.ask(header, b"k", &[], 0).header.status,
        Status::Denied
    );
}
