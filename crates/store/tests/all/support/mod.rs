//! A store in a thread and a client that asks it.

pub mod others;
pub mod servers;

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use emulated::{Pace, Populate, Rate};
use store::{Config, Handle, Server, UpdateError, mutants::Mutant};
use wire::{Cluster, Flags, Header, Op, Packet, Secret, Secrets, Status};

/// Ends a test that hangs; nothing takes that long, also on a machine that is busy with
/// something else.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A store that runs in a thread of its own until it is dropped: as one that is killed, for one
/// that ends in order waits for switches, which a test no longer plays then.
pub struct StoreThread {
    pub address: SocketAddr,
    /// Of its RESP port or its memcached port, if it has one.
    pub port: Option<SocketAddr>,
    handle: Handle,
    /// Told, it ends in order; dropped, at once.
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl StoreThread {
    pub fn start(config: Config) -> StoreThread {
        StoreThread::emulated(config, None, None)
    }

    /// One that has keys from the start.
    pub fn populated(config: Config, count: u64, value_len: usize) -> StoreThread {
        let value_len = value_len.into();
        StoreThread::emulated(config, Some(Populate { count, value_len }), None)
    }

    /// One that breaks a rule.
    pub fn broken(config: Config, mutant: Option<Mutant>) -> StoreThread {
        StoreThread::made(config, None, None, mutant)
    }

    /// Likewise, at the pace of a server.
    pub fn emulated(config: Config, populate: Option<Populate>, rate: Option<Rate>) -> StoreThread {
        StoreThread::made(config, populate, rate, None)
    }

    fn made(
        config: Config,
        populate: Option<Populate>,
        rate: Option<Rate>,
        mutant: Option<Mutant>,
    ) -> StoreThread {
        let (tell_address, address) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (leave, told_to_leave) = tokio::sync::oneshot::channel::<()>();
        let builder = std::thread::Builder::new().name("store".into());
        let thread = builder.spawn(move || {
            store::mutants::choose(mutant);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let server = Server::start_around(config, |data, config, version| {
                    if let Some(populate) = populate {
                        let (cluster, identity) = (&config.cluster, config.identity);
                        populate.fill(data, cluster, identity, version)?;
                    }
                    Ok(Some(Pace::new(rate).admission()))
                });
                let server = server.await?;
                let port = server.port_addresses().first().copied();
                tell_address.send((server.local_address()?, port, server.handle()))?;
                let mut runs = std::pin::pin!(server.run(async { drop(told_to_leave.await) }));
                tokio::select! {
                    ended = &mut runs => return ended,
                    told = stopped => if told.is_err() { return Ok(()) },
                }
                drop(leave);
                runs.await
            })
        });
        let Ok((address, port, handle)) = address.recv() else {
            let thread = thread.expect("a thread");
            panic!("the store does not start: {:?}", thread.join().expect("no panic"));
        };
        StoreThread { address, port, handle, stop: Some(stop), thread: thread.ok() }
    }

    /// What changes it while it runs, and speaks to what runs in it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends it in order, as one that is stopped.
    pub fn end(mut self) {
        let stop = self.stop.take().expect("it runs");
        assert!(stop.send(()).is_ok(), "it has ended");
    }

    /// Gives it another cluster while it runs.
    pub fn update(&self, cluster: Cluster) -> Result<(), UpdateError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(self.handle.update(cluster))
    }
}

impl Drop for StoreThread {
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
    pub request: u64,
    /// Signs requests and seeds hashes.
    pub secrets: Secrets,
}

