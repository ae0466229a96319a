//! Batches of datagrams in buffers that are made once.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use anyhow::Context;
use datagrams::{BATCH, Datagram, Destination, Receiver, Refusal, Sender};
use nix::sys::socket::{setsockopt, sockopt};

/// Room for one datagram in bytes.
const SLOT: usize = 2048;
/// Kernel buffer asked for in each direction, in bytes.
const SOCKET_BUFFER: usize = 16 << 20;

/// A UDP socket with a batch to send to one store, and a batch received from whomever: a switch may
/// have sent a read to another.
pub struct Lane {
    socket: UdpSocket,
    store: SocketAddr,
    sender: Sender,
    /// Room for a batch, and of those that are filled where each goes and how long it is.
    outbox: Box<[[u8; SLOT]]>,
    queued: Vec<(SocketAddr, usize)>,
    receiver: Receiver,
    inbox: Box<[[u8; SLOT]]>,
}

impl Lane {
    /// Datagrams in one system call.
    pub const SEND: usize = 32;

    /// A socket at a port of the system's choice; [`Lane::queue`] is for datagrams to this address.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn to(to: SocketAddr) -> anyhow::Result<Lane> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).context("a UDP socket for the load generator")?;
        socket.set_nonblocking(true)?;
        // Best effort: without CAP_NET_ADMIN the default size has to do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER);
        let _ = setsockopt(&socket, sockopt::SndBufForce, &SOCKET_BUFFER);
        Ok(Lane {
            socket,
            store: to,
            sender: Sender::default(),
            outbox: vec![[0; SLOT]; Self::SEND].into(),
            queued: Vec::with_capacity(Self::SEND),
            receiver: Receiver::with_sources(),
            inbox: vec![[0; SLOT]; BATCH].into(),
        })
    }

    pub(crate) fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Whether nothing can be queued before the next [`Lane::send`].
    pub fn is_full(&self) -> bool {
        self.queued.len() == Self::SEND
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The next buffer to fill, which `len` bytes of are then sent. `len` is cut off at the slot's
    /// size.
    #[inline]
    pub fn queue(&mut self, len: usize) -> &mut [u8] {
        self.queue_to(self.store, len)
    }

    /// As [`Lane::queue`], for a datagram to somebody else than the others of this lane.
    #[inline]
    pub fn queue_to(&mut self, to: SocketAddr, len: usize) -> &mut [u8] {
        let len = len.min(SLOT);
        let slot = &mut self.outbox[self.queued.len()][..len];
        self.queued.push((to, len));
        slot
    }

    /// Waits until something has come, or for so long.
    pub fn wait(&self, wait_ns: u64) {
        wait(&[self.fd()], wait_ns);
    }

    /// Sends what is queued. Returns how many datagrams the socket did not take.
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn send(&mut self) -> io::Result<usize> {
        let queued = self.outbox.iter().zip(&self.queued);
        let outgoing = queued.map(|(bytes, (to, len))| Datagram {
            parts: [&bytes[..*len], &[]],
            to: Destination::Address(*to),
            source: None,
        });
        let unsent = self.sender.send(&self.socket, outgoing, |error| {
            match error.raw_os_error() {
                // A refusal that an earlier datagram met, or no room: this one is not sent.
                Some(
                    libc::ECONNREFUSED
                    | libc::EAGAIN
                    | libc::ENOBUFS
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
                    | libc::EPERM,
                ) => Ok(Refusal::Skip),
                _ => Err(error),
            }
        })?;
        self.queued.clear();
        Ok(unsent as usize)
    }

    /// Receives what is there, at most one batch. Returns how many, which are then at
    /// [`Lane::datagram`].
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn receive(&mut self) -> io::Result<usize> {
        let buffers = self.inbox.iter_mut().map(|slot| [&mut slot[..], &mut []]);
        match self.receiver.receive(&self.socket, buffers) {
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH) => Ok(0),
                _ => Err(error),
            },
            got => got,
        }
    }

    /// Whether so many datagrams received at once mean that there may be more.
    pub fn may_have_more(got: usize) -> bool {
        got == BATCH
    }

    /// Datagram `i` of those last received.
    #[inline]
    pub fn datagram(&self, i: usize) -> &[u8] {
        &self.inbox[i][..self.receiver.len(i)]
    }

    /// Where datagram `i` of those last received came from; none: no address of IP.
    #[inline]
    pub fn sender(&self, i: usize) -> Option<SocketAddr> {
        self.receiver.source(i)
    }
}

/// Waits until something has come to one of these sockets, or for so long.
pub(super) fn wait(fds: &[i32], wait_ns: u64) {
    let mut fds: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let timeout = libc::timespec {
        tv_sec: (wait_ns / 1_000_000_000) as i64,
        tv_nsec: (wait_ns % 1_000_000_000) as i64,
    };
    // SAFETY: the array has the stated length and lives through the call.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as u64, &timeout, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_go_there_and_back() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut lane = Lane::to(far.local_addr().unwrap()).unwrap();
        for i in 0..3u8 {
            lane.queue(4).copy_from_slice(&[i; 4]);
        }
        assert_eq!(lane.send().unwrap(), 0);
        let mut buffer = [0; 16];
        for i in 0..3u8 {
            let (len, from) = far.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..len], [i; 4]);
            far.send_to(&buffer[..len], from).unwrap();
            other.send_to(&[9], from).unwrap();
        }
        // What was sent on loopback is usually there at once, but not on a CPU that is behind with
        // its packets.
        let mut taken = vec![];
        while taken.len() < 6 {
            wait(&[lane.fd()], u64::MAX / 4);
            let got = lane.receive().unwrap();
            taken.extend((0..got).map(|i| (lane.sender(i), lane.datagram(i).to_vec())));
        }
        let (far, other) = (far.local_addr().ok(), other.local_addr().ok());
        let expected = (0..3).flat_map(|i| [(far, vec![i; 4]), (other, vec![9])]);
        assert_eq!(taken, expected.collect::<Vec<_>>());
        assert_eq!(lane.receive().unwrap(), 0);
    }
}
