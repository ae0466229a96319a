//! Load without sockets, threads or clocks: what is asked when, and what the answers come to.

mod answers;
mod sending;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, net::SocketAddr};

use anyhow::ensure;
use seed::{SeededRng, rng};
use wire::{Epoch, Flags, Header, Op, Packet, TENANT_OPEN};

use super::{
    Arrivals, ChurnSchedule, Interval, Latency, LoadConfig, Phase, PhaseKind, PhaseResult,
    TenantResult, Waits,
    each_key::{AGAIN_NS, EachKey},
    forge::{self, Attacks},
    results::{Histograms, cdf},
    retries::Retries,
    tenant::Tenant,
    trace::Player,
    versions::POPULATED,
    window::Window,
    writes::{self, AnswerKind},
};
use crate::workload::{Ranks, populated_value, write_value};
use answers::{check, count_key, is_refusal, may_answer, take_answer};
use sending::LONGEST;

/// Requests that can be on their way at once.
const WINDOW: usize = 1 << 17;
/// Requests made at once, before answers are looked for again.
pub(crate) const BURST: usize = 32;

/// One generator of load: makes requests and checks every answer.
///
/// Its driver begins a phase and then, until [`Source::finished`] has the result: calls
/// [`Source::due`] and [`Source::expire`] when [`Source::next_ns`] has come, and [`Source::take`]
/// for each datagram that arrives. Times are nanoseconds of one clock that never goes back. A
/// driver that is there exactly when `next_ns` says sends in an open loop each request at its very
/// arrival time (rounded up to a nanosecond).
///
/// Everything but the client's id comes from the configuration's seed.
pub struct Source {
    config: LoadConfig,
    tenants: Vec<Tenant>,
    /// The configuration's trace.
    player: Option<Player>,
    client: u64,
    window: Window,
    /// Writes that go on in another life, and what nobody answered for some time.
    again: Vec<u64>,
    retries: Retries,
    /// Writes so far.
    written: u32,
    rng: SeededRng,
    churn_rng: SeededRng,
    run: Option<Box<Run>>,
    datagram: Box<[u8; LONGEST]>,
    /// Likewise, of an attack.
    hostile: Vec<u8>,
}

/// A phase under way.
struct Run {
    phase: Phase,
    /// Tenants that take part, from the first.
    active: usize,
    reads: Ranks,
    writes: Ranks,
    measured_from_ns: u64,
    end_ns: u64,
    /// When the next request of an open loop is due.
    arrival_ns: f64,
    next_change_ns: u64,
    /// Requests of a scan so far.
    scanned: u64,
    /// Nothing more is sent; the last answers are waited for.
    is_over: bool,
    /// For phases that go through every key.
    each_key: Option<EachKey>,
    /// For hostile ones, of each active tenant.
    attacks: Vec<Attacks>,
    /// The phase's watched keys, by the tenant's index and the key.
    watched: HashSet<(u16, u32)>,
    result: PhaseResult,
    histograms: Histograms,
}

impl Run {
    /// Whether its requests are sent again: those through every key have a way of their own, and
    /// attacks have none.
    fn is_retried(&self) -> bool {
        matches!(self.phase.kind, PhaseKind::Load | PhaseKind::Trace)
    }

    /// When the last request has to be due.
    fn last_due_ns(&self) -> f64 {
        self.end_ns.saturating_sub(1) as f64
    }

    /// Whether requests of an open loop that were due in it are not sent yet. An attack, and what
    /// only shows how fast requests are made, ask for more than can be sent.
    fn owes(&self) -> bool {
        let is_honest =
            matches!(self.phase.kind, PhaseKind::Load | PhaseKind::Trace | PhaseKind::Scan { .. });
        let is_open = matches!(self.phase.arrivals, Arrivals::Open(_));
        is_honest && is_open && self.arrival_ns <= self.last_due_ns()
    }

