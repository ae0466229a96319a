//! Operations without sockets, threads or clocks: what is asked when, and what the answers come to.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
    ops::Range,
    time::Duration,
};

use anyhow::{bail, ensure};
use chain_client::{Counts, Machine, Options, Reads};
use client::{Condition, Error, Operation};
use hdrhistogram::Histogram;
use load::{Latency, Waits, gap_ns, histogram};
use rand::RngExt;
use seed::{SeededRng, rng};

use crate::{Activity, Config, Phase, PhaseResult, Times, contend::Contend};

/// What [`Activity::Attack`] does, in turn.
pub const ATTACKS: &[&str] = &["commits", WATCHES];
const WATCHES: &str = "watches";
/// Keys from this number on are watched and never written.
const WATCHED: usize = 1_000_000_000;

/// Bytes of a value that say which write it is, after its key's name.
const STAMP: usize = 8;

/// How long answers to what a rate had begin are waited for after a phase, as a part of it.
pub(crate) const DRAIN: f64 = 0.1;

/// Clients that ask.
///
/// Its driver begins a phase and then, until [`Source::finished`] has the result, calls
/// [`Source::go_on`] when [`Source::next_ns`] has come or something was taken, and [`Source::take`]
/// for each datagram that arrives. Times are nanoseconds of one clock.
pub struct Source {
    config: Config,
    machines: Vec<Machine>,
    by_id: HashMap<u64, usize>,
    under_way: HashMap<(usize, u64), PendingOperation>,
    /// How many each client has.
    counts: Vec<usize>,
    /// Clients that may begin something.
    free: VecDeque<usize>,
    /// (when, client).
    timers: BTreeSet<(u64, usize)>,
    due_ns: Vec<u64>,
    rng: SeededRng,
    arrivals: SeededRng,
    written: u64,
    /// By key: the newest version that a client was told of as one that is committed.
    told: HashMap<usize, u64>,
    run: Option<Run>,
    contend: Option<Contend>,
    ids: SeededRng,
}

/// An operation under way.
struct PendingOperation {
    key: usize,
    write: bool,
    relaxed: bool,
    /// What its clients had been told of the key before.
    floor: u64,
    /// When it was to begin.
    due_ns: u64,
}

/// A phase under way.
struct Run {
    phase: Phase,
    /// By their numbers.
    keys: Range<usize>,
    from_ns: u64,
    end_ns: u64,
    /// Until when answers to what began before are waited for, at a rate.
    drained_ns: u64,
    /// When the next operation is due, at a rate.
    arrival_ns: f64,
    /// Operations under way that count, at a rate.
    open: usize,
    /// Keys still to be written, of a phase that writes all.
    left: VecDeque<usize>,
    /// Operations of an attack so far.
    begun: usize,
    before: Counts,
    reads: Histogram<u64>,
    writes: Histogram<u64>,
    result: PhaseResult,
}

impl Source {
    /// Makes the clients. The seed must differ from those of all other generators, if their ids are
    /// to.
    ///
    /// # Errors
    /// A configuration that makes no sense.
    pub fn new(config: Config, seed: u64) -> anyhow::Result<Source> {
        ensure!(
            config.keys > 0 && config.clients > 0,
            "coord load: {} keys, {} clients: at least one of each is needed",
            config.keys,
            config.clients
        );
        ensure!(
            config.value_len >= name(0).len() + STAMP,
            "coord load: values of {} bytes: at least {} are needed",
            config.value_len,
            name(0).len() + STAMP
        );
        let mut source = Source {
            by_id: HashMap::new(),
            under_way: HashMap::new(),
            counts: vec![0; config.clients],
            free: VecDeque::new(),
            timers: BTreeSet::new(),
            due_ns: vec![u64::MAX; config.clients],
            rng: rng(config.seed, "coord load"),
            arrivals: rng(config.seed, "arrivals of coord load"),
            written: seed,
            told: HashMap::new(),
            run: None,
            contend: None,
            machines: vec![],
            ids: rng(seed, "ids of clients"),
            config,
        };
        source.machines = source.new_machines()?;
        source.name_machines();
        Ok(source)
    }

