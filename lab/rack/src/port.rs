//! Ports for servers that are started as processes on this machine, outside of any namespace:
//! for tests.
//!
//! A port that the system chooses (bind to 0, let go) is one of those from which it draws the ports
//! of connections: until the server has bound it another connection may have it, or the one that
//! looks whether the server listens yet may meet *itself*. Ports below those have neither.

use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Below are ports of well-known services.
const LOWEST: u32 = 10_000;
/// Ports between the places at which two processes that are started in a row begin: more than one
/// of them asks for.
const APART: u32 = 211;
/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Ports that this process has asked for.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The first port that the system gives to connections.
fn first_ephemeral() -> u32 {
    const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let range = std::fs::read_to_string(FILE).unwrap_or_default();
    let first = range.split_whitespace().next();
    first.and_then(|port| port.parse().ok()).unwrap_or(32_768)
}

/// A port of 127.0.0.1 that nobody has, TCP nor UDP, that no connection is given, and that this
/// process has not got before.
///
/// # Panics
/// There is none.
pub fn free() -> u16 {
    next(process::id().wrapping_mul(APART), &ASKED)
}

/// A port as [`free`] has them that nobody else is given as long as this lives, in this process or
/// another: it has the port for UDP, so it is for servers that speak TCP.
#[derive(Debug)]
pub struct HeldPort {
    /// The port.
    pub number: u16,
    _udp: UdpSocket,
}

/// Takes such a port.
///
/// # Panics
/// There is none.
pub fn held() -> HeldPort {
    loop {
        let number = free();
        // Another process may have been faster.
        if let Ok(_udp) = UdpSocket::bind(("127.0.0.1", number)) {
            return HeldPort { number, _udp };
        }
    }
}

/// The next free port from this place on, round and round; `asked` counts those that were
/// looked at.
fn next(begin: u32, asked: &AtomicU32) -> u16 {
    let end = first_ephemeral();
    let count = end.saturating_sub(LOWEST);
    for _ in 0..count {
        let place = begin.wrapping_add(asked.fetch_add(1, Relaxed)) % count;
        let port = u16::try_from(LOWEST + place).unwrap_or(u16::MAX);
        let here = ("127.0.0.1", port);
        if TcpListener::bind(here).is_ok() && UdpSocket::bind(here).is_ok() {
            return port;
        }
    }
    panic!(
        "no free port from {LOWEST} to {end}: servers of tests need some below net.ipv4.ip_local_port_range; \
         sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
    );
}

/// Waits until somebody accepts connections at this port of 127.0.0.1, for as long as `lives` says
/// that the server does; false if it has ended, or not within `patience`.
pub fn listens(port: u16, patience: Duration, mut lives: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < patience && lives() {
        if is_open(port) {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

fn is_open(port: u16) -> bool {
    let stream = TcpStream::connect(("127.0.0.1", port));
    stream.is_ok_and(|stream| !met_itself(&stream))
}

/// Whether a connection has no other end, as happens to one that is given the port to which
/// it goes.
fn met_itself(stream: &TcpStream) -> bool {
    stream.local_addr().ok() == stream.peer_addr().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    #[test]
    fn each_is_new_and_none_is_given_to_connections() {
        let ports: HashSet<u16> = (0..200).map(|_| free()).collect();
        assert_eq!(ports.len(), 200);
        let end = first_ephemeral();
        assert!(ports.iter().all(|port| u32::from(*port) < end), "{end}");
    }

    #[test]
    fn what_is_taken_is_not_given() {
        // From a place of this process on, so that another one that runs this test is elsewhere.
        let begin = u32::from(free()) - LOWEST;
        let port = next(begin, &AtomicU32::new(0));
        let _udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        let second = next(begin, &AtomicU32::new(0));
        let _tcp = TcpListener::bind(("127.0.0.1", second)).unwrap();
        let third = next(begin, &AtomicU32::new(0));
        assert_eq!(HashSet::from([port, second, third]).len(), 3);
    }

    #[test]
    fn what_is_held_is_given_to_nobody_and_a_server_can_have_it() {
        let held = held();
        let here = ("127.0.0.1", held.number);
        let begin = u32::from(held.number) - LOWEST;
        assert_ne!(next(begin, &AtomicU32::new(0)), held.number);
        let _server = TcpListener::bind(here).unwrap();
    }

    #[test]
    fn a_connection_that_met_itself_is_no_server() {
        let port = free();
        let here = SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&here).unwrap();
        socket.connect(&here).unwrap();
        assert!(met_itself(&socket.into()));
        let _server = TcpListener::bind(("127.0.0.1", port)).unwrap();
        assert!(listens(port, Duration::from_secs(90), || true));
        assert!(!listens(free(), Duration::from_secs(10), || false), "it ended");
    }
}
