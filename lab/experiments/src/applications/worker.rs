//! An application's connections, as its library has them: commands are drawn, sent several at a
//! time, and what they are answered is recorded.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use history::{Effect, Need, Operation, now_ns};
use load::workload::{Popularity, Ranks};
use rand::RngExt;
use seed::SeededRng;

use super::{
    lane::{Answer, Lane},
    rivals::NearCache,
    values::{key_name, number_for, number_of, percentile_ms, value_of},
};

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    pub keys: u32,
    pub reads: Popularity,
    /// Part of the commands that write.
    pub write_part: f64,
    /// Which keys are written.
    pub writes: Popularity,
    pub value_len: usize,
}

/// How much is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// So many commands are sent at a time, again and again.
    Closed(usize),
    /// One command at a time, so many per second: how long each takes counts from when it was due.
    Open(f64),
}

/// What an application keeps by itself.
#[derive(Clone)]
pub(crate) struct ApplicationCache {
    pub cache: Arc<NearCache>,
    /// For how long a value is kept.
    pub for_ns: u64,
    /// By which connection each server says what is not valid any more; none: nobody says.
    pub told_by: Vec<String>,
}

/// Where an application asks.
#[derive(Clone)]
pub(crate) struct Servers {
    /// All of them.
    pub addresses: Vec<SocketAddr>,
    /// Whom to read from, if that is others.
    pub replicas: Vec<SocketAddr>,
    /// By key: which of them has it.
    pub of_key: Arc<Vec<u8>>,
}

/// What came of one connection's commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub operations: Vec<Operation>,
    /// How long commands took in the measured time, in nanoseconds.
    pub took_ns: Vec<u64>,
    /// Commands that were over within the measured time; at a rate those of them that were due in
    /// it.
    pub done: u64,
    /// At a rate: commands that were due in the measured time. Of those that nobody came to ask
    /// before its end it is not known how long they would have taken.
    pub due: u64,
    pub failed: u64,
    /// Values that nobody wrote so.
    pub torn: u64,
    /// Reads that were answered by what the application keeps.
    pub near: u64,
}

impl Observations {
    pub fn add(&mut self, other: Observations) {
        self.operations.extend(other.operations);
        self.took_ns.extend(other.took_ns);
        self.done += other.done;
        self.due += other.due;
        self.failed += other.failed;
        self.torn += other.torn;
        self.near += other.near;
    }

    /// The time within which this part was answered of what was due at a rate, in milliseconds:
    /// what never was ranks behind every answer. Infinite: so many were not; no number: none was
    /// due.
    pub fn within_ms(&self, part: f64) -> f64 {
        let mut times = self.took_ns.clone();
        times.resize(times.len().max(self.due as usize), u64::MAX);
        let ms = percentile_ms(times, part);
        if ms < u64::MAX as f64 / 1e6 || ms.is_nan() { ms } else { f64::INFINITY }
    }

    /// The part of what was due at a rate that was answered in time.
    pub fn served(&self) -> f64 {
        self.done as f64 / self.due as f64
    }
}

/// A command that is under way.
struct UnderWay {
    key: u32,
    call_ns: u64,
    due_ns: u64,
    writes: Option<u64>,
    /// Under which its value is kept.
    ask: u64,
}

/// One of an application's threads, with its connections.
pub(crate) struct Worker {
    /// One to each server, then one to each replica.
    lanes: Vec<Lane<UnderWay>>,
    servers: Servers,
    near: Option<ApplicationCache>,
    mix: Mix,
    reads: Ranks,
    writes: Ranks,
    rng: SeededRng,
    number: u32,
    written: u64,
    asked: u64,
    names: Vec<String>,
    measured: [u64; 2],
    /// Whether commands come at a rate: then those are measured that were due in the measured time.
    has_rate: bool,
    seen: Observations,
}

