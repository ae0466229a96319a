//! A client of memcached that reads whole answers.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use memcached::{ReplyScanner, TERMINATOR};

use super::super::support::{PATIENCE, StoreThread, servers::Process};

/// A client, which asks of a port or of a memcached.
pub struct Client(pub TcpStream);

impl Client {
    pub fn at(server: SocketAddr) -> Client {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        Client(stream)
    }

    /// Of a memcached itself.
    pub fn of(server: &Process) -> Client {
        Client::at(SocketAddr::from(([127, 0, 0, 1], server.port)))
    }

    /// Of a store's memcached port.
    pub fn by(store: &StoreThread) -> Client {
        Client::at(store.port.expect("a memcached port"))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// What is answered to some commands, which are none that end a connection.
    pub fn ask(&mut self, commands: impl AsRef<[u8]>) -> String {
        self.ask_while(commands, || {})
    }

    /// Likewise; `waits` is called while there is no answer.
    pub fn ask_while(&mut self, commands: impl AsRef<[u8]>, waits: impl FnMut()) -> String {
        self.send([commands.as_ref(), TERMINATOR].concat());
        self.answers(waits)
    }

    /// What is answered until a no-op is.
    pub fn answers(&mut self, mut waits: impl FnMut()) -> String {
        let (mut scanner, mut buffer, mut answers) = (ReplyScanner::default(), vec![], vec![]);
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no answer but {}", answers.escape_ascii());
            match self.some(&mut buffer) {
                None => waits(),
                Some(0) => panic!("closed after {}", answers.escape_ascii()),
                Some(_) => {
                    let found = scanner.scan(&buffer).unwrap();
                    answers.extend_from_slice(&buffer[..found.answers]);
                    buffer.drain(..found.taken);
                    if found.is_over {
                        assert_eq!(buffer, b"", "something behind the answers");
                        return String::from_utf8(answers).unwrap();
                    }
                }
            }
        }
    }

    /// What comes until the connection is closed.
    pub fn last_words(&mut self) -> String {
        let (mut bytes, deadline) = (vec![], Instant::now() + PATIENCE);
        while self.some(&mut bytes) != Some(0) {
            assert!(Instant::now() < deadline, "not closed after {}", bytes.escape_ascii());
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Reads some bytes, if there are.
    fn some(&mut self, into: &mut Vec<u8>) -> Option<usize> {
        let mut bytes = [0; 1 << 14];
        match self.0.read(&mut bytes) {
            Ok(len) => {
                into.extend_from_slice(&bytes[..len]);
                Some(len)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(0),
            Err(error) => panic!("{error}"),
        }
    }
}