    /// Begins a phase. What an earlier one left under way goes on, and counts for nothing.
    ///
    /// # Errors
    /// A phase that makes no sense.
    pub fn begin(&mut self, phase: &Phase, now_ns: u64) -> anyhow::Result<()> {
        ensure!(
            phase.seconds > 0.0 && phase.warmup_s >= 0.0 && phase.seconds + phase.warmup_s < 1e6,
            "coord load: a phase of {} s after {} s",
            phase.seconds,
            phase.warmup_s
        );
        ensure!(
            phase.outstanding > 0 && phase.rate.is_none_or(|rate| rate > 0.0 && rate < 1e8),
            "coord load: {} operations at a time, {:?}/s",
            phase.outstanding,
            phase.rate
        );
        ensure!(
            phase.doing != Activity::Attack || phase.rate.is_some(),
            "coord load: an attack without a rate: say how many datagrams per second"
        );
        let from_ns = now_ns + (phase.warmup_s * 1e9) as u64;
        let end_ns = from_ns + (phase.seconds * 1e9) as u64;
        if phase.doing == Activity::Lock {
            let (machines, seed) = (self.new_machines()?, self.ids.random());
            let times = [now_ns, from_ns, end_ns];
            self.contend = Some(Contend::new(machines, &phase.locks, seed, times));
            return Ok(());
        }
        let keys = match phase.keys {
            0 => self.config.keys,
            some => some.min(self.config.keys),
        };
        let first = self.config.first_key;
        let keys = first..first + keys;
        let reads = phase.at.map_or(Reads::Spread, Reads::At);
        for machine in &mut self.machines {
            machine.set_reads(reads);
        }
        self.under_way.clear();
        self.counts.fill(0);
        self.free = (0..self.machines.len()).collect();
        self.run = Some(Run {
            from_ns,
            end_ns,
            drained_ns: end_ns + (phase.drain_s() * 1e9) as u64,
            arrival_ns: now_ns as f64,
            open: 0,
            left: match phase.doing {
                Activity::Fill => keys.clone().collect(),
                Activity::Load | Activity::Lock | Activity::Attack => VecDeque::new(),
            },
            begun: 0,
            before: self.sum(),
            reads: histogram(3),
            writes: histogram(3),
            result: PhaseResult { seconds: phase.seconds, ..PhaseResult::default() },
            phase: phase.clone(),
            keys,
        });
        Ok(())
    }

    /// When [`Source::go_on`] has something to do, if nothing arrives before. None: no phase is
    /// under way.
    pub fn next_ns(&self) -> Option<u64> {
        if let Some(contend) = &self.contend {
            return Some(contend.next_ns());
        }
        let run = self.run.as_ref()?;
        let timer = self.timers.first().map_or(u64::MAX, |(at, _)| *at);
        let begin = match (run.phase.rate, run.phase.doing) {
            // Not a part of a nanosecond before: nothing would begin then, and the time would stand
            // still.
            (Some(_), Activity::Load | Activity::Attack) => {
                let arrival_ns = run.arrival_ns.ceil() as u64;
                if arrival_ns < run.end_ns { arrival_ns } else { u64::MAX }
            }
            (_, Activity::Fill) if run.left.is_empty() => u64::MAX,
            _ if self.free.is_empty() => u64::MAX,
            _ => 0,
        };
        let end_ns = if run.open > 0 { run.drained_ns } else { run.end_ns };
        Some(timer.min(begin).min(end_ns))
    }

