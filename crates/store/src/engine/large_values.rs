//! Values that a backend has given in one piece and that are read in parts: kept until nobody asks
//! for parts of them any more.
//!
//! All parts of one version must be of one value, also where others write to the backend and
//! versions do not tell (docs/coherence.md, "Large values"). So of each value that went out in
//! parts a digest is remembered for longer than the value itself, with the version that it was read
//! under. If the backend has another value under the same version, or the digest was forgotten
//! meanwhile, the version is raised, and whoever reads the older parts begins anew.

use std::{collections::BTreeSet, hash::BuildHasher};

use bytes::Bytes;
use holder::left_ms;
use wire::maps::{HashSet, Hashing};

use super::recency_table::RecencyTable;
use crate::{backend::Item, coherence::Nanos, directory::KeyId};

/// A value that nobody has asked for so long is let go.
const IDLE_NS: Nanos = 2_000_000_000;
/// One that was asked for within this time does not make way for another.
const BUSY_NS: Nanos = 100_000_000;
/// From one look for idle values to the next.
const LOOK_NS: Nanos = 500_000_000;
/// Bytes that a value costs beside its own.
const OVERHEAD: usize = 256;
/// Digests that are remembered.
const DIGESTS: usize = 65_536;

/// A value that is held.
struct Value {
    bytes: Bytes,
    version: u64,
    /// When its life ends; 0: never.
    expires_ns: Nanos,
    /// Parts of it may be granted: what others do to it since it was read is told.
    grantable: bool,
    used_ns: Nanos,
}

/// What is known of a value that went out in parts.
#[derive(Clone, Copy)]
struct Digest {
    version: u64,
    of_value: u64,
}

/// What the backend has given, beside what it gave before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The same under this version, as far as is known.
    Same,
    /// Something else: others have written it.
    Changed,
    /// It was asked when the key had an earlier version than is known by now.
    Late,
}

/// A key whose version is not `from` any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ForgottenVersion {
    pub id: KeyId,
    pub from: u64,
}

/// The values, and what is known of those that are held no more.
pub(super) struct LargeValues {
    values: RecencyTable<Value>,
    digests: RecencyTable<Digest>,
    hashing: Hashing,
    /// Keys that are being read anew because somebody asked for a part of what is not held.
    missed: HashSet<KeyId>,
    next_look_ns: Nanos,
}

impl LargeValues {
    /// Room for `limit` bytes, shared by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> LargeValues {
        LargeValues {
            values: RecencyTable::new(limit, tenants),
            digests: RecencyTable::new(DIGESTS, tenants),
            hashing: Hashing::default(),
            missed: HashSet::default(),
            next_look_ns: 0,
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.values.shares.share_among(tenants);
        self.digests.shares.share_among(tenants);
    }

    /// Bytes that are taken.
    pub fn bytes(&self) -> usize {
        self.values.shares.all()
    }

    /// A value of which this version, or a later one, is held, and whether it may be granted.
    pub fn get(&mut self, id: KeyId, version: u64, now_ns: Nanos) -> Option<(Item<Bytes>, bool)> {
        let value = self.values.get(id)?;
        if value.version < version {
            return None;
        }
        if value.expires_ns != 0 && value.expires_ns <= now_ns {
            self.values.remove(id);
            return None;
        }
        value.used_ns = now_ns;
        let expiry_ms = left_ms(value.expires_ns, now_ns);
        let item = Item { value: value.bytes.clone(), version: value.version, expiry_ms };
        Some((item, value.grantable))
    }

    /// Compares what the backend has given to what it gave under this version before. Unless that
    /// was something else, this is what is known from now on; the key of which something had to be
    /// forgotten for it, if so, counts as changed.
    pub fn compare(
        &mut self,
        id: KeyId,
        version: u64,
        value: &[u8],
    ) -> (Comparison, Option<ForgottenVersion>) {
        let of_value = self.hashing.hash_one(value);
        match self.digests.get(id) {
            Some(known) if known.version > version => return (Comparison::Late, None),
            Some(known) if known.version == version && known.of_value != of_value => {
                return (Comparison::Changed, None);
            }
            _ => {}
        }
        let mut forgotten = None;
        if self.digests.peek(id).is_none() && !self.digests.shares.has_room(id.0) {
            let oldest = self.digests.oldest(self.digests.shares.who_gives(id.0));
            let gone = oldest.and_then(|id| Some((id, self.digests.remove(id)?)));
            forgotten =
                gone.map(|(id, Digest { version: from, .. })| ForgottenVersion { id, from });
        }
        self.digests.insert(id, 1, Digest { version, of_value });
        (Comparison::Same, forgotten)
    }

    /// A key of which something is known has this value, under this version.
    pub fn is_of(&mut self, id: KeyId, version: u64, value: &[u8]) {
        let of_value = self.hashing.hash_one(value);
        if let Some(known) = self.digests.get(id) {
            *known = Digest { version, of_value };
        }
    }

    /// Holds a value. False: there is no room, others are being read.
    pub fn hold(&mut self, id: KeyId, item: &Item<Bytes>, grantable: bool, now_ns: Nanos) -> bool {
        let cost = item.value.len() + OVERHEAD;
        self.values.remove(id);
        while !self.values.shares.has_room_for(id.0, cost) {
            let idle = |value: &&mut Value| now_ns >= value.used_ns + BUSY_NS;
            let oldest = self.values.oldest(self.values.shares.who_gives(id.0));
            let Some(oldest) = oldest.filter(|id| self.values.peek(*id).filter(idle).is_some())
            else {
                return false;
            };
            self.values.remove(oldest);
        }
        let expires_ns = match item.expiry_ms {
            0 => 0,
            left_ms => now_ns + u64::from(left_ms) * 1_000_000,
        };
        let value = Value {
            bytes: item.value.clone(),
            version: item.version,
            expires_ns,
            grantable,
            used_ns: now_ns,
        };
        self.values.insert(id, cost, value);
        true
    }

    /// A key is written, or others have: what is held is not the newest any more.
    pub fn end(&mut self, id: KeyId) {
        self.values.remove(id);
    }

    /// Any key may have been written.
    pub fn end_all(&mut self) {
        self.values.clear();
    }

    /// Whether a value is being read anew because somebody asked for a part of what is not held.
    pub fn is_missed(&self, id: KeyId) -> bool {
        self.missed.contains(&id)
    }

    /// It is from now on.
    pub fn misses(&mut self, id: KeyId) {
        self.missed.insert(id);
    }

    /// The backend has answered, whoever asked.
    pub fn answered(&mut self, id: KeyId) {
        self.missed.remove(&id);
    }

    /// Lets go what nobody asks for.
    pub fn tick(&mut self, now_ns: Nanos) {
        if self.next_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        self.next_look_ns = now_ns + LOOK_NS;
        for tenant in self.values.tenants() {
            while let Some(id) = self.values.oldest(tenant)
                && let Some(value) = self.values.peek(id)
                && value.used_ns + IDLE_NS <= now_ns
            {
                self.values.remove(id);
            }
        }
    }

    /// When there may be something to let go.
    pub fn next_ns(&self) -> Option<Nanos> {
        (!self.values.is_empty()).then_some(self.next_look_ns)
    }

    /// Forgets everything of these tenants.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        self.missed.retain(|id| !gone.contains(&id.0));
        self.values.forget_tenants(gone);
        self.digests.forget_tenants(gone);
    }
}