pub struct Reply {
    pub header: Header,
    /// Whether it is signed as the request was.
    pub signed_alike: bool,
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
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Client { socket, request: 0, secrets: Secrets::one(Secret::NONE) }
    }

    fn encode(&self, header: &mut Header, key: &[u8], value: &[u8]) -> Vec<u8> {
        header.client = 77;
        header.key_hash = self.secrets.hash.key_hash(header.tenant, key);
        Packet::new(*header, key, value).to_bytes(&self.secrets.tag).unwrap()
    }

    pub fn ask(&mut self, mut header: Header, key: &[u8], value: &[u8], padded_to: usize) -> Reply {
        self.request += 1;
        header.request = self.request;
        let mut bytes = self.encode(&mut header, key, value);
        bytes.resize(bytes.len().max(padded_to), 0);
        let mut buffer = [0; 2048];
        for _ in 0..PATIENCE.as_secs() {
            self.socket.send(&bytes).unwrap();
            // What comes late for an earlier request is no reason to ask again: that would be
            // answered twice, and so on.
            while let Ok(len) = self.socket.recv(&mut buffer) {
                let packet = Packet::decode(&buffer[..len]).unwrap();
                if packet.header.request != self.request {
                    continue;
                }
                let (key, value) = (packet.key.to_vec(), packet.value.to_vec());
                return Reply {
                    header: packet.header,
                    signed_alike: packet.tag_is_valid(&self.secrets.tag),
                    key,
                    value,
                };
            }
        }
        panic!("no reply to {header:?}");
    }

    /// Sends what nobody answers, as the request that would be asked next.
    pub fn tell(&mut self, mut header: Header, key: &[u8], value: &[u8]) {
        header.request = self.request + 1;
        let bytes = self.encode(&mut header, key, value);
        self.socket.send(&bytes).unwrap();
    }

    pub fn read(&mut self, key: &[u8]) -> Reply {
        self.read_padded(key, 512)
    }

    pub fn read_padded(&mut self, key: &[u8], padded_to: usize) -> Reply {
        self.ask(Header::new(Op::ReadRequest), key, &[], padded_to)
    }

    /// Reads a value of any length, part by part.
    pub fn read_whole(&mut self, key: &[u8]) -> Reply {
        let mut whole = self.read_padded(key, wire::MAX_PAYLOAD);
        while whole.value.len() < whole.header.total as usize {
            let part = Header {
                part: (whole.value.len() / wire::PART) as u16,
                total: whole.header.total,
                version: whole.header.version,
                ..Header::new(Op::ReadRequest)
            };
            let reply = self.ask(part, key, &[], wire::MAX_PAYLOAD);
            if reply.header.part == part.part && reply.header.version == part.version {
                whole.value.extend(reply.value);
            } else {
                whole = reply;
            }
        }
        whole
    }

    /// Writes a value in parts, the last of them first, and again while the store says to try
    /// again; the last answer.
    pub fn write_parts(&mut self, key: &[u8], value: &[u8]) -> Reply {
        loop {
            let reply = self.write_parts_once(key, value);
            if reply.header.status != Status::TryAgain {
                return reply;
            }
        }
    }

    fn write_parts_once(&mut self, key: &[u8], value: &[u8]) -> Reply {
        self.request += 1;
        let mut last = None;
        for (index, bytes) in value.chunks(wire::PART_BYTES).enumerate().rev() {
            let part = Header {
                part: (index * wire::PART_BYTES / wire::PART) as u16,
                total: value.len() as u32,
                ..Header::new(Op::WriteRequest)
            };
            // The same request as before.
            self.request -= 1;
            let reply = self.ask(part, key, bytes, 0);
            let goes_on = reply.header.status == Status::Taken;
            last = Some(reply);
            if !goes_on {
                break;
            }
        }
        last.expect("a value has parts")
    }

    pub fn compare_and_write(&mut self, key: &[u8], version: u64, value: &[u8]) -> Reply {
        let header = Header { flags: Flags::COMPARE, version, ..Header::new(Op::WriteRequest) };
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

/// A store that had no life before this one and may wait for its backend, with leases that do not
/// lapse while a machine is busy.
pub fn loopback() -> Config {
    at("127.0.0.1:0".parse().unwrap())
}

/// Likewise, at this address.
pub fn at(address: SocketAddr) -> Config {
    let config = Config::new(address);
    Config {
        cluster: config.cluster.clone().with_lease_ms(60_000),
        backend_within: PATIENCE,
        born_ago: Duration::from_secs(62),
        ..config
    }
}

/// Likewise, of which leases of [`SHORT_MS`] can be seen to end.
pub fn with_short_leases() -> Config {
    let config = loopback();
    Config { cluster: config.cluster.clone().with_lease_ms(SHORT_MS), ..config }
}

/// The shortest leases there are, in milliseconds.
pub const SHORT_MS: u32 = 1000;