impl Worker {
    /// The thread of this number, which no other of the experiment has, connected.
    pub fn new(
        number: u32,
        servers: Servers,
        near: Option<ApplicationCache>,
        mix: Mix,
        seed: u64,
    ) -> anyhow::Result<Worker> {
        let all = servers.addresses.iter().chain(&servers.replicas);
        let mut lanes: Vec<Lane<UnderWay>> =
            all.map(|at| Lane::to(*at)).collect::<Result<_, _>>()?;
        if let Some(near) = &near {
            for (lane, id) in lanes.iter_mut().zip(&near.told_by) {
                let words: [&[u8]; 5] = [b"CLIENT", b"TRACKING", b"ON", b"REDIRECT", id.as_bytes()];
                let what = UnderWay { key: 0, call_ns: 0, due_ns: 0, writes: None, ask: 0 };
                lane.ask(&words, what)?;
                lane.flush()?;
                let told = lane.next()?;
                let is_done = told.is_some_and(|(_, answer)| answer == Answer::Nothing);
                anyhow::ensure!(is_done, "CLIENT TRACKING was refused");
            }
        }
        Ok(Worker {
            lanes,
            servers,
            near,
            reads: Ranks::new(mix.reads, mix.keys as usize)?,
            writes: Ranks::new(mix.writes, mix.keys as usize)?,
            rng: seed::rng(seed, &format!("connection {number}")),
            number,
            written: 0,
            asked: 0,
            names: (0..mix.keys).map(key_name).collect(),
            measured: [0, 0],
            has_rate: false,
            seen: Observations::default(),
            mix,
        })
    }

    /// Writes these keys, each once.
    pub fn fill(mut self, keys: impl Iterator<Item = u32>) -> anyhow::Result<Observations> {
        self.measured = [0, u64::MAX];
        for (at, key) in keys.enumerate() {
            self.write(key, now_ns())?;
            if at % 16 == 15 {
                self.answers()?;
            }
        }
        self.answers()?;
        Ok(self.seen)
    }

    /// Asks, at first for a while that is not measured.
    pub fn run(
        mut self,
        pace: Pace,
        warm: Duration,
        time: Duration,
    ) -> anyhow::Result<Observations> {
        let begun_ns = now_ns();
        let from_ns = begun_ns + warm.as_nanos() as u64;
        let to_ns = from_ns + time.as_nanos() as u64;
        self.measured = [from_ns, to_ns];
        self.has_rate = matches!(pace, Pace::Open(_));
        let mut due_ns = begun_ns;
        loop {
            match pace {
                Pace::Closed(depth) => {
                    let at_ns = now_ns();
                    (0..depth).try_for_each(|_| self.ask(at_ns))?;
                    self.answers()?;
                    if now_ns() >= to_ns {
                        return Ok(self.seen);
                    }
                }
                Pace::Open(rate) => {
                    let draw: f64 = self.rng.random();
                    due_ns += ((1.0 - draw).ln() / rate * -1e9) as u64;
                    if due_ns >= to_ns {
                        return Ok(self.seen);
                    }
                    self.seen.due += u64::from(due_ns >= from_ns);
                    let at_ns = now_ns();
                    if at_ns >= to_ns {
                        continue;
                    }
                    let wait_ns = due_ns.saturating_sub(at_ns);
                    if wait_ns > 0 {
                        // The rate, not a wait for anything.
                        std::thread::sleep(Duration::from_nanos(wait_ns));
                    }
                    self.ask(due_ns)?;
                    self.answers()?;
                }
            }
        }
    }

    /// Draws a command, which was due at this time.
    fn ask(&mut self, due_ns: u64) -> anyhow::Result<()> {
        if self.mix.write_part > 0.0 && self.rng.random_bool(self.mix.write_part) {
            let key = self.writes.draw(&mut self.rng);
            return self.write(key, due_ns);
        }
        let key = self.reads.draw(&mut self.rng);
        self.asked += 1;
        let ask = number_for(self.number, self.asked);
        let call_ns = now_ns();
        let what = UnderWay { key, call_ns, due_ns, writes: None, ask };
        if let Some(near) = &self.near
            && let Some(number) = near.cache.read(key, ask, call_ns)
        {
            self.seen.near += 1;
            self.note(&what, Some(now_ns()), Some(Need::Value(number)));
            return Ok(());
        }
        let server = usize::from(self.servers.of_key[key as usize]);
        let reads_at = match self.servers.replicas.is_empty() {
            true => server,
            false => self.servers.addresses.len() + server,
        };
        let name = &self.names[key as usize];
        self.lanes[reads_at].ask(&[b"GET", name.as_bytes()], what)
    }

