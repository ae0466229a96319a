//! The lives that writes name (rule 7 of `docs/coherence.md`): a store's own, or a key's that is
//! lent, or was. A write that is refused in one goes on in another as a client's does, but that it
//! is not sent again otherwise.

use std::collections::HashMap;

use wire::{Flags, GoesOn, Header, LIFE_UNKNOWN, Op, Status};

use crate::{tenant::Tenant, window::SentRequest};

/// A write that was refused so often is lost.
const MOST_MOVES: u8 = 4;

/// What one tenant's generator has heard.
pub(super) struct Lives {
    /// Of each store, by its place in the cluster's list.
    stores: Vec<u16>,
    keys: HashMap<u32, u16>,
}

impl Lives {
    /// Of so many stores, none of which was heard of.
    pub fn new(stores: usize) -> Lives {
        Lives {
            stores: vec![LIFE_UNKNOWN; stores],
            keys: HashMap::new(),
        }
    }

    fn heard(&mut self, store: usize, key: u32, named: u16, reply: &Header) {
        match wire::life_of_key(reply) {
            Some(Some(own)) => {
                self.keys.insert(key, own);
            }
            Some(None) => {
                self.keys.remove(&key);
            }
            None => {}
        }
        if let Some(life) = wire::life_of_store(reply, named) {
            self.stores[store] = life;
        }
    }
}

/// What a write names; of a read, nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedLife {
    pub life: u16,
    /// It passes the switch that its key is lent to.
    past_owner: bool,
    moves: u8,
}

impl NamedLife {
    pub fn flags(self) -> Flags {
        match self.past_owner {
            true => Flags::ALL,
            false => Flags::NONE,
        }
    }
}

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
pub(super) fn of_write(tenant: &Tenant, key: u32) -> NamedLife {
    let Some(lives) = &tenant.lives else {
        return NamedLife::default();
    };
    let own = lives.keys.get(&key).copied();
    NamedLife {
        life: own.unwrap_or_else(|| lives.stores[tenant.store_of(&tenant.keys.get(key))]),
        ..NamedLife::default()
    }
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
    let Some(lives) = &mut tenant.lives else {
        return AnswerKind::Answer;
    };
    if !sent.is_write() || reply.op != Op::WriteReply {
        return AnswerKind::Answer;
    }
    lives.heard(store, sent.key, sent.named.life, reply);
    let refused = reply.status == Status::OtherLife;
    if !refused || reply.life <= LIFE_UNKNOWN || sent.named.moves >= MOST_MOVES {
        return AnswerKind::Answer;
    }
    if reply.life == sent.named.life {
        return AnswerKind::Late;
    }
    match go_on(sent, reply, now_ns) {
        Some(named) => sent.named = named,
        None => return AnswerKind::Answer,
    }
    AnswerKind::Again
}

/// How a refused write goes on; `None`: whether it was done is not known.
fn go_on(sent: &SentRequest, reply: &Header, now_ns: u64) -> Option<NamedLife> {
    let NamedLife {
        life,
        past_owner,
        moves,
    } = sent.named;
    // Nobody has the unknown life.
    let risked_ns = (life != LIFE_UNKNOWN).then(|| now_ns.saturating_sub(sent.at_ns));
    let (life, past_owner) = match wire::goes_on(reply, past_owner, risked_ns) {
        GoesOn::PastOwner => (life, true),
        GoesOn::Unknown => return None,
        GoesOn::In(other) => (other, false),
    };
    Some(NamedLife {
        life,
        past_owner,
        moves: moves + 1,
    })
}

/// Whether the store may have asked a keeper before it answered this write: the version of the
/// answer is then no value's.
pub(super) fn may_be_asked_for(tenant: &Tenant, sent: &SentRequest, reply: &Header) -> bool {
    let Some(lives) = &tenant.lives else {
        return false;
    };
    let store = lives.stores[tenant.store_of(&tenant.keys.get(sent.key))];
    !reply.flags.has(Flags::CACHED) && sent.named.life != store
}

#[cfg(test)]
mod tests {
    use wire::LIFE_MOVED;

    use super::*;

    const MS: u64 = 1_000_000;

    fn refusal(life: u16, age_ms: u32, flags: Flags) -> Header {
        Header {
            status: Status::OtherLife,
            expiry_ms: age_ms,
            life,
            flags,
            ..Header::new(Op::WriteReply)
        }
    }

    #[test]
    fn a_write_goes_on_in_a_life_that_began_before_it_and_past_the_owner_of_a_younger_one() {
        let cached = Flags::CACHED;
        // (life that is named, refusal, where it goes on: life and whether past owners), 10 ms
        // after it was sent
        let rows = [
            (77, refusal(90, 50, cached), Some((90, false))),
            (77, refusal(90, 3, cached), Some((77, true))),
            (77, refusal(90, LIFE_MOVED, cached), Some((90, false))),
            (77, refusal(78, 50, Flags::NONE), Some((78, false))),
            (77, refusal(78, 3, Flags::NONE), None),
            (LIFE_UNKNOWN, refusal(78, 0, Flags::NONE), Some((78, false))),
        ];
        for (life, refusal, expected) in rows {
            let sent = SentRequest {
                at_ns: 5 * MS,
                named: NamedLife {
                    life,
                    ..NamedLife::default()
                },
                ..SentRequest::default()
            };
            let on = go_on(&sent, &refusal, 15 * MS);
            let on = on.map(|named| (named.life, named.past_owner));
            assert_eq!(on, expected, "{life}, {refusal:?}");
        }
    }

    #[test]
    fn a_key_has_the_life_that_was_heard_of_until_the_store_takes_it_back() {
        let mut lives = Lives::new(1);
        lives.heard(0, 5, LIFE_UNKNOWN, &refusal(77, 0, Flags::NONE));
        lives.heard(0, 5, 77, &refusal(90, 0, Flags::CACHED));
        assert_eq!((lives.stores[0], lives.keys.get(&5)), (77, Some(&90)));
        lives.heard(0, 5, 90, &refusal(78, 0, Flags::NONE));
        assert_eq!((lives.stores[0], lives.keys.get(&5)), (78, None));
    }
}
