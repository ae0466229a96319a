//! What a refusal that names another life means to the write that was refused.
//!
//! A life is a number that a store draws when it starts, and that a key gets when it moves, by
//! which a repeated write is told from a new one (rule 7 of `docs/coherence.md`). The client
//! library and the load generator both decide here how a write goes on.

use crate::{Flags, Header, LIFE_MOVED, LIFE_UNKNOWN, Status};

/// How a write goes on that was refused because it named another life ([`goes_on`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// It names this life from now on, and goes to whoever its key is lent to.
    In(u16),
    /// It names the life that it named, and passes whoever its key is lent to ([`Flags::ALL`]).
    PastOwner,
    /// Not at all: whether it was done is not known.
    Unknown,
}

/// How a write goes on that was refused with this answer, of [`Status::OtherLife`] and with a life
/// that has a name (rule 7 of `docs/coherence.md`). `past_owner`: it had passed whoever its key was
/// lent to. `risked_ns`: for so long some life can have had it; `None`: none can, for it named none
/// that anybody has.
///
/// An earlier life can have had it unless the one that answers has lived for longer. The two
/// clocks' rates differ by less than a 64th.
pub fn goes_on(refusal: &Header, past_owner: bool, risked_ns: Option<u64>) -> GoesOn {
    let age_ns = u64::from(refusal.expiry_ms) * 1_000_000;
    let risked = risked_ns.is_some_and(|for_ns| age_ns <= for_ns + for_ns / 64);
    let had_before = refusal.expiry_ms != LIFE_MOVED && (past_owner || risked);
    match had_before {
        true if refusal.flags.has(Flags::CACHED) => GoesOn::PastOwner,
        true => GoesOn::Unknown,
        false => GoesOn::In(refusal.life),
    }
}

/// What an answer says of the life of its key: that it has this one, of its own; `Some(None)`: that
/// it has none, but its store's.
pub fn life_of_key(reply: &Header) -> Option<Option<u16>> {
    let says = reply.life > LIFE_UNKNOWN && reply.status == Status::OtherLife;
    says.then(|| reply.flags.has(Flags::CACHED).then_some(reply.life))
}

/// What an answer to a request that named the life `named` says of the life of its store. One that
/// only repeats what was named says nothing: it may be a key's.
pub fn life_of_store(reply: &Header, named: u16) -> Option<u16> {
    let says = reply.life > LIFE_UNKNOWN && !reply.flags.has(Flags::CACHED);
    (says && reply.life != named).then_some(reply.life)
}
