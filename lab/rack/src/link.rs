//! A link that loses, duplicates, delays, reorders and alters: a process between two veth ends.
//!
//! Frames come from one packet socket and go to the other, each way by its own random stream, so
//! that the same frames in the same order meet the same fate under the same seed.
//!
//! A signal makes it swallow everything that goes one way ([`SILENCERS`]), and another one of the
//! kind pass it again. Its carrier stays.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use anyhow::Context;
use plan::topology::Fault;
use rand::RngExt;
use seed::{SeededRng, rng};
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// Longest frame with VLAN tags, MTU 9000.
const MAX_FRAME: usize = 9100;
/// Frames held back at most, each way; what exceeds it is dropped and counted.
const MAX_HELD: usize = 100_000;

/// What happened to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that came in.
    pub received: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Swallowed while this way was silent.
    pub swallowed: u64,
    /// Sent twice on purpose.
    pub duplicated: u64,
    /// Held back on purpose.
    pub reordered: u64,
    /// With a bit flipped on purpose.
    pub flipped: u64,
    /// Sent, duplicates included.
    pub sent: u64,
    /// Not sent because too many were held back or the interface did not take them.
    pub overflowed: u64,
}

/// What begins and ends the silence of each way, a to b first.
pub const SILENCERS: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

static SILENT: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

extern "C" fn silence(signal: i32) {
    let way = usize::from(signal == SILENCERS[1]);
    SILENT[way].fetch_not(Relaxed);
}

/// What one frame meets.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    copies: u8,
    delay_ns: u64,
    reordered: bool,
    /// The bit that is flipped, modulo their number.
    flipped: Option<usize>,
}

/// Draws the fate of each frame of one direction.
struct Dice {
    fault: Fault,
    rng: SeededRng,
}

impl Dice {
    fn new(fault: Fault, direction: &str) -> Dice {
        Dice { fault, rng: rng(fault.seed, direction) }
    }

    /// Always draws the same number of times, so that one frame's fate does not shift the
    /// next one's.
    fn next(&mut self) -> Fate {
        let draws: [f64; 5] = std::array::from_fn(|_| self.rng.random());
        let bit: u32 = self.rng.random();
        let reordered = draws[2] < self.fault.reorder;
        let copies = match () {
            () if draws[0] < self.fault.loss => 0,
            () if draws[1] < self.fault.duplicate => 2,
            () => 1,
        };
        let held_ms = if reordered { draws[3] * self.fault.reorder_ms.max(0.1) } else { 0.0 };
        Fate {
            copies,
            delay_ns: ((self.fault.delay_ms + held_ms) * 1e6) as u64,
            reordered,
            flipped: (draws[4] < self.fault.flip).then_some(bit as usize),
        }
    }
}

struct HeldFrame {
    at_ns: u64,
    order: u64,
    frame: Vec<u8>,
}

