//! Reads, corrections and fetches.

use wire::Status;

use super::{
    Engine,
    reply::{Answer, Origin},
};
use crate::{
    backend::{Answer as Reply, Key},
    net::Outbox,
};

impl Engine {
    /// Answers a read. With the embedded backend this is the fast path: one look-up, one encoding.
    pub(super) fn read(&mut self, origin: Origin, key: Key<'_>, now_ns: u64, out: &mut Outbox) {
        self.counters.reads += 1;
        let Reply::Now(found) = self.backend.get(key, now_ns, 0) else {
            return;
        };
        let Some(item) = found else {
            self.counters.reads_not_found += 1;
            return self
                .replies
                .refuse(&origin, key.bytes, Status::NotFound, now_ns, out);
        };
        let mut answer = Answer {
            status: Status::Ok,
            version: item.version,
            expiry_ms: item.expiry_ms,
            value: item.value,
            grant: false,
        };
        if !origin.allows(key.bytes, item.value.len()) {
            self.counters.need_padding += 1;
            answer.status = Status::NeedPadding;
            answer.expiry_ms = item.value.len() as u32;
            answer.value = &[];
        }
        self.replies.send(&origin, key.bytes, &answer, now_ns, out);
    }
}
