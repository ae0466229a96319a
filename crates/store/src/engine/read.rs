//! Reads, corrections and fetches.

use bytes::Bytes;
use wire::{Op, PART, PART_BYTES, Secret, Status, TENANT_SYSTEM};

use super::{
    Engine,
    pushes::digest_of,
    reply::{Answer, Origin, Replies, Wanted},
    values::{Compared, Raised},
    waiting::Asked,
};
use crate::{
    backend::{Answer as Reply, Completion, Found, Item, Key},
    coherence::{Watch, version_of_part},
    counters::Counters,
    net::Outbox,
};

impl Engine {
    /// Answers a read. With the embedded backend this is the fast path: one look-up, one encoding.
    ///
    /// A write that is pending does not matter here: it has not been answered, so the old value is right.
    pub(super) fn read(&mut self, mut origin: Origin, key: Key<'_>, now_ns: u64, out: &mut Outbox) {
        match origin.op {
            Op::FetchRequest => self.counters.fetches += 1,
            Op::ReplicaPush => {}
            _ => self.counters.reads += 1,
        }
        self.counters.reads_parts += u64::from(origin.wanted.total > 0);
        if !self.waiting.has_room(origin.tenant) {
            self.counters.dropped_backend_busy += 1;
            return;
        }
        if !self.may_read(&origin, key, now_ns, out) {
            return;
        }
        let id = (key.tenant, key.hash);
        let most = self.config.cluster.max_value;
        if origin.wanted.goes_on() {
            if let Some((item, grantable)) = self.held.get(id, origin.wanted.version, now_ns) {
                origin.wants_grant &= grantable && self.grant(&origin, key, now_ns, out);
                let answer = answer(
                    &origin,
                    key.bytes,
                    Some(item.as_ref()),
                    most,
                    &mut self.counters,
                );
                return self.replies.send(&origin, key.bytes, &answer, now_ns, out);
            }
            if self.held.is_missed(id) {
                self.counters.dropped_part_reads += 1;
                return;
            }
        }
        if self.waiting.has_read(&origin) {
            self.counters.duplicates_reads += 1;
            return;
        }
        // Granted before the backend is asked, so that no write can slip in between; a copy that then
        // is not installed, because there is no value, costs one invalidation at most.
        origin.wants_grant = origin.wants_grant && self.grant(&origin, key, now_ns, out);
        if origin.op == Op::ReplicaPush && !origin.wants_grant {
            return;
        }
        self.ticket += 1;
        let found = if origin.wants_grant {
            self.backend.get_for_grant(key, now_ns, self.ticket)
        } else {
            self.backend.get(key, now_ns, self.ticket)
        };
        match found {
            Reply::Now(found) => {
                let answer = answer(&origin, key.bytes, found, most, &mut self.counters);
                // What the backend lends cannot stay borrowed while all of the store is used.
                let (replies, system) = (&mut self.replies, self.tenants.tag_of(TENANT_SYSTEM));
                answer_read(replies, &system, &origin, key.bytes, answer, now_ns, out);
            }
            Reply::Later => {
                if origin.wanted.goes_on() {
                    self.held.misses(id);
                }
                let asked = Asked::Read(Box::new((origin, key.bytes.into())));
                self.waiting.insert(self.ticket, asked);
            }
        }
    }

    /// The backend has answered a request that it was asked earlier.
    pub fn complete(&mut self, completion: Completion, now_ns: u64, out: &mut Outbox) {
        match completion {
            Completion::Change(ticket, change) => match self.waiting.remove(ticket) {
                Some(Asked::Write(id)) => {
                    if let Some(at) = self.directory.find(&id) {
                        self.applied(at, change, now_ns, out);
                        self.drive(at, now_ns, out);
                    }
                }
                Some(Asked::Loan(id)) => self.loan_put(id, change, now_ns, out),
                _ => {}
            },
            Completion::Journal(ticket, done) => {
                if let Some(Asked::Loan(id)) = self.waiting.remove(ticket) {
                    self.loan_journaled(id, done, now_ns, out);
                }
            }
            Completion::Outside(event) => self.happened_outside(event, now_ns, out),
            Completion::Get(ticket, found) => {
                let (origin, key) = match self.waiting.remove(ticket) {
                    Some(Asked::Read(read)) => *read,
                    Some(Asked::Half(request, _)) => {
                        return self.read_for_half(request, found, now_ns, out);
                    }
                    Some(Asked::Loan(id)) => return self.loan_read(id, ticket, found, now_ns, out),
                    _ => return,
                };
                self.held.answered((origin.tenant, origin.key_hash));
                let found = self.found(&origin, &key, found, now_ns);
                let most = self.config.cluster.max_value;
                let answer = match &found {
                    Ok(item) => {
                        let item = item.as_ref().map(Item::as_ref);
                        answer(&origin, &key, item, most, &mut self.counters)
                    }
                    Err(refusal) => *refusal,
                };
                let (replies, system) = (&mut self.replies, self.tenants.tag_of(TENANT_SYSTEM));
                answer_read(replies, &system, &origin, &key, answer, now_ns, out);
            }
        }
    }

