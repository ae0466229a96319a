//! Which of a tenant's switches caches a key.
//!
//! The table of cached items (thesis, 3.4.2) is not kept apart from the caches: an item is where a
//! cache of the tenant says, including insertions and evictions that are under way, so the two
//! cannot disagree. A look-up is one hash per switch with pages of the tenant; those are the
//! switches of a path, a handful.
//!
//! All switches before the store see a key that is cached nowhere, and report it within some 50 ms
//! of each other. So a key waits for [`HOLD`] before it is placed among those that see it; with one
//! switch there is nothing to wait for.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use decide::{Action, Key, Room, SwitchId};
use hot::{Caches, Permit, SwitchCache};

use crate::ring::Ring;

/// How long a key waits for the reports of other switches. Placed at the first tick after it.
const HOLD: Duration = Duration::from_millis(50);
/// How long it waits for the report of a switch with guaranteed room, if only borrowed memory sees
/// it so far: there it would stay.
const HOLD_FOR_OWN: Duration = Duration::from_millis(400);
/// Keys that may wait; beyond that, they are placed with the reports that are there.
const WAITING_MOST: usize = 65_536;

/// The coordination of one tenant's caches.
pub struct Tenant {
    id: u32,
    /// The switches where it has pages: those of the ring, then those where all of its pages are
    /// borrowed; both nearest to the client first (or as its policy has it).
    switches: Vec<SwitchId>,
    /// How many of them are in the ring: those with guaranteed pages; without any, all.
    in_ring: usize,
    ring: Ring,
    /// Keys that were reported and are cached nowhere, in the order of their first reports.
    waiting: VecDeque<(Duration, Key)>,
    /// The keys among them that wait for [`HOLD_FOR_OWN`], in the same order.
    for_own: VecDeque<(Duration, Key)>,
    /// All keys that wait.
    waits: HashSet<Key>,
}

impl Tenant {
    /// A tenant without memory.
    pub fn new(id: u32) -> Tenant {
        Tenant {
            id,
            switches: Vec::new(),
            in_ring: 0,
            ring: Ring::default(),
            waiting: VecDeque::new(),
            for_own: VecDeque::new(),
            waits: HashSet::new(),
        }
    }

    /// Its memory changed.
    pub fn room(&mut self, rooms: &[Room]) {
        let (own, lent): (Vec<&Room>, Vec<&Room>) =
            rooms.iter().partition(|room| room.pages > room.lent);
        let in_ring = if own.is_empty() { lent.len() } else { own.len() };
        let switches = own.iter().chain(&lent).map(|room| room.switch);
        let switches: Vec<SwitchId> = switches.collect();
        if switches[..in_ring] != self.switches[..self.in_ring] {
            self.ring.restart();
        }
        (self.switches, self.in_ring) = (switches, in_ring);
    }

    /// Where a key is cached, comes or goes.
    fn place(&self, caches: &Caches, key: &Key) -> Option<SwitchId> {
        let involves = |at: &SwitchId| {
            let cache = caches.get(*at, self.id);
            cache.is_some_and(|cache| cache.involves(key))
        };
        self.switches.iter().copied().find(involves)
    }

    /// Whether a switch may cache a key that it does not cache; `others` are the caches of the
    /// other ones.
    pub fn permit(&self, others: &Caches, key: &Key) -> Permit {
        if self.waits.contains(key) {
            Permit::NotYet
        } else if self.place(others, key).is_some() {
            Permit::No
        } else {
            Permit::Yes
        }
    }

    /// A switch reported keys. Returns how many of them are on another one.
    pub fn reported(
        &mut self,
        now: Duration,
        caches: &mut Caches,
        switch: SwitchId,
        keys: &[(Key, u64)],
        out: &mut Vec<Action>,
    ) -> u64 {
        let Some(cache) = caches.get(switch, self.id) else { return 0 };
        let keys = keys.iter().map(|(key, _)| key);
        let missing: Vec<&Key> = keys.filter(|key| !cache.has(key)).collect();
        let mut elsewhere = 0;
        for key in missing {
            if self.waits.contains(key) {
                continue;
            }
            if let Some(switch) = self.place(caches, key) {
                elsewhere += 1;
                // Requested, but not there: the key's requests take another path by now.
                if let Some(cache) = caches.get_mut(switch, self.id)
                    && cache.bypassed(key)
                {
                    cache.release(key, out);
                }
            } else if self.switches.len() == 1 {
                self.settle(now, caches, key, out);
            } else {
                if self.waits.len() >= WAITING_MOST {
                    self.settle_waiting(now, Duration::MAX, caches, out);
                }
                self.waits.insert(key.clone());
                self.waiting.push_back((now, key.clone()));
            }
        }
        elsewhere
    }

