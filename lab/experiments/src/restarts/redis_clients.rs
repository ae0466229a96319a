//! A Redis client that asks gateways, as its users' libraries do: one command after the other, and
//! if a connection has ended, the same again on a new one, to the next gateway.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use lab::namespace;

use crate::resp::{Connection, Server};

/// After so long a command has failed.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Between two tries to connect, where nobody listens.
const AGAIN: Duration = Duration::from_millis(5);
const KEYS: u32 = 16;

/// What a client has seen.
#[derive(Default)]
pub(super) struct Observations {
    /// When each write began, and how long it took, in milliseconds.
    pub writes: Vec<(Instant, f64)>,
    pub commands: u64,
    pub failed: u64,
    /// Reads of another value than was written last.
    pub wrong: u64,
}

/// Asks from a namespace until `stop`. The keys are this client's own.
pub(super) fn ask(
    place: &str,
    gateways: &[SocketAddr],
    name: &str,
    stop: &AtomicBool,
) -> anyhow::Result<Observations> {
    namespace::within(place, || {
        let mut client = Client { gateways: gateways.to_vec(), connection: None, first: 0 };
        let mut seen = Observations::default();
        for n in 0u32.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let key = format!("{name}-{}", n % KEYS);
            let value = n.to_string();
            let begun = Instant::now();
            let written = client.command(&[b"SET", key.as_bytes(), value.as_bytes()]);
            seen.commands += 2;
            match written {
                Some(answer) if answer.as_deref() == Some(b"OK") => {
                    seen.writes.push((begun, begun.elapsed().as_secs_f64() * 1000.0));
                }
                _ => seen.failed += 1,
            }
            match client.command(&[b"GET", key.as_bytes()]) {
                Some(read) => seen.wrong += u64::from(read.as_deref() != Some(value.as_bytes())),
                None => seen.failed += 1,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(seen)
    })
}

struct Client {
    gateways: Vec<SocketAddr>,
    connection: Option<Connection>,
    /// The gateway that is asked.
    first: usize,
}

impl Client {
    /// The answer to a command; none: there was none in time, or an error.
    fn command(&mut self, words: &[&[u8]]) -> Option<Option<Vec<u8>>> {
        let begun = Instant::now();
        while begun.elapsed() < DEADLINE {
            let connection = match self.connection.take() {
                Some(connection) => Ok(connection),
                None => Connection::to(&Server::Tcp(self.gateways[self.first])),
            };
            let Ok(mut connection) = connection else {
                self.first = (self.first + 1) % self.gateways.len();
                std::thread::sleep(AGAIN);
                continue;
            };
            match connection.ask(words) {
                Ok(answer) => {
                    self.connection = Some(connection);
                    return Some(answer);
                }
                // An answer, though an error: to be told, not to be asked again.
                Err(error) if error.to_string().starts_with('-') => return None,
                Err(_) => {}
            }
        }
        None
    }
}