    fn write(&mut self, key: u32, due_ns: u64) -> anyhow::Result<()> {
        self.written += 1;
        let number = number_for(self.number, self.written);
        if let Some(near) = &self.near {
            near.cache.forget(key);
        }
        let value = value_of(number, self.mix.value_len);
        let what = UnderWay { key, call_ns: now_ns(), due_ns, writes: Some(number), ask: 0 };
        let server = usize::from(self.servers.of_key[key as usize]);
        let name = &self.names[key as usize];
        self.lanes[server].ask(&[b"SET", name.as_bytes(), &value], what)
    }

    /// Sends what was asked, and waits for all answers.
    fn answers(&mut self) -> anyhow::Result<()> {
        self.lanes.iter_mut().try_for_each(Lane::flush)?;
        for at in 0..self.lanes.len() {
            while let Some((what, answer)) = self.lanes[at].next()? {
                let found = match answer {
                    Answer::Failed => Err(()),
                    Answer::Nothing => Ok(None),
                    Answer::Value(bytes) => Ok(Some(number_of(bytes, self.mix.value_len))),
                };
                self.answered(&what, found);
            }
        }
        Ok(())
    }

    /// `found`: what came, or that it was an error; of a value its number, or that it says none.
    fn answered(&mut self, what: &UnderWay, found: Result<Option<Option<u64>>, ()>) {
        let return_ns = now_ns();
        let Ok(found) = found else {
            self.seen.failed += 1;
            return self.note(what, None, None);
        };
        if what.writes.is_some() {
            if let Some(near) = &self.near {
                near.cache.forget(what.key);
            }
            return self.note(what, Some(return_ns), None);
        }
        let need = match found {
            None => Need::Absent,
            Some(Some(number)) => {
                if let Some(near) = &self.near {
                    let until_ns = what.call_ns.saturating_add(near.for_ns);
                    near.cache.put(what.key, what.ask, number, until_ns);
                }
                Need::Value(number)
            }
            Some(None) => {
                self.seen.torn += 1;
                Need::Value(0)
            }
        };
        self.note(what, Some(return_ns), Some(need));
    }

    fn note(&mut self, what: &UnderWay, return_ns: Option<u64>, found: Option<Need>) {
        let (need, effect) = match (what.writes, found) {
            (Some(number), _) => (Need::Any, Effect::Write(number)),
            (None, Some(need)) => (need, Effect::Keep),
            (None, None) => return,
        };
        let UnderWay { key, call_ns, due_ns, .. } = *what;
        let client = self.number;
        let operation = Operation { client, key, call_ns, return_ns, need, effect, lapse: None };
        self.seen.operations.push(operation);
        let Some(at_ns) = return_ns else { return };
        let [from_ns, to_ns] = self.measured;
        let counts_at_ns = if self.has_rate { due_ns } else { at_ns };
        if (from_ns..to_ns).contains(&counts_at_ns) {
            self.seen.done += u64::from(at_ns < to_ns);
            self.seen.took_ns.push(at_ns.saturating_sub(due_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_and_never_answered_waits_longer_than_all_that_was() {
        let seen = |due| Observations {
            took_ns: vec![1_000_000; 98],
            done: 98,
            due,
            ..Default::default()
        };
        assert_eq!((seen(98).within_ms(0.99), seen(98).served()), (1.0, 1.0));
        assert_eq!((seen(100).within_ms(0.5), seen(100).within_ms(0.99)), (1.0, f64::INFINITY));
        assert_eq!(seen(100).served(), 0.98);
        assert!(Observations::default().within_ms(0.99).is_nan());
    }
}
