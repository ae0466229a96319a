//! The leases of stores, as the programs look at them for each hit (rule 6 of `docs/coherence.md`).
//! The agent gives each store a slot; programs write what stores answer into it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
};

use serde::{Deserialize, Serialize};

use super::{backing::Backing, clock::Clock, grace::Grace, mapped::SharedArray, sketch::mix};
use crate::{
    Error,
    layout::{Lease, MAX_LEASES},
};

/// The slots in which the programs keep a lease per store.
pub struct Leases {
    slots: SharedArray<Lease>,
    clock: Clock,
    grace: Grace,
}

/// One slot as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// Slot.
    pub slot: u16,
    /// The store's address.
    pub store: IpAddr,
    /// Milliseconds for which entries of this store may still be served; 0: not at all.
    pub remaining_ms: u64,
    /// The term that the store gave the lease.
    pub term: u64,
}

fn words(address: IpAddr) -> [u64; 2] {
    let bytes = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .octets();
    [0, 8].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
}

fn address(words: [u64; 2]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&words[1].to_ne_bytes());
    std::net::Ipv6Addr::from(bytes).to_canonical()
}

impl Lease {
    /// It is nobody's from now on. No program may be looking at it.
    fn end(&self) {
        self.until_ns.store(0, Release);
        self.term.store(0, Release);
        self.lock.store(0, Release);
    }
}

impl Leases {
    /// The leases of a switch.
    ///
    /// # Errors
    /// If they cannot be mapped.
    pub fn open(at: impl Into<Backing>) -> Result<Leases, Error> {
        let at = at.into();
        Ok(Leases { slots: at.mapped("leases")?, clock: at.clock(), grace: at.grace()? })
    }

    /// The slot of a store, taken if it has none yet; `None` when all 1024 are taken. One of the
    /// first few from the store's own on, if one of them is free: programs look for it in those.
    /// Only the agent calls this, so nobody races for a slot.
    pub fn slot_of(&self, store: SocketAddr) -> Option<u16> {
        let wanted = words(store.ip());
        let own = mix(wanted[0], wanted[1]) as usize;
        let mut free = None;
        for index in (0..MAX_LEASES).map(|n| (own + n) % MAX_LEASES) {
            let lease = self.slots.at(index);
            let stored = [lease.store[0].load(Relaxed), lease.store[1].load(Relaxed)];
            if stored == wanted {
                return Some(index as u16);
            }
            if stored == [0, 0] && free.is_none() {
                free = Some(index);
            }
        }
        let index = free?;
        let lease = self.slots.at(index);
        // It is empty, unless an agent was killed while it let go of the store before.
        lease.end();
        lease.store[1].store(wanted[1], Relaxed);
        lease.store[0].store(wanted[0], Release);
        Some(index as u16)
    }

    /// Lets go of the slots of all other stores, of which no item may be left.
    ///
    /// # Errors
    /// Running programs cannot be waited for.
    pub fn keep_only(&self, stores: &BTreeSet<IpAddr>) -> Result<(), Error> {
        let all = self.all().into_iter();
        let gone = all.filter(|lease| !stores.contains(&lease.store));
        let gone: Vec<&Lease> = gone.map(|lease| self.slots.at(lease.slot.into())).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // An answer for a store that has left finds nobody. One that was looked at before may still
        // be taken: the next store in the slot must not begin with that lease, nor in that term.
        for word in gone.iter().flat_map(|lease| &lease.store) {
            word.store(0, Release);
        }
        self.grace.wait()?;
        gone.into_iter().for_each(Lease::end);
        Ok(())
    }

    /// Ends every lease for good: once this returns, nothing is served under any of them, and no
    /// answer that is still on its way makes one hold again. Returns what they were.
    ///
    /// # Errors
    /// Running programs cannot be waited for.
    pub fn give_up(&self) -> Result<Vec<LeaseState>, Error> {
        let slots: Vec<LeaseState> = self.all();
        let leases = || slots.iter().map(|lease| self.slots.at(lease.slot.into()));
        // An answer for a store that has left finds nobody; one that was looked at before may still
        // be taken, and change the term.
        leases().flat_map(|lease| &lease.store).for_each(|word| word.store(0, Release));
        self.grace.wait()?;
        let term = |lease: &LeaseState| self.slots.at(lease.slot.into()).term.load(Acquire);
        let given_up = slots.iter().map(|lease| LeaseState { term: term(lease), ..lease.clone() });
        let given_up = given_up.collect();
        leases().for_each(Lease::end);
        // Who saw it hold may still be about to answer.
        self.grace.wait()?;
        Ok(given_up)
    }

