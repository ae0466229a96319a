//! Copies of values that no packet carries: the first part is granted, the others are read under
//! its version.

use wire::{Header, Op, PART, PART_BYTES, Packet, Status};

use super::{ASK_FIRST_NS, ASK_MOST_NS, ForeignCopies, pays};
use crate::{directory::KeyId, engine::context::Context};

/// Parts that are asked for at once.
const WINDOW: usize = 16;

/// A value of which parts are missing.
pub(super) struct PartialCopy {
    epoch: u64,
    version: u64,
    expiry_ms: u32,
    total: usize,
    /// As long as what has come.
    bytes: Vec<u8>,
    missing: Vec<u16>,
}

impl ForeignCopies {
    /// The first part of a value was granted, and there is room for all of it.
    pub(super) fn begin_join(&mut self, cx: &mut Context, id: KeyId, packet: &Packet<'_>) {
        let header = &packet.header;
        let total = header.total as usize;
        if total > cx.config.cluster.max_value as usize || packet.value.len() > total {
            return;
        }
        let Some(held) = self.held.get_mut(&id) else { return };
        let parts = (0..total).step_by(PART_BYTES).skip(1);
        held.joining = Some(PartialCopy {
            epoch: header.epoch.number(),
            version: header.version,
            expiry_ms: header.expiry_ms,
            total,
            bytes: packet.value.to_vec(),
            missing: parts.map(|from| (from / PART) as u16).collect(),
        });
        held.pull_ns = 0;
        held.next_ask_ns = cx.now_ns + held.join_wait_ns;
        held.join_wait_ns = (2 * held.join_wait_ns).clamp(ASK_FIRST_NS, ASK_MOST_NS);
    }

    /// Asks for parts that are missing.
    pub(super) fn ask_parts(&mut self, cx: &mut Context, id: KeyId) {
        let Some(held) = self.held.get(&id) else { return };
        let Some(joining) = &held.joining else { return };
        let (total, version) = (joining.total as u32, joining.version);
        let parts: Vec<u16> = joining.missing.iter().take(WINDOW).copied().collect();
        for part in parts {
            self.newest += 1;
            let header = Header {
                request: self.newest,
                part,
                total,
                version,
                ..Header::new(Op::FetchRequest)
            };
            self.fetch(cx, id, header, wire::MAX_PAYLOAD);
        }
    }

    /// Takes a part that was asked for; the value is installed when it is whole. False: it is none,
    /// or of another version.
    pub(super) fn join(&mut self, cx: &mut Context, id: KeyId, packet: &Packet<'_>) -> bool {
        let header = &packet.header;
        let Some(held) = self.held.get_mut(&id) else { return false };
        let Some(joining) = &mut held.joining else { return false };
        let is_of_it = header.status == Status::Ok
            && header.part > 0
            && header.version == joining.version
            && header.total as usize == joining.total;
        if !is_of_it {
            if header.part == 0 && header.version != joining.version {
                // The home has another value, or cannot read it: what is here is of no use.
                held.joining = None;
                held.next_ask_ns = cx.now_ns + held.backoff_ns;
            }
            return false;
        }
        let from = usize::from(header.part) * PART;
        let len = PART_BYTES.min(joining.total.saturating_sub(from));
        let missing = joining.missing.iter().position(|part| *part == header.part);
        let (Some(at), true) = (missing, packet.value.len() == len) else { return true };
        if !pays(cx, id) {
            return true;
        }
        let Some(held) = self.held.get_mut(&id) else { return true };
        let Some(joining) = &mut held.joining else { return true };
        if joining.bytes.len() < from + len {
            joining.bytes.resize(from + len, 0);
        }
        joining.bytes[from..from + len].copy_from_slice(packet.value);
        joining.missing.remove(at);
        held.backoff_ns = ASK_FIRST_NS;
        held.next_ask_ns = cx.now_ns + ASK_FIRST_NS;
        let is_round_over = joining.missing.len().is_multiple_of(WINDOW);
        if joining.missing.is_empty()
            && let Some(whole) = held.joining.take()
        {
            let (version, expiry_ms) = (whole.version, whole.expiry_ms);
            self.install(cx, id, whole.epoch, whole.bytes.into(), version, expiry_ms);
        } else if is_round_over {
            self.ask_parts(cx, id);
        }
        true
    }
}
