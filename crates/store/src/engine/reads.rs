//! Reads, corrections and fetches.

use bytes::Bytes;
use wire::{Op, PART, PART_BYTES, Secret, Status, TENANT_SYSTEM};

use super::{
    backend_requests::{BackendRead, BackendRequest},
    context::Context,
    holder_messages,
    keys::{Keys, digest_of},
    large_values::{Comparison, ForgottenVersion},
    refusals::refused,
    replies::{Answer, NamedPart, Origin, Replies},
};
use crate::{
    backend::{Answer as Reply, Item, Key, ReadOutcome, Ticket},
    coherence::{Watch, version_of_part},
    counters::{ReadCounters, RequestCounters},
    directory::KeyId,
    net::Outbox,
};
use holder::mutants::{Mutant, mutant};

/// Who of those who wait for an answer of the backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// For whom it was asked; whether nothing has happened to the key since, and what does is told.
    Asked { is_newest: bool },
    /// Who came later.
    Joined,
}

/// What answers reads.
#[derive(Default)]
pub(super) struct Reads {
    pub counters: ReadCounters,
}

impl Reads {
    /// Answers a read that may be answered from here. With the embedded backend this is the fast
    /// path: one look-up, one encoding.
    ///
    /// A write that is pending does not matter here: it has not been answered, so the old value
    /// is right.
    pub fn read(&mut self, keys: &mut Keys, cx: &mut Context, mut origin: Origin, key: Key<'_>) {
        let id = (key.tenant, key.hash);
        let most = cx.config.cluster.max_value;
        if origin.wanted.goes_on() {
            if let Some((item, grantable)) = cx.values.get(id, origin.wanted.version, cx.now_ns) {
                origin.wants_grant &= grantable && keys.grant(cx, &origin, key);
                if origin.op == Op::HolderFetch && !origin.wants_grant {
                    return holder_messages::refuse_grant(cx, &origin, key.bytes);
                }
                let item = Some(item.as_ref());
                let answer = answer(&origin, key.bytes, item, most, &mut cx.counters);
                return cx.reply(&origin, key.bytes, &answer);
            }
            if cx.values.is_missed(id) {
                self.counters.dropped_part_reads += 1;
                return;
            }
        }
        if cx.waiting.has_read(&origin) {
            self.counters.duplicates_reads += 1;
            return;
        }
        // Granted before the backend is asked, so that no write can slip in between; a copy that
        // then is not installed, because there is no value, costs one invalidation at most.
        origin.wants_grant = origin.wants_grant && keys.grant(cx, &origin, key);
        if origin.op == Op::ReplicaPush && !origin.wants_grant {
            return;
        }
        if origin.op == Op::HolderFetch && !origin.wants_grant {
            return holder_messages::refuse_grant(cx, &origin, key.bytes);
        }
        let may_be_kept = origin.wants_grant || origin.op == Op::ReadRequest && has_heard(cx);
        if may_be_kept
            && let Some(item) = cx.granted.get(id, cx.now_ns)
            && origin.takes_whole(key.bytes, item.value.len())
        {
            self.counters.reads_from_memory += 1;
            return answer_item(cx, &origin, key.bytes, Ok(Some(&item)));
        }
        // What the backend says to a question since which nothing has happened to the key, it would
        // say to this one.
        if may_be_kept
            && let Some(ticket) = cx.granted.asked(id)
            && cx.waiting.join(ticket, origin)
        {
            self.counters.reads_joined += 1;
            return;
        }
        let is_kept = origin.wants_grant || may_be_kept && is_kept_here(cx, id);
        let ticket = cx.waiting.ticket();
        let found = if is_kept {
            cx.backend.get_for_grant(key, cx.now_ns, ticket)
        } else {
            cx.backend.get(key, cx.now_ns, ticket)
        };
        match found {
            Reply::Now(found) => {
                let answer = answer(&origin, key.bytes, found, most, &mut cx.counters);
                // What the backend lends stays borrowed meanwhile.
                let system = cx.tenants.tag_of(TENANT_SYSTEM);
                let (now_ns, out) = (cx.now_ns, &mut cx.out);
                answer_read(&mut cx.replies, &system, &origin, key.bytes, answer, now_ns, out);
            }
            Reply::Later => {
                if origin.wanted.goes_on() {
                    cx.values.misses(id);
                }
                if is_kept {
                    cx.granted.asks(id, ticket);
                }
                let asked = BackendRead::new(origin, key.bytes, is_kept);
                let asked = BackendRequest::Read(Box::new(asked));
                cx.waiting.insert(ticket, asked);
            }
        }
    }

