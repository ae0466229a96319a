//! Stores before real memcached servers, a gateway, and clients of memcached's protocol.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
};

use lab::port::{self, HeldPort};
use socket2::{Domain, Socket, Type};
use wire::{Cluster, Store};

use memcached::{ReplyScanner, TERMINATOR};

use crate::{
    store_thread::{self, StoreThread},
    support::{Config, Gateway, PATIENCE, ServerProcess, config},
};

/// Room for values of a megabyte.
pub const CACHE: usize = 64 << 20;

/// A memcached.
pub struct Memcached {
    pub process: ServerProcess,
    pub port: HeldPort,
}

impl Memcached {
    pub fn start() -> Memcached {
        Memcached::at(port::held())
    }

    pub fn at(port: HeldPort) -> Memcached {
        let number = port.number.to_string();
        let mut command = Command::new("memcached");
        command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", &number]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let is_up = port::listens(port.number, PATIENCE, || child.try_wait().unwrap().is_none());
        assert!(is_up, "memcached does not start");
        Memcached { process: ServerProcess(child), port }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number).into()
    }

    pub fn speak(&self) -> Asker {
        Asker::at(self.address())
    }
}

/// So many stores, each before a memcached of its own.
pub struct Rack {
    pub stores: Vec<StoreThread>,
    pub servers: Vec<Memcached>,
    cluster: Cluster,
}

impl Rack {
    pub fn start(count: u32) -> Rack {
        let name = |at: u32| SocketAddr::from(([10, 9, 9, at as u8 + 1], 7117));
        let part = |at| Store::new(name(at), at, at);
        let cluster =
            Cluster { stores: (0..count).map(part).collect(), ..Cluster::single(name(0), count) };
        let servers: Vec<Memcached> = (0..count).map(|_| Memcached::start()).collect();
        let store = |(at, server): (usize, &Memcached)| {
            let backend = format!("memcached://{}", server.address());
            let config = store_thread::config(cluster.clone(), Some(name(at as u32)), &backend);
            StoreThread::of(config)
        };
        let stores = servers.iter().enumerate().map(store).collect();
        Rack { stores, servers, cluster }
    }

    /// Of a gateway that keeps copies, with its memcached clients at this port.
    pub fn config(&self, port: &HeldPort) -> Config {
        let of_gateway = self.cluster.stores.iter().zip(&self.stores);
        let stores = of_gateway.map(|(of, store)| Store { address: store.address, ..of.clone() });
        let cluster = Cluster { stores: stores.collect(), ..self.cluster.clone() };
        let urls = cluster.stores.iter().zip(&self.stores).map(|(of, store)| {
            let at = store.port.expect("a memcached port");
            format!("{}-{}=memcached://{at}", of.first, of.last)
        });
        let memcached = urls.map(|url| gateway::BackendAddress::of_memcached(&url).unwrap());
        Config {
            resp: vec![],
            memcached_listen: Some(([127, 0, 0, 1], port.number).into()),
            memcached: memcached.collect(),
            cache_bytes: CACHE,
            cluster,
            ..config("redis://127.0.0.1:1")
        }
    }

    pub fn gateway(&self) -> MemcachedGateway {
        MemcachedGateway::start(|port| self.config(port))
    }

    /// One whose connections may have so many bytes together.
    pub fn gateway_within(&self, memory_bytes: usize) -> MemcachedGateway {
        MemcachedGateway::start(|port| {
            let mut config = self.config(port);
            config.limits.memory_bytes = memory_bytes;
            config
        })
    }
}

/// A gateway and the port of its memcached clients.
pub struct MemcachedGateway {
    pub gateway: Gateway,
    port: HeldPort,
}

impl MemcachedGateway {
    pub fn start(config: impl Fn(&HeldPort) -> Config) -> MemcachedGateway {
        let port = port::held();
        MemcachedGateway { gateway: Gateway::start(config(&port)), port }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port.number).into()
    }

    pub fn speak(&self) -> Asker {
        Asker::at(self.address())
    }

    /// A client for which systems take little ahead of what it reads.
    pub fn speak_slowly(&self) -> Asker {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        // What the other end takes for it is so many segments.
        socket.set_tcp_mss(536).unwrap();
        socket.connect(&self.address().into()).unwrap();
        Asker::of(socket.into())
    }

    pub fn hits(&self) -> u64 {
        self.gateway.counter("local_hits")
    }
}

/// A client that reads whole answers.
pub struct Asker(pub TcpStream);

impl Asker {
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// What is answered to some commands, which are none that end a connection.
    pub fn ask(&mut self, commands: impl AsRef<[u8]>) -> String {
        self.say([commands.as_ref(), TERMINATOR].concat());
        let (mut scanner, mut buffer, mut answers) = (ReplyScanner::default(), vec![], vec![]);
        loop {
            assert!(self.read(&mut buffer), "closed after {}", answers.escape_ascii());
            let found = scanner.scan(&buffer).unwrap();
            answers.extend_from_slice(&buffer[..found.answers]);
            buffer.drain(..found.taken);
            if found.is_over {
                assert_eq!(buffer, b"", "something behind the answers");
                return String::from_utf8(answers).unwrap();
            }
        }
    }

    /// What comes until the connection is closed.
    pub fn last_words(&mut self) -> String {
        let mut bytes = vec![];
        while self.read(&mut bytes) {}
        String::from_utf8(bytes).unwrap()
    }

    /// False: the connection is closed.
    fn read(&mut self, into: &mut Vec<u8>) -> bool {
        let mut piece = vec![0; 64 << 10];
        loop {
            match self.0.read(&mut piece) {
                Ok(len) => {
                    into.extend_from_slice(&piece[..len]);
                    return len > 0;
                }
                // So it is for a process that was stopped, and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    fn at(address: SocketAddr) -> Asker {
        Asker::of(TcpStream::connect(address).unwrap())
    }

    fn of(stream: TcpStream) -> Asker {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Asker(stream)
    }
}
