//! The lives of keys that were lent: a table that tenants share and that forgets what is a day old.

use wire::maps::HashMap;

use crate::{
    coherence::{KeyLife, Nanos},
    directory::KeyId,
    engine::lease_holder::LeaseHolder,
    shares::Shares,
};

/// Keys with a life of their own that are remembered; and for how long at least.
const LIVES: usize = 65_536;
const LIFE_KEPT_NS: Nanos = 86_400_000_000_000;
/// A table without room is gone through once in this time: hot keys ask for room all the time.
const NEXT_LOOK_NS: Nanos = 1_000_000_000;

/// What is known of a key that was lent.
pub(super) struct KnownLife {
    pub life: KeyLife,
    /// Of the last loan.
    pub base: u64,
    pub keeper: (u16, LeaseHolder),
}

/// All of them.
pub(super) struct KnownLives {
    known: HashMap<KeyId, KnownLife>,
    shares: Shares,
    next_look_ns: Nanos,
}

impl KnownLives {
    /// Shared by so many tenants.
    pub fn new(tenants: usize) -> KnownLives {
        KnownLives {
            known: HashMap::default(),
            shares: Shares::new(LIVES, tenants),
            next_look_ns: 0,
        }
    }

    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// Whether no key has a life of its own.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn get(&self, id: &KeyId) -> Option<&KnownLife> {
        self.known.get(id)
    }

    /// A key's loan is over, and with it its life before.
    pub fn insert(&mut self, id: KeyId, known: KnownLife) {
        if self.known.insert(id, known).is_none() {
            self.shares.take(id.0, 1);
        }
    }

    /// Makes room for one more key: those of which nobody knows any more go, but for keys that are
    /// lent. Such a one may not find the room any more when it comes back; so many are more than
    /// there is room for at most as may be lent.
    pub fn has_room(
        &mut self,
        id: &KeyId,
        now_ns: Nanos,
        mut is_lent: impl FnMut(&KeyId) -> bool,
    ) -> bool {
        if self.known.contains_key(id) || self.shares.has_room(id.0) {
            return true;
        }
        if now_ns < self.next_look_ns {
            return false;
        }
        self.next_look_ns = now_ns + NEXT_LOOK_NS;
        let shares = &mut self.shares;
        self.known.retain(|id, known| {
            let is_old = now_ns >= known.life.since_ns + LIFE_KEPT_NS;
            let stays = is_lent(id) || !is_old;
            shares.give_back(id.0, usize::from(!stays));
            stays
        });
        shares.has_room(id.0)
    }
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;
    use crate::{coherence::EndedLoan, net::Peer};

    fn id(number: usize) -> KeyId {
        (1, KeyHash((number as u128).to_be_bytes()))
    }

    fn known() -> KnownLife {
        let ended = EndedLoan { life: 2, tells: false };
        let peer = Peer { address: ([10, 0, 0, 1], 7117).into(), local: None };
        KnownLife {
            life: KeyLife { life: 4, since_ns: 0, before: 3, ended },
            base: 0,
            keeper: (1, LeaseHolder { peer, slot: 0 }),
        }
    }

    #[test]
    fn a_table_without_room_is_gone_through_once_a_second() {
        let mut lives = KnownLives::new(1);
        let mut places = 0;
        while lives.has_room(&id(places), 0, |_| false) {
            lives.insert(id(places), known());
            places += 1;
        }
        let mut looked = 0;
        let mut ask = |lives: &mut KnownLives, at_ns| {
            lives.has_room(&id(places), at_ns, |_| {
                looked += 1;
                false
            })
        };
        let begin_ns = 2 * NEXT_LOOK_NS;
        for write in 0..1000 {
            assert!(!ask(&mut lives, begin_ns + write));
        }
        let after_a_day_ns = begin_ns + LIFE_KEPT_NS;
        assert!(ask(&mut lives, after_a_day_ns), "all are old");
        assert_eq!(looked, 2 * places);
    }
}
