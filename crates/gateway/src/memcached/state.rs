//! What a thread of the side has: its connections to the servers, and what it shares with the
//! others: the copies, and what all clients hold.

use std::sync::Arc;

use bytes::BytesMut;
use client::kit::LocalCopies;
use memcached::{AskedItem, AskedValues};

use super::{
    learner::{ItemFacts, Knowledge, Learner},
    memory::ClientsMemory,
    servers::Servers,
};
use crate::shared::GatewayState;

/// Keys of one command that are looked for among the copies at once, and bytes of their answer.
const KEYS: usize = 1024;
const ANSWER_BYTES: usize = 1 << 20;

/// What a thread has.
pub(super) struct SideState {
    /// With connections of this thread's alone: they end with its reactor.
    pub servers: Arc<Servers>,
    pub local: Option<LocalCopies>,
    pub learner: Arc<Learner>,
    pub memory: Arc<ClientsMemory>,
    pub shared: Arc<GatewayState>,
}

/// Which of the values that a command asks for are here.
pub(super) enum CopyCoverage {
    /// All, and they are answered.
    All,
    Some,
    None,
}

impl SideState {
    /// Answers a command from a copy, if there is one that may.
    pub fn item(&self, asked: &AskedItem<'_>, read_ns: u64, out: &mut BytesMut) -> bool {
        let answer = self.local_answer(asked.name, read_ns, |value, facts, bytes| {
            asked.answer(value, facts.flags, facts.cas, bytes);
        });
        let Some(answer) = answer else { return false };
        out.extend_from_slice(&answer);
        self.shared.counters.local_hits.add_one();
        true
    }

    /// Answers a command from copies, if there is one that may of each of its keys.
    pub fn values(
        &self,
        asked: &AskedValues<'_>,
        read_ns: u64,
        out: &mut BytesMut,
    ) -> CopyCoverage {
        let before = out.len();
        for (at, name) in asked.names.iter().enumerate() {
            let has_room = at < KEYS && out.len() - before < ANSWER_BYTES;
            match has_room.then(|| self.value(asked, name, read_ns)).flatten() {
                Some(answer) => out.extend_from_slice(&answer),
                None => {
                    out.truncate(before);
                    return if at == 0 { CopyCoverage::None } else { CopyCoverage::Some };
                }
            }
        }
        out.extend_from_slice(b"END\r\n");
        self.shared.counters.local_hits.add(asked.names.len() as u64);
        CopyCoverage::All
    }

    /// What a server would say of one of the keys, from a copy, if there is one that may.
    pub fn value(&self, asked: &AskedValues<'_>, name: &[u8], read_ns: u64) -> Option<Vec<u8>> {
        if !asked.only_reads {
            return None;
        }
        self.local_answer(name, read_ns, |value, facts, bytes| {
            asked.answer(name, value, facts.flags, facts.cas, bytes);
        })
    }

    fn local_answer(
        &self,
        name: &[u8],
        read_ns: u64,
        answer: impl FnOnce(&[u8], ItemFacts, &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let local = self.local.as_ref()?;
        if is_tenants(name) || name.len() > wire::MAX_KEY {
            return None;
        }
        let mut is_wanted = false;
        let found = local.read_noted(local.hash(name), name, read_ns, |copy, note| {
            let Knowledge::Facts(facts) = note.into() else {
                is_wanted = note.is_none();
                return None;
            };
            let mut bytes = Vec::with_capacity(copy.value.len() + name.len() + 64);
            answer(&copy.value, facts, &mut bytes);
            Some(bytes)
        });
        if is_wanted {
            self.learner.want(name);
        }
        found.ok()
    }
}

/// Whether it is the name that a tenant's key has at memcached.
pub(super) fn is_tenants(name: &[u8]) -> bool {
    wire::backend_name(wire::TENANT_OPEN, name).is_none()
}
