//! What a loop asks stores, and switches on the way to them, by packets: operations go in, and
//! leave at the end of the round, all at once; what has ended comes out.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{Answer, Error, Machine, Operation, kit};
use datagrams::{BATCH, Datagram, Destination, Receiver, Refusal};
use mio::{Interest, Registry, Token, net::UdpSocket};

use super::coalescing::Coalescing;

/// Room for a datagram in bytes.
const SLOT: usize = 2048;
/// Batches of datagrams that are taken from a socket in a round. Whoever sends more of them than
/// the loop can take must not keep it from everything else.
const BATCHES: usize = 4;

/// The client of a loop, with its sockets.
pub(super) struct Packets {
    machine: Machine,
    sockets: [Option<UdpSocket>; 2],
    /// Whether more may have come by each of them than was taken.
    unread: [bool; 2],
    coalescing: Coalescing,
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
            unread: [false; 2],
            coalescing: Coalescing::new(),
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
        let now_ns = kit::now_ns();
        self.machine.drop_late(now_ns);
        let mut datagrams = vec![];
        while let Some(datagram) = self.machine.next_datagram() {
            datagrams.push(datagram);
        }
        if datagrams.is_empty() {
            return;
        }
        // Those that can leave as one message come in a row; requests have no order among them.
        let kind = |(to, bytes): &(SocketAddr, Bytes)| (*to, bytes.len());
        datagrams.sort_by_key(kind);
        let followers = datagrams.windows(2).filter(|two| kind(&two[0]) == kind(&two[1])).count();
        let repeated = self.machine.counts().retransmitted;
        let sender = self.coalescing.sender(followers, repeated, now_ns);
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
            let _ = sender.send(socket, ours, skip);
        }
    }

    /// Something has come by one of the sockets: it is taken in this round.
    pub fn receive(&mut self, at: usize) {
        self.unread[at] = true;
    }

    /// Takes what has come by one of the sockets; true: there may be more.
    fn take(&mut self, at: usize) -> bool {
        let Some(socket) = &self.sockets[at] else { return false };
        for _ in 0..BATCHES {
            let buffers = self.memory.chunks_mut(SLOT).map(|chunk| [chunk, &mut [][..]]);
            let count = match self.receiver.receive(socket, buffers) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // What an earlier datagram met; there may be more behind it.
                Err(_) => continue,
            };
            let now_ns = kit::now_ns();
            for number in 0..count {
                let bytes = &self.memory[number * SLOT..][..self.receiver.len(number).min(SLOT)];
                if let Some(from) = self.receiver.source(number) {
                    self.machine.take(bytes, from, now_ns);
                }
            }
            if count < BATCH {
                return false;
            }
        }
        true
    }

    /// When something has to be sent again, or given up; what has come or ended already is not
    /// waited for. A socket that more has come by does not say so again.
    pub fn next_timer(&self) -> Option<Instant> {
        if self.machine.has_finished() || self.unread.contains(&true) {
            return Some(Instant::now());
        }
        let left_ns = self.machine.next_ns()?.saturating_sub(kit::now_ns());
        Some(Instant::now() + Duration::from_nanos(left_ns))
    }

    /// Takes what has come, and sends again and gives up what is due.
    pub fn expire(&mut self) {
        for at in 0..self.unread.len() {
            self.unread[at] = self.unread[at] && self.take(at);
        }
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

#[cfg(test)]
mod tests {
    use client::Options;
    use mio::Poll;
    use wire::Cluster;

    use super::*;

    #[test]
    fn whoever_sends_more_than_a_round_takes_stops_no_round() {
        let store = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let cluster = Cluster::single(store.local_addr().unwrap(), 1);
        let machine = Machine::new(&cluster, 0, Options::default(), 1).unwrap();
        let poll = Poll::new().unwrap();
        let tokens = [Token(0), Token(1)];
        let packets = Packets::new(machine, [true, false], poll.registry(), tokens);
        let mut packets = packets.unwrap();
        let port = packets.sockets[0].as_ref().unwrap().local_addr().unwrap().port();
        let most = BATCHES * BATCH;
        for _ in 0..most + 10 {
            store.send_to(b"?", ("127.0.0.1", port)).unwrap();
        }
        let ignored = |packets: &Packets| packets.machine.counts().ignored as usize;
        packets.receive(0);
        packets.expire();
        assert_eq!(ignored(&packets), most);
        assert!(packets.next_timer().is_some(), "the rest is taken in the next round");
        packets.expire();
        assert_eq!(ignored(&packets), most + 10);
        assert!(packets.next_timer().is_none());
    }
}