    /// The next rank of a scan of so many keys, the coldest first, each so many times.
    fn next_of_scan(&mut self, keys: usize, times: u32) -> u32 {
        let at = self.scanned / u64::from(times.max(1)) % keys as u64;
        self.scanned += 1;
        (keys as u64 - 1 - at) as u32
    }

    /// Another request for a key of this store was lost.
    fn lost_of(&mut self, store: usize) {
        let lost = &mut self.result.lost_of_store;
        lost.resize(lost.len().max(store + 1), 0);
        lost[store] += 1;
    }

    /// An answer to an attack has come: of what others ask nobody waits for any.
    fn hear(&mut self, tenants: &[Tenant], answer: &Packet) {
        let mut all = tenants.iter().zip(&mut self.attacks);
        let its = all.find(|(tenant, _)| tenant.id == answer.header.tenant);
        match its {
            Some((tenant, attacks)) => attacks.hear(tenant, answer),
            None => self.result.strays += 1,
        }
    }

    fn interval(&mut self, index: u32) -> Option<&mut Interval> {
        self.result.intervals.get_mut(index as usize)
    }
}

impl Source {
    /// Prepares keys and tables. The client's id must differ from those of all others.
    ///
    /// # Errors
    /// A tenant without a secret, no keys, intervals of no length, or a trace that cannot be read
    /// or asks for more keys than there are.
    pub fn new(config: LoadConfig, client: u64) -> anyhow::Result<Source> {
        ensure!(config.keys > 0, "load: keys = 0: at least one key is needed");
        ensure!(config.interval_ms > 0, "load: interval_ms = 0: at least 1 is needed");
        let ids = match config.tenants.as_slice() {
            [] => &[TENANT_OPEN],
            some => some,
        };
        ensure!(
            ids.len() <= usize::from(u16::MAX),
            "load: {} tenants: at most {} are possible",
            ids.len(),
            u16::MAX
        );
        let trace = config.trace.as_ref().map(|spec| spec.trace(config.seed)).transpose()?;
        let player = trace.map(Player::new);
        let (asked, keys) = (player.as_ref().map_or(0, Player::keys), config.keys);
        ensure!(asked <= keys, "load: keys = {keys}: the trace asks for {asked}");
        let tenants = ids.iter().map(|id| Tenant::new(&config, *id)).collect::<Result<_, _>>()?;
        let own_seed = config.seed ^ config.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Source {
            tenants,
            player,
            client,
            window: Window::new(WINDOW),
            again: vec![],
            retries: Retries::new(config.again_ms, config.timeout_ms),
            written: 0,
            rng: rng(own_seed, "load"),
            churn_rng: rng(config.seed, "churn"),
            run: None,
            datagram: Box::new([0; LONGEST]),
            hostile: vec![],
            config,
        })
    }

    /// Begins a phase, whatever became of the last one.
    ///
    /// # Errors
    /// A phase that makes no sense.
    pub fn begin(&mut self, phase: &Phase, now_ns: u64) -> anyhow::Result<()> {
        ensure!(
            phase.seconds > 0.0 && phase.seconds < 1e6 && (0.0..1e6).contains(&phase.warmup_s),
            "load: a phase of {} s after {} s: both must be positive and finite",
            phase.seconds,
            phase.warmup_s
        );
        if let Arrivals::Open(rate) = phase.arrivals {
            ensure!(rate > 0.0 && rate <= 1e8, "load: a rate of {rate}/s: 0 to 1e8 is possible");
        }
        for (name, asked, there) in
            [("tenants", phase.tenants, self.tenants.len()), ("keys", phase.keys, self.config.keys)]
        {
            ensure!(asked <= there, "load: a phase of {asked} {name}: the generator has {there}");
        }
        ensure!(
            phase.kind != PhaseKind::Trace || self.player.is_some(),
            "load: a phase of a trace: the configuration has none"
        );
        let all_or = |asked, all| if asked == 0 { all } else { asked };
        let active = all_or(phase.tenants, self.tenants.len());
        let keys = all_or(phase.keys, self.config.keys);
        let coldest = phase.watched.iter().max();
        ensure!(
            coldest.is_none_or(|rank| (*rank as usize) < self.config.keys),
            "load: a phase that watches key {coldest:?}: the generator has {}",
            self.config.keys
        );
        let reads = Ranks::new(phase.reads, keys)?;
        let writes = Ranks::new(phase.writes.unwrap_or(phase.reads), keys)?;
        let measured_from_ns = now_ns + (phase.warmup_s * 1e9) as u64;
        let end_ns = measured_from_ns + (phase.seconds * 1e9) as u64;
        let interval_ns = self.config.interval_ms * 1_000_000;
        let count = (phase.seconds * 1e9 / interval_ns as f64).ceil() as usize;
        let per_tenant = self.tenants[..active]
            .iter()
            .map(|t| TenantResult { tenant: t.id, ..TenantResult::default() });
        let each_key = match phase.kind {
            PhaseKind::Load
            | PhaseKind::Trace
            | PhaseKind::Scan { .. }
            | PhaseKind::Dry
            | PhaseKind::Forge
            | PhaseKind::Hostile { .. } => None,
            PhaseKind::Fill | PhaseKind::Census => {
                Some(EachKey::new(phase.arrivals, active, self.config.keys)?)
            }
        };
        self.run = Some(Box::new(Run {
            phase: phase.clone(),
            active,
            reads,
            writes,
            measured_from_ns,
            end_ns,
            arrival_ns: now_ns as f64,
            next_change_ns: phase
                .churn
                .map_or(u64::MAX, |churn| measured_from_ns + change_every_ns(&churn)),
            result: PhaseResult {
                seconds: phase.seconds,
                interval_ms: self.config.interval_ms,
                intervals: vec![Interval::default(); count],
                tenants: per_tenant.collect(),
                ..PhaseResult::default()
            },
            each_key,
            attacks: match phase.kind {
                PhaseKind::Hostile { switches, only } => {
                    let stores = self.config.cluster.stores.len();
                    let tenants = self.tenants[..active].iter().enumerate();
                    let attacks = |(at, tenant)| Attacks::new(tenant, at, switches, stores, only);
                    tenants.map(attacks).collect()
                }
                _ => vec![],
            },
            watched: (0..)
                .zip(&self.tenants[..active])
                .flat_map(|(at, tenant)| {
                    let ranks = phase.watched.iter();
                    ranks.map(move |rank| (at, tenant.permutation.key(*rank)))
                })
                .collect(),
            scanned: 0,
            is_over: false,
            histograms: Histograms::new(active),
        }));
        Ok(())
    }

    /// When [`Source::due`] and [`Source::expire`] have something to do, if nothing arrives before;
    /// it may be in the past. None: no phase is under way.
    pub fn next_ns(&self) -> Option<u64> {
        let run = self.run.as_deref()?;
        let open = self.window.open();
        let expiry_ns = match self.window.oldest_ns() {
            Some(at_ns) => at_ns + self.patience_ns(run) + 1,
            None => u64::MAX,
        };
        if self.window.is_full() || !self.again.is_empty() {
            return Some(0);
        }
        let again_ns = match run.is_retried() {
            true => self.retries.next_ns(&self.window),
            false => u64::MAX,
        };
        let expiry_ns = expiry_ns.min(again_ns);
        if run.is_over {
            return Some(if open == 0 { run.end_ns } else { expiry_ns });
        }
        let request_ns = match (&run.each_key, run.phase.arrivals) {
            (Some(each_key), _) => each_key.next_ns(open),
            (None, Arrivals::Open(_)) => run.arrival_ns.ceil() as u64,
            (None, Arrivals::Closed(outstanding)) if open < outstanding => 0,
            (None, Arrivals::Closed(_)) => u64::MAX,
        };
        let own_ns = request_ns.min(run.next_change_ns).min(run.end_ns);
        Some(own_ns.min(expiry_ns))
    }

    /// Makes the requests that are due, at most one burst, and hands each to `send` with the place
    /// of its store in the cluster's list. Returns how many.
    pub fn due(&mut self, now_ns: u64, send: &mut impl FnMut(usize, &[u8])) -> usize {
        let Some(mut run) = self.run.take() else { return 0 };
        if run.is_retried() {
            let lives = self.again.len();
            self.retries.due(&self.window, now_ns, &mut self.again);
            run.result.again += (self.again.len() - lives) as u64;
        }
        for request in std::mem::take(&mut self.again) {
            self.transmit(request, false, send);
        }
        let count = if now_ns >= run.end_ns {
            let can_send = run.owes() && now_ns < run.end_ns + self.patience_ns(&run);
            let late = if can_send { self.send_load(&mut run, now_ns, send) } else { 0 };
            run.is_over = !(can_send && run.owes());
            if run.is_over {
                self.give_up_late(&mut run, now_ns);
            }
            late
        } else if run.each_key.is_some() {
            self.send_keys(&mut run, now_ns, send)
        } else {
            self.change(&mut run, now_ns);
            self.send_load(&mut run, now_ns, send)
        };
        self.run = Some(run);
        count
    }

    /// Takes a datagram that has arrived from this address.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let Some(run) = self.run.as_deref_mut() else { return };
        let packet = match Packet::decode(datagram) {
            Ok(packet) if !run.attacks.is_empty() => return run.hear(&self.tenants, &packet),
            Ok(packet) if packet.header.client == self.client => packet,
            _ => {
                run.result.strays += 1;
                return;
            }
        };
        let request = packet.header.request;
        let Some(sent) = self.window.get(request) else {
            run.result.late += 1;
            return;
        };
        let tenant = &self.tenants[usize::from(sent.tenant)];
        let home = tenant.store_of(&tenant.keys.get(sent.key));
        if !may_answer(&self.config.cluster, home, sent, packet.header.node, from) {
            run.result.strays += 1;
            return;
        }
        match writes::hear(&mut self.tenants, sent, &packet.header, now_ns) {
            AnswerKind::Answer => {}
            AnswerKind::Late => {
                run.result.late += 1;
                return;
            }
            AnswerKind::Again => return self.again.push(request),
        }
        if is_refusal(&packet.header) && run.is_retried() && self.retries.any() {
            // Another try may be taken.
            return;
        }
        let Some(sent) = self.window.take(request) else { return };
        let tenant = &mut self.tenants[usize::from(sent.tenant)];
        if let Some(each_key) = &mut run.each_key {
            if !each_key.is_refused(&packet, &sent, now_ns) {
                check(&mut run.result, tenant, &packet, &sent);
                count_key(&mut run.result, &packet, &sent);
            }
        } else if run.phase.kind == PhaseKind::Forge {
            forge::take_answer(&mut run.result, &packet, &sent);
        } else {
            take_answer(run, tenant, &packet, &sent, now_ns);
        }
    }

    /// What a switch would answer to a read that is open, and the address that it would come from;
    /// none: it is not open.
    pub fn answer(&mut self, datagram: &[u8], answer: &mut Vec<u8>) -> Option<SocketAddr> {
        let asked = Packet::decode(datagram).ok()?.header;
        let sent = self.window.get(asked.request)?;
        let tenant = &self.tenants[usize::from(sent.tenant)];
        let key = tenant.keys.get(sent.key);
        let (version, stamp) = tenant.versions.known(sent.key);
        let len = tenant.value_len(sent.key);
        let value = if stamp == POPULATED {
            populated_value(&key.bytes, len)
        } else {
            let mut value = vec![0; len];
            write_value(&key.bytes, stamp, &mut value);
            value
        };
        let header = Header {
            tenant: asked.tenant,
            client: asked.client,
            request: asked.request,
            key_hash: asked.key_hash,
            flags: Flags::CACHED,
            epoch: Epoch::new(1, 0),
            version,
            ..Header::new(Op::ReadReply)
        };
        answer.clear();
        let packet = Packet::new(header, &key.bytes, &value);
        packet.encode(&tenant.secret, answer).ok()?;
        let store = self.config.cluster.stores.get(tenant.store_of(&key))?;
        Some(store.address)
    }

    /// Gives up what was not answered in time. What has arrived must have been taken before.
    pub fn expire(&mut self, now_ns: u64) {
        let Some(mut run) = self.run.take() else { return };
        let deadline_ns = now_ns.saturating_sub(self.patience_ns(&run));
        while let Some(lost) = self.window.pop_lost(deadline_ns) {
            if let Some(each_key) = &mut run.each_key {
                each_key.again(lost.tenant, lost.key);
            } else if let Some(counts) = run.interval(lost.interval) {
                counts.lost += 1;
                run.result.lost += 1;
                let tenant = &self.tenants[usize::from(lost.tenant)];
                run.lost_of(tenant.store_of(&tenant.keys.get(lost.key)));
                if let Some(of_tenant) = run.result.tenants.get_mut(usize::from(lost.tenant)) {
                    of_tenant.lost += 1;
                }
            }
        }
        self.run = Some(run);
    }

    /// The phase's result, once it is over and the last answers are there or given up.
    ///
    /// # Errors
    /// A phase through every key was not over in time; the message says how many were not answered,
    /// and the last refusal.
    pub fn finished(&mut self, now_ns: u64) -> anyhow::Result<Option<PhaseResult>> {
        let Some(run) = self.run.as_deref() else { return Ok(None) };
        let open = self.window.open();
        let is_finished = match &run.each_key {
            None => run.is_over && open == 0,
            Some(each_key) => {
                let left = each_key.left() + open as u64;
                if left > 0 && now_ns >= run.end_ns {
                    let error = each_key.not_answered(left, run.phase.seconds);
                    self.run = None;
                    return Err(error);
                }
                left == 0
            }
        };
        let run = self.run.take_if(|_| is_finished);
        Ok(run.map(|run| run.into_result()))
    }

    /// Takes note of requests that [`Source::due`] made and the local socket did not take.
    pub fn not_taken(&mut self, count: u64) {
        if let Some(run) = &mut self.run {
            run.result.unsent += count;
        }
    }

    /// How long a request may take.
    fn patience_ns(&self, run: &Run) -> u64 {
        match run.each_key {
            Some(_) => AGAIN_NS,
            None => self.config.timeout_ms * 1_000_000,
        }
    }

    fn change(&mut self, run: &mut Run, now_ns: u64) {
        let due = now_ns >= run.next_change_ns;
        let Some(churn) = run.phase.churn.filter(|_| due) else { return };
        for tenant in &mut self.tenants[..run.active] {
            tenant.permutation.change(churn.change, &mut self.churn_rng);
        }
        let after_ms = (now_ns - run.measured_from_ns) as f64 / 1e6;
        run.result.changes_ms.push(after_ms);
        run.next_change_ns += change_every_ns(&churn);
    }
}

impl Run {
    fn into_result(self) -> PhaseResult {
        let Run { mut result, histograms, .. } = self;
        result.time(&histograms.read, &histograms.write);
        result.all = Latency::of(&histograms.all);
        result.waits = Waits::of(&histograms.all, result.lost);
        result.hit = Latency::of(&histograms.hit);
        result.miss = Latency::of(&histograms.miss);
        result.served_by = histograms.served_by();
        result.cdf = cdf(&histograms.all);
        for (tenant, histogram) in result.tenants.iter_mut().zip(&histograms.tenants) {
            tenant.all = Latency::of(histogram);
        }
        result
    }
}

fn change_every_ns(churn: &ChurnSchedule) -> u64 {
    (churn.every_s.max(0.01) * 1e9) as u64
}