    /// What the backend has given later: the item, if there is one, or what to answer instead.
    fn found(
        &mut self,
        origin: &Origin,
        key: &[u8],
        found: Found,
        now_ns: u64,
    ) -> Result<Option<Item<Bytes>>, Answer<'static>> {
        let mut item = match found {
            Found::Item(item) => Item {
                value: Bytes::from(item.value),
                version: item.version,
                expiry_ms: item.expiry_ms,
            },
            Found::Absent => return Ok(None),
            Found::TooLarge(version) => {
                self.counters.refused_too_large += 1;
                return Err(Answer {
                    version,
                    ..Answer::status(Status::TooLarge)
                });
            }
            Found::Failed => {
                self.counters.backend_errors += 1;
                return Err(Answer::status(Status::BackendError));
            }
        };
        let len = item.value.len();
        let (whole, most) = (origin.takes_whole(key, len), self.config.cluster.max_value);
        let in_parts = !whole && len <= most as usize;
        if in_parts && !self.hold(origin, &mut item, now_ns) {
            return Err(Answer::status(Status::TryAgain));
        }
        Ok(Some(item))
    }

    /// Holds a value that is going to be read in parts, under a version that no other value of the key has had. False: none of it may
    /// be answered with now, because there is no room, or because it may not be the value of the version that it was asked under.
    fn hold(&mut self, origin: &Origin, item: &mut Item<Bytes>, now_ns: u64) -> bool {
        let id = (origin.tenant, origin.key_hash);
        let (compared, forgotten) = self.held.compare(id, item.version, &item.value);
        if let Some(Raised { id, from }) = forgotten {
            self.version += 1;
            self.backend.raise(id.0, id.1, from, self.version);
        }
        match compared {
            Compared::Same => {}
            Compared::Late => {
                self.counters.refused_late_reads += 1;
                return false;
            }
            Compared::Changed => {
                self.version += 1;
                if !self.backend.raise(id.0, id.1, item.version, self.version) {
                    // A write of ours has come between, and what was written before it gets no version any more.
                    self.counters.refused_late_reads += 1;
                    return false;
                }
                self.held.is_of(id, self.version, &item.value);
                item.version = self.version;
            }
        }
        let entry = self
            .directory
            .find(&id)
            .and_then(|at| self.directory.get(at));
        if entry.is_some_and(|entry| entry.state.is_busy()) {
            return true;
        }
        let is_settled = entry.is_none_or(|entry| entry.state.is_settled(now_ns));
        let is_told = match self.backend.watch() {
            Watch::Tracked => {
                let stands = entry.is_some_and(|entry| entry.state.stands(origin.epoch));
                origin.wants_grant && stands
            }
            Watch::Unneeded | Watch::Impossible => true,
        };
        let grantable = is_settled && is_told && self.outside.may_grant_reads();
        let has_room = self.held.hold(id, item, grantable, now_ns);
        self.counters.refused_parts_full += u64::from(!has_room);
        has_room
    }
}

/// What to say about what was found: of a value that no packet carries, or of which a part is named, a part. `most` is the longest that a value may be, in bytes.
pub(super) fn answer<'a>(
    origin: &Origin,
    key: &[u8],
    found: Option<Item<&'a [u8]>>,
    most: u32,
    counters: &mut Counters,
) -> Answer<'a> {
    let Some(item) = found else {
        counters.reads_not_found += 1;
        return Answer::status(Status::NotFound);
    };
    let Item { value, .. } = item;
    let whole = origin.takes_whole(key, value.len());
    if !origin.fits(key, value.len()) && value.len() > most as usize {
        counters.refused_too_large += 1;
        return Answer {
            version: item.version,
            ..Answer::status(Status::TooLarge)
        };
    }
    let (part, version) = match named(origin, item.version, value.len()) {
        Some((part, version)) => (Some(part), version),
        None => ((!whole).then_some(0), item.version),
    };
    let of_value = |status, total| Answer {
        version,
        total,
        ..Answer::status(status)
    };
    let bytes = match part {
        None => value,
        Some(part) => {
            let rest = &value[usize::from(part) * PART..];
            &rest[..rest.len().min(PART_BYTES)]
        }
    };
    let total = value.len() as u32;
    if !origin.allows(key, bytes.len()) {
        counters.need_padding += 1;
        return of_value(Status::NeedPadding, total);
    }
    Answer {
        expiry_ms: item.expiry_ms,
        part: part.unwrap_or(0),
        value: bytes,
        grant: origin.wants_grant,
        is_digest: false,
        ..of_value(Status::Ok, if part.is_some() { total } else { 0 })
    }
}

/// Answers a read. What is pushed to a store that has the value already goes as a digest; what is no grant is not pushed.
fn answer_read(
    replies: &mut Replies,
    system: &Secret,
    origin: &Origin,
    key: &[u8],
    answer: Answer<'_>,
    now_ns: u64,
    out: &mut Outbox,
) {
    if origin.op != Op::ReplicaPush {
        return replies.send(origin, key, &answer, now_ns, out);
    }
    if !answer.grant {
        return;
    }
    let digest = digest_of(system, origin.tenant, answer.value);
    let is_digest = origin.has_value && answer.total == 0 && answer.value.len() > digest.len();
    let value = if is_digest { &digest } else { answer.value };
    let answer = Answer {
        value,
        is_digest,
        ..answer
    };
    replies.send(origin, key, &answer, now_ns, out);
}

/// The part that a read names, if there is one of the version that it names, and its version.
fn named(origin: &Origin, present: u64, len: usize) -> Option<(u16, u64)> {
    let Wanted {
        part,
        total,
        version,
    } = origin.wanted;
    let is_there = total as usize == len && usize::from(part) * PART < len;
    let is_named = total > 0 && is_there;
    let version = is_named.then(|| version_of_part(version, present))??;
    Some((part, version))
}
