//! The load on one socket and one thread, as a process of its own.

use std::io::{BufRead, Write};

use anyhow::Context;
use client::kit::now_ns;
use load::{IDLE_NS, Lane, SPIN_NS};

use crate::{Config, Phase, PhaseResult, Source};

/// A [`Source`] on one socket and one thread.
struct Generator {
    source: Source,
    lane: Lane,
}

impl Generator {
    fn new(config: Config) -> anyhow::Result<Generator> {
        let first = config.cluster.switches.first();
        let first = first.context("coord load: the cluster names no switch")?;
        let lane = Lane::to((first.address, wire::PORT).into())?;
        // SAFETY: a plain prctl: timers of this thread may be as exact as the kernel can.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Ok(Generator { source: Source::new(config, rand::random())?, lane })
    }

    fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        self.source.begin(phase, now_ns())?;
        loop {
            let now_ns = now_ns();
            let sent = self.send(now_ns)?;
            let received = self.receive()?;
            if let Some(result) = self.source.finished(now_ns)? {
                return Ok(result);
            }
            if !sent && received == 0 {
                let next_ns = self.source.next_ns().unwrap_or(now_ns);
                let wait_ns = next_ns.min(now_ns + IDLE_NS).saturating_sub(now_ns);
                if wait_ns >= SPIN_NS {
                    self.lane.wait(wait_ns);
                }
            }
        }
    }

    fn send(&mut self, now_ns: u64) -> anyhow::Result<bool> {
        let lane = &mut self.lane;
        let mut failed = Ok(());
        let any = self.source.go_on(now_ns, &mut |to, datagram| {
            if lane.is_full()
                && let Err(error) = lane.send()
            {
                failed = Err(error);
            }
            lane.queue_to(to, datagram.len()).copy_from_slice(datagram);
        });
        failed.context("sending load")?;
        if !lane.is_empty() {
            // What the socket does not take is sent again by its client.
            lane.send().context("sending load")?;
        }
        Ok(any)
    }

    fn receive(&mut self) -> anyhow::Result<usize> {
        let mut total = 0;
        loop {
            let got = self.lane.receive().context("receiving answers")?;
            // After what came was received, never before: see the client's module.
            let now_ns = now_ns();
            for (i, from) in (0..got).filter_map(|i| Some((i, self.lane.sender(i)?))) {
                self.source.take(self.lane.datagram(i), from, now_ns);
            }
            total += got;
            if !Lane::may_have_more(got) {
                return Ok(total);
            }
        }
    }
}

/// Runs phases from standard input, one JSON document per line; one JSON result per line goes to
/// `out`.
///
/// # Errors
/// A socket that cannot be opened, a phase that cannot be read, an output that is gone.
pub fn run(config: Config, input: impl BufRead, out: impl Write) -> anyhow::Result<()> {
    let mut generator = Generator::new(config)?;
    load::run_phases(input, out, |phase: &Phase| generator.run(phase))
}
