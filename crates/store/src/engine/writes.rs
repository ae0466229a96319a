//! Writes as they come, before any waits for its key: whether there is room for one, whether the
//! store takes any yet, and its value, when all parts of that have come. What cannot be taken is
//! answered here.

use bytes::Bytes;
use wire::{Packet, Status};

use super::{
    context::Context,
    partial_writes::PartOutcome,
    pending_write::PendingWrite,
    replies::{Answer, Origin},
};

/// Counts a write, or a part of one. False: it is dropped, because too many requests wait for the
/// backend.
pub(super) fn begin(cx: &mut Context, tenant: u32, is_part: bool) -> bool {
    let counters = &mut cx.ledger.counters;
    *(match is_part {
        true => &mut counters.writes_parts,
        false => &mut counters.writes,
    }) += 1;
    let has_room = cx.waiting.has_room(tenant);
    cx.counters.dropped_backend_busy += u64::from(!has_room);
    has_room
}

/// Whether writes are taken yet; who comes too early may come again.
pub(super) fn may_take(cx: &mut Context, origin: &Origin, key: &[u8]) -> bool {
    let may = cx.takes_writes(cx.now_ns);
    if !may {
        cx.ledger.counters.refused_starting += 1;
        cx.refuse(origin, key, Status::TryAgain);
    }
    may
}

/// Whether a value of this length may be written.
fn fits(cx: &mut Context, origin: &Origin, key: &[u8], len: usize) -> bool {
    let fits = len <= cx.config.cluster.max_value as usize;
    if !fits {
        cx.counters.refused_too_large += 1;
        cx.refuse(origin, key, Status::TooLarge);
    }
    fits
}

/// The write of a packet that has all of it.
pub(super) fn whole(cx: &mut Context, origin: Origin, packet: &Packet<'_>) -> Option<PendingWrite> {
    let fits = fits(cx, &origin, packet.key, packet.value.len());
    let value = || Bytes::copy_from_slice(packet.value);
    fits.then(|| PendingWrite::new(origin, &packet.header, value(), 0))
}

/// The write that is whole with this part of its value, if it is.
pub(super) fn joined(
    cx: &mut Context,
    mut origin: Origin,
    packet: &Packet<'_>,
) -> Option<PendingWrite> {
    let total = packet.header.total;
    if !fits(cx, &origin, packet.key, total as usize) {
        return None;
    }
    match cx.ledger.joins.take(&origin, packet, cx.now_ns) {
        PartOutcome::Missing(part) => {
            let answer = Answer { part, total, ..Answer::status(Status::Taken) };
            cx.reply(&origin, packet.key, &answer);
        }
        PartOutcome::Unfit => cx.counters.dropped_part += 1,
        PartOutcome::Full => {
            cx.counters.refused_parts_full += 1;
            cx.refuse(&origin, packet.key, Status::TryAgain);
        }
        PartOutcome::Whole(value, room) => {
            cx.ledger.counters.writes += 1;
            origin.wants_grant = false;
            return Some(PendingWrite::new(origin, &packet.header, value, room));
        }
    }
    None
}

/// Too many writes wait: this one may come again, and counts as new then.
pub(super) fn put_off(cx: &mut Context, job: &PendingWrite, key: &[u8]) {
    cx.ledger.counters.refused_queue_full += 1;
    cx.ledger.give_room_back(job);
    cx.ledger.clients.forget(job.id());
    cx.refuse(&job.origin, key, Status::TryAgain);
}