impl PartialEq for HeldFrame {
    fn eq(&self, other: &HeldFrame) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for HeldFrame {}
impl PartialOrd for HeldFrame {
    fn partial_cmp(&self, other: &HeldFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for HeldFrame {
    fn cmp(&self, other: &HeldFrame) -> Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

struct Direction {
    from: usize,
    to: usize,
    dice: Dice,
    held: BinaryHeap<Reverse<HeldFrame>>,
    counts: Counts,
}

/// Passes frames between interfaces `a` and `b` of this namespace until a signal comes; then
/// returns the counts of both directions, a to b first.
///
/// # Errors
/// An interface does not exist, or this is not root.
pub fn run(a: &str, b: &str, fault: Fault, on_ready: impl FnOnce()) -> anyhow::Result<[Counts; 2]> {
    interrupt::install();
    for signal in SILENCERS {
        // SAFETY: the handler only changes an atomic.
        unsafe { libc::signal(signal, silence as *const () as libc::sighandler_t) };
    }
    let sockets = [open(a)?, open(b)?];
    let new = |from, to, name| Direction {
        from,
        to,
        dice: Dice::new(fault, name),
        held: BinaryHeap::new(),
        counts: Counts::default(),
    };
    let mut directions = [new(0, 1, "a to b"), new(1, 0, "b to a")];
    let start = Instant::now();
    let mut order = 0;
    let mut buffer = vec![0; MAX_FRAME];
    on_ready();
    while interrupt::check().is_ok() {
        let mut next_ns = u64::MAX;
        for direction in &mut directions {
            pump(direction, &sockets, &mut buffer, &mut order, &start)?;
            let first = direction.held.peek();
            next_ns = next_ns.min(first.map_or(u64::MAX, |Reverse(held)| held.at_ns));
        }
        wait(&sockets, next_ns.saturating_sub(start.elapsed().as_nanos() as u64));
    }
    Ok(directions.map(|direction| direction.counts))
}

fn pump(
    direction: &mut Direction,
    sockets: &[OwnedFd; 2],
    buffer: &mut [u8],
    order: &mut u64,
    start: &Instant,
) -> anyhow::Result<()> {
    let Direction { from, to, dice, held, counts } = direction;
    // A bounded burst, so that the other direction and what is held back get their turn.
    for _ in 0..64 {
        let Some(len) = receive(&sockets[*from], buffer).context("receiving a frame")? else {
            break;
        };
        counts.received += 1;
        if SILENT[*from].load(Relaxed) {
            counts.swallowed += 1;
            continue;
        }
        let fate = dice.next();
        counts.reordered += u64::from(fate.reordered);
        match fate.copies {
            0 => counts.lost += 1,
            2 => counts.duplicated += 1,
            _ => {}
        }
        if let Some(bit) = fate.flipped.filter(|_| fate.copies > 0 && len > 0) {
            counts.flipped += 1;
            buffer[bit / 8 % len] ^= 1 << (bit % 8);
        }
        let at_ns = start.elapsed().as_nanos() as u64 + fate.delay_ns;
        for _ in 0..fate.copies {
            if held.len() >= MAX_HELD {
                counts.overflowed += 1;
                continue;
            }
            *order += 1;
            held.push(Reverse(HeldFrame { at_ns, order: *order, frame: buffer[..len].to_vec() }));
        }
    }
    let now = start.elapsed().as_nanos() as u64;
    while held.peek().is_some_and(|Reverse(first)| first.at_ns <= now) {
        let Some(Reverse(first)) = held.pop() else { break };
        if send(&sockets[*to], &first.frame) {
            counts.sent += 1;
        } else {
            counts.overflowed += 1;
        }
    }
    Ok(())
}

/// A packet socket on one interface that sees what comes in, not what itself sends.
fn open(interface: &str) -> anyhow::Result<OwnedFd> {
    let name = std::ffi::CString::new(interface).context("an interface name with a zero byte")?;
    // SAFETY: plain system calls with valid, initialised arguments of the stated sizes.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        anyhow::ensure!(index != 0, "faulty link: there is no interface {interface}");
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = libc::socket(libc::AF_PACKET, kind, protocol.into());
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("a packet socket: is this root?");
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        if libc::bind(fd, (&raw const address).cast(), size) < 0 {
            return Err(io::Error::last_os_error()).context(format!("binding to {interface}"));
        }
        let set = |level, option, value: i32| {
            libc::setsockopt(fd, level, option, (&raw const value).cast(), 4);
        };
        const PACKET_IGNORE_OUTGOING: i32 = 23;
        set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
        set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20);
        set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
        Ok(socket)
    }
}

/// One frame, with the VLAN tag that the kernel takes out put back in its place.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    const TAG: usize = 4;
    const STATUS_VLAN_VALID: u32 = 1 << 4;
    const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
    let mut control = [0u64; 16];
    let limit = buffer.len() - TAG;
    // SAFETY: the vector and control buffer are alive and of the stated lengths; control messages
    // are walked with the macros made for it and read only after their type was checked.
    let (len, tag) = unsafe {
        let mut vector =
            libc::iovec { iov_base: buffer[..limit].as_mut_ptr().cast(), iov_len: limit };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let len = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT);
        if len < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
                _ => Err(error),
            };
        }
        let first = libc::CMSG_FIRSTHDR(&message);
        let mut tag = None;
        if !first.is_null()
            && (*first).cmsg_level == libc::SOL_PACKET
            && (*first).cmsg_type == libc::PACKET_AUXDATA
        {
            let data: libc::tpacket_auxdata =
                std::ptr::read_unaligned(libc::CMSG_DATA(first).cast());
            if data.tp_status & STATUS_VLAN_VALID != 0 {
                let known = data.tp_status & STATUS_VLAN_TPID_VALID != 0;
                tag = Some((if known { data.tp_vlan_tpid } else { 0x8100 }, data.tp_vlan_tci));
            }
        }
        (len as usize, tag)
    };
    let Some((tpid, tci)) = tag.filter(|_| len >= 12) else { return Ok(Some(len)) };
    buffer.copy_within(12..len, 12 + TAG);
    buffer[12..14].copy_from_slice(&tpid.to_be_bytes());
    buffer[14..16].copy_from_slice(&tci.to_be_bytes());
    Ok(Some(len + TAG))
}

fn send(socket: &OwnedFd, frame: &[u8]) -> bool {
    // SAFETY: the buffer is alive and of the stated length.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags)
    };
    sent == frame.len() as isize
}

fn wait(sockets: &[OwnedFd; 2], wait_ns: u64) {
    let wait_ns = wait_ns.min(100_000_000);
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: wait_ns as i64 };
    let mut fds = sockets.each_ref().map(|socket| libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the array has two entries and lives through the call.
    unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &timeout, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates_follow_their_chances_and_their_seed() {
        const FRAMES: u32 = 100_000;
        let fault = Fault {
            loss: 0.1,
            duplicate: 0.05,
            reorder: 0.02,
            reorder_ms: 4.0,
            delay_ms: 1.0,
            flip: 0.01,
            seed: 9,
        };
        let fates = |name| {
            let mut dice = Dice::new(fault, name);
            (0..FRAMES).map(|_| dice.next()).collect::<Vec<_>>()
        };
        let all = fates("a to b");
        let part = |test: fn(&Fate) -> bool| {
            all.iter().filter(|fate| test(fate)).count() as f64 / f64::from(FRAMES)
        };
        assert!((part(|f| f.copies == 0) - 0.1).abs() < 0.005);
        assert!((part(|f| f.copies == 2) - 0.9 * 0.05).abs() < 0.004);
        assert!((part(|f| f.reordered) - 0.02).abs() < 0.003);
        assert!((part(|f| f.flipped.is_some()) - 0.01).abs() < 0.003);
        assert!(all.iter().all(|f| f.reordered || f.delay_ns == 1_000_000));
        assert!(all.iter().all(|f| (1_000_000..=5_000_000).contains(&f.delay_ns)));
        assert_eq!(all, fates("a to b"));
        assert_ne!(all, fates("b to a"));
    }
}
