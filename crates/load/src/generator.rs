use std::time::Instant;

use anyhow::{Context, ensure};
use lab::random::{LabRng, rng};
use rand::RngExt;
use wire::{Flags, HEADER_LEN, Header, Op, Packet, Secret, Status, TENANT_OPEN};

use super::{
    Arrivals, Interval, Latency, LoadConfig, Phase, PhaseKind, PhaseResult, TenantResult,
    batch::Lane,
    forge,
    results::{Histograms, cdf},
    tenant::{Tenant, is_foreign, stamp},
    versions::POPULATED,
    window::{Sent, Window},
};
use crate::workload::{Check, KEY_LEN, Key, Ranks, Stamp, check_value, write_value};

/// Requests that can be on their way at once.
const WINDOW: usize = 1 << 17;
/// Requests generated before answers are looked for again.
const BURST: usize = Lane::SEND;
/// Below this wait for the next arrival, looking again at once is cheaper than sleeping.
const SPIN_NS: u64 = 15_000;

/// Sends load and checks every answer. One thread; all buffers are made once.
pub struct Generator {
    pub(super) config: LoadConfig,
    pub(super) tenants: Vec<Tenant>,
    pub(super) lanes: Vec<Lane>,
    pub(super) client: u32,
    pub(super) window: Window,
    /// Writes so far.
    pub(super) written: u32,
    rng: LabRng,
    churn_rng: LabRng,
    start: Instant,
}

/// What a phase needs on its hot path.
pub(super) struct Run<'a> {
    pub phase: &'a Phase,
    /// Tenants that take part, from the first.
    pub active: usize,
    reads: Ranks,
    writes: Ranks,
    measured_from_ns: u64,
    end_ns: u64,
    pub result: PhaseResult,
    histograms: Histograms,
}

impl Run<'_> {
    fn interval(&mut self, index: u32) -> Option<&mut Interval> {
        self.result.intervals.get_mut(index as usize)
    }
}

