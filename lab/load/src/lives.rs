//! The lives that writes name (rule 7 of `docs/coherence.md`): a store's own, or a key's that is
//! lent, or was; and in which life a write goes on that is refused in one.

use std::collections::HashMap;

use wire::{Flags, GoesOn, Header, LIFE_UNKNOWN};

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
        Lives { stores: vec![LIFE_UNKNOWN; stores], keys: HashMap::new() }
    }

    /// A key's own life, if one was heard of.
    pub fn of_key(&self, key: u32) -> Option<u16> {
        self.keys.get(&key).copied()
    }

    /// A store's life.
    pub fn of_store(&self, store: usize) -> u16 {
        self.stores[store]
    }

    /// Takes note of what the answer to a write of this key says, that named this life.
    pub fn heard(&mut self, store: usize, key: u32, named: u16, reply: &Header) {
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
    /// What a write names that was not sent before.
    pub fn first(life: u16) -> NamedLife {
        NamedLife { life, ..NamedLife::default() }
    }

    pub fn flags(self) -> Flags {
        match self.past_owner {
            true => Flags::ALL,
            false => Flags::NONE,
        }
    }

    /// Whether a write that was refused in this life may go on in that one: it is one, and the
    /// write was not refused too often.
    pub fn may_move_to(self, life: u16) -> bool {
        life > LIFE_UNKNOWN && self.moves < MOST_MOVES
    }

    /// How a write goes on that was refused by `reply`, so long after it was sent first; `None`:
    /// whether it was done is not known.
    pub fn after(self, reply: &Header, waited_ns: u64) -> Option<NamedLife> {
        // Nobody has the unknown life.
        let risked_ns = (self.life != LIFE_UNKNOWN).then_some(waited_ns);
        let (life, past_owner) = match wire::goes_on(reply, self.past_owner, risked_ns) {
            GoesOn::PastOwner => (self.life, true),
            GoesOn::Unknown => return None,
            GoesOn::In(other) => (other, false),
        };
        Some(NamedLife { life, past_owner, moves: self.moves + 1 })
    }
}

#[cfg(test)]
mod tests {
    use wire::{LIFE_MOVED, Op, Status};

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
            let on = NamedLife::first(life).after(&refusal, 10 * MS);
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
