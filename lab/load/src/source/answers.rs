//! What comes back: answers, counted and checked against everything that is known of their keys.

use std::net::SocketAddr;

use wire::{Cluster, Flags, Header, NodeId, Op, Packet, Status, store_at};

use super::Run;
use crate::{
    PhaseResult,
    tenant::{Tenant, is_foreign},
    versions::POPULATED,
    window::SentRequest,
    workload::{Check, KEY_LEN, Key, Stamp, check_value},
    writes,
};

/// Shortest value in bytes that tells who wrote it.
const STAMPED: usize = KEY_LEN + 16;

pub(super) fn is_refusal(header: &Header) -> bool {
    !matches!(header.status, Status::Ok | Status::NotFound)
}

/// Whether an answer may come from there, as clients see it: from its key's home, and of a read
/// from the store that it names.
pub(super) fn may_answer(
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

/// Counts one answer in a phase through every key.
pub(super) fn count_key(result: &mut PhaseResult, packet: &Packet, sent: &SentRequest) {
    let cached = u64::from(packet.header.flags.has(Flags::CACHED));
    if packet.header.status == Status::NotFound {
        return;
    }
    result.answered += 1;
    result.cached += cached;
    result.reads_cached += if sent.is_write() { 0 } else { cached };
    let of_tenant = &mut result.tenants[usize::from(sent.tenant)];
    of_tenant.answered += 1;
    of_tenant.cached += cached;
}

/// Counts one answer and checks it against everything that is known of its key.
pub(super) fn take_answer(
    run: &mut Run,
    tenant: &mut Tenant,
    packet: &Packet,
    sent: &SentRequest,
    now: u64,
) {
    let header = &packet.header;
    let refused = is_refusal(header);
    // All keys are there: "no such key" is no answer.
    let missing = header.status == Status::NotFound;
    if !refused && !missing && (run.measured_from_ns..run.end_ns).contains(&now) {
        run.result.returned += 1;
    }
    check(&mut run.result, tenant, packet, sent);
    let Run { result, histograms, .. } = run;
    let Some(counts) = result.intervals.get_mut(sent.interval as usize) else { return };
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
    counts.watched_answered += u32::from(run.watched.contains(&(sent.tenant, sent.key)));
    counts.cached += u32::from(cached);
    result.answered += 1;
    result.cached += u64::from(cached);
    result.reads_cached += u64::from(cached && !is_write);
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
pub(super) fn check(
    result: &mut PhaseResult,
    tenant: &mut Tenant,
    packet: &Packet,
    sent: &SentRequest,
) {
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
