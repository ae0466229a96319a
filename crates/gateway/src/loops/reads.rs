//! Reads by the network: one datagram each, which a switch on the way may answer.
//!
//! All reads of one key that clients ask for while none of it is on its way are one read. Those
//! that come while one is on its way are the next one: they must not be answered with what was read
//! before they were asked. So a key has one read on its way, however many wait, and no client's
//! reads of it go back in time.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use client::{Answer, Error, Machine, Operation, kit};
use datagrams::{BATCH, Datagram, Destination, Receiver, Refusal, Sender};
use hashbrown::{HashMap, HashTable};
use mio::{Interest, Registry, Token, net::UdpSocket};
use slab::Slab;

use super::{presence::Presence, upstream::PendingCommand};

/// Room for a datagram in bytes.
const SLOT: usize = 2048;

/// A key with the reads of it.
struct Key {
    name: Box<[u8]>,
    hash: u64,
    /// Who is answered by the read that is on its way, or leaves at the end of this round.
    now: Vec<(PendingCommand, u8)>,
    /// Who is answered by the one after it.
    next: Vec<(PendingCommand, u8)>,
    is_away: bool,
}

/// What became of a read.
pub(super) struct EndedRead {
    /// Everybody who waits, with the protocol that each speaks.
    pub waiters: Vec<(PendingCommand, u8)>,
    pub name: Box<[u8]>,
    pub hash: u64,
    /// The answer; `None`: the network has none.
    pub answer: Option<Answer>,
}

/// The reads of a loop.
pub(super) struct Reads {
    machine: Machine,
    sockets: [Option<UdpSocket>; 2],
    sender: Sender,
    receiver: Receiver,
    memory: Vec<u8>,
    keys: Slab<Key>,
    /// Which of them is a name's, by its hash.
    by_name: HashTable<usize>,
    by_call: HashMap<u64, usize>,
    /// Keys of which a read leaves at the end of this round.
    leaving: Vec<usize>,
    presence: Presence,
}

impl Reads {
    /// Opens sockets for the families that are asked for: IPv4, IPv6.
    ///
    /// # Errors
    /// The system refuses one.
    pub fn new(
        machine: Machine,
        families: [bool; 2],
        registry: &Registry,
        tokens: [Token; 2],
    ) -> Result<Reads, Error> {
        let mut sockets = [None, None];
        for (at, socket) in sockets.iter_mut().enumerate().filter(|(at, _)| families[*at]) {
            *socket = Some(kit::open_socket(at == 1, |socket| {
                let mut socket = UdpSocket::from_std(socket.into());
                registry.register(&mut socket, tokens[at], Interest::READABLE)?;
                Ok(socket)
            })?);
        }
        Ok(Reads {
            machine,
            sockets,
            sender: Sender::default(),
            receiver: Receiver::with_sources(),
            memory: vec![0; BATCH * SLOT],
            keys: Slab::new(),
            by_name: HashTable::new(),
            by_call: HashMap::new(),
            leaving: vec![],
            presence: Presence::new(Instant::now()),
        })
    }

    /// Whether a read has a chance of an answer: where nothing answered, few are tried.
    pub fn is_there(&mut self, now: Instant) -> bool {
        self.presence.tries(now)
    }

    /// Has a key read for somebody, who is answered in this protocol.
    pub fn ask(&mut self, name: &[u8], hash: u64, pending: PendingCommand, protocol: u8) {
        let keys = &mut self.keys;
        if let Some(at) = self.by_name.find(hash, |at| *keys[*at].name == *name) {
            let key = &mut keys[*at];
            let waiters = if key.is_away { &mut key.next } else { &mut key.now };
            return waiters.push((pending, protocol));
        }
        let now = vec![(pending, protocol)];
        let key = Key { name: name.into(), hash, now, next: vec![], is_away: false };
        let at = keys.insert(key);
        self.by_name.insert_unique(hash, at, |at| keys[*at].hash);
        self.leaving.push(at);
    }

    /// Sends the reads that leave in this round, and what is sent again, all at once.
    pub fn flush(&mut self) {
        if !self.leaving.is_empty() {
            let now_ns = kit::now_ns();
            for at in self.leaving.drain(..) {
                let key = &mut self.keys[at];
                key.is_away = true;
                let call = self.machine.begin(&Operation::Get { key: &key.name }, now_ns);
                self.by_call.insert(call, at);
            }
        }
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
                tracing::trace!(%error, "a read was not sent");
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

    /// When something has to be sent again, or given up.
    pub fn next_timer(&self) -> Option<Instant> {
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

    /// The next read that has ended. The one after it of the same key leaves in this round.
    pub fn next_done(&mut self, now: Instant) -> Option<EndedRead> {
        let (call, result) = self.machine.next_finished()?;
        let at = self.by_call.remove(&call)?;
        let key = &mut self.keys[at];
        let hash = key.hash;
        let mut waiters = std::mem::take(&mut key.now);
        let answer = result.ok();
        if answer.is_some() {
            self.presence.answered();
            key.now = std::mem::take(&mut key.next);
        } else {
            self.presence.unanswered(now);
            // Those too go another way now, behind these.
            waiters.append(&mut key.next);
        }
        key.is_away = false;
        let name = if key.now.is_empty() {
            if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == at) {
                entry.remove();
            }
            self.keys.remove(at).name
        } else {
            self.leaving.push(at);
            key.name.clone()
        };
        Some(EndedRead { waiters, name, hash, answer })
    }
}

/// Which families the addresses have: IPv4, IPv6.
pub(super) fn families(addresses: impl IntoIterator<Item = SocketAddr>) -> [bool; 2] {
    addresses.into_iter().fold([false; 2], |mut families, address| {
        families[usize::from(address.is_ipv6())] = true;
        families
    })
}