    /// Time passed: places the keys that waited long enough.
    pub fn tick(&mut self, now: Duration, caches: &mut Caches, out: &mut Vec<Action>) {
        self.settle_waiting(now, Duration::ZERO, caches, out);
    }

    /// Places the keys that waited long enough, as if `more` time had passed.
    fn settle_waiting(
        &mut self,
        now: Duration,
        more: Duration,
        caches: &mut Caches,
        out: &mut Vec<Action>,
    ) {
        let waited = |since| now.saturating_sub(since).saturating_add(more);
        while let Some((since, key)) = self.waiting.pop_front() {
            if waited(since) < HOLD {
                self.waiting.push_front((since, key));
                break;
            }
            if self.own_may_see(caches, &key) {
                self.for_own.push_back((since, key));
            } else {
                self.settle_one(now, caches, &key, out);
            }
        }
        for (since, key) in std::mem::take(&mut self.for_own) {
            if waited(since) < HOLD_FOR_OWN && self.own_may_see(caches, &key) {
                self.for_own.push_back((since, key));
            } else {
                self.settle_one(now, caches, &key, out);
            }
        }
    }

    fn settle_one(&mut self, now: Duration, caches: &mut Caches, key: &Key, out: &mut Vec<Action>) {
        self.waits.remove(key);
        if self.place(caches, key).is_none() {
            self.settle(now, caches, key, out);
        }
    }

    /// Whether only borrowed memory outside of the ring sees a key so far, while the ring has room
    /// for it.
    fn own_may_see(&self, caches: &Caches, key: &Key) -> bool {
        if self.in_ring == self.switches.len() {
            return false;
        }
        let in_ring = self.switches[..self.in_ring].iter();
        let with_room =
            in_ring.filter_map(|at| caches.get(*at, self.id)).filter(|cache| cache.has_room());
        let mut sees = with_room.map(|cache| cache.sees(key)).peekable();
        sees.peek().is_some() && !sees.any(|sees| sees)
    }

    /// Places a key that is cached nowhere on a switch that sees it: where there is room, by the
    /// ring; else in borrowed memory outside of it; else on the first, from the client on, that has
    /// something colder. What that gives up may find its place further on when it is missed.
    fn settle(&mut self, now: Duration, caches: &mut Caches, key: &Key, out: &mut Vec<Action>) {
        let len = self.switches.len();
        let has_room = |caches: &Caches, at: usize| {
            let cache = caches.get(self.switches[at], self.id);
            cache.is_some_and(SwitchCache::has_room)
        };
        let mut offer = |caches: &mut Caches, at: usize| {
            let cache = caches.get_mut(self.switches[at], self.id)?;
            (cache.sees(key) && cache.offer(now, key, out)).then(|| cache.items_per_page())
        };
        let in_ring = self.in_ring;
        let order: Vec<usize> = self.ring.order(in_ring).chain(in_ring..len).collect();
        let active_full = order.first().is_some_and(|&at| !has_room(caches, at));
        for at in order {
            if has_room(caches, at)
                && let Some(per_page) = offer(caches, at)
            {
                if at < in_ring {
                    self.ring.put(at, in_ring, per_page, active_full);
                }
                return;
            }
        }
        for at in 0..len {
            if offer(caches, at).is_some() {
                return;
            }
        }
    }

    /// A switch attached with these items. Of two doubles, the one on the later switch goes.
    pub fn end_doubles(
        &self,
        caches: &mut Caches,
        switch: SwitchId,
        held: &[Key],
        out: &mut Vec<Action>,
    ) {
        let own = self.switches.iter().position(|at| *at == switch);
        for key in held {
            for (position, at) in self.switches.iter().enumerate() {
                let other = (*at != switch).then(|| caches.get_mut(*at, self.id));
                let Some(other) = other.flatten().filter(|other| other.has(key)) else { continue };
                let later = own.is_some_and(|own| position > own);
                if !(later && other.release(key, out))
                    && let Some(cache) = caches.get_mut(switch, self.id)
                {
                    cache.release(key, out);
                }
            }
        }
    }
}