impl Generator {
    /// Prepares keys, tables and sockets.
    ///
    /// # Errors
    /// A tenant without a secret, no keys, or a socket that cannot be opened.
    pub fn new(config: LoadConfig) -> anyhow::Result<Generator> {
        ensure!(
            config.keys > 0,
            "load: keys = 0: at least one key is needed"
        );
        ensure!(
            config.interval_ms > 0,
            "load: interval_ms = 0: at least 1 is needed"
        );
        if let Some(cpu) = config.cpu {
            lab::process::pin_self(cpu);
        }
        let cluster = &config.cluster;
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
        let tenants = ids
            .iter()
            .map(|id| Tenant::new(cluster, *id, config.keys, config.seed))
            .collect::<Result<_, _>>()?;
        let lanes = cluster
            .stores
            .iter()
            .map(|s| Lane::connect(s.address))
            .collect::<Result<_, _>>();
        // SAFETY: a plain prctl: timers of this thread may be as exact as the kernel can.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Ok(Generator {
            tenants,
            lanes: lanes?,
            client: rand::random(),
            window: Window::new(WINDOW),
            written: 0,
            rng: rng(config.seed, "load"),
            churn_rng: rng(config.seed, "churn"),
            start: Instant::now(),
            config,
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Runs one phase to its end, waiting for the last answers.
    ///
    /// # Errors
    /// A phase that makes no sense, or a socket that fails for good.
    pub fn run(&mut self, phase: &Phase) -> anyhow::Result<PhaseResult> {
        ensure!(
            phase.seconds > 0.0 && phase.seconds < 1e6 && (0.0..1e6).contains(&phase.warmup_s),
            "load: a phase of {} s after {} s: both must be positive and finite",
            phase.seconds,
            phase.warmup_s
        );
        if let Arrivals::Open(rate) = phase.arrivals {
            ensure!(
                rate > 0.0 && rate <= 1e8,
                "load: a rate of {rate}/s: 0 to 1e8 is possible"
            );
        }
        for (name, asked, there) in [
            ("tenants", phase.tenants, self.tenants.len()),
            ("keys", phase.keys, self.config.keys),
        ] {
            ensure!(
                asked <= there,
                "load: a phase of {asked} {name}: the generator has {there}"
            );
        }
        let all_or = |asked, all| if asked == 0 { all } else { asked };
        let active = all_or(phase.tenants, self.tenants.len());
        let keys = all_or(phase.keys, self.config.keys);
        let reads = Ranks::new(phase.reads, keys)?;
        let writes = Ranks::new(phase.writes.unwrap_or(phase.reads), keys)?;
        let begin_ns = self.now_ns();
        let measured_from_ns = begin_ns + (phase.warmup_s * 1e9) as u64;
        let end_ns = measured_from_ns + (phase.seconds * 1e9) as u64;
        let interval_ns = self.config.interval_ms * 1_000_000;
        let count = (phase.seconds * 1e9 / interval_ns as f64).ceil() as usize;
        let per_tenant = self.tenants[..active].iter().map(|t| TenantResult {
            tenant: t.id,
            ..TenantResult::default()
        });
        let mut run = Run {
            phase,
            active,
            reads,
            writes,
            measured_from_ns,
            end_ns,
            result: PhaseResult {
                seconds: phase.seconds,
                interval_ms: self.config.interval_ms,
                intervals: vec![Interval::default(); count],
                tenants: per_tenant.collect(),
                ..PhaseResult::default()
            },
            histograms: Histograms::new(active),
        };
        if matches!(phase.kind, PhaseKind::Fill | PhaseKind::Sweep) {
            self.each_key(&mut run)?;
            return Ok(run.result);
        }
        let mut next_change_ns = phase.churn.map_or(u64::MAX, |churn| {
            measured_from_ns + (churn.every_s.max(0.01) * 1e9) as u64
        });
        let mut arrival_ns = begin_ns as f64;
        loop {
            let now = self.now_ns();
            if now >= end_ns {
                break;
            }
            if let Some(churn) = phase.churn.filter(|_| now >= next_change_ns) {
                for tenant in &mut self.tenants[..active] {
                    tenant.permutation.change(churn.change, &mut self.churn_rng);
                }
                run.result
                    .changes_ms
                    .push((now - measured_from_ns) as f64 / 1e6);
                next_change_ns += (churn.every_s.max(0.01) * 1e9) as u64;
            }
            let sent = self.send_due(&mut run, now, &mut arrival_ns)?;
            let received = self.receive(&mut run)?;
            self.expire(&mut run, now);
            if sent == 0 && received == 0 {
                let until = match phase.arrivals {
                    Arrivals::Open(_) => arrival_ns as u64,
                    Arrivals::Closed(_) => now + 1_000_000,
                };
                self.idle(until.min(end_ns).min(now + 2_000_000));
            }
        }
        self.drain(&mut run, end_ns)?;
        let Run {
            mut result,
            histograms,
            ..
        } = run;
        result.all = Latency::of(&histograms.all);
        result.hit = Latency::of(&histograms.hit);
        result.miss = Latency::of(&histograms.miss);
        result.write = Latency::of(&histograms.write);
        result.served_by = histograms.served_by();
        result.cdf = cdf(&histograms.all);
        for (tenant, histogram) in result.tenants.iter_mut().zip(&histograms.tenants) {
            tenant.all = Latency::of(histogram);
        }
        Ok(result)
    }

    /// Sends what is due, at most one burst; returns how much.
    fn send_due(&mut self, run: &mut Run, now: u64, arrival_ns: &mut f64) -> anyhow::Result<usize> {
        let mut count = 0;
        while count < BURST && !self.window.is_full() {
            match run.phase.arrivals {
                Arrivals::Open(rate) => {
                    if *arrival_ns > now as f64 {
                        break;
                    }
                    if count == 0 {
                        let behind_ms = (now as f64 - *arrival_ns) / 1e6;
                        run.result.behind_ms = run.result.behind_ms.max(behind_ms);
                    }
                    let uniform: f64 = self.rng.random();
                    *arrival_ns += -(1.0 - uniform).ln() * 1e9 / rate;
                }
                Arrivals::Closed(outstanding) => {
                    if self.window.open() >= outstanding {
                        break;
                    }
                }
            }
            self.queue_one(run, now)?;
            count += 1;
        }
        if count > 0 {
            for lane in self.lanes.iter_mut().filter(|lane| !lane.is_empty()) {
                run.result.unsent += lane.send().context("sending load")? as u64;
            }
        }
        Ok(count)
    }

    fn queue_one(&mut self, run: &mut Run, now: u64) -> anyhow::Result<()> {
        let ratio = run.phase.write_ratio;
        let is_write = ratio > 0.0 && self.rng.random::<f64>() < ratio;
        let ranks = if is_write { &run.writes } else { &run.reads };
        let index = match run.active {
            1 => 0,
            several => self.rng.random_range(0..several),
        };
        let tenant = &self.tenants[index];
        let key_index = tenant.permutation.key(ranks.draw(&mut self.rng));
        let key = tenant.keys.get(key_index);
        let interval = if now < run.measured_from_ns {
            Sent::UNCOUNTED
        } else {
            let interval_ns = self.config.interval_ms * 1_000_000;
            ((now - run.measured_from_ns) / interval_ns) as u32
        };
        let stamp = if is_write {
            self.written = self.written.wrapping_add(1);
            stamp(tenant.id, self.written)
        } else {
            POPULATED
        };
        let id = self.window.push(Sent {
            at_ns: now,
            floor: tenant.versions.floor(key_index),
            stamp: stamp.0,
            key: key_index,
            tenant: index as u16,
            interval,
            ..Sent::default()
        });
        if let Some(counts) = run.interval(interval) {
            counts.sent += 1;
            run.result.sent += 1;
            run.result.writes_sent += u64::from(is_write);
            run.result.tenants[index].sent += 1;
        }
        let lane = &mut self.lanes[usize::from(tenant.lane_of_key[key_index as usize])];
        if lane.is_full() {
            run.result.unsent += lane.send().context("sending load")? as u64;
        }
        let header = Header {
            tenant: tenant.id,
            client: self.client,
            request: id,
            key_hash: key.hash,
            key_len: KEY_LEN as u8,
            ..Header::new(if is_write {
                Op::WriteRequest
            } else {
                Op::ReadRequest
            })
        };
        // A read is padded to the longest reply it may get; a write to the reply that grants it back.
        let default = self.config.value_len;
        let value_len = if is_write {
            run.phase.values.draw(default, &mut self.rng)
        } else {
            run.phase.values.longest(default)
        };
        let bytes = lane.queue(HEADER_LEN + KEY_LEN + value_len);
        encode(bytes, header, key, stamp, &tenant.secret);
        if run.phase.kind == PhaseKind::Forge {
            forge::spoil(bytes, &mut self.rng);
        }
        Ok(())
    }

    fn receive(&mut self, run: &mut Run) -> anyhow::Result<usize> {
        let mut total = 0;
        for i in 0..self.lanes.len() {
            loop {
                let got = self.lanes[i].receive().context("receiving answers")?;
                let now = self.now_ns();
                for j in 0..got {
                    let packet = match Packet::decode(self.lanes[i].datagram(j)) {
                        Ok(packet) if packet.header.client == self.client => packet,
                        _ => {
                            run.result.strays += 1;
                            continue;
                        }
                    };
                    let Some(sent) = self.window.take(packet.header.request) else {
                        run.result.late += 1;
                        continue;
                    };
                    if run.phase.kind == PhaseKind::Forge {
                        forge::take_answer(&mut run.result, &packet, &sent);
                        continue;
                    }
                    let tenant = &mut self.tenants[usize::from(sent.tenant)];
                    take_answer(run, tenant, &packet, &sent, now);
                }
                total += got;
                if !Lane::may_have_more(got) {
                    break;
                }
            }
        }
        Ok(total)
    }

    fn expire(&mut self, run: &mut Run, now: u64) {
        let deadline = now.saturating_sub(self.config.timeout_ms * 1_000_000);
        while let Some(lost) = self.window.pop_lost(deadline) {
            if let Some(counts) = run.interval(lost.interval) {
                counts.lost += 1;
                run.result.lost += 1;
                if let Some(of_tenant) = run.result.tenants.get_mut(usize::from(lost.tenant)) {
                    of_tenant.lost += 1;
                }
            }
        }
    }

    /// Waits for the last answers, no longer than the timeout.
    fn drain(&mut self, run: &mut Run, end_ns: u64) -> anyhow::Result<()> {
        let give_up_ns = end_ns + self.config.timeout_ms * 1_000_000;
        while self.window.open() > 0 {
            let now = self.now_ns();
            if self.receive(run)? == 0 {
                self.expire(run, if now >= give_up_ns { u64::MAX } else { now });
                self.idle(now + 1_000_000);
            }
        }
        Ok(())
    }

    /// Sleeps until an answer comes or the time has.
    pub(super) fn idle(&self, until_ns: u64) {
        let wait_ns = until_ns.saturating_sub(self.now_ns());
        if wait_ns < SPIN_NS {
            return;
        }
        let mut fds: Vec<libc::pollfd> = Vec::with_capacity(self.lanes.len());
        fds.extend(self.lanes.iter().map(|lane| libc::pollfd {
            fd: lane.fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        let timeout = libc::timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        // SAFETY: the array has the stated length and lives through the call.
        unsafe {
            libc::ppoll(
                fds.as_mut_ptr(),
                fds.len() as u64,
                &timeout,
                std::ptr::null(),
            )
        };
    }
}

/// Writes a request into its buffer: header, key, then the value of a write or the padding of a read.
pub(super) fn encode(
    bytes: &mut [u8],
    mut header: Header,
    key: &Key,
    stamp: Stamp,
    secret: &Secret,
) {
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
        let tag = secret.tag(encoded.first_chunk().expect("64 > 56"), &key.bytes);
        encoded[56..].copy_from_slice(&tag.to_be_bytes());
    }
    head.copy_from_slice(&encoded);
    key_part.copy_from_slice(&key.bytes);
}

/// Counts one answer and checks it against everything that is known of its key.
fn take_answer(run: &mut Run, tenant: &mut Tenant, packet: &Packet, sent: &Sent, now: u64) {
    let header = &packet.header;
    let refused = !matches!(header.status, Status::Ok | Status::NotFound);
    if !refused && (run.measured_from_ns..run.end_ns).contains(&now) {
        run.result.returned += 1;
    }
    check(&mut run.result, tenant, packet, sent);
    let Run {
        result, histograms, ..
    } = run;
    let Some(counts) = result.intervals.get_mut(sent.interval as usize) else {
        return;
    };
    let index = usize::from(sent.tenant);
    // Answers of a phase's tenants only are in its window: whatever else was asked was drained before.
    let of_tenant = &mut result.tenants[index];
    if refused {
        counts.lost += 1;
        result.lost += 1;
        result.refused += 1;
        of_tenant.lost += 1;
        return;
    }
    let is_write = sent.is_write();
    let latency = now.saturating_sub(sent.at_ns);
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
pub(super) fn check(result: &mut PhaseResult, tenant: &mut Tenant, packet: &Packet, sent: &Sent) {
    let header = &packet.header;
    let of_tenant = &mut result.tenants[usize::from(sent.tenant)];
    let key = tenant.keys.get(sent.key);
    let is_write = sent.is_write();
    let expected = if is_write {
        Op::WriteReply
    } else {
        Op::ReadReply
    };
    if packet.key != key.bytes || header.tenant != tenant.id {
        result.wrong_keys += 1;
        of_tenant.wrong += 1;
    } else if header.op != expected {
        result.strays += 1;
    } else if header.status == Status::Ok {
        let stamp = if is_write {
            Some(Stamp(sent.stamp))
        } else {
            stamp_of(key, packet.value)
        };
        let foreign = stamp.is_some_and(|stamp| is_foreign(tenant.id, stamp));
        let fits = stamp.is_some_and(|stamp| {
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
