//! One client over one UDP socket that keeps a window of requests outstanding, in batches of
//! system calls.

use std::{
    io,
    mem::zeroed,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::cpu::Others;

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
        Request {
            front: bytes,
            padding: zeros.min(SLOT),
        }
    }
}

/// A client with its prepared requests, which it asks in turn.
pub struct Client {
    socket: UdpSocket,
    requests: Vec<Request>,
    next: usize,
    is_answer: fn(&[u8]) -> bool,
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
        socket
            .connect(to)
            .with_context(|| format!("no route to {to}"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Client {
            socket,
            requests: requests.into_iter().map(Request::new).collect(),
            next: 0,
            is_answer,
            inbox: vec![[0; SLOT]; WINDOW],
        })
    }

    fn send(&mut self, count: usize) -> io::Result<()> {
        // SAFETY: all-zero is a valid iovec and mmsghdr.
        let mut vectors: [[libc::iovec; 2]; WINDOW] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; WINDOW] = unsafe { zeroed() };
        for (vectors, header) in vectors.iter_mut().zip(&mut headers).take(count) {
            let request = &self.requests[self.next];
            self.next = (self.next + 1) % self.requests.len();
            vectors[0].iov_base = request.front.as_ptr().cast_mut().cast();
            vectors[0].iov_len = request.front.len();
            vectors[1].iov_base = PADDING.as_ptr().cast_mut().cast();
            vectors[1].iov_len = request.padding;
            header.msg_hdr.msg_iov = vectors.as_mut_ptr();
            header.msg_hdr.msg_iovlen = if request.padding > 0 { 2 } else { 1 };
        }
        let mut done = 0;
        while done < count {
            let rest = &mut headers[done..count];
            // SAFETY: every header leads to its vector and request, all alive and of the
            // stated lengths.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as u32,
                    0,
                )
            };
            match sent {
                0.. => done += sent as usize,
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    // What an earlier datagram met; this one is sent again.
                    error if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Waits for at least one answer; how many came, and how many of them are right. `None`: none
    /// in time.
    fn receive(&mut self) -> io::Result<Option<(usize, usize)>> {
        // SAFETY: all-zero is a valid iovec and mmsghdr.
        let mut vectors: [libc::iovec; WINDOW] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; WINDOW] = unsafe { zeroed() };
        for ((vector, header), slot) in vectors.iter_mut().zip(&mut headers).zip(&mut self.inbox) {
            vector.iov_base = slot.as_mut_ptr().cast();
            vector.iov_len = SLOT;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the kernel writes at most `iov_len` bytes into each slot.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                WINDOW as u32,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(Some((0, 0))),
                _ => Err(error),
            };
        }
        let got = got as usize;
        let right = headers[..got].iter().zip(&self.inbox);
        let is_answer = self.is_answer;
        let right = right.filter(|(h, slot)| is_answer(&slot[..(h.msg_len as usize).min(SLOT)]));
        Ok(Some((got, right.count())))
    }

    /// Asks for so long, with a full window, and waits for the last answers.
    ///
    /// # Errors
    /// The socket fails.
    pub fn run(&mut self, time: Duration, others: &Others) -> anyhow::Result<Outcome> {
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
            server
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            while let Ok((len, from)) = server.recv_from(&mut buffer) {
                if buffer[0] == b'q' {
                    return;
                }
                let _ = server.send_to(&buffer[..len], from);
            }
        });
        let requests = vec![b"right".to_vec(), b"wrong".to_vec()];
        let mut client = Client::connect(to, requests, |answer| answer == b"right").unwrap();
        let outcome = client
            .run(Duration::from_millis(50), &Others::default())
            .unwrap();
        client.socket.send(b"q").unwrap();
        echo.join().unwrap();
        assert!(outcome.answered > 0, "{outcome:?}");
        assert!(
            outcome.answered.abs_diff(outcome.wrong) <= WINDOW as u64,
            "{outcome:?}"
        );
    }
}
