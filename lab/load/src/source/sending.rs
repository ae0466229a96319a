//! What goes out: requests of a load, of a phase through every key, and those that are sent again.

use rand::RngExt;
use wire::{HEADER_LEN, Header, Op, Secret};

use super::{BURST, Run, Source};
use crate::{
    Arrivals, PhaseKind, forge, gap_ns,
    lives::NamedLife,
    tenant::stamp,
    versions::POPULATED,
    window::SentRequest,
    workload::{KEY_LEN, Key, Stamp, write_value},
    writes,
};

/// Longest datagram in bytes.
pub(super) const LONGEST: usize = 2048;

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

impl Source {
    pub(super) fn send_load(
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
                    if run.arrival_ns > (now_ns as f64).min(run.last_due_ns()) {
                        break;
                    }
                    if count == 0 {
                        let behind_ms = (now_ns as f64 - run.arrival_ns) / 1e6;
                        run.result.behind_ms = run.result.behind_ms.max(behind_ms);
                    }
                    due_ns = run.arrival_ns as u64;
                    run.arrival_ns += gap_ns(rate, self.rng.random());
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

    /// Counts what a generator that was held up for long never sent as sent and lost: somebody
    /// wanted it.
    pub(super) fn give_up_late(&mut self, run: &mut Run, now_ns: u64) {
        let Arrivals::Open(rate) = run.phase.arrivals else { return };
        while run.owes() {
            let behind_ms = (now_ns as f64 - run.arrival_ns) / 1e6;
            run.result.behind_ms = run.result.behind_ms.max(behind_ms);
            if run.arrival_ns >= run.measured_from_ns as f64 {
                run.result.sent += 1;
                run.result.lost += 1;
                run.result.unsent += 1;
            }
            run.arrival_ns += gap_ns(rate, self.rng.random());
        }
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
        let mut is_write = ratio > 0.0 && self.rng.random::<f64>() < ratio;
        let ranks = if is_write { &run.writes } else { &run.reads };
        let tenant = match run.active {
            1 => 0,
            several => self.rng.random_range(0..several),
        };
        let (key, value_len);
        match (run.phase.kind, &mut self.player) {
            (PhaseKind::Trace, Some(player)) => {
                let next = player.next();
                (key, value_len, is_write) = (next.key, next.value_len.into(), next.is_write);
            }
            (kind, _) => {
                let rank = match kind {
                    PhaseKind::Scan { times } => run.next_of_scan(self.config.keys, times),
                    _ => ranks.draw(&mut self.rng),
                };
                key = self.tenants[tenant].permutation.key(rank);
                // A read is padded to the longest reply it may get; a write to the reply that
                // grants it back.
                let default = self.tenants[tenant].value_len(key);
                value_len = match is_write {
                    true => run.phase.values.draw(default, &mut self.rng),
                    false => run.phase.values.longest(default),
                };
            }
        }
        let interval = if now_ns < run.measured_from_ns {
            SentRequest::UNCOUNTED
        } else {
            let interval_ns = self.config.interval_ms * 1_000_000;
            // What was due before the end and is sent after it counts where it ends.
            let sent_ns = now_ns.min(run.end_ns.saturating_sub(1));
            ((sent_ns - run.measured_from_ns) / interval_ns) as u32
        };
        let is_watched = run.watched.contains(&(tenant as u16, key));
        if let Some(counts) = run.interval(interval) {
            counts.sent += 1;
            counts.watched += u32::from(is_watched);
            run.result.sent += 1;
            run.result.writes_sent += u64::from(is_write);
            run.result.tenants[tenant].sent += 1;
        }
        let forged = run.phase.kind == PhaseKind::Forge;
        let what = NextRequest { tenant, key, is_write, value_len, interval, forged };
        self.send(&what, [due_ns, now_ns], send);
    }

    /// Sends the keys that are to be asked for and may be.
    pub(super) fn send_keys(
        &mut self,
        run: &mut Run,
        now_ns: u64,
        send: &mut impl FnMut(usize, &[u8]),
    ) -> usize {
        let Some(each_key) = &mut run.each_key else { return 0 };
        let mut count = 0;
        while !self.window.is_full() {
            let Some((tenant, key)) = each_key.next(self.window.open(), now_ns) else { break };
            let of_trace = self.player.as_ref().and_then(|player| player.value_len(key));
            let default = || self.tenants[usize::from(tenant)].value_len(key);
            let value_len = of_trace.unwrap_or_else(default);
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
    pub(super) fn transmit(
        &mut self,
        request: u64,
        forged: bool,
        send: &mut impl FnMut(usize, &[u8]),
    ) {
        let Some(sent) = self.window.get(request) else { return };
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