    /// A datagram has arrived.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let id = datagram.get(8..16).and_then(|bytes| bytes.first_chunk());
        let Some(id) = id.map(|bytes| u64::from_be_bytes(*bytes)) else { return };
        if let Some(contend) = &mut self.contend {
            return contend.take(id, datagram, from, now_ns);
        }
        let Some(at) = self.by_id.get(&id).copied() else { return };
        self.machines[at].take(datagram, from, now_ns);
        if self.machines[at].id() != id {
            self.name_machines();
        }
        self.collect(at, now_ns);
    }

    /// Begins what is due, and hands what is to be sent to `send`; whether there was anything.
    pub fn go_on(&mut self, now_ns: u64, send: &mut impl FnMut(SocketAddr, &[u8])) -> bool {
        if let Some(contend) = &mut self.contend {
            return contend.go_on(now_ns, send);
        }
        while let Some((at_ns, at)) = self.timers.first().copied()
            && at_ns <= now_ns
        {
            self.machines[at].timer(now_ns);
            self.collect(at, now_ns);
        }
        let (mut begun, mut sent) = (0, 0);
        while let Some((at, due_ns)) = self.next_to_begin(now_ns) {
            self.ask(at, due_ns, now_ns);
            begun += 1;
        }
        for machine in &mut self.machines {
            while let Some((to, datagram)) = machine.next_datagram() {
                send(to, &datagram);
                sent += 1;
            }
        }
        if let Some(run) = &mut self.run {
            run.count_again(usize::saturating_sub(sent, begun));
        }
        sent > 0
    }

    /// The phase's result, once it is over.
    ///
    /// # Errors
    /// A phase that writes all keys was not over in time.
    pub fn finished(&mut self, now_ns: u64) -> anyhow::Result<Option<PhaseResult>> {
        if let Some(contend) = &mut self.contend {
            let result = contend.finished(now_ns);
            self.contend = self.contend.take().filter(|_| result.is_none());
            return Ok(result);
        }
        let sum = self.sum();
        let Some(run) = &self.run else { return Ok(None) };
        let over = match run.phase.doing {
            Activity::Fill => run.left.is_empty() && self.under_way.is_empty(),
            // What is still open by then is counted as begun, and not as answered.
            Activity::Load | Activity::Lock | Activity::Attack => {
                now_ns >= run.end_ns && (run.open == 0 || now_ns >= run.drained_ns)
            }
        };
        if run.phase.doing == Activity::Fill && !over && now_ns >= run.end_ns {
            let left = run.left.len() + self.under_way.len();
            let error = run.result.error.clone();
            self.run = None;
            bail!("coord load: {left} keys were not written in time; {error}");
        }
        let Some(run) = self.run.take_if(|_| over) else { return Ok(None) };
        let Run { before, .. } = run;
        Ok(Some(PhaseResult {
            reads: Latency::of(&run.reads),
            writes: Latency::of(&run.writes),
            read_waits: Waits::of(
                &run.reads,
                run.result.reads_begun.saturating_sub(run.reads.len()),
            ),
            times: Times::of(&run.reads, &run.writes),
            ignored: sum.ignored - before.ignored,
            sent: sum.sent - before.sent,
            retransmitted: sum.retransmitted - before.retransmitted,
            put_off: sum.put_off - before.put_off,
            members: self.machines[0].members(name(self.config.first_key).as_bytes()),
            ..run.result
        }))
    }

    fn new_machines(&mut self) -> anyhow::Result<Vec<Machine>> {
        let config = &self.config;
        let options = Options {
            deadline: Duration::from_millis(config.deadline_ms),
            expected_value: config.value_len,
            reads: Reads::Spread,
            ..Options::of(&config.cluster)
        };
        let mut machines = vec![];
        for _ in 0..config.clients {
            let (options, id) = (options.clone(), self.ids.random());
            machines.push(Machine::new(&config.cluster, config.tenant, options, id)?);
        }
        Ok(machines)
    }

    fn name_machines(&mut self) {
        let ids = self.machines.iter().map(Machine::id);
        self.by_id = ids.zip(0..).collect();
    }

    fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        for counts in self.machines.iter().map(Machine::counts) {
            sum.sent += counts.sent;
            sum.retransmitted += counts.retransmitted;
            sum.ignored += counts.ignored;
            sum.put_off += counts.put_off;
        }
        sum
    }

    /// The client that begins something now, and when that was due.
    fn next_to_begin(&mut self, now_ns: u64) -> Option<(usize, u64)> {
        let run = self.run.as_mut()?;
        match (run.phase.doing, run.phase.rate) {
            (Activity::Fill, _) if run.left.is_empty() => None,
            (Activity::Load | Activity::Attack, Some(rate)) => {
                // Who comes late begins what was due before the end all the same.
                let due_ns = run.arrival_ns.ceil() as u64;
                if due_ns > now_ns || due_ns >= run.end_ns {
                    return None;
                }
                // An attack is as even as it can be: it is about how much is sent.
                run.arrival_ns += match run.phase.doing {
                    Activity::Load if !run.phase.even => gap_ns(rate, self.arrivals.random()),
                    _ => 1e9 / rate,
                };
                Some((self.rng.random_range(0..self.machines.len()), due_ns))
            }
            (Activity::Load | Activity::Lock | Activity::Attack, _) if now_ns >= run.end_ns => None,
            _ => {
                let at = self.free.pop_front()?;
                if self.counts[at] + 1 < run.phase.outstanding {
                    self.free.push_back(at);
                }
                Some((at, now_ns))
            }
        }
    }

    fn ask(&mut self, at: usize, due_ns: u64, now_ns: u64) {
        let Some(run) = &mut self.run else { return };
        let is_attack = run.phase.doing == Activity::Attack;
        if is_attack && run.attack() == WATCHES {
            let name = name(WATCHED + run.begun);
            self.machines[at].watch(name.as_bytes(), now_ns);
            return self.collect(at, now_ns);
        }
        let (key, write) = match run.left.pop_front() {
            Some(key) => (key, true),
            None if is_attack => (self.rng.random_range(run.keys.clone()), true),
            None => (
                self.rng.random_range(run.keys.clone()),
                run.phase.writes > 0.0 && self.rng.random_bool(run.phase.writes.min(1.0)),
            ),
        };
        let part = run.phase.relaxed;
        let relaxed = !write && part > 0.0 && self.rng.random_bool(part.min(1.0));
        let name = name(key);
        let number = if write {
            self.written += 1;
            let value = value(&name, self.written, self.config.value_len);
            let set = Operation::Set {
                key: name.as_bytes(),
                value: &value,
                ttl: None,
                condition: Condition::Always,
            };
            self.machines[at].begin(&set, now_ns)
        } else if relaxed {
            self.machines[at].begin_relaxed(name.as_bytes(), now_ns)
        } else {
            let key = name.as_bytes();
            self.machines[at].begin(&Operation::Get { key }, now_ns)
        };
        let floor = self.told.get(&key).copied().unwrap_or(0);
        let asked = PendingOperation { key, write, relaxed, floor, due_ns };
        run.begin(&asked);
        self.under_way.insert((at, number), asked);
        self.counts[at] += 1;
        self.collect(at, now_ns);
    }

    /// Takes what a client has to say, and sets its timer.
    fn collect(&mut self, at: usize, now_ns: u64) {
        // Whoever attacks has what he wants: the switch goes on watching for him.
        while let Some((number, _)) = self.machines[at].next_watched() {
            self.machines[at].end(number, now_ns);
        }
        while let Some((number, result)) = self.machines[at].next_finished() {
            self.end(at, number, result, now_ns);
        }
        let next_ns = self.machines[at].next_ns().unwrap_or(u64::MAX);
        if next_ns != self.due_ns[at] {
            self.timers.remove(&(self.due_ns[at], at));
            self.due_ns[at] = next_ns;
            if next_ns != u64::MAX {
                self.timers.insert((next_ns, at));
            }
        }
    }

    /// Takes what came of one of a client's operations.
    fn end(&mut self, at: usize, number: u64, result: Result<client::Answer, Error>, now_ns: u64) {
        let Some(asked) = self.under_way.remove(&(at, number)) else {
            return; // of an earlier phase
        };
        self.counts[at] -= 1;
        let Some(run) = &mut self.run else { return };
        run.open -= usize::from(run.counts_by_due(&asked));
        if self.counts[at] + 1 == run.phase.outstanding {
            self.free.push_back(at);
        }
        let told = version_of(&asked, &result);
        if told.is_some_and(|version| version < asked.floor) {
            run.result.too_old += 1;
        }
        if let Some(version) = told.filter(|_| !asked.relaxed) {
            let newest = self.told.entry(asked.key).or_default();
            *newest = version.max(*newest);
        }
        if run.take(&asked, result, now_ns) {
            run.left.push_back(asked.key);
        }
    }
}

