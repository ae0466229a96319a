//! Ports for servers that are started as processes on this machine, outside of any namespace:
//! for tests.
//!
//! A port that the system chooses (bind to 0, let go) is one of those from which it draws the ports
//! of connections: until the server has bound it another connection may have it, or the one that
//! looks whether the server listens yet may meet *itself*. Ports below those have neither.
//!
//! They come in blocks, and each block is one process's for as long as it lives: somebody else who
//! looks whether a port is free has it for that moment, and would be in the way of the server that
//! is about to bind it, or be taken for it.

use std::{
    net::{TcpListener, TcpStream, UdpSocket},
    ops::Range,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Below are ports of well-known services.
const LOWEST: u32 = 10_000;
/// How many ports are taken at once.
const BLOCK: u32 = 32;
/// How long between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// What this process has of the ports.
static MINE: Mutex<Blocks> = Mutex::new(Blocks { claims: vec![], rest: 0..0 });

/// The first port that the system gives to connections.
fn first_ephemeral() -> u32 {
    const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let range = std::fs::read_to_string(FILE).unwrap_or_default();
    let first = range.split_whitespace().next();
    first.and_then(|port| port.parse().ok()).unwrap_or(32_768)
}

/// A port of 127.0.0.1 that nobody has, TCP nor UDP, that no connection is given, that this
/// process has not got before, and that no other process gets from here while this one lives.
///
/// # Panics
/// There is none.
pub fn free() -> u16 {
    MINE.lock().unwrap_or_else(PoisonError::into_inner).next()
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

/// Ports of one process.
struct Blocks {
    /// Names of sockets, which the kernel gives to one and takes back when its process has ended.
    claims: Vec<UnixDatagram>,
    /// Of the newest block, the ports that were not looked at yet.
    rest: Range<u32>,
}

impl Blocks {
    fn next(&mut self) -> u16 {
        loop {
            for port in self.rest.by_ref() {
                let port = u16::try_from(port).unwrap_or(u16::MAX);
                if is_free(port) {
                    return port;
                }
            }
            self.claim();
        }
    }

    /// Takes a block that nobody has. Each process begins elsewhere, so that what the one before
    /// left behind does not go on talking to the servers of the next.
    fn claim(&mut self) {
        let end = first_ephemeral();
        let count = end.saturating_sub(LOWEST) / BLOCK;
        for place in 0..count {
            let block = (process::id().wrapping_mul(7) + place) % count;
            let name = SocketAddr::from_abstract_name(format!("shortstop-ports-{block}"));
            if let Ok(claim) = name.and_then(|name| UnixDatagram::bind_addr(&name)) {
                let first = LOWEST + block * BLOCK;
                self.claims.push(claim);
                self.rest = first..first + BLOCK;
                return;
            }
        }
        panic!(
            "no free port from {LOWEST} to {end}: servers of tests need some below net.ipv4.ip_local_port_range; \
             sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
        );
    }
}

fn is_free(port: u16) -> bool {
    let here = ("127.0.0.1", port);
    TcpListener::bind(here).is_ok() && UdpSocket::bind(here).is_ok()
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
        let (port, second) = (free(), free());
        let _udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        let _tcp = TcpListener::bind(("127.0.0.1", second)).unwrap();
        assert!(!is_free(port) && !is_free(second));
        let first = u32::from(port);
        let mut blocks = Blocks { claims: vec![], rest: first..first + 1 };
        assert_ne!(blocks.next(), port);
    }

    #[test]
    fn nobody_else_is_given_a_port_of_the_same_block() {
        let of = |port: u16| (u32::from(port) - LOWEST) / BLOCK;
        let other = || Blocks { claims: vec![], rest: 0..0 };
        // All of them live until the end, as other processes would.
        let mut others: Vec<Blocks> = (0..20).map(|_| other()).collect();
        let theirs: HashSet<u32> = others.iter_mut().map(|blocks| of(blocks.next())).collect();
        assert_eq!(theirs.len(), 20);
        assert!((0..3 * BLOCK).all(|_| !theirs.contains(&of(free()))));
    }

    #[test]
    fn what_is_held_is_given_to_nobody_and_a_server_can_have_it() {
        let held = held();
        assert!(!is_free(held.number));
        let _server = TcpListener::bind(("127.0.0.1", held.number)).unwrap();
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
