//! Batches of datagrams in buffers that are made once.

use std::{
    io,
    mem::{size_of, zeroed},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
};

use anyhow::Context;
use socket2::{SockAddr, SockAddrStorage};

/// Room for one datagram in bytes.
const SLOT: usize = 2048;
/// Room for one address in bytes.
const NAME: u32 = size_of::<SockAddrStorage>() as u32;

struct Buffers {
    // The pointers in `headers` lead into these three, which are never resized.
    _bytes: Box<[u8]>,
    vectors: Box<[libc::iovec]>,
    /// Where to each datagram goes, or where it came from.
    names: Box<[SockAddrStorage]>,
    headers: Box<[libc::mmsghdr]>,
}

impl Buffers {
    fn new(count: usize) -> Buffers {
        let mut bytes = vec![0u8; count * SLOT].into_boxed_slice();
        let mut vectors: Box<[libc::iovec]> = bytes
            .chunks_mut(SLOT)
            .map(|slot| libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: SLOT,
            })
            .collect();
        let names = std::iter::repeat_with(SockAddrStorage::zeroed);
        let mut names: Box<[SockAddrStorage]> = names.take(count).collect();
        let headers = vectors
            .iter_mut()
            .zip(&mut names)
            .map(|(vector, name)| {
                // SAFETY: all-zero is a valid mmsghdr: no address, no control data.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_name = (&raw mut *name).cast();
                header.msg_hdr.msg_namelen = NAME;
                header
            })
            .collect();
        Buffers {
            _bytes: bytes,
            vectors,
            names,
            headers,
        }
    }

    /// All datagrams go there.
    fn address(&mut self, to: &SockAddr) {
        for (name, header) in self.names.iter_mut().zip(&mut self.headers) {
            *name = to.clone().as_storage();
            header.msg_hdr.msg_namelen = to.len();
        }
    }
}

/// A UDP socket with a batch to send to one store, and a batch received from whomever: a switch may have sent a read to another.
pub(super) struct Lane {
    socket: UdpSocket,
    out: Buffers,
    queued: usize,
    inbox: Buffers,
}

impl Lane {
    /// Datagrams in one system call.
    pub const SEND: usize = 32;
    const RECEIVE: usize = 64;

    pub fn to(to: SocketAddr) -> anyhow::Result<Lane> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).context("a UDP socket for the load generator")?;
        socket.set_nonblocking(true)?;
        // Best effort: without CAP_NET_ADMIN the default size has to do.
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            set_buffer(&socket, option, 16 << 20);
        }
        let mut out = Buffers::new(Self::SEND);
        out.address(&to.into());
        Ok(Lane {
            socket,
            out,
            queued: 0,
            inbox: Buffers::new(Self::RECEIVE),
        })
    }

    pub fn fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    pub fn is_full(&self) -> bool {
        self.queued == Self::SEND
    }

    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// The next buffer to fill, which `len` bytes of are then sent. `len` is cut off at the slot's size.
    #[inline]
    pub fn queue(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(SLOT);
        let vector = &mut self.out.vectors[self.queued];
        vector.iov_len = len;
        self.queued += 1;
        // SAFETY: the vector leads into its own slot of `_bytes`, which has SLOT >= len bytes.
        unsafe { std::slice::from_raw_parts_mut(vector.iov_base.cast(), len) }
    }

    /// As [`Lane::queue`], for a datagram to somebody else than the others of this lane.
    #[inline]
    pub fn queue_to(&mut self, to: SocketAddr, len: usize) -> &mut [u8] {
        let to = SockAddr::from(to);
        self.out.headers[self.queued].msg_hdr.msg_namelen = to.len();
        self.out.names[self.queued] = to.as_storage();
        self.queue(len)
    }

    /// Waits until something has come, or for so long.
    pub fn wait(&self, wait_ns: u64) {
        wait(&[self.fd()], wait_ns);
    }

    /// Sends what is queued. Returns how many datagrams the socket did not take.
    pub fn send(&mut self) -> io::Result<usize> {
        let (mut done, mut unsent) = (0, 0);
        while done < self.queued {
            let rest = &mut self.out.headers[done..self.queued];
            // SAFETY: every header leads to its vector and buffer, all alive and of the stated lengths.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // A refusal that an earlier datagram met, or no room: this one is not sent.
                Some(
                    libc::ECONNREFUSED
                    | libc::EAGAIN
                    | libc::ENOBUFS
                    | libc::EHOSTUNREACH
                    | libc::ENETUNREACH
                    | libc::EPERM,
                ) => {
                    done += 1;
                    unsent += 1;
                }
                _ => return Err(error),
            }
        }
        self.queued = 0;
        Ok(unsent)
    }

    /// Receives what is there, at most one batch. Datagrams are then at [`Lane::datagram`].
    pub fn receive(&mut self) -> io::Result<usize> {
        let headers = self.inbox.headers.iter_mut();
        headers.for_each(|header| header.msg_hdr.msg_namelen = NAME);
        // SAFETY: as in `send`; the kernel writes at most `iov_len` bytes into each slot.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.inbox.headers.as_mut_ptr(),
                Self::RECEIVE as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if got >= 0 {
            return Ok(got as usize);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH) => Ok(0),
            _ => Err(error),
        }
    }

    /// Whether so many datagrams received at once mean that there may be more.
    pub fn may_have_more(got: usize) -> bool {
        got == Self::RECEIVE
    }

    /// Datagram `i` of those last received.
    #[inline]
    pub fn datagram(&self, i: usize) -> &[u8] {
        let len = (self.inbox.headers[i].msg_len as usize).min(SLOT);
        // SAFETY: the vector leads to SLOT bytes of its own, of which the kernel wrote `len`.
        unsafe { std::slice::from_raw_parts(self.inbox.vectors[i].iov_base.cast(), len) }
    }

    /// Where datagram `i` of those last received came from; none: no address of IP.
    #[inline]
    pub fn sender(&self, i: usize) -> Option<SocketAddr> {
        let len = self.inbox.headers[i].msg_hdr.msg_namelen;
        // SAFETY: plain bytes, of which the kernel wrote as many as make an address.
        let name = unsafe { SockAddr::new(std::ptr::read(&self.inbox.names[i]), len.min(NAME)) };
        name.as_socket()
    }
}

/// Waits until something has come to one of these sockets, or for so long.
pub(super) fn wait(fds: &[i32], wait_ns: u64) {
    let mut fds: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = libc::timespec {
        tv_sec: (wait_ns / 1_000_000_000) as i64,
        tv_nsec: (wait_ns % 1_000_000_000) as i64,
    };
    // SAFETY: the array has the stated length and lives through the call.
    unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as u64,
            &timeout,
            std::ptr::null(),
        )
    };
}

fn set_buffer(socket: &UdpSocket, option: i32, bytes: i32) {
    // SAFETY: the value is an int of the stated size.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const bytes).cast(),
            size_of::<i32>() as u32,
        );
    }
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
        // What was sent on loopback is usually there at once, but not on a CPU that is behind with its packets.
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
