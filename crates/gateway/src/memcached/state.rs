//! What the threads of the side share: the servers, the copies, and what is known of these.

use std::sync::Arc;

use bytes::BytesMut;
use client::kit::LocalCopies;
use memcached::{AskedItem, AskedValues};

use super::{
    known::{ItemFacts, KnownItems},
    servers::Servers,
};
use crate::shared::GatewayState;

/// Bytes of answers of one command that are put together from copies at once.
const ANSWER_BYTES: usize = 1 << 20;

/// What its threads share.
pub(super) struct SideState {
    pub servers: Arc<Servers>,
    pub local: Option<LocalCopies>,
    pub known: KnownItems,
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
        let answer = |value: &[u8], beside: ItemFacts, out: &mut Vec<u8>| {
            asked.answer(value, beside.flags, beside.cas, out);
        };
        match self.local_answer(asked.name, read_ns, answer) {
            Some(answer) => {
                out.extend_from_slice(&answer);
                self.shared.counters.local_hits.add_one();
                true
            }
            None => false,
        }
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
            match self.value(asked, name, read_ns).filter(|_| out.len() - before < ANSWER_BYTES) {
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
        self.local_answer(name, read_ns, |value, beside, out| {
            asked.answer(name, value, beside.flags, beside.cas, out);
        })
    }

    fn local_answer(
        &self,
        name: &[u8],
        read_ns: u64,
        answer: impl FnOnce(&[u8], ItemFacts, &mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let local = self.local.as_ref()?;
        // Such a key has another name at the store, where tenants' keys are.
        if wire::backend_name(wire::TENANT_OPEN, name).is_none() || name.len() > wire::MAX_KEY {
            return None;
        }
        let found = local.read(local.hash(name), name, read_ns, |copy| {
            let beside = self.known.beside(name, copy.version)?;
            let mut bytes = Vec::with_capacity(copy.value.len() + name.len() + 64);
            answer(&copy.value, beside, &mut bytes);
            Ok(bytes)
        });
        match found.ok()? {
            Ok(bytes) => Some(bytes),
            Err(asks) => {
                if asks {
                    self.known.want(name);
                }
                None
            }
        }
    }
}

/// What one client holds of the memory of all.
pub(super) struct HeldMemory {
    state: Arc<SideState>,
    bytes: usize,
}

impl HeldMemory {
    /// Nothing yet.
    pub fn new(state: Arc<SideState>) -> HeldMemory {
        HeldMemory { state, bytes: 0 }
    }

    /// So many bytes now; false: that is too much.
    pub fn is(&mut self, bytes: usize) -> bool {
        let shared = &self.state.shared;
        match bytes > self.bytes {
            true => shared.hold(bytes - self.bytes),
            false => shared.release(self.bytes - bytes),
        }
        let grows = bytes > self.bytes;
        self.bytes = bytes;
        if grows && shared.held() > shared.most_held {
            shared.memory_refused(bytes);
            return false;
        }
        true
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.state.shared.release(self.bytes);
        self.state.shared.disconnect();
    }
}
