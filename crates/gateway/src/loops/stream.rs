//! One socket of the loop: TCP or Unix, with what waits to leave by it.
//!
//! The system tells of a socket once, when it becomes readable or writable; so each remembers what
//! it was told until a call says otherwise.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use mio::{
    Interest, Registry, Token,
    net::{TcpStream, UnixStream},
};
use socket2::{SockRef, TcpKeepalive};

/// Buffers that became longer than this are given back when they are empty.
const KEEP_BYTES: usize = 16 << 10;
/// A peer that takes nothing for so long is gone: its host, or the way there. One that is only slow
/// acknowledges, until its own buffers are full.
const GONE_AFTER: Duration = Duration::from_secs(10);
/// How often a peer is asked whether it is there while nothing is said.
const ASKED_EVERY: Duration = Duration::from_secs(15);

/// Where a Redis is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that never waits.
pub(super) struct Stream {
    socket: Socket,
    /// Whether there may be something to read.
    pub readable: bool,
    writable: bool,
    out: Vec<u8>,
    /// Bytes of `out` that have left.
    left: usize,
}

impl Stream {
    /// One that was accepted.
    pub fn accepted(socket: TcpStream) -> Stream {
        let _ = socket.set_nodelay(true);
        Stream::new(Socket::Tcp(socket), true)
    }

    /// Begins to connect. It has when it becomes writable and [`Stream::failure`] has none.
    pub fn connect(place: &Place) -> io::Result<Stream> {
        let socket = match place {
            Place::Tcp(address) => {
                let socket = TcpStream::connect(*address)?;
                let _ = socket.set_nodelay(true);
                let options = SockRef::from(&socket);
                let _ = options.set_tcp_user_timeout(Some(GONE_AFTER));
                let asks = TcpKeepalive::new().with_time(ASKED_EVERY).with_interval(ASKED_EVERY);
                let _ = options.set_tcp_keepalive(&asks);
                Socket::Tcp(socket)
            }
            Place::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
        };
        Ok(Stream::new(socket, false))
    }

    fn new(socket: Socket, writable: bool) -> Stream {
        Stream { socket, readable: false, writable, out: vec![], left: 0 }
    }

    /// Has events told under this token.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match &mut self.socket {
            Socket::Tcp(socket) => registry.register(socket, token, both),
            Socket::Unix(socket) => registry.register(socket, token, both),
        }
    }

    /// What kept it from connecting.
    pub fn failure(&self) -> Option<io::Error> {
        match &self.socket {
            Socket::Tcp(socket) => match socket.take_error() {
                Ok(None) => socket.peer_addr().err(),
                Ok(error) => error,
                Err(error) => Some(error),
            },
            Socket::Unix(socket) => socket.take_error().unwrap_or_else(Some),
        }
    }

    /// Who is at the other end, by TCP.
    pub fn peer(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Notes that it can take bytes again.
    pub fn may_write(&mut self) {
        self.writable = true;
    }

    /// Reads once; `None`: nothing is there now. Zero bytes: the peer has closed its half.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match &mut self.socket {
                Socket::Tcp(socket) => socket.read(buffer),
                Socket::Unix(socket) => socket.read(buffer),
            };
            return match read {
                // A short read has emptied the socket; what comes later is told anew.
                Ok(len) => {
                    self.readable = len == buffer.len();
                    Ok(Some(len))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
    }

    /// What waits to leave.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes that wait to leave.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.left
    }

    /// Memory that waits to leave, or that it has left.
    pub fn held(&self) -> usize {
        self.out.capacity()
    }

    /// Sends what the socket takes; how much that was.
    pub fn flush(&mut self) -> io::Result<usize> {
        let before = self.left;
        while self.writable && self.left < self.out.len() {
            let rest = &self.out[self.left..];
            let wrote = match &mut self.socket {
                Socket::Tcp(socket) => socket.write(rest),
                Socket::Unix(socket) => socket.write(rest),
            };
            match wrote {
                Ok(len) => {
                    // Less than asked for: it is full, and will be told writable.
                    self.writable = len == rest.len();
                    self.left += len;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(error),
            }
        }
        let sent = self.left - before;
        if self.left == self.out.len() {
            self.left = 0;
            self.out.clear();
            if self.out.capacity() > KEEP_BYTES {
                self.out = vec![];
            }
        } else if self.left > KEEP_BYTES && self.left > self.out.len() / 2 {
            self.out.drain(..self.left);
            self.left = 0;
        }
        Ok(sent)
    }

    /// Gives back the memory of a socket that is idle.
    pub fn rest(&mut self) {
        if self.out.is_empty() {
            self.out = vec![];
        }
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self) {
        let _ = match &self.socket {
            Socket::Tcp(socket) => socket.shutdown(std::net::Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(std::net::Shutdown::Write),
        };
    }
}
