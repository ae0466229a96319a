//! A store in a thread and a client that asks it.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod servers;

use std::net::{SocketAddr, UdpSocket};

use store::{Config, Server};
use wire::{Flags, Header, Op, Packet, Secret, Status};

/// A store that runs in a thread of its own until it is dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl Running {
    pub fn start(config: Config) -> Running {
        let (tell_address, address) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let builder = std::thread::Builder::new().name("store".into());
        let thread = builder.spawn(move || {
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
            thread: thread.ok(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("no error")
        }
    }
}

/// A client with one socket, that asks one question at a time and repeats it until it is answered.
pub struct Client {
    pub socket: UdpSocket,
    pub request: u32,
}

pub struct Reply {
    pub header: Header,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Client {
    pub fn to(server: SocketAddr) -> Client {
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

    pub fn ask(&mut self, mut header: Header, key: &[u8], value: &[u8], padded_to: usize) -> Reply {
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

    pub fn read(&mut self, key: &[u8]) -> Reply {
        self.read_padded(key, 512)
    }

    pub fn read_padded(&mut self, key: &[u8], padded_to: usize) -> Reply {
        self.ask(Header::new(Op::ReadRequest), key, &[], padded_to)
    }

    pub fn compare_and_write(&mut self, key: &[u8], version: u64, value: &[u8]) -> Reply {
        let header = Header {
            flags: Flags::COMPARE,
            version,
            ..Header::new(Op::WriteRequest)
        };
        self.ask(header, key, value, 0)
    }

    /// Writes, and again while the store says to try again.
    pub fn write(&mut self, key: &[u8], value: &[u8]) -> Reply {
        loop {
            let reply = self.ask(Header::new(Op::WriteRequest), key, value, 0);
            if reply.header.status != Status::TryAgain {
                return reply;
            }
        }
    }
}

pub fn loopback() -> Config {
    Config {
        lease_ms: 1000,
        ..Config::new("127.0.0.1:0".parse().unwrap())
    }
}
