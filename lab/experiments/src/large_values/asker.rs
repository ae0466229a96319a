//! Clients by shortstop's protocol: the same calls over a socket of a namespace, and in the
//! simulator.

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    time::{Duration, Instant},
};

use client::{Answer, Machine, Operation, Options};
use sim::{Birth, Io, Process, packet::Datagram};
use wire::Cluster;

use super::values::{Ask, Outcome, Values};

/// Asks for values, several at a time, until it is told to stop.
pub(super) struct Asker {
    machine: Machine,
    values: Values,
    under_way: BTreeMap<u64, Ask>,
    workers: usize,
    stopped: bool,
    port: u16,
}

impl Asker {
    pub fn new(
        cluster: &Cluster,
        tenant: u32,
        values: Values,
        workers: usize,
        seed: u64,
    ) -> anyhow::Result<Asker> {
        Ok(Asker {
            machine: Machine::new(cluster, tenant, Options::default(), seed)?,
            values,
            under_way: BTreeMap::new(),
            workers,
            stopped: false,
            port: 0,
        })
    }

    /// As a process of the simulator.
    pub fn born(mut self, birth: &Birth) -> Asker {
        self.port = birth.port;
        self
    }

    /// Begins nothing new.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn is_over(&self) -> bool {
        self.stopped && self.under_way.is_empty()
    }

    /// What it has seen since it was asked last. What is not answered by now has failed.
    pub fn take_seen(&mut self) -> Outcome {
        self.values.seen.failed += self.under_way.len() as u64;
        std::mem::take(&mut self.values.seen)
    }

    fn go_on(&mut self, now_ns: u64) {
        let now = Duration::from_nanos(now_ns);
        while let Some((number, result)) = self.machine.next_finished() {
            let Some(ask) = self.under_way.remove(&number) else { continue };
            match ask.write {
                Some(_) => {
                    let is_done = came(result.and_then(Answer::written)).is_some();
                    self.values.wrote(&ask, is_done, now);
                }
                None => {
                    let found = came(result.and_then(Answer::found));
                    let found = found.as_ref().map(|value| {
                        let value = value.as_ref();
                        let from_switch = value.is_some_and(|value| value.from_switch);
                        (value.map(|value| &value.bytes[..]), from_switch)
                    });
                    self.values.read(&ask, found, now);
                }
            }
        }
        while !self.stopped && self.under_way.len() < self.workers {
            let ask = self.values.next(now);
            let name = self.values.name(ask.key);
            let key = name.as_bytes();
            let operation = match &ask.write {
                None => Operation::Get { key },
                Some(value) => {
                    Operation::Set { key, value, ttl: None, condition: client::Condition::Always }
                }
            };
            let number = self.machine.begin(&operation, now_ns);
            self.under_way.insert(number, ask);
        }
    }

    /// Over a socket of this process, for so long; then until all is answered.
    pub fn run(mut self, length: Duration) -> anyhow::Result<Outcome> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        let start = Instant::now();
        let mut buffer = [0; 2048];
        loop {
            let now_ns = start.elapsed().as_nanos() as u64;
            if now_ns >= length.as_nanos() as u64 {
                self.stop();
            }
            if self.machine.next_ns().is_some_and(|at| at <= now_ns) {
                self.machine.timer(now_ns);
            }
            self.go_on(now_ns);
            if self.is_over() {
                return Ok(self.take_seen());
            }
            while let Some((to, datagram)) = self.machine.next_datagram() {
                // A full queue: it is lost, and sent again.
                let _ = socket.send_to(&datagram, to);
            }
            let until_ns = self.machine.next_ns().unwrap_or(now_ns);
            let wait = Duration::from_nanos(until_ns.saturating_sub(now_ns));
            socket.set_read_timeout(Some(wait.max(Duration::from_micros(100))))?;
            socket.set_nonblocking(false)?;
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let now_ns = start.elapsed().as_nanos() as u64;
                self.machine.take(&buffer[..len], from, now_ns);
                socket.set_nonblocking(true)?;
            }
        }
    }
}

/// What came; what did not is counted only, and why is said here.
fn came<T>(result: Result<T, client::Error>) -> Option<T> {
    result.inspect_err(|error| tracing::warn!("a request failed: {error}")).ok()
}

impl Process for Asker {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        self.machine.take(datagram.payload, datagram.from, io.now_ns());
        self.wake(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let now_ns = io.now_ns();
        if self.machine.next_ns().is_some_and(|at| at <= now_ns) {
            self.machine.timer(now_ns);
        }
        self.go_on(now_ns);
        while let Some((to, datagram)) = self.machine.next_datagram() {
            io.send(self.port, to, &datagram);
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.machine.next_ns()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}
