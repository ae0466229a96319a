//! What a loop asks stores, and switches on the way to them, by packets: operations go in, and
//! leave at the end of the round, all at once; what has ended comes out.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use client::{Answer, Error, Machine, Operation, kit};
use datagrams::{BATCH, Datagram, Destination, Receiver, Refusal, Sender};
use mio::{Interest, Registry, Token, net::UdpSocket};

/// Room for a datagram in bytes.
const SLOT: usize = 2048;

/// The client of a loop, with its sockets.
pub(super) struct Packets {
    machine: Machine,
    sockets: [Option<UdpSocket>; 2],
    sender: Sender,
    receiver: Receiver,
    memory: Vec<u8>,
}

impl Packets {
    /// Opens sockets for the families that are asked for: IPv4, IPv6.
    ///
    /// # Errors
    /// The system refuses one.
    pub fn new(
        machine: Machine,
        families: [bool; 2],
        registry: &Registry,
        tokens: [Token; 2],
    ) -> Result<Packets, Error> {
        let mut sockets = [None, None];
        for (at, socket) in sockets.iter_mut().enumerate().filter(|(at, _)| families[*at]) {
            *socket = Some(kit::open_socket(at == 1, |socket| {
                let mut socket = UdpSocket::from_std(socket.into());
                registry.register(&mut socket, tokens[at], Interest::READABLE)?;
                Ok(socket)
            })?);
        }
        Ok(Packets {
            machine,
            sockets,
            sender: Sender::default(),
            receiver: Receiver::with_sources(),
            memory: vec![0; BATCH * SLOT],
        })
    }

    /// Begins an operation; its number is that with which it ends.
    pub fn begin(&mut self, operation: &Operation<'_>) -> u64 {
        self.machine.begin(operation, kit::now_ns())
    }

    /// Sends what leaves in this round, and what is sent again, all at once.
    pub fn flush(&mut self) {
        let mut datagrams = vec![];
        while let Some(datagram) = self.machine.next_datagram() {
            datagrams.push(datagram);
        }
        for (at, socket) in self.sockets.iter().enumerate() {
            let Some(socket) = socket else { continue };
            let ours = datagrams.iter().filter(|(to, _)| usize::from(to.is_ipv6()) == at);
            let ours = ours.map(|(to, bytes)| Datagram {
                parts: [bytes, &[]],
                to: Destination::Address(*to),
                source: None,
            });
            // What does not leave is lost, as it might be on the way: it is sent again.
            let skip = |error: io::Error| {
                tracing::trace!(%error, "a packet was not sent");
                Ok::<_, std::convert::Infallible>(Refusal::Skip)
            };
            let _ = self.sender.send(socket, ours, skip);
        }
    }

    /// Takes what has come by one of the sockets.
    pub fn receive(&mut self, at: usize) {
        let Some(socket) = &self.sockets[at] else { return };
        let now_ns = kit::now_ns();
        loop {
            let buffers = self.memory.chunks_mut(SLOT).map(|chunk| [chunk, &mut [][..]]);
            let count = match self.receiver.receive(socket, buffers) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // What an earlier datagram met; there may be more behind it.
                Err(_) => continue,
            };
            for number in 0..count {
                let bytes = &self.memory[number * SLOT..][..self.receiver.len(number).min(SLOT)];
                if let Some(from) = self.receiver.source(number) {
                    self.machine.take(bytes, from, now_ns);
                }
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// When something has to be sent again, or given up; what has ended already is not waited for.
    pub fn next_timer(&self) -> Option<Instant> {
        if self.machine.has_finished() {
            return Some(Instant::now());
        }
        let left_ns = self.machine.next_ns()?.saturating_sub(kit::now_ns());
        Some(Instant::now() + Duration::from_nanos(left_ns))
    }

    /// Sends again and gives up what is due.
    pub fn expire(&mut self) {
        let now_ns = kit::now_ns();
        if self.machine.next_ns().is_some_and(|at| at <= now_ns) {
            self.machine.timer(now_ns);
        }
    }

    /// The next operation that has ended, and how.
    pub fn next_finished(&mut self) -> Option<(u64, Result<Answer, Error>)> {
        self.machine.next_finished()
    }
}

/// Which families the addresses have: IPv4, IPv6.
pub(super) fn families(addresses: impl IntoIterator<Item = SocketAddr>) -> [bool; 2] {
    addresses.into_iter().fold([false; 2], |mut families, address| {
        families[usize::from(address.is_ipv6())] = true;
        families
    })
}
