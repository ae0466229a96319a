//! What a store tells about itself, as far as its parts know.

use super::{context::Context, copies::ForeignCopies, loans::Loans};
use crate::status::{LeaseStatus, PartitionStatus, Status};

/// All but what was counted, where the store listens, and what is wrong with the backend.
pub(super) fn of(cx: &Context, loans: &Loans, replicas: &ForeignCopies, now_ns: u64) -> Status {
    let Context { config, backend, .. } = cx;
    // One that is another's may be held here for a tenant that may not use that store.
    let partitions = cx.partitions.iter().zip(0..);
    let partitions = partitions.filter(|(p, _)| p.owned || p.served > 0);
    let leases = cx.leases.iter();
    let leases = leases.filter(|(who, lease)| now_ns < lease.until_ns && !wire::is_holder(*who));
    Status {
        ready: true,
        takes_writes: cx.takes_writes(now_ns),
        backend: config.backend.to_string(),
        items: backend.items(),
        memory_bytes: backend.memory_bytes(),
        evicted: backend.evicted(),
        writing_bytes: cx.ledger.joins.bytes() as u64,
        reading_bytes: cx.values.bytes() as u64,
        outside_writes: cx.outside.watch().into(),
        copies: cx.directory.copies() as u64,
        holders: cx.holders.len() as u64,
        placements: cx.placements.told().map(|pairs| pairs as u64),
        leases: leases
            .map(|(switch, lease)| LeaseStatus {
                switch,
                term: lease.term,
                left_ms: (lease.until_ns - now_ns) / 1_000_000,
            })
            .collect(),
        partitions: partitions
            .map(|(p, partition)| PartitionStatus {
                partition,
                served: p.served,
                dropped: p.dropped,
            })
            .collect(),
        loans: loans.status(config, backend.watch()),
        replicas: replicas.status(now_ns),
        ..Status::default()
    }
}