impl Run {
    /// Whether an operation counts because it was due in the measured part, whenever it ends: at a
    /// rate those that are never answered count too.
    fn counts_by_due(&self, asked: &PendingOperation) -> bool {
        self.is_open_loop() && (self.from_ns..self.end_ns).contains(&asked.due_ns)
    }

    fn is_open_loop(&self) -> bool {
        self.phase.doing == Activity::Load && self.phase.rate.is_some()
    }

    /// Takes note of an operation that begins.
    fn begin(&mut self, asked: &PendingOperation) {
        self.result.reads_asked += u64::from(!asked.write);
        if self.counts_by_due(asked) {
            self.open += 1;
            self.result.reads_begun += u64::from(!asked.write);
        }
    }

    /// So many datagrams were sent beside those that began something. Those of an attack count
    /// against its rate, so that it sends no more than that, whoever answers.
    fn count_again(&mut self, datagrams: usize) {
        if let (Activity::Attack, Some(rate)) = (self.phase.doing, self.phase.rate) {
            self.arrival_ns += datagrams as f64 * 1e9 / rate;
        }
    }

    /// Takes note of the next attack, and says which it is.
    fn attack(&mut self) -> &'static str {
        self.begun += 1;
        let which = ATTACKS[self.begun % ATTACKS.len()];
        *self.result.attacks.entry(which.into()).or_default() += 1;
        which
    }

    /// Takes what came of an operation; whether it is to be done again.
    fn take(
        &mut self,
        asked: &PendingOperation,
        result: Result<client::Answer, Error>,
        now_ns: u64,
    ) -> bool {
        let measured = match self.is_open_loop() {
            true => self.counts_by_due(asked),
            false => (self.from_ns..self.end_ns).contains(&now_ns),
        };
        let took_ns = now_ns.saturating_sub(asked.due_ns);
        let out = &mut self.result;
        if asked.write {
            return match result.and_then(client::Answer::written) {
                Ok(_) => {
                    if measured {
                        self.writes.saturating_record(took_ns);
                    }
                    false
                }
                Err(error) => {
                    out.unknown += u64::from(measured);
                    out.error = error.to_string();
                    self.phase.doing == Activity::Fill
                }
            };
        }
        match result.and_then(client::Answer::found) {
            Ok(Some(found)) => {
                let name = name(asked.key);
                let is_whole = found.bytes.starts_with(name.as_bytes()) && is_whole(&found.bytes);
                out.wrong += u64::from(!is_whole);
                if measured {
                    self.reads.saturating_record(took_ns);
                }
            }
            Ok(None) => {
                out.not_found += u64::from(measured);
                if measured {
                    self.reads.saturating_record(took_ns);
                }
            }
            Err(error) => {
                out.failed += u64::from(measured);
                out.error = error.to_string();
            }
        }
        false
    }
}

