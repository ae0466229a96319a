//! One client over one UDP socket that keeps a window of requests outstanding, in batches of
//! system calls.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::Context;
use datagrams::{Datagram, Destination, Receiver, Refusal, Sender};

use crate::cpu::CountedTasks;

/// Requests outstanding.
pub const WINDOW: usize = 64;
/// After so long without an answer, what is outstanding counts as lost.
const PATIENCE: Duration = Duration::from_millis(20);
const SLOT: usize = 2048;

/// A prepared request. Its padding is shared, so that ten thousand of them leave the caches to
/// the server.
struct Request {
    front: Vec<u8>,
    padding: usize,
}

static PADDING: [u8; SLOT] = [0; SLOT];

impl Request {
    fn new(mut bytes: Vec<u8>) -> Request {
        let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
        bytes.truncate(bytes.len() - zeros);
        bytes.shrink_to_fit();
        Request { front: bytes, padding: zeros.min(SLOT) }
    }
}

/// A client with its prepared requests, which it asks in turn.
pub struct Client {
    socket: UdpSocket,
    requests: Vec<Request>,
    next: usize,
    is_answer: fn(&[u8]) -> bool,
    sender: Sender,
    receiver: Receiver,
    inbox: Vec<[u8; SLOT]>,
}

/// What came of asking for a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Right answers.
    pub answered: u64,
    /// Answers of another kind.
    pub wrong: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Answers per second.
    pub rate: f64,
    /// Processor time per answer in microseconds: client, server and softirq threads.
    pub cpu_us: f64,
}

impl Client {
    /// A client of the server at `to`, in this thread's network namespace.
    ///
    /// # Errors
    /// No socket, or no route.
    pub fn connect(
        to: SocketAddr,
        requests: Vec<Vec<u8>>,
        is_answer: fn(&[u8]) -> bool,
    ) -> anyhow::Result<Client> {
        let socket = UdpSocket::bind("0.0.0.0:0").context("a UDP socket for the client")?;
        socket.connect(to).with_context(|| format!("no route to {to}"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            socket,
            requests: requests.into_iter().map(Request::new).collect(),
            next: 0,
            is_answer,
            sender: Sender::default(),
            receiver: Receiver::default(),
            inbox: vec![[0; SLOT]; WINDOW],
        })
    }

    fn send(&mut self, count: usize) -> io::Result<()> {
        let (before, next) = self.requests.split_at(self.next);
        let outgoing = next.iter().chain(before).cycle().take(count);
        let outgoing = outgoing.map(|request| Datagram {
            parts: [&request.front, &PADDING[..request.padding]],
            to: Destination::Peer,
            source: None,
        });
        self.sender.send(&self.socket, outgoing, |error| {
            match error.kind() {
                // What an earlier datagram met; this one is sent again.
                io::ErrorKind::ConnectionRefused => Ok(Refusal::Again),
                _ => Err(error),
            }
        })?;
        self.next = (self.next + count) % self.requests.len();
        Ok(())
    }

    /// Waits for at least one answer; how many came, and how many of them are right. `None`: none
    /// in time.
    fn receive(&mut self) -> io::Result<Option<(usize, usize)>> {
        let buffers = self.inbox.iter_mut().map(|slot| [&mut slot[..], &mut []]);
        let got = match self.receiver.receive(&self.socket, buffers) {
            Ok(got) => got,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => {
                        Ok(Some((0, 0)))
                    }
                    _ => Err(error),
                };
            }
        };
        let answers = self.inbox[..got].iter().enumerate();
        let is_right =
            |(at, slot): &(usize, &[u8; SLOT])| (self.is_answer)(&slot[..self.receiver.len(*at)]);
        Ok(Some((got, answers.filter(is_right).count())))
    }

    /// Asks for so long, with a full window, and waits for the last answers.
    ///
    /// # Errors
    /// The socket fails.
    pub fn run(&mut self, time: Duration, others: &CountedTasks) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut outstanding = 0;
        let (start, used) = (Instant::now(), others.used());
        loop {
            let is_over = start.elapsed() >= time;
            if !is_over {
                self.send(WINDOW - outstanding)?;
                outstanding = WINDOW;
            }
            match self.receive()? {
                Some((got, right)) => {
                    outcome.answered += right as u64;
                    outcome.wrong += (got - right) as u64;
                    outstanding = outstanding.saturating_sub(got);
                }
                None => {
                    outcome.lost += outstanding as u64;
                    outstanding = 0;
                }
            }
            if is_over && outstanding == 0 {
                break;
            }
        }
        let answered = outcome.answered as f64;
        outcome.rate = answered / start.elapsed().as_secs_f64();
        outcome.cpu_us = (others.used() - used).as_secs_f64() * 1e6 / answered;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_or_lost() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let mut buffer = [0; 64];
            server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            while let Ok((len, from)) = server.recv_from(&mut buffer) {
                if buffer[0] == b'q' {
                    return;
                }
                let _ = server.send_to(&buffer[..len], from);
            }
        });
        let requests = vec![b"right".to_vec(), b"wrong".to_vec()];
        let mut client = Client::connect(to, requests, |answer| answer == b"right").unwrap();
        let outcome = client.run(Duration::from_millis(50), &CountedTasks::default()).unwrap();
        client.socket.send(b"q").unwrap();
        echo.join().unwrap();
        assert!(outcome.answered > 0, "{outcome:?}");
        assert!(outcome.answered.abs_diff(outcome.wrong) <= WINDOW as u64, "{outcome:?}");
    }
}
