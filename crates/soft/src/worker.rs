//! One thread of the packet path: takes frames, runs the programs on them, and sends what
//! they leave.

use std::{
    collections::VecDeque,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use datagrams::BATCH;
use dataplane::native::{Cpu, Frame, Program, Switch, Verdict};
use serde::{Deserialize, Serialize};

use crate::{
    RECIRCULATION_PORT,
    door::Door,
    segments,
    tap::{Arrivals, Sender, Tap},
};

/// Packets that go round at a time, for each thread.
const ROUND: usize = 256;
/// How long a thread sleeps before it looks whether it is to end.
const NAP: libc::c_int = 50;
/// How often sockets are asked what they lost.
const ACCOUNT: Duration = Duration::from_millis(500);

/// Packets that were lost in a soft switch, not by what its programs decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossCounts {
    /// For which there was no room before the programs.
    pub received: u64,
    /// That the kernel did not send.
    pub sent: u64,
    /// That the kernel did not take back.
    pub passed: u64,
    /// For which there was no room on the recirculation port.
    pub recirculated: u64,
}

/// As [`LossCounts`], counted.
#[derive(Default)]
pub struct Losses {
    received: AtomicU64,
    sent: AtomicU64,
    passed: AtomicU64,
    recirculated: AtomicU64,
}

impl Losses {
    pub fn now(&self) -> LossCounts {
        LossCounts {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            passed: self.passed.load(Relaxed),
            recirculated: self.recirculated.load(Relaxed),
        }
    }
}

pub struct Worker {
    cpu: Cpu,
    switch: Arc<Switch>,
    taps: Vec<Tap>,
    sender: Sender,
    door: Arc<Door>,
    losses: Arc<Losses>,
    stop: Arc<AtomicBool>,
    /// What is to be sent, by which port.
    leaving: Vec<(u32, Frame)>,
    round: VecDeque<Frame>,
    spare: Vec<Frame>,
    fan: Vec<u32>,
}

impl Worker {
    pub fn new(
        cpu: Cpu,
        switch: Arc<Switch>,
        taps: Vec<Tap>,
        sender: Sender,
        door: Arc<Door>,
        losses: Arc<Losses>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        Worker {
            cpu,
            switch,
            taps,
            sender,
            door,
            losses,
            stop,
            leaving: vec![],
            round: VecDeque::new(),
            spare: vec![],
            fan: vec![],
        }
    }

    /// Works until it is told to stop.
    pub fn run(mut self) {
        let mut arrivals = Arrivals::default();
        let mut account = Instant::now();
        while !self.stop.load(Relaxed) {
            let mut came = self.round.len();
            self.serve_round();
            for tap in 0..self.taps.len() {
                came += self.serve(tap, &mut arrivals);
            }
            if account.elapsed() >= ACCOUNT {
                account = Instant::now();
                let lost = self.taps.iter().map(Tap::lost).sum();
                self.losses.received.fetch_add(lost, Relaxed);
            }
            if came == 0 {
                self.wait();
            }
        }
    }

    fn wait(&self) {
        let mut fds: Vec<libc::pollfd> = self
            .taps
            .iter()
            .map(|tap| libc::pollfd { fd: tap.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: as many as stated.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, NAP) };
    }

    /// One batch from one tap.
    fn serve(&mut self, tap: usize, arrivals: &mut Arrivals) -> usize {
        let came = arrivals.receive(&self.taps[tap]);
        if came == 0 {
            return 0;
        }
        let ingress = self.taps[tap].port;
        // Later than each of them came, and earlier than any of them is answered.
        let now = self.switch.clock().now_ns();
        for at in 0..came {
            let spare = self.spare.pop().unwrap_or_default();
            match arrivals.take(at, spare) {
                (frame, None) => self.handle(Program::Entry, frame, ingress, now),
                (whole, Some(size)) => {
                    let spare = &mut self.spare;
                    let parts = segments::divide(&whole, size, || spare.pop().unwrap_or_default());
                    parts
                        .into_iter()
                        .for_each(|part| self.handle(Program::Entry, part, ingress, now));
                    self.spare.push(whole);
                }
            }
        }
        self.send();
        came
    }

    /// One round of what goes round.
    fn serve_round(&mut self) {
        if self.round.is_empty() {
            return;
        }
        let now = self.switch.clock().now_ns();
        for _ in 0..self.round.len() {
            let frame = self.round.pop_front().expect("as many as there were");
            self.handle(Program::ComesBack, frame, RECIRCULATION_PORT, now);
        }
        self.send();
    }

    fn send(&mut self) {
        let lost = self.sender.send(&self.leaving);
        self.losses.sent.fetch_add(lost, Relaxed);
        self.spare.extend(self.leaving.drain(..).map(|(_, frame)| frame));
        self.spare.truncate(2 * BATCH);
    }

    fn handle(&mut self, program: Program, mut frame: Frame, ingress: u32, now: u64) {
        match self.cpu.run(program, &mut frame, ingress, now) {
            Verdict::Back if ingress != RECIRCULATION_PORT => self.leave(ingress, frame),
            Verdict::To(port) => self.leave(port, frame),
            Verdict::Fan => self.fan(&frame, ingress, now),
            Verdict::Pass => {
                if !self.door.pass(&frame) {
                    self.losses.passed.fetch_add(1, Relaxed);
                }
                self.spare.push(frame);
            }
            // Nobody listens behind the recirculation port.
            Verdict::Drop | Verdict::Back => self.spare.push(frame),
        }
    }

    fn fan(&mut self, frame: &Frame, ingress: u32, now: u64) {
        let mut ports = std::mem::take(&mut self.fan);
        self.cpu.fan(ingress, &mut ports);
        for port in ports.drain(..) {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.set(frame.bytes());
            if self.cpu.leaves(&mut copy, ingress, port, now) {
                self.leave(port, copy);
            }
        }
        self.fan = ports;
    }

    fn leave(&mut self, port: u32, frame: Frame) {
        if port != RECIRCULATION_PORT {
            self.leaving.push((port, frame));
        } else if self.round.len() < ROUND {
            self.round.push_back(frame);
        } else {
            self.losses.recirculated.fetch_add(1, Relaxed);
        }
    }
}
