//! Reads, corrections and fetches.

use wire::{Op, Status};

use super::{
    Engine,
    reply::{Answer, Origin},
    waiting::Asked,
};
use crate::{
    backend::{Answer as Reply, Completion, Found, Item, Key},
    counters::Counters,
    net::Outbox,
};

impl Engine {
    /// Answers a read. With the embedded backend this is the fast path: one look-up, one encoding.
    ///
    /// A write that is pending does not matter here: it has not been answered, so the old value is right.
    pub(super) fn read(&mut self, mut origin: Origin, key: Key<'_>, now_ns: u64, out: &mut Outbox) {
        if origin.op == Op::FetchRequest {
            self.counters.fetches += 1;
        } else {
            self.counters.reads += 1;
        }
        if !self.waiting.has_room(origin.tenant) {
            self.counters.dropped_backend_busy += 1;
            return;
        }
        // Granted before the backend is asked, so that no write can slip in between; a copy that then
        // is not installed, because there is no value, costs one invalidation at most.
        origin.wants_grant = origin.wants_grant && self.grant(&origin, key, now_ns, out);
        self.ticket += 1;
        let found = if origin.wants_grant {
            self.backend.get_for_grant(key, now_ns, self.ticket)
        } else {
            self.backend.get(key, now_ns, self.ticket)
        };
        match found {
            Reply::Now(found) => {
                let answer = answer(&origin, key.bytes, found, &mut self.counters);
                self.replies.send(&origin, key.bytes, &answer, now_ns, out);
            }
            Reply::Later => {
                let asked = Asked::Read(Box::new((origin, key.bytes.into())));
                self.waiting.insert(self.ticket, asked);
            }
        }
    }

    /// The backend has answered a request that it was asked earlier.
    pub fn complete(&mut self, completion: Completion, now_ns: u64, out: &mut Outbox) {
        match completion {
            Completion::Change(ticket, change) => {
                if let Some(Asked::Write(id)) = self.waiting.remove(ticket)
                    && let Some(at) = self.directory.find(&id)
                {
                    self.applied(at, change, now_ns, out);
                    self.drive(at, now_ns, out);
                }
            }
            Completion::Outside(event) => self.happened_outside(event, now_ns, out),
            Completion::Get(ticket, found) => {
                let (origin, key) = match self.waiting.remove(ticket) {
                    Some(Asked::Read(read)) => *read,
                    Some(Asked::Half(request, _)) => {
                        return self.read_for_half(request, found, now_ns, out);
                    }
                    _ => return,
                };
                let answer = match &found {
                    Found::Item(Item {
                        value,
                        version,
                        expiry_ms,
                    }) => {
                        let item = Item {
                            value: &value[..],
                            version: *version,
                            expiry_ms: *expiry_ms,
                        };
                        answer(&origin, &key, Some(item), &mut self.counters)
                    }
                    Found::Absent => answer(&origin, &key, None, &mut self.counters),
                    Found::Failed => {
                        self.counters.backend_errors += 1;
                        Answer::status(Status::BackendError)
                    }
                };
                self.replies.send(&origin, &key, &answer, now_ns, out);
            }
        }
    }
}

/// What to say about what was found.
fn answer<'a>(
    origin: &Origin,
    key: &[u8],
    found: Option<Item<&'a [u8]>>,
    counters: &mut Counters,
) -> Answer<'a> {
    let Some(Item {
        value,
        version,
        expiry_ms,
    }) = found
    else {
        counters.reads_not_found += 1;
        return Answer::status(Status::NotFound);
    };
    if value.len() > wire::max_value(key.len()) {
        counters.refused_too_large += 1;
        return Answer {
            version,
            ..Answer::status(Status::TooLarge)
        };
    }
    if !origin.allows(key, value.len()) {
        counters.need_padding += 1;
        return Answer {
            version,
            total: value.len() as u32,
            ..Answer::status(Status::NeedPadding)
        };
    }
    Answer {
        status: Status::Ok,
        version,
        expiry_ms,
        total: 0,
        value,
        grant: origin.wants_grant,
    }
}