    /// The clock that requests are dated with: CLOCK_BOOTTIME in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The state of one slot.
    ///
    /// # Panics
    /// If `slot` is 1024 or more.
    pub fn state(&self, slot: u16) -> LeaseState {
        let lease = self.slots.at(usize::from(slot));
        let until_ns = lease.until_ns.load(Acquire);
        LeaseState {
            slot,
            store: address([lease.store[0].load(Relaxed), lease.store[1].load(Relaxed)]),
            remaining_ms: until_ns.saturating_sub(self.now_ns()) / 1_000_000,
            term: lease.term.load(Relaxed),
        }
    }

    /// Epoch number up to which entries of a slot's store belong to an earlier term.
    ///
    /// # Panics
    /// If `slot` is 1024 or more.
    pub fn floor(&self, slot: u16) -> u64 {
        self.slots.at(usize::from(slot)).floor.load(Acquire)
    }

    /// Every slot that is taken.
    pub fn all(&self) -> Vec<LeaseState> {
        let taken = |slot: &u16| self.slots.at(usize::from(*slot)).store[1].load(Relaxed) != 0;
        (0..MAX_LEASES as u16).filter(taken).map(|slot| self.state(slot)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU64};

    use super::*;
    use crate::{Sizes, native::Switch};

    #[test]
    fn a_slot_is_another_stores_once_its_own_has_left() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let leases = Leases::open(&switch).unwrap();
        let store = |n: u32| SocketAddr::from((std::net::Ipv4Addr::from(n), 7117));
        let most = MAX_LEASES as u32;
        let slots: BTreeSet<u16> = (1..=most).map(|n| leases.slot_of(store(n)).unwrap()).collect();
        assert_eq!((slots.len(), leases.slot_of(store(most + 1))), (MAX_LEASES, None));

        let slot = leases.slot_of(store(1)).unwrap();
        let lease = leases.slots.at(slot.into());
        lease.term.store(5, Relaxed);
        lease.until_ns.store(1_000_000, Relaxed);
        let stay = (2..=most).map(|n| store(n).ip()).collect();
        leases.keep_only(&stay).unwrap();
        assert_eq!(leases.slot_of(store(most + 1)), Some(slot));
        let LeaseState { remaining_ms, term, .. } = leases.state(slot);
        assert_eq!((remaining_ms, term), (0, 0), "not the one that has left");
        assert!((2..=most).all(|n| slots.contains(&leases.slot_of(store(n)).unwrap())));
    }

    #[test]
    fn leases_that_were_given_up_hold_no_longer_and_have_no_slot() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let leases = Leases::open(&switch).unwrap();
        let stores: [SocketAddr; 2] =
            ["10.0.2.1:7117", "[fd00::1]:7117"].map(|s| s.parse().unwrap());
        let slots = stores.map(|store| leases.slot_of(store).unwrap());
        for (slot, term) in slots.into_iter().zip([5, 6]) {
            let lease = leases.slots.at(slot.into());
            lease.term.store(term, Relaxed);
            lease.until_ns.store(1_000_000, Relaxed);
        }
        let mut given_up = leases.give_up().unwrap();
        given_up.sort_by_key(|lease| lease.term);
        let told = given_up.iter().map(|lease| (lease.store, lease.slot, lease.term));
        let had = [0, 1].map(|n| (stores[n].ip(), slots[n], [5, 6][n]));
        assert!(told.eq(had));
        assert!(slots.iter().all(|slot| leases.state(*slot).remaining_ms == 0));
        assert_eq!(leases.all(), [], "no answer finds its slot");
        assert_eq!(leases.give_up().unwrap(), []);
    }

    /// An agent was killed when it had let go of a store and not yet of its lease: the next store
    /// in the slot has none.
    #[test]
    fn a_slot_that_was_half_let_go_has_no_lease() {
        let clock = Clock::Set(Arc::new(AtomicU64::new(0)));
        let switch = Switch::new("test", &[], Sizes { pages: 4 }, 1, clock).unwrap();
        let store: SocketAddr = "10.0.2.1:7117".parse().unwrap();
        let leases = Leases::open(&switch).unwrap();
        let slot = leases.slot_of(store).unwrap();
        let lease = leases.slots.at(slot.into());
        lease.term.store(5, Relaxed);
        lease.until_ns.store(1_000_000, Relaxed);
        lease.lock.store(1, Relaxed);
        for word in &lease.store {
            word.store(0, Relaxed);
        }
        let next = Leases::open(&switch).unwrap();
        assert_eq!(next.slot_of(store), Some(slot));
        let LeaseState { remaining_ms, term, .. } = next.state(slot);
        assert_eq!((remaining_ms, term, lease.lock.load(Relaxed)), (0, 0, 0));
    }

    #[test]
    fn addresses_keep_their_family() {
        for text in ["10.0.2.1", "fd00::1", "::1"] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(address(words(ip)), ip);
        }
    }
}