    /// Counts a read that was taken. False: too many wait for the backend, and it is dropped.
    pub fn begin(&mut self, cx: &mut Context, origin: &Origin) -> bool {
        match origin.op {
            Op::FetchRequest | Op::HolderFetch => self.counters.fetches += 1,
            Op::ReplicaPush => {}
            _ => self.counters.reads += 1,
        }
        self.counters.reads_parts += u64::from(origin.wanted.total > 0);
        let has_room = cx.waiting.has_room(origin.tenant);
        cx.counters.dropped_backend_busy += u64::from(!has_room);
        has_room
    }

    /// The backend has answered a read that it was asked earlier.
    pub fn found(
        &mut self,
        cx: &mut Context,
        ticket: Ticket,
        read: &BackendRead,
        found: ReadOutcome,
    ) {
        let BackendRead { origin, key, for_grant, joined } = read;
        let id = (origin.tenant, origin.key_hash);
        cx.values.answered(id);
        let is_newest = *for_grant && cx.granted.answered(id, ticket);
        let found = found.shared();
        self.answer_found(cx, origin, key, found.clone(), Rank::Asked { is_newest });
        if is_untold(cx, &found) && *for_grant && !mutant(Mutant::JoinedUntold) {
            return self.ask_again(cx, key, joined);
        }
        for other in joined {
            self.answer_found(cx, other, key, found.clone(), Rank::Joined);
        }
    }

    /// Asks for those who have joined a question that was answered where nobody tells of changes:
    /// others may have written since it was carried out, and before these came.
    fn ask_again(&mut self, cx: &mut Context, key: &[u8], joined: &[Origin]) {
        let is_granted = |op| matches!(op, Op::HolderFetch | Op::ReplicaPush);
        let holders = joined.iter().filter(|origin| origin.op == Op::HolderFetch);
        holders.for_each(|origin| holder_messages::refuse_grant(cx, origin, key));
        let others = joined.iter().filter(|origin| !is_granted(origin.op));
        let mut others = others.map(|origin| Origin { wants_grant: false, ..*origin });
        let Some(first) = others.next() else { return };
        let read = BackendRead { joined: others.collect(), ..BackendRead::new(first, key, false) };
        let id = (first.tenant, first.key_hash);
        let ticket = cx.waiting.ticket();
        let asked = Key { tenant: id.0, hash: id.1, bytes: key };
        if let Reply::Now(found) = cx.backend.get(asked, cx.now_ns, ticket) {
            let owned = |item: Item<&[u8]>| Item {
                value: item.value.to_vec(),
                version: item.version,
                expiry_ms: item.expiry_ms,
            };
            let found = found.map(owned).map_or(ReadOutcome::Absent, ReadOutcome::Item);
            return self.found(cx, ticket, &read, found);
        }
        if first.wanted.goes_on() {
            cx.values.misses(id);
        }
        cx.waiting.insert(ticket, BackendRequest::Read(Box::new(read)));
    }

