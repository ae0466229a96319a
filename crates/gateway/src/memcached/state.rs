//! What a thread of the side has: its connections to the servers, and what it shares with the
//! others: the copies, and what all clients hold.

use std::{collections::VecDeque, sync::Arc};

use bytes::{BufMut, BytesMut};
use client::kit::LocalCopies;
use memcached::{AskedItem, AskedValues};

use super::{
    learner::{ItemFacts, Knowledge, Learner},
    memory::ClientsMemory,
    servers::{Servers, is_tenants},
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
    /// Not all. What there is of the first of its keys, which need not be looked for again: a copy
    /// counts each time.
    Some(CopiesOfKeys),
    /// Not that of the first.
    None,
}

/// What a server would say of each of some keys, from a copy; none: there is none that may.
pub(super) type CopiesOfKeys = VecDeque<Option<Vec<u8>>>;

impl SideState {
    /// Answers a command from a copy, if there is one that may.
    pub fn item(&self, asked: &AskedItem<'_>, read_ns: u64, out: &mut BytesMut) -> bool {
        let is_here = self.is_answered(asked.name, read_ns, |value, ItemFacts { flags, cas }| {
            asked.answer(value, flags, cas, out);
        });
        self.shared.counters.local_hits.add(is_here.into());
        is_here
    }

    /// Answers a command from copies, if there is one that may of each of its keys.
    pub fn values(
        &self,
        asked: &AskedValues<'_>,
        read_ns: u64,
        out: &mut BytesMut,
    ) -> CopyCoverage {
        let before = out.len();
        let mut ends = vec![];
        for (at, name) in asked.names.iter().enumerate() {
            let has_room = at < KEYS && out.len() - before < ANSWER_BYTES;
            let is_here = has_room && self.value(asked, name, read_ns, out);
            if is_here {
                ends.push(out.len());
                continue;
            }
            let mut from = before;
            let here = ends.iter().map(|end| {
                let value = out[from..*end].to_vec();
                from = *end;
                Some(value)
            });
            let mut looked_for: CopiesOfKeys = here.collect();
            if has_room {
                looked_for.push_back(None);
            }
            out.truncate(before);
            return if at == 0 { CopyCoverage::None } else { CopyCoverage::Some(looked_for) };
        }
        out.extend_from_slice(b"END\r\n");
        self.shared.counters.local_hits.add(asked.names.len() as u64);
        CopyCoverage::All
    }

    /// Says what a server would say of one of the keys, from a copy, if there is one that may.
    pub fn value(
        &self,
        asked: &AskedValues<'_>,
        name: &[u8],
        read_ns: u64,
        out: &mut impl BufMut,
    ) -> bool {
        let answers = |value: &[u8], ItemFacts { flags, cas }| {
            asked.answer(name, value, flags, cas, out);
        };
        asked.only_reads && self.is_answered(name, read_ns, answers)
    }

    fn is_answered(
        &self,
        name: &[u8],
        read_ns: u64,
        answer: impl FnOnce(&[u8], ItemFacts),
    ) -> bool {
        let Some(local) = &self.local else { return false };
        if is_tenants(name) || name.len() > wire::MAX_KEY {
            return false;
        }
        let mut is_wanted = false;
        let found =
            local.read_noted(local.hash(name), name, read_ns, |copy, note| match note.into() {
                Knowledge::Facts(facts) => {
                    answer(&copy.value, facts);
                    Some(())
                }
                Knowledge::NotHere => None,
                Knowledge::None => {
                    is_wanted = true;
                    None
                }
            });
        if is_wanted {
            self.learner.want(name);
        }
        found.is_ok()
    }
}
