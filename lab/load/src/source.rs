//! Load without sockets, threads or clocks: what is asked when, and what the answers come to.

use std::net::SocketAddr;

use anyhow::ensure;
use rand::RngExt;
use seed::{SeededRng, rng};
use wire::{
    Cluster, Epoch, Flags, HEADER_LEN, Header, NodeId, Op, Packet, Secret, Status, TENANT_OPEN,
    store_at,
};

use super::{
    Arrivals, ChurnSchedule, Interval, Latency, LoadConfig, Phase, PhaseKind, PhaseResult,
    TenantResult,
    each_key::{AGAIN_NS, EachKey},
    forge::{self, Attacks},
    lives::NamedLife,
    results::{Histograms, cdf},
    retries::Retries,
    tenant::{Tenant, is_foreign, stamp},
    versions::POPULATED,
    window::{SentRequest, Window},
    writes::{self, AnswerKind},
};
use crate::workload::{
    Check, KEY_LEN, Key, Ranks, Stamp, check_value, populated_value, write_value,
};

/// Requests that can be on their way at once.
const WINDOW: usize = 1 << 17;
/// Requests made at once, before answers are looked for again.
pub(crate) const BURST: usize = 32;
/// Shortest value in bytes that tells who wrote it.
const STAMPED: usize = KEY_LEN + 16;
/// Longest datagram in bytes.
const LONGEST: usize = 2048;

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
    result: PhaseResult,
    histograms: Histograms,
}