    /// Answers one of those who wait for what the backend has found.
    fn answer_found(
        &mut self,
        cx: &mut Context,
        origin: &Origin,
        key: &[u8],
        found: ReadOutcome<Bytes>,
        rank: Rank,
    ) {
        let id = (origin.tenant, origin.key_hash);
        if let ReadOutcome::Refused(refusal) = &found {
            cx.counters.backend_refusals += 1;
            if origin.op != Op::ReplicaPush {
                cx.reply(origin, key, &refused(origin, key, refusal.words()));
            }
            return;
        }
        let is_untold = is_untold(cx, &found) && !mutant(Mutant::GrantedUntold);
        if is_untold && origin.op == Op::HolderFetch {
            return holder_messages::refuse_grant(cx, origin, key);
        }
        let mut origin = Origin { wants_grant: origin.wants_grant && !is_untold, ..*origin };
        let found = self.item_of(cx, &mut origin, key, found, rank);
        let origin = &origin;
        if rank == (Rank::Asked { is_newest: true })
            && !is_untold
            && let Ok(Some(item)) = &found
            && origin.takes_whole(key, item.value.len())
        {
            cx.granted.keep(id, item, cx.now_ns, cx.leases.length_ns());
        }
        let found = found.as_ref().map(Option::as_ref).map_err(|refusal| *refusal);
        answer_item(cx, origin, key, found);
    }

    /// What the backend has given later: the item, if there is one, or what to answer instead.
    fn item_of(
        &mut self,
        cx: &mut Context,
        origin: &mut Origin,
        key: &[u8],
        found: ReadOutcome<Bytes>,
        rank: Rank,
    ) -> Result<Option<Item<Bytes>>, Answer<'static>> {
        let mut item = match found {
            ReadOutcome::Item(item) | ReadOutcome::Untold(Some(item)) => item,
            ReadOutcome::Absent | ReadOutcome::Untold(None) => return Ok(None),
            ReadOutcome::TooLarge(version) => {
                cx.counters.refused_too_large += 1;
                return Err(Answer { version, ..Answer::status(Status::TooLarge) });
            }
            ReadOutcome::Refused(_) | ReadOutcome::Failed => {
                cx.counters.backend_errors += 1;
                return Err(Answer::status(Status::BackendError));
            }
        };
        let len = item.value.len();
        let (whole, most) = (origin.takes_whole(key, len), cx.config.cluster.max_value);
        let in_parts = !whole && len <= most as usize;
        if in_parts && rank == Rank::Joined {
            // It is held for whoever asked, if there is room: however many have joined, the value
            // is looked at once.
            let id = (origin.tenant, origin.key_hash);
            let held = cx.values.get(id, 0, cx.now_ns);
            let (item, grantable) = held.ok_or(Answer::status(Status::TryAgain))?;
            origin.wants_grant &= grantable;
            return Ok(Some(item));
        }
        if in_parts && !self.hold(cx, origin, &mut item) {
            return Err(Answer::status(Status::TryAgain));
        }
        Ok(Some(item))
    }

    /// Holds a value that is going to be read in parts, under a version that no other value of the
    /// key has had. False: none of it may be answered with now, because there is no room, or
    /// because it may not be the value of the version that it was asked under.
    fn hold(&mut self, cx: &mut Context, origin: &Origin, item: &mut Item<Bytes>) -> bool {
        let id = (origin.tenant, origin.key_hash);
        let (compared, forgotten) = cx.values.compare(id, item.version, &item.value);
        if let Some(ForgottenVersion { id, from }) = forgotten {
            cx.raise(id, from);
        }
        match compared {
            Comparison::Same => {}
            Comparison::Late => {
                self.counters.refused_late_reads += 1;
                return false;
            }
            Comparison::Changed => {
                let Some(version) = cx.raise(id, item.version) else {
                    // A write of ours has come between, and what was written before it gets no
                    // version any more.
                    self.counters.refused_late_reads += 1;
                    return false;
                };
                cx.values.is_of(id, version, &item.value);
                item.version = version;
            }
        }
        let at = cx.directory.find(&id);
        let entry = at.and_then(|at| cx.directory.get(at));
        if entry.is_some_and(|entry| entry.state.is_busy()) {
            return true;
        }
        let is_settled = entry.is_none_or(|entry| entry.state.is_settled());
        let is_told = match cx.outside.watch() {
            Watch::Tracked => {
                let stands = entry.is_some_and(|entry| entry.state.stands(origin.epoch));
                origin.wants_grant && stands
            }
            Watch::Unneeded | Watch::Impossible => true,
        };
        let grantable = is_settled && is_told && cx.outside.may_grant_reads();
        let has_room = cx.values.hold(id, item, grantable, cx.now_ns);
        cx.counters.refused_parts_full += u64::from(!has_room);
        has_room
    }
}

