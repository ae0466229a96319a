//! One socket of the loop: TCP, with or without TLS, or Unix, with what waits to leave by it.
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
use tls::{Connector, rustls::pki_types::ServerName};

use super::tls_side::TlsSide;

/// Buffers that became longer than this are given back when they are empty.
const KEEP_BYTES: usize = 16 << 10;
/// Bytes that the system takes for a client ahead of what has left. Without this it takes some
/// megabytes of whoever does not read, before anybody notices.
const UNSENT_BYTES: u32 = 64 << 10;
/// A peer that takes nothing for so long is gone: its host, or the way there. One that is only slow
/// acknowledges, until its own buffers are full.
const GONE_AFTER: Duration = Duration::from_secs(10);
/// A client that says nothing for so long is asked whether it is there, as by a Redis; three times,
/// each after a third of that.
const ABSENT_AFTER: Duration = Duration::from_secs(300);
/// How often a server is asked whether it is there while nothing is said.
const ASKED_EVERY: Duration = Duration::from_secs(15);

/// Where a Redis is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// How to be sure of who is there.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    pub connector: Connector,
    /// Whose certificate it has to be.
    pub name: ServerName<'static>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.read(buffer),
            Socket::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write(bytes),
            Socket::Unix(socket) => socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.write_vectored(parts),
            Socket::Unix(socket) => socket.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that never waits.
pub(super) struct Stream {
    socket: Socket,
    secure: Option<Box<TlsSide>>,
    /// Whether there may be something to read.
    pub readable: bool,
    /// The other end has closed it, which is told once: its last bytes are not the end.
    is_over: bool,
    writable: bool,
    out: Vec<u8>,
    /// Bytes of `out` that have left.
    left: usize,
    /// Bytes that have left and were not told of.
    untold: usize,
    /// Bytes that have left in all.
    pub sent: u64,
}

impl Stream {
    /// One that was accepted.
    pub fn accepted(socket: TcpStream, secure: Option<TlsSide>) -> Stream {
        let _ = socket.set_nodelay(true);
        let system = SockRef::from(&socket);
        let _ = system.set_tcp_notsent_lowat(UNSENT_BYTES);
        // One whose host has vanished may wait for what is others', as a blocking command does.
        let _ = system.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(ABSENT_AFTER).with_interval(ABSENT_AFTER / 3),
        );
        let secure = secure.map(Box::new);
        Stream { secure, ..Stream::new(Socket::Tcp(socket), true) }
    }

    /// Begins to connect. It has when it becomes writable and [`Stream::failure`] has none, and by
    /// TLS when it does not shake hands any more.
    pub fn connect(place: &Place, trust: Option<&Trust>) -> io::Result<Stream> {
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
        let secure = trust.map(|trust| {
            TlsSide::connecting(trust.connector.config(), trust.name.clone()).map(Box::new)
        });
        Ok(Stream { secure: secure.transpose()?, ..Stream::new(socket, false) })
    }

    fn new(socket: Socket, writable: bool) -> Stream {
        Stream {
            socket,
            secure: None,
            readable: false,
            is_over: false,
            writable,
            out: vec![],
            left: 0,
            untold: 0,
            sent: 0,
        }
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

    /// Whether the peer is not believed yet: nothing of it is a command or an answer.
    pub fn is_shaking(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.is_shaking())
    }

    /// Reads once. `None`: nothing is there now, unless it is still `readable`. Zero bytes: the
    /// peer has closed its half.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match &mut self.secure {
                None => self.socket.read(buffer).map(Some),
                Some(secure) => secure.read(&mut self.socket, buffer),
            };
            let read = match read {
                Ok(Some(len)) => {
                    // A short read has emptied the socket; what comes later is told anew, but for
                    // its end.
                    let goes_on = self.secure.is_some() || self.is_over;
                    self.readable = len == buffer.len() || goes_on && len > 0;
                    Ok(Some(len))
                }
                Ok(None) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    Ok(None)
                }
                Err(error) => return Err(error),
            };
            // What has come may want an answer of its own, or be what all waits for.
            if self.secure.as_ref().is_some_and(|secure| secure.waits()) || self.may_seal() {
                self.push()?;
            }
            return read;
        }
    }

    /// The address at which its peer has come; none by a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// There may be something to read; and perhaps nothing comes behind that.
    pub fn may_read(&mut self, is_over: bool) {
        self.readable = true;
        self.is_over |= is_over;
    }

    /// Whether the other end has closed it, and what came before may be unread.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether bytes wait to be sealed.
    fn may_seal(&self) -> bool {
        self.left < self.out.len()
            && self.secure.as_ref().is_some_and(|secure| !secure.is_shaking())
    }

    /// What waits to leave.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes that wait to leave.
    pub fn waiting(&self) -> usize {
        let sealed = self.secure.as_ref().is_some_and(|secure| secure.waits());
        self.out.len() - self.left + usize::from(sealed)
    }

    /// Memory that waits to leave, or that it has left.
    pub fn held(&self) -> usize {
        self.out.capacity() + self.secure.as_ref().map_or(0, |secure| secure.held())
    }

    /// Sends what the socket takes; how much of `out` has left since this was asked last.
    pub fn flush(&mut self) -> io::Result<usize> {
        self.push()?;
        Ok(std::mem::take(&mut self.untold))
    }

    fn push(&mut self) -> io::Result<()> {
        let before = self.left;
        match self.secure {
            None => self.push_plain()?,
            Some(_) => self.push_sealed()?,
        }
        self.untold += self.left - before;
        self.sent += (self.left - before) as u64;
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
        Ok(())
    }

    fn push_plain(&mut self) -> io::Result<()> {
        while self.writable && self.left < self.out.len() {
            let rest = &self.out[self.left..];
            match self.socket.write(rest) {
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
        Ok(())
    }

    fn push_sealed(&mut self) -> io::Result<()> {
        let Some(secure) = &mut self.secure else { return Ok(()) };
        loop {
            while self.left < self.out.len() {
                match secure.seal(&self.out[self.left..])? {
                    0 => break,
                    len => self.left += len,
                }
            }
            if !self.writable || !secure.waits() {
                return Ok(());
            }
            match secure.send(&mut self.socket) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives back the memory of a socket that is idle.
    pub fn rest(&mut self) {
        if self.out.is_empty() {
            self.out = vec![];
        }
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self) {
        if let Some(secure) = &mut self.secure {
            secure.end(&mut self.socket);
        }
        let _ = match &self.socket {
            Socket::Tcp(socket) => socket.shutdown(std::net::Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(std::net::Shutdown::Write),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_and_the_end_that_are_told_together_are_both_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap());
        let mut stream = Stream::connect(&place, None).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut peer, b"-ERR gone\r\n").unwrap();
        drop(peer);
        let mut buffer = [0; 64];
        let said = loop {
            stream.may_read(true);
            if let Some(len) = stream.read(&mut buffer).unwrap() {
                break len;
            }
        };
        assert_eq!(said, 11);
        assert!(stream.readable, "its end is not told again");
        let end = loop {
            if let Some(len) = stream.read(&mut buffer).unwrap() {
                break len;
            }
        };
        assert_eq!(end, 0);
    }
}
