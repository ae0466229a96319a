//! Writes that name a life: which one a write begins with, and what its answer says of it. A write
//! that is refused in one life goes on in another as a client's does, but that it is not sent again
//! otherwise. The source calls this for each write and each answer; the lives themselves stand in
//! [`lives`](crate::lives).

use wire::{Flags, Header, Op, Status};

use crate::{lives::NamedLife, tenant::Tenant, window::SentRequest};

/// What an answer is to the request that it names.
pub(super) enum AnswerKind {
    /// The answer.
    Answer,
    /// One to what the request named before.
    Late,
    /// It says that the request goes on in another life.
    Again,
}

/// What a write of this key names.
pub(super) fn named_by(tenant: &Tenant, key: u32) -> NamedLife {
    let Some(lives) = &tenant.lives else { return NamedLife::default() };
    let own = lives.of_key(key);
    NamedLife::first(own.unwrap_or_else(|| lives.of_store(tenant.store_of(&tenant.keys.get(key)))))
}

/// Takes note of what an answer says of lives, and decides whether its write goes on.
pub(super) fn hear(
    tenants: &mut [Tenant],
    sent: &mut SentRequest,
    reply: &Header,
    now_ns: u64,
) -> AnswerKind {
    let tenant = &mut tenants[usize::from(sent.tenant)];
    let store = tenant.store_of(&tenant.keys.get(sent.key));
    let Some(lives) = &mut tenant.lives else { return AnswerKind::Answer };
    if !sent.is_write() || reply.op != Op::WriteReply {
        return AnswerKind::Answer;
    }
    lives.heard(store, sent.key, sent.named.life, reply);
    if reply.status != Status::OtherLife || !sent.named.may_move_to(reply.life) {
        return AnswerKind::Answer;
    }
    if reply.life == sent.named.life {
        return AnswerKind::Late;
    }
    match sent.named.after(reply, now_ns.saturating_sub(sent.at_ns)) {
        Some(named) => sent.named = named,
        None => return AnswerKind::Answer,
    }
    AnswerKind::Again
}

/// Whether the store may have asked a keeper before it answered this write: the version of the
/// answer is then no value's.
pub(super) fn may_be_asked_for(tenant: &Tenant, sent: &SentRequest, reply: &Header) -> bool {
    let Some(lives) = &tenant.lives else { return false };
    let store = lives.of_store(tenant.store_of(&tenant.keys.get(sent.key)));
    !reply.flags.has(Flags::CACHED) && sent.named.life != store
}
