//! Writes of which the rest never comes.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::Context;
use lab::namespace;
use sim::{Birth, Io, Process, packet::Datagram};
use wire::{Header, Op, PART, PART_BYTES, Packet, Secret};

use crate::resp::{Connection, Server, info};
use crate::servers::Servers;

/// Length in bytes of each value, and parts of it that are sent.
const TOTAL: usize = 512 << 10;
const SENT: usize = 4;
/// A store forgets what is not whole after its client's time, which is over by then.
const FORGOTTEN: Duration = Duration::from_secs(3);
/// What a store has room for unless it is told otherwise, in bytes.
const STORE_BOUND: f64 = (256 << 20) as f64;

/// Parts of the memory that there is for what is not whole.
#[derive(Default)]
pub(super) struct Shares {
    store: f64,
    left_behind: f64,
    gateway: Option<f64>,
}

impl Shares {
    pub fn told(&self) -> Vec<(&'static str, f64)> {
        let gateway = self.gateway.map(|share| ("gateway_memory_share", share));
        let store =
            [("store_memory_share", self.store), ("store_left_behind_bytes", self.left_behind)];
        store.into_iter().chain(gateway).collect()
    }

    /// Sends so many to a store, each in the name of a client of its own.
    pub fn of_store(&mut self, servers: &Servers<'_>, writes: u32) -> anyhow::Result<()> {
        let store = servers.first_store();
        let datagrams: Vec<Vec<u8>> = (0..writes).flat_map(parts).collect();
        match servers.rig().world() {
            None => namespace::within(&servers.client_namespace()?, || {
                let socket = UdpSocket::bind(("0.0.0.0", 0))?;
                for (number, datagram) in datagrams.iter().enumerate() {
                    socket.send_to(datagram, store)?;
                    if number % 64 == 63 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                Ok(())
            })?,
            Some(world) => {
                let mut world = world.borrow_mut();
                let machine = world.machine("client").context("a client")?;
                let make = Box::new(move |birth: Birth| -> anyhow::Result<Box<dyn Process>> {
                    let (datagrams, port) = (datagrams.clone(), birth.port);
                    Ok(Box::new(Sender {
                        store,
                        datagrams,
                        port,
                        next_ns: Some(birth.clock.monotonic_ns),
                    }))
                });
                let name = "client/half-sent".into();
                let process = world.place(machine, name, make);
                world.start(process)?;
            }
        }
        let rig = servers.rig();
        rig.wait(Duration::from_millis(200))?;
        self.store = rig.store_status("server")?.writing_bytes as f64 / STORE_BOUND;
        rig.wait(FORGOTTEN)?;
        self.left_behind = rig.store_status("server")?.writing_bytes as f64;
        Ok(())
    }

    /// Sends half of so many commands to a gateway, each on a connection of its own.
    pub fn of_gateway(&mut self, gateway: SocketAddr, writes: u32) -> anyhow::Result<()> {
        let server = Server::Tcp(gateway);
        let mut half = format!("*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n${TOTAL}\r\n").into_bytes();
        half.resize(half.len() + TOTAL / 2, b'x');
        let mut open = vec![];
        for _ in 0..writes {
            let mut connection = Connection::to(&server)?;
            // One that is refused for want of memory is closed while it is sent to.
            let _ = connection.send(&half);
            open.push(connection);
        }
        let mut console = Connection::to(&server)?;
        let held = info(&mut console, "held_memory")?;
        self.gateway = Some(held / info(&mut console, "maxmemory")?);
        Ok(())
    }
}

/// The first parts of a client's write.
fn parts(number: u32) -> Vec<Vec<u8>> {
    let key = format!("half-sent-{number:06}");
    let key_hash = Secret::NONE.key_hash(wire::TENANT_OPEN, key.as_bytes());
    let part = |part: usize| {
        let header = Header {
            client: 1 << 40 | u64::from(number),
            request: 1,
            key_hash,
            part: (part * PART_BYTES / PART) as u16,
            total: TOTAL as u32,
            ..Header::new(Op::WriteRequest)
        };
        let mut bytes = vec![];
        let packet = Packet::new(header, key.as_bytes(), &[b'x'; PART_BYTES]);
        packet.encode(&Secret::NONE, &mut bytes).expect("a key and a part fit a packet");
        bytes
    };
    (0..SENT).map(part).collect()
}

/// Sends them in the simulator, some each millisecond.
struct Sender {
    store: SocketAddr,
    datagrams: Vec<Vec<u8>>,
    port: u16,
    next_ns: Option<u64>,
}

impl Process for Sender {
    fn receive(&mut self, _: &Datagram<'_>, _: &mut Io<'_>) {}

    fn wake(&mut self, io: &mut Io<'_>) {
        let left = self.datagrams.len().saturating_sub(64);
        for datagram in self.datagrams.split_off(left) {
            io.send(self.port, self.store, &datagram);
        }
        self.next_ns = (left > 0).then(|| io.now_ns() + 1_000_000);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.next_ns
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}
