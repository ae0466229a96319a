//! Packet sockets: what comes in by one interface, and what goes out by any.

use std::{
    convert::Infallible,
    io,
    mem::zeroed,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use datagrams::{BATCH, Datagram, Destination, Receiver, Refusal};
use dataplane::native::Frame;

use crate::{checksum, ours};

/// Bytes that may wait in a socket.
const ROOM: libc::c_int = 8 << 20;
/// `struct virtio_net_hdr`, which comes before each frame.
const HEADER: usize = 10;

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has the stated length.
    let failed = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
    } != 0;
    if failed { Err(last_error()) } else { Ok(()) }
}

/// A packet socket that takes nothing in yet.
fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Of whatever comes in by the interface.
fn address(interface: u32) -> libc::sockaddr_ll {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface as i32;
    address
}

fn attach_filter(socket: &OwnedFd, mut code: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// What is ours of what comes in by an interface.
pub struct Tap {
    socket: OwnedFd,
    /// The interface.
    pub port: u32,
}

impl Tap {
    /// As many taps of an interface as there are to be threads, with each flow to one of them.
    pub fn open(port: u32, threads: u32) -> io::Result<Vec<Tap>> {
        let mut taps: Vec<Tap> = vec![];
        for _ in 0..threads {
            let tap = Tap { socket: socket()?, port };
            // Until it shares with the others, each frame would come to each of them.
            attach_filter(&tap.socket, ours::nothing())?;
            for (option, value) in [(libc::PACKET_IGNORE_OUTGOING, 1), (libc::PACKET_VNET_HDR, 1)] {
                set(&tap.socket, libc::SOL_PACKET, option, &value)?;
            }
            set(&tap.socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM)?;
            let address = address(port);
            let len = size_of_val(&address) as libc::socklen_t;
            // SAFETY: the address has the stated length.
            let failed =
                unsafe { libc::bind(tap.socket.as_raw_fd(), (&raw const address).cast(), len) }
                    != 0;
            if failed {
                return Err(last_error());
            }
            taps.push(tap);
        }
        if threads > 1 {
            share(&taps)?;
        }
        for tap in &taps {
            attach_filter(&tap.socket, ours::filter())?;
        }
        Ok(taps)
    }

    /// Frames that the socket had no room for since the last call.
    pub fn lost(&self) -> u64 {
        let mut counts = [0u32; 2]; // struct tpacket_stats: all, and dropped of them
        let mut len = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the value has the stated length.
        let failed = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut len,
            )
        } != 0;
        if failed { 0 } else { counts[1].into() }
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Divides what comes to these sockets among them. The kernel finds a number for them that nobody
/// else has.
fn share(taps: &[Tap]) -> io::Result<()> {
    let how = libc::PACKET_FANOUT_HASH << 16;
    let unique = libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;
    let first = &taps[0].socket;
    set(first, libc::SOL_PACKET, libc::PACKET_FANOUT, &(how | unique))?;
    let mut number = 0u32;
    let mut len = size_of_val(&number) as libc::socklen_t;
    // SAFETY: the value has the stated length.
    let failed = unsafe {
        libc::getsockopt(
            first.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut number).cast(),
            &raw mut len,
        )
    } != 0;
    if failed {
        return Err(last_error());
    }
    for tap in &taps[1..] {
        set(&tap.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(how | number & 0xffff))?;
    }
    Ok(())
}

/// What one call brought.
pub struct Arrivals {
    receiver: Receiver,
    frames: Vec<Frame>,
    headers: Box<[[u8; HEADER]; BATCH]>,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals {
            receiver: Receiver::default(),
            frames: (0..BATCH).map(|_| Frame::default()).collect(),
            headers: Box::new([[0; HEADER]; BATCH]),
        }
    }
}

impl Arrivals {
    /// Takes what there is, without waiting. Returns how many frames came.
    pub fn receive(&mut self, tap: &Tap) -> usize {
        let headers = self.headers.iter_mut().map(|header| &mut header[..]);
        let frames = self.frames.iter_mut().map(|f| f.resize(Frame::MAX));
        let buffers = headers.zip(frames).map(|(header, frame)| [header, frame]);
        let came = self.receiver.receive(&tap.socket, buffers);
        came.unwrap_or(0)
    }

    /// Frame `at`, as the wire would have it; `spare` takes its place. With a number it stands for
    /// several datagrams, of so many bytes each ([`crate::segments`]).
    pub fn take(&mut self, at: usize, spare: Frame) -> (Frame, Option<usize>) {
        const NEEDS_CHECKSUM: u8 = 1;
        let mut frame = std::mem::replace(&mut self.frames[at], spare);
        let bytes = frame.resize(self.receiver.len(at).saturating_sub(HEADER));
        let header = &self.headers[at];
        let number = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let [flags, kind, ..] = *header;
        if kind != 0 {
            return (frame, Some(number(4)));
        }
        if flags & NEEDS_CHECKSUM != 0 {
            checksum::complete(bytes, number(6), number(8));
        }
        (frame, None)
    }
}

/// Sends frames by any interface.
pub struct Sender {
    socket: OwnedFd,
    sender: datagrams::Sender,
}

impl Sender {
    pub fn open() -> io::Result<Sender> {
        let socket = socket()?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &ROOM)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        Ok(Sender { socket, sender: datagrams::Sender::default() })
    }

    /// Sends each frame by its interface. Returns how many the kernel did not take.
    pub fn send(&mut self, frames: &[(u32, Frame)]) -> u64 {
        let outgoing = frames.iter().map(|(port, frame)| Datagram {
            parts: [frame.bytes(), &[]],
            to: Destination::Interface(*port),
            source: None,
        });
        let skip = |_| Ok::<_, Infallible>(Refusal::Skip);
        let Ok(lost) = self.sender.send(&self.socket, outgoing, skip);
        lost
    }
}
