//! What a test plays beside a store: a switch that holds copies, and another client of its Redis.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use wire::{Epoch, Flags, Header, Op, Packet, ReadCount, Secret, TENANT_OPEN, TENANT_SYSTEM};

use super::{PATIENCE, servers::Process};

/// The number of the switch.
pub const SWITCH: u16 = 3;
/// Not in the cluster file: whatever it asks is denied at once.
const NOBODY: u32 = 5;

/// Another client of the Redis, in its plain protocol.
pub struct Outsider(TcpStream);

impl Outsider {
    pub fn of(server: &Process) -> Outsider {
        Outsider::at(SocketAddr::from(([127, 0, 0, 1], server.port)))
    }

    /// Of a server that speaks its protocol.
    pub fn at(server: SocketAddr) -> Outsider {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Outsider(stream)
    }

    /// Carries one command out; the answer's beginning.
    pub fn command(&mut self, line: &str) -> String {
        self.send(line);
        self.answer()
    }

    /// Sends one command.
    pub fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    /// The beginning of what is answered next.
    pub fn answer(&mut self) -> String {
        let mut buffer = [0; 4096];
        let len = self.0.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }
}

/// A switch with one socket.
pub struct Switch {
    pub socket: UdpSocket,
    pub epoch: u64,
    /// Leases that were asked for.
    asked: u64,
}

impl Switch {
    pub fn to(store: SocketAddr) -> Switch {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(store).unwrap();
        let wait = Duration::from_millis(20);
        socket.set_read_timeout(Some(wait)).unwrap();
        Switch { socket, epoch: 100, asked: 0 }
    }

    pub fn send(&self, header: Header, key: &[u8]) {
        let mut header = header;
        if !key.is_empty() {
            header.key_hash = Secret::NONE.key_hash(header.tenant, key);
        }
        let mut bytes = Packet::new(header, key, &[]).to_bytes(&Secret::NONE).unwrap();
        bytes.resize(bytes.len().max(512), 0);
        self.socket.send(&bytes).unwrap();
    }

    /// Tells the store that a key was read so often here.
    pub fn tell_reads(&self, key: &[u8], reads: u32) {
        let hash = Secret::NONE.key_hash(TENANT_OPEN, key);
        let mut value = vec![];
        ReadCount { tenant: TENANT_OPEN, hash, reads }.encode(&mut value);
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(SWITCH, 0),
            ..Header::new(Op::ReadCounts)
        };
        let bytes = Packet::new(header, &[], &value).to_bytes(&Secret::NONE).unwrap();
        self.socket.send(&bytes).unwrap();
    }

    /// The next packet, if one comes soon; offers of leases are passed over.
    pub fn hear(&self) -> Option<(Header, Vec<u8>, Vec<u8>)> {
        let mut buffer = [0; 2048];
        let len = self.socket.recv(&mut buffer).ok()?;
        let packet = Packet::decode(&buffer[..len]).unwrap();
        (packet.header.op != Op::LeaseOffer)
            .then(|| (packet.header, packet.key.to_vec(), packet.value.to_vec()))
    }

    /// Asks for a lease; its length in milliseconds and its term, if one is lent.
    pub fn lease(&mut self) -> Option<(u32, u64)> {
        self.asked += 1;
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(SWITCH, 0),
            request: self.asked,
            version: self.asked, // a clock that goes on
            ..Header::new(Op::LeaseRequest)
        };
        self.send(header, &[]);
        // Of a lease that is not lent the store says nothing; to this it says something, after it.
        let after = Header { tenant: NOBODY, request: self.asked, ..Header::new(Op::ReadRequest) };
        self.send(after, b"k");
        let deadline = Instant::now() + PATIENCE;
        let mut lent = None;
        loop {
            match self.hear() {
                Some((header, ..)) if header.request == self.asked => match header.op {
                    Op::LeaseReply => lent = Some((header.expiry_ms, header.client)),
                    Op::ReadReply => return lent,
                    _ => {}
                },
                _ => assert!(Instant::now() < deadline, "no answer"),
            }
        }
    }

    /// Asks until a lease is lent: none is while the store has not heard of its backend.
    pub fn hold_lease(&mut self) -> (u32, u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(lease) = self.lease() {
                return lease;
            }
            assert!(Instant::now() < deadline, "no lease");
        }
    }

    /// Fetches a key for a copy, under a new epoch.
    pub fn fetch(&mut self, key: &[u8]) -> (Header, Vec<u8>) {
        self.epoch += 1;
        let header = Header {
            epoch: Epoch::new(SWITCH, self.epoch),
            flags: Flags::GRANT,
            ..Header::new(Op::FetchRequest)
        };
        self.send(header, key);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.hear() {
                Some((header, _, value)) if header.op == Op::FetchReply => return (header, value),
                // Not the test's question now: it is repeated.
                _ => assert!(Instant::now() < deadline, "no answer to a fetch"),
            }
        }
    }

    /// Fetches until there is a grant.
    pub fn copy(&mut self, key: &[u8]) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.lease();
            let (header, value) = self.fetch(key);
            if header.flags.has(Flags::GRANT) {
                return value;
            }
            self.acknowledge_all();
            assert!(Instant::now() < deadline, "no grant for {key:?}: {header:?}");
        }
    }

    pub fn acknowledge(&mut self, invalidate: &Header, key: &[u8]) {
        self.epoch += 1;
        let header = Header {
            tenant: invalidate.tenant,
            epoch: Epoch::new(SWITCH, self.epoch),
            ..Header::new(Op::InvalidateAck)
        };
        self.send(header, key);
    }

    pub fn acknowledge_all(&mut self) {
        while let Some((header, key, _)) = self.hear() {
            if header.op == Op::Invalidate {
                self.acknowledge(&header, &key);
            }
        }
    }

    /// Waits until a key is called back, and acknowledges it.
    pub fn loses(&mut self, wanted: &[u8], why: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((header, key, _)) = self.hear()
                && header.op == Op::Invalidate
            {
                self.acknowledge(&header, &key);
                if key == wanted {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "the copy is not called back: {why}");
        }
    }
}