/// Whether others may write what was found, and nobody would tell.
fn is_untold<V>(cx: &Context, found: &ReadOutcome<V>) -> bool {
    matches!(found, ReadOutcome::Untold(_)) && cx.outside.watch() != Watch::Unneeded
}

/// Whether the store knows what others have done to the backend up to a lease ago: as much as a
/// switch must know that answers from its copy.
fn has_heard(cx: &Context) -> bool {
    let heard_ns = cx.outside.seen_ns() + cx.leases.length_ns();
    cx.outside.watch() == Watch::Unneeded || cx.outside.may_grant_reads() && cx.now_ns < heard_ns
}

/// Whether a key is kept for those who read it here: holders had it until it was written, and come
/// for it again, each with a read before; or they get none of it, for it is written too often. Not
/// while a write goes on, or may still take place: what is read then is not known to be the newest.
fn is_kept_here(cx: &Context, id: KeyId) -> bool {
    // Asked first, for it is so of few: every read that a packet brings comes by here.
    let is_wanted = cx.holders.want(&id, cx.leases.length_ns(), cx.now_ns);
    if !is_wanted || cx.all_held || !cx.is_home_of(id.0, id.1) {
        return false;
    }
    let entry = cx.directory.find(&id).and_then(|at| cx.directory.get(at));
    entry.is_none_or(|entry| entry.state.is_settled())
}

/// What to say about what was found: of a value that no packet carries, or of which a part is
/// named, a part. `most` is the longest that a value may be, in bytes.
pub(super) fn answer<'a>(
    origin: &Origin,
    key: &[u8],
    found: Option<Item<&'a [u8]>>,
    most: u32,
    counters: &mut RequestCounters,
) -> Answer<'a> {
    let Some(item) = found else {
        counters.reads_not_found += 1;
        return Answer::status(Status::NotFound);
    };
    let Item { value, .. } = item;
    let whole = origin.takes_whole(key, value.len());
    if !origin.fits(key, value.len()) && value.len() > most as usize {
        counters.refused_too_large += 1;
        return Answer { version: item.version, ..Answer::status(Status::TooLarge) };
    }
    let (part, version) = match named(origin, item.version, value.len()) {
        Some((part, version)) => (Some(part), version),
        None => ((!whole).then_some(0), item.version),
    };
    let of_value = |status, total| Answer { version, total, ..Answer::status(status) };
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

/// Answers a read with an item of the caller's own, if there is one, or with a refusal.
fn answer_item(
    cx: &mut Context,
    origin: &Origin,
    key: &[u8],
    found: Result<Option<&Item<Bytes>>, Answer<'static>>,
) {
    let most = cx.config.cluster.max_value;
    let answer = match found {
        Ok(item) => answer(origin, key, item.map(Item::as_ref), most, &mut cx.counters),
        Err(refusal) => refusal,
    };
    let system = cx.tenants.tag_of(TENANT_SYSTEM);
    answer_read(&mut cx.replies, &system, origin, key, answer, cx.now_ns, &mut cx.out);
}

/// Answers a read. What is pushed to a store that has the value already goes as a digest; what is
/// no grant is not pushed.
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
    let answer = Answer { value, is_digest, ..answer };
    replies.send(origin, key, &answer, now_ns, out);
}

/// The part that a read names, if there is one of the version that it names, and its version.
fn named(origin: &Origin, present: u64, len: usize) -> Option<(u16, u64)> {
    let NamedPart { part, total, version } = origin.wanted;
    let is_there = total as usize == len && usize::from(part) * PART < len;
    let is_named = total > 0 && is_there;
    let version = is_named.then(|| version_of_part(version, present))??;
    Some((part, version))
}
