//! Writes that come in parts: what has come of each is kept until the rest has, or until its client
//! has given it up.
//!
//! Cost of a part: one look-up and a copy of its bytes. The memory of a whole value is counted
//! against the tenant's share from its first part on, until the write is over; a value that is not
//! touched yet costs none.

use std::collections::{BTreeSet, VecDeque, hash_map::Entry};

use bytes::Bytes;
use wire::{Flags, Header, PART, PART_BYTES, Packet, maps::HashMap};

use super::replies::Origin;
use crate::{
    clients::RequestId,
    coherence::{Nanos, Parts},
    shares::Shares,
};

/// Steps in which [`Header::part`] counts, in one part.
const STEPS: usize = PART_BYTES / PART;
/// Bytes that an unfinished write costs beside its value.
const OVERHEAD: usize = 256;

/// What became of a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// Others are missing: from here on, in steps of [`PART`].
    Missing(u16),
    /// The value is whole, and costs so many bytes until [`PartialWrites::give_back`].
    Whole(Bytes, usize),
    /// It does not fit the other parts, or is none.
    Unfit,
    /// There is no room for the value.
    Full,
}

/// A write of which parts are missing.
struct PartialWrite {
    /// Of the part that came first: the others must say the same.
    says: WriteTerms,
    key: Box<[u8]>,
    value: Vec<u8>,
    parts: Parts,
    until_ns: Nanos,
}

/// What all parts of a write say alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct WriteTerms {
    total: u32,
    ttl_ms: u32,
    flags: u8,
    version: u64,
}

impl WriteTerms {
    fn of(header: &Header) -> WriteTerms {
        WriteTerms {
            total: header.total,
            ttl_ms: header.expiry_ms,
            // A switch adds its own; and a write may pass the switch that its key is lent to from
            // some part on.
            flags: header.flags.without(Flags::GRANT.with(Flags::ALL)).bits(),
            version: header.version,
        }
    }
}

/// Every write of which parts are missing, and the memory of those that are whole and not over.
pub(super) struct PartialWrites {
    open: HashMap<RequestId, PartialWrite>,
    /// In the order in which they began; some are whole by now.
    order: VecDeque<(Nanos, RequestId)>,
    /// For how long a write is waited for.
    patience_ns: Nanos,
    bytes: Shares,
}

impl PartialWrites {
    /// Room for `limit` bytes, shared by `tenants` tenants. What is not whole `patience_ns` after
    /// its first part is forgotten.
    pub fn new(limit: usize, tenants: usize, patience_ns: Nanos) -> PartialWrites {
        PartialWrites {
            open: HashMap::default(),
            order: VecDeque::new(),
            patience_ns,
            bytes: Shares::new(limit, tenants),
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.bytes.share_among(tenants);
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> usize {
        self.bytes.all()
    }

    /// A part of a write has come.
    pub fn take(&mut self, origin: &Origin, packet: &Packet<'_>, now_ns: Nanos) -> PartOutcome {
        let total = packet.header.total as usize;
        let Some(index) = index_of(packet) else { return PartOutcome::Unfit };
        let id = origin.request_id();
        let says = WriteTerms::of(&packet.header);
        let mut entry = match self.open.entry(id) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(_) if !self.bytes.has_room_for(origin.tenant, total + OVERHEAD) => {
                return PartOutcome::Full;
            }
            Entry::Vacant(entry) => {
                self.bytes.take(origin.tenant, total + OVERHEAD);
                let until_ns = now_ns + self.patience_ns;
                self.order.push_back((until_ns, id));
                entry.insert_entry(PartialWrite {
                    says,
                    key: packet.key.into(),
                    value: vec![0; total],
                    parts: Parts::new(total.div_ceil(PART_BYTES)),
                    until_ns,
                })
            }
        };
        let join = entry.get_mut();
        if join.says != says || *join.key != *packet.key {
            return PartOutcome::Unfit;
        }
        if !join.parts.has(index) {
            let from = index * PART_BYTES;
            join.value[from..from + packet.value.len()].copy_from_slice(packet.value);
        }
        if let Some(missing) = join.parts.take(index) {
            return PartOutcome::Missing((missing * STEPS) as u16);
        }
        let value = entry.remove().value.into();
        self.drop_stale();
        PartOutcome::Whole(value, total + OVERHEAD)
    }

    /// Drops from the order what is whole, once that is the majority: writes of few parts may be
    /// whole as fast as a client sends them.
    fn drop_stale(&mut self) {
        let PartialWrites { open, order, .. } = self;
        if order.len() > 2 * open.len() {
            order.retain(|(at_ns, id)| open.get(id).is_some_and(|join| join.until_ns == *at_ns));
        }
    }

    /// A write that was whole is over.
    pub fn give_back(&mut self, tenant: u32, bytes: usize) {
        self.bytes.give_back(tenant, bytes);
    }

    /// Forgets what is not whole and was begun too long ago; how many writes that were.
    pub fn expire(&mut self, now_ns: Nanos) -> u64 {
        let mut expired = 0;
        while let Some(&(until_ns, id)) = self.order.front()
            && until_ns <= now_ns
        {
            self.order.pop_front();
            let Entry::Occupied(entry) = self.open.entry(id) else { continue };
            // One that was put off may have begun anew.
            if entry.get().until_ns == until_ns {
                let PartialWrite { value, .. } = entry.remove();
                self.bytes.give_back(id.0.0, value.len() + OVERHEAD);
                expired += 1;
            }
        }
        expired
    }

    /// When there may be something to forget.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.order.front().map(|(until_ns, _)| *until_ns)
    }

    /// Forgets everything of these tenants, also what is whole.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        self.open.retain(|(client, _), _| !gone.contains(&client.0));
        gone.iter().for_each(|tenant| self.bytes.forget(*tenant));
    }
}

/// Which part of its value a packet has; `None`: none that a value is cut into.
fn index_of(packet: &Packet<'_>) -> Option<usize> {
    let (part, total) = (usize::from(packet.header.part), packet.header.total as usize);
    let from = part * PART;
    let is_cut = part.is_multiple_of(STEPS) && from < total;
    (is_cut && packet.value.len() == PART_BYTES.min(total - from)).then_some(part / STEPS)
}
