//! A source of requests on sockets, with the machine's clock: `shortstop-lab load` is this. In the
//! simulator the crate `sim` drives the same source.

use std::{
    io::{BufRead, Write},
    time::Instant,
};

use anyhow::Context;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    LoadConfig, Phase, PhaseKind, PhaseResult,
    batch::{self, Lane},
    source::Source,
};

/// Below this wait for the next arrival, looking again at once is cheaper than sleeping.
pub const SPIN_NS: u64 = 15_000;
/// Longest wait before looking again.
pub const IDLE_NS: u64 = 2_000_000;

/// A [`Source`] on sockets. One thread; all buffers are made once.
pub struct Generator {
    source: Source,
    /// One per store.
    lanes: Vec<Lane>,
    start: Instant,
}

impl Generator {
    /// Prepares keys, tables and sockets. Its client's id is drawn at random.
    ///
    /// # Errors
    /// Those of [`Source::new`], or a socket that cannot be opened.
    pub fn new(config: LoadConfig) -> anyhow::Result<Generator> {
        let stores: Vec<_> = config.cluster.stores.iter().map(|s| s.address).collect();
        let source = Source::new(config, rand::random())?;
        let lanes = stores.into_iter().map(Lane::to);
        let lanes = lanes.collect::<Result<_, _>>()?;
        // SAFETY: a plain prctl: timers of this thread may be as exact as the kernel can.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Ok(Generator { source, lanes, start: Instant::now() })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Runs one phase to its end, waiting for the last answers.
    ///
    /// # Errors
    /// A phase that makes no sense or does not end in time, or a socket that fails for good.
    pub fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        self.source.begin(phase, self.now_ns())?;
        if phase.kind == PhaseKind::Dry {
            return self.run_dry();
        }
        loop {
            let now_ns = self.now_ns();
            let sent = self.send_due(now_ns)?;
            let received = self.receive()?;
            self.source.expire(now_ns);
            if let Some(result) = self.source.finished(now_ns)? {
                return Ok(result);
            }
            if sent == 0 && received == 0 {
                let next_ns = self.source.next_ns().unwrap_or(now_ns);
                self.idle(next_ns.min(now_ns + IDLE_NS));
            }
        }
    }

    /// A phase whose requests nobody but this generator sees.
    fn run_dry(&mut self) -> anyhow::Result<PhaseResult> {
        let mut asked: Vec<Vec<u8>> = vec![];
        let mut answer = vec![];
        loop {
            let now_ns = self.now_ns();
            let mut count = 0;
            self.source.due(now_ns, &mut |_, bytes| {
                if asked.len() == count {
                    asked.push(vec![]);
                }
                asked[count].clear();
                asked[count].extend_from_slice(bytes);
                count += 1;
            });
            for request in &asked[..count] {
                if let Some(from) = self.source.answer(request, &mut answer) {
                    self.source.take(&answer, from, self.start.elapsed().as_nanos() as u64);
                }
            }
            self.source.expire(now_ns);
            if let Some(result) = self.source.finished(now_ns)? {
                return Ok(result);
            }
        }
    }

    /// Sends what is due, at most one burst; returns how much.
    fn send_due(&mut self, now_ns: u64) -> anyhow::Result<usize> {
        let lanes = &mut self.lanes;
        let mut unsent = Ok(0);
        let mut flush = |lane: &mut Lane| {
            if let Ok(sum) = &mut unsent {
                match lane.send() {
                    Ok(count) => *sum += count as u64,
                    Err(error) => unsent = Err(error),
                }
            }
        };
        let count = self.source.due(now_ns, &mut |store, bytes| {
            let lane = &mut lanes[store];
            if lane.is_full() {
                flush(lane);
            }
            lane.queue(bytes.len()).copy_from_slice(bytes);
        });
        if count > 0 {
            let filled = lanes.iter_mut().filter(|lane| !lane.is_empty());
            filled.for_each(flush);
        }
        self.source.not_taken(unsent.context("sending load")?);
        Ok(count)
    }

    fn receive(&mut self) -> anyhow::Result<usize> {
        let mut total = 0;
        for i in 0..self.lanes.len() {
            loop {
                let got = self.lanes[i].receive().context("receiving answers")?;
                let now_ns = self.now_ns();
                let lane = &self.lanes[i];
                for (j, from) in (0..got).filter_map(|j| Some((j, lane.sender(j)?))) {
                    self.source.take(lane.datagram(j), from, now_ns);
                }
                total += got;
                if !Lane::may_have_more(got) {
                    break;
                }
            }
        }
        Ok(total)
    }

    /// Sleeps until an answer comes or the time has.
    fn idle(&self, until_ns: u64) {
        let wait_ns = until_ns.saturating_sub(self.now_ns());
        if wait_ns < SPIN_NS {
            return;
        }
        let fds: Vec<i32> = self.lanes.iter().map(Lane::fd).collect();
        batch::wait(&fds, wait_ns);
    }
}

/// Runs the phases of the configuration; if it has none, phases come from standard input, one JSON
/// document per line. One JSON result per line goes to `out`.
///
/// # Errors
/// A socket that cannot be opened, a phase that cannot be read, an output that is gone.
pub fn run(config: LoadConfig, input: impl BufRead, mut out: impl Write) -> anyhow::Result<()> {
    let phases = config.phases.clone();
    let mut generator = Generator::new(config)?;
    if phases.is_empty() {
        return run_phases(input, out, |phase: &Phase| generator.run(phase));
    }
    phases.iter().try_for_each(|phase| tell(&mut out, &generator.run(phase)?))
}

/// Runs phases from `input`, one JSON document per line; one JSON result per line goes to `out`.
///
/// # Errors
/// A phase that cannot be read or run, an output that is gone.
pub fn run_phases<P: DeserializeOwned, R: Serialize>(
    input: impl BufRead,
    mut out: impl Write,
    mut run: impl FnMut(&P) -> anyhow::Result<R>,
) -> anyhow::Result<()> {
    for line in input.lines() {
        let line = line.context("reading a phase")?;
        let phase: P = serde_json::from_str(&line)
            .with_context(|| format!("a phase of the load generator: {line:?}"))?;
        tell(&mut out, &run(&phase)?)?;
    }
    Ok(())
}

fn tell(out: &mut impl Write, result: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, result)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