impl Run {
    /// Whether its requests are sent again: those through every key have a way of their own, and
    /// attacks have none.
    fn is_retried(&self) -> bool {
        self.phase.kind == PhaseKind::Load
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
    /// A tenant without a secret, no keys, or intervals of no length.
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
        let tenants = ids.iter().map(|id| Tenant::new(&config, *id)).collect::<Result<_, _>>()?;
        let own_seed = config.seed ^ config.number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Source {
            tenants,
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
        let all_or = |asked, all| if asked == 0 { all } else { asked };
        let active = all_or(phase.tenants, self.tenants.len());
        let keys = all_or(phase.keys, self.config.keys);
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
        let Some(mut run) = self.run.take() else {
            return 0;
        };
        if run.is_retried() {
            let lives = self.again.len();
            self.retries.due(&self.window, now_ns, &mut self.again);
            run.result.again += (self.again.len() - lives) as u64;
        }
        for request in std::mem::take(&mut self.again) {
            self.transmit(request, false, send);
        }
        let count = if now_ns >= run.end_ns {
            run.is_over = true;
            0
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
        let Some(run) = self.run.as_deref_mut() else {
            return;
        };
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
        let Some(sent) = self.window.take(request) else {
            return;
        };
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
        let Some(mut run) = self.run.take() else {
            return;
        };
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
        let Some(run) = self.run.as_deref() else {
            return Ok(None);
        };
        let open = self.window.open();
        let is_finished = match &run.each_key {
            None => now_ns >= run.end_ns && open == 0,
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
        let Some(churn) = run.phase.churn.filter(|_| due) else {
            return;
        };
        for tenant in &mut self.tenants[..run.active] {
            tenant.permutation.change(churn.change, &mut self.churn_rng);
        }
        let after_ms = (now_ns - run.measured_from_ns) as f64 / 1e6;
        run.result.changes_ms.push(after_ms);
        run.next_change_ns += change_every_ns(&churn);
    }

    fn send_load(
        &mut self,
        run: &mut Run,
        now_ns: u64,
        send: &mut impl FnMut(usize, &[u8]),
    ) -> usize {
        let mut count = 0;
        while count < BURST && !self.window.is_full() {
            let mut due_ns = now_ns;
            match run.phase.arrivals {
                Arrivals::Open(rate) => {
                    if run.arrival_ns > now_ns as f64 {
                        break;
                    }
                    if count == 0 {
                        let behind_ms = (now_ns as f64 - run.arrival_ns) / 1e6;
                        run.result.behind_ms = run.result.behind_ms.max(behind_ms);
                    }
                    due_ns = run.arrival_ns as u64;
                    let uniform: f64 = self.rng.random();
                    run.arrival_ns += -(1.0 - uniform).ln() * 1e9 / rate;
                }
                Arrivals::Closed(outstanding) => {
                    if self.window.open() >= outstanding {
                        break;
                    }
                }
            }
            if run.attacks.is_empty() {
                self.send_one(run, [due_ns, now_ns], send);
            } else {
                let sent = self.attack(run, send);
                if let Arrivals::Open(rate) = run.phase.arrivals {
                    // As many packets as honest load sends at this rate.
                    run.arrival_ns += sent.saturating_sub(1) as f64 * 1e9 / rate;
                }
            }
            count += 1;
        }
        count
    }

    /// Sends the next packets of an attack, in some tenant's name; returns how many.
    fn attack(&mut self, run: &mut Run, send: &mut impl FnMut(usize, &[u8])) -> usize {
        let at = self.rng.random_range(0..run.active);
        let tenant = &self.tenants[at];
        let packets = run.attacks[at].next(tenant, self.client, &mut self.rng);
        for hostile in &packets {
            hostile.write(tenant, &mut self.hostile);
            send(hostile.store(tenant), &self.hostile);
            run.result.sent += 1;
            let name = hostile.attack.name();
            *run.result.attacks.entry(name.into()).or_default() += 1;
        }
        packets.len()
    }

    fn send_one(
        &mut self,
        run: &mut Run,
        [due_ns, now_ns]: [u64; 2],
        send: &mut impl FnMut(usize, &[u8]),
    ) {
        let ratio = run.phase.write_ratio;
        let is_write = ratio > 0.0 && self.rng.random::<f64>() < ratio;
        let ranks = if is_write { &run.writes } else { &run.reads };
        let tenant = match run.active {
            1 => 0,
            several => self.rng.random_range(0..several),
        };
        let rank = match run.phase.kind {
            PhaseKind::Scan { times } => run.next_of_scan(self.config.keys, times),
            _ => ranks.draw(&mut self.rng),
        };
        let key = self.tenants[tenant].permutation.key(rank);
        // A read is padded to the longest reply it may get; a write to the reply that grants
        // it back.
        let default = self.tenants[tenant].value_len(key);
        let value_len = if is_write {
            run.phase.values.draw(default, &mut self.rng)
        } else {
            run.phase.values.longest(default)
        };
        let interval = if now_ns < run.measured_from_ns {
            SentRequest::UNCOUNTED
        } else {
            let interval_ns = self.config.interval_ms * 1_000_000;
            ((now_ns - run.measured_from_ns) / interval_ns) as u32
        };
        if let Some(counts) = run.interval(interval) {
            counts.sent += 1;
            run.result.sent += 1;
            run.result.writes_sent += u64::from(is_write);
            run.result.tenants[tenant].sent += 1;
        }
        let forged = run.phase.kind == PhaseKind::Forge;
        let what = NextRequest { tenant, key, is_write, value_len, interval, forged };
        self.send(&what, [due_ns, now_ns], send);
    }

    /// Sends the keys that are to be asked for and may be.
    fn send_keys(
        &mut self,
        run: &mut Run,
        now_ns: u64,
        send: &mut impl FnMut(usize, &[u8]),
    ) -> usize {
        let Some(each_key) = &mut run.each_key else {
            return 0;
        };
        let mut count = 0;
        while !self.window.is_full() {
            let Some((tenant, key)) = each_key.next(self.window.open(), now_ns) else {
                break;
            };
            let value_len = self.tenants[usize::from(tenant)].value_len(key);
            let what = NextRequest {
                tenant: tenant.into(),
                key,
                is_write: run.phase.kind == PhaseKind::Fill,
                value_len,
                interval: SentRequest::UNCOUNTED,
                forged: false,
            };
            run.result.sent += 1;
            run.result.tenants[what.tenant].sent += 1;
            self.send(&what, [now_ns; 2], send);
            count += 1;
        }
        count
    }

    /// Sends what was due then, now.
    fn send(
        &mut self,
        what: &NextRequest,
        [due_ns, now_ns]: [u64; 2],
        send: &mut impl FnMut(usize, &[u8]),
    ) {
        let tenant = &self.tenants[what.tenant];
        let (mut written, mut named) = (POPULATED, NamedLife::default());
        if what.is_write {
            self.written = self.written.wrapping_add(1);
            written = stamp(tenant.id, self.written);
            named = writes::named_by(tenant, what.key);
        }
        let request = self.window.push(SentRequest {
            at_ns: now_ns,
            due_ns,
            floor: tenant.versions.floor(what.key),
            stamp: written.0,
            key: what.key,
            tenant: what.tenant as u16,
            value_len: what.value_len as u16,
            named,
            interval: what.interval,
            ..SentRequest::default()
        });
        self.transmit(request, what.forged, send);
    }

    /// Sends a request that is open, for the first time or again.
    fn transmit(&mut self, request: u64, forged: bool, send: &mut impl FnMut(usize, &[u8])) {
        let Some(sent) = self.window.get(request) else {
            return;
        };
        let tenant = &self.tenants[usize::from(sent.tenant)];
        let key = tenant.keys.get(sent.key);
        let op = match sent.is_write() {
            true => Op::WriteRequest,
            false => Op::ReadRequest,
        };
        let header = Header {
            tenant: tenant.id,
            client: self.client,
            request,
            key_hash: key.hash,
            key_len: KEY_LEN as u8,
            life: sent.named.life,
            flags: sent.named.flags(),
            ..Header::new(op)
        };
        let len = (HEADER_LEN + KEY_LEN + usize::from(sent.value_len)).min(LONGEST);
        let bytes = &mut self.datagram[..len];
        encode(bytes, header, &key, Stamp(sent.stamp), &tenant.secret);
        if forged {
            forge::spoil(bytes, &mut self.rng);
        }
        send(tenant.store_of(&key), bytes);
    }
}

fn is_refusal(header: &Header) -> bool {
    !matches!(header.status, Status::Ok | Status::NotFound)
}

/// Whether an answer may come from there, as clients see it: from its key's home, and of a read
/// from the store that it names.
fn may_answer(
    cluster: &Cluster,
    home: usize,
    sent: &SentRequest,
    node: NodeId,
    from: SocketAddr,
) -> bool {
    let chosen = store_at(node).filter(|_| !sent.is_write());
    let stores = [Some(home), chosen].into_iter().flatten();
    let mut stores = stores.filter_map(|at| cluster.stores.get(at));
    stores.any(|store| store.address == from)
}

/// One request to be made.
struct NextRequest {
    /// Index of the tenant.
    tenant: usize,
    key: u32,
    is_write: bool,
    /// Bytes of the value, or of room for one.
    value_len: usize,
    interval: u32,
    forged: bool,
}

impl Run {
    fn into_result(self) -> PhaseResult {
        let Run { mut result, histograms, .. } = self;
        result.all = Latency::of(&histograms.all);
        result.hit = Latency::of(&histograms.hit);
        result.miss = Latency::of(&histograms.miss);
        result.read = Latency::of(&histograms.read);
        result.write = Latency::of(&histograms.write);
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

/// Counts one answer in a phase through every key.
fn count_key(result: &mut PhaseResult, packet: &Packet, sent: &SentRequest) {
    let cached = u64::from(packet.header.flags.has(Flags::CACHED));
    if packet.header.status == Status::NotFound {
        return;
    }
    result.answered += 1;
    result.cached += cached;
    let of_tenant = &mut result.tenants[usize::from(sent.tenant)];
    of_tenant.answered += 1;
    of_tenant.cached += cached;
}

/// Writes a request into its bytes: header, key, then the value of a write or the padding of
/// a read.
fn encode(bytes: &mut [u8], mut header: Header, key: &Key, stamp: Stamp, secret: &Secret) {
    let (head, rest) = bytes.split_at_mut(HEADER_LEN);
    let (key_part, value_part) = rest.split_at_mut(KEY_LEN);
    if stamp == POPULATED {
        value_part.fill(0);
    } else {
        header.value_len = value_part.len() as u16;
        write_value(&key.bytes, stamp, value_part);
    }
    let mut encoded = header.to_bytes();
    if *secret != Secret::NONE {
        let tag = secret.tag(&encoded, &key.bytes);
        encoded[HEADER_LEN - 8..].copy_from_slice(&tag.to_be_bytes());
    }
    head.copy_from_slice(&encoded);
    key_part.copy_from_slice(&key.bytes);
}

/// Counts one answer and checks it against everything that is known of its key.
fn take_answer(run: &mut Run, tenant: &mut Tenant, packet: &Packet, sent: &SentRequest, now: u64) {
    let header = &packet.header;
    let refused = is_refusal(header);
    // All keys are there: "no such key" is no answer.
    let missing = header.status == Status::NotFound;
    if !refused && !missing && (run.measured_from_ns..run.end_ns).contains(&now) {
        run.result.returned += 1;
    }
    check(&mut run.result, tenant, packet, sent);
    let Run { result, histograms, .. } = run;
    let Some(counts) = result.intervals.get_mut(sent.interval as usize) else {
        return;
    };
    let index = usize::from(sent.tenant);
    // Answers of a phase's tenants only are in its window: whatever else was asked was
    // drained before.
    let of_tenant = &mut result.tenants[index];
    if refused || missing {
        counts.lost += 1;
        result.lost += 1;
        result.refused += u64::from(refused);
        of_tenant.lost += 1;
        run.lost_of(tenant.store_of(&tenant.keys.get(sent.key)));
        return;
    }
    let is_write = sent.is_write();
    let latency = now.saturating_sub(sent.due_ns);
    let cached = header.flags.has(Flags::CACHED);
    counts.answered += 1;
    counts.cached += u32::from(cached);
    result.answered += 1;
    result.cached += u64::from(cached);
    result.writes_answered += u64::from(is_write);
    of_tenant.answered += 1;
    of_tenant.cached += u64::from(cached);
    histograms.all.saturating_record(latency);
    histograms.tenants[index].saturating_record(latency);
    if !is_write {
        histograms.read.saturating_record(latency);
        let switch = if cached { header.epoch.switch() } else { 0 };
        histograms.served(switch, latency);
    }
    let kind = match (is_write, cached) {
        (true, _) => &mut histograms.write,
        (false, true) => &mut histograms.hit,
        (false, false) => &mut histograms.miss,
    };
    kind.saturating_record(latency);
}

/// Counts what must never be: another key, a value of nobody, of another tenant, or of the past.
fn check(result: &mut PhaseResult, tenant: &mut Tenant, packet: &Packet, sent: &SentRequest) {
    let header = &packet.header;
    let of_tenant = &mut result.tenants[usize::from(sent.tenant)];
    let key = tenant.keys.get(sent.key);
    let is_write = sent.is_write();
    let expected = if is_write { Op::WriteReply } else { Op::ReadReply };
    if packet.key != key.bytes || header.tenant != tenant.id {
        result.wrong_keys += 1;
        of_tenant.wrong += 1;
    } else if header.op != expected {
        result.strays += 1;
    } else if header.status == Status::Ok {
        let stamp = if is_write {
            Some(Stamp(sent.stamp))
        } else {
            stamp_of(&key, packet.value).filter(|stamp| {
                // A write of few bytes has no room for its stamp.
                let len = packet.value.len();
                *stamp != POPULATED || len < STAMPED || len == tenant.value_len(sent.key)
            })
        };
        let foreign = stamp.is_some_and(|stamp| is_foreign(tenant.id, stamp));
        // A write that only its keeper kept is answered under a version that is no value's.
        let tells_version = !(is_write && writes::may_be_asked_for(tenant, sent, header));
        let fits = stamp.is_some_and(|stamp| {
            if !tells_version {
                return true;
            }
            let versions = &mut tenant.versions;
            versions.learn(sent.key, sent.floor, header.version, stamp)
        });
        result.foreign_values += u64::from(foreign);
        of_tenant.foreign += u64::from(foreign);
        result.wrong_values += u64::from(!fits || foreign);
        of_tenant.wrong += u64::from(!fits || foreign);
    } else if header.status == Status::NotFound {
        result.not_found += 1;
    }
}

/// The stamp of a read's value; none if the value is wrong.
fn stamp_of(key: &Key, value: &[u8]) -> Option<Stamp> {
    match check_value(&key.bytes, value) {
        Check::Populated if value.is_empty() => None,
        Check::Populated => Some(POPULATED),
        Check::Written(stamp) => Some(stamp),
        Check::Wrong => None,
    }
}

#[cfg(test)]
mod tests;