/// The version that an answer tells of: what was written, or what is there; keys are not removed
/// here.
fn version_of(asked: &PendingOperation, result: &Result<client::Answer, Error>) -> Option<u64> {
    let answer = result.as_ref().ok()?.clone();
    match asked.write {
        true => answer.written().ok(),
        false => Some(answer.found().ok()?.map_or(0, |found| found.version)),
    }
}

/// The name of a key, always of the same length.
pub(crate) fn name(key: usize) -> String {
    format!("key{key:013}")
}

/// A value that says whose it is, and has its number in every word, so that a torn one shows.
fn value(name: &str, number: u64, len: usize) -> Vec<u8> {
    let mut value = name.as_bytes().to_vec();
    let words = number.to_be_bytes().into_iter().cycle();
    value.extend(words.take(len - name.len()));
    value
}

/// Whether every word after the name is the same.
fn is_whole(value: &[u8]) -> bool {
    let Some((_, words)) = value.split_at_checked(name(0).len()) else { return false };
    let Some(first) = words.get(..STAMP) else { return false };
    words.chunks(STAMP).all(|word| first.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_value_shows() {
        let name = name(7);
        for len in [24, 25, 31, 64, 200] {
            let mut value = value(&name, 0x0102_0304_0506_0708, len);
            assert_eq!((value.len(), is_whole(&value)), (len, true));
            *value.last_mut().unwrap() ^= 0x80;
            assert_eq!(is_whole(&value), len == 24, "{len}");
        }
        assert!(!is_whole(b"short") && !is_whole(&[0; 20]));
    }

    /// Two clients, and one switch.
    fn source() -> Source {
        let mut cluster = wire::Cluster::single(([10, 0, 0, 9], wire::PORT).into(), 1);
        let tenant = wire::Tenant::new(7, "07".repeat(16));
        cluster.tenants.push(tenant);
        cluster
            .switches
            .push(wire::SwitchPlace { name: "switch1".into(), address: [10, 0, 0, 1].into() });
        let config = Config {
            cluster,
            tenant: 7,
            clients: 2,
            keys: 1,
            first_key: 0,
            value_len: 24,
            seed: 1,
            deadline_ms: 100,
        };
        Source::new(config, 1).unwrap()
    }

    #[test]
    fn an_attack_sends_no_more_than_it_is_told_though_nobody_answers() {
        let mut source = source();
        let attack = Phase { doing: Activity::Attack, ..Phase::load(1.0, 1.0) };
        assert!(source.begin(&attack, 0).is_err(), "as much as there is time for");
        source.begin(&Phase { rate: Some(1000.0), ..attack }, 0).unwrap();
        let (mut now_ns, mut sent) = (0, 0);
        let result = loop {
            source.go_on(now_ns, &mut |_, _| sent += 1);
            if let Some(result) = source.finished(now_ns).unwrap() {
                break result;
            }
            now_ns = source.next_ns().unwrap().max(now_ns + 1);
        };
        assert!(result.retransmitted > 0, "{result:?}");
        // What is begun is sent again though it may be too much by then.
        assert!((900..1500).contains(&sent), "{sent} datagrams");
    }

    /// What is due within a nanosecond is due at its end: who comes when he is told to finds
    /// something to do.
    #[test]
    fn at_a_rate_something_begins_when_it_is_due() {
        let mut source = source();
        let phase = Phase { rate: Some(3e6), ..Phase::load(0.0, 1.0) };
        source.begin(&phase, 0).unwrap();
        for _ in 0..10 {
            let now_ns = source.next_ns().unwrap();
            assert!(source.go_on(now_ns, &mut |_, _| ()), "at {now_ns} ns");
        }
    }

    /// Asks at 1,000 a second for a second, by a driver that comes so late and gives every so
    /// manieth read an answer.
    fn asked(late_ns: u64, answers_every: usize) -> PhaseResult {
        let mut source = source();
        source.begin(&Phase { rate: Some(1000.0), ..Phase::load(0.0, 1.0) }, 0).unwrap();
        let (mut now_ns, mut begun) = (0, 0);
        loop {
            source.go_on(now_ns, &mut |_, _| ());
            let under_way = source.under_way.keys().copied();
            let mut fresh: Vec<(usize, u64)> = under_way.collect();
            fresh.sort_unstable();
            for (at, number) in fresh {
                let is_new = source.under_way[&(at, number)].due_ns + late_ns >= now_ns;
                begun += usize::from(is_new);
                if is_new && begun.is_multiple_of(answers_every) {
                    let header = wire::Header {
                        status: wire::Status::NotFound,
                        ..wire::Header::new(wire::Op::ReadReply)
                    };
                    let store = ([10, 0, 0, 1], wire::PORT).into();
                    let request = client::kit::Request { tenant: 7, value_len: 0, is_write: false };
                    let answer = client::Answer::new(store, request, header, vec![].into());
                    source.end(at, number, Ok(answer), now_ns);
                }
            }
            if let Some(result) = source.finished(now_ns).unwrap() {
                return result;
            }
            now_ns = (source.next_ns().unwrap() + late_ns).max(now_ns + 1);
        }
    }

    #[test]
    fn at_a_rate_what_is_never_answered_counts_too() {
        let result = asked(0, 2);
        // What is sent again is no other read.
        assert!(result.sent > 2 * result.reads_asked, "{result:?}");
        assert_eq!(result.reads_asked, result.reads_begun);
        assert!((900..1100).contains(&result.reads_begun), "{result:?}");
        let share = result.answered_share().unwrap();
        assert!((share - 0.5).abs() < 0.001, "{share}");
        assert!(result.read_waits.p50_us.is_none_or(|us| us == result.reads.max_us));
        assert_eq!(result.read_waits.p99_us, None);
        let together = PhaseResult::of_all(&[result.clone(), asked(0, 1)]);
        assert!((together.answered_share().unwrap() - 0.75).abs() < 0.02);
        assert_eq!(asked(0, 1).answered_share(), Some(1.0));
    }

    #[test]
    fn who_comes_late_makes_reads_take_longer() {
        let (prompt, late) = (asked(0, 1), asked(3_000_000, 1));
        assert_eq!(prompt.reads_begun, late.reads_begun);
        assert_eq!(prompt.reads.count, prompt.reads_begun);
        assert!(prompt.reads.max_us < 2.0, "{:?}", prompt.reads);
        assert!(late.reads.p50_us > 1000.0, "{:?}", late.reads);
    }

    #[test]
    fn requests_at_a_rate_come_as_chance_has_them() {
        let mut source = source();
        source.begin(&Phase { rate: Some(1e6), ..Phase::load(0.0, 1.0) }, 0).unwrap();
        let mut gaps = vec![];
        for _ in 0..1000 {
            let now_ns = source.next_ns().unwrap();
            source.go_on(now_ns, &mut |_, _| ());
            gaps.push(source.next_ns().unwrap() - now_ns);
        }
        let short = gaps.iter().filter(|gap| **gap < 100).count();
        // 1 - exp(-0.1) of them.
        assert!((60..140).contains(&short), "{short}");
    }
}
