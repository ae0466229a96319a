//! Writes that reach the backend behind the store's back: until when a copy may be served that such
//! a write has made old.
//!
//! The store knows a time up to which it has heard of everything that happened in the backend
//! ([`OutsideWatch::seen`]), and the keys that it is calling back because of what it heard. A lease
//! is lent from that time, not from now: whatever breaks, a copy is served for at most one lease
//! after the write that made it old.

use std::collections::BTreeMap;

use super::{Copy, Nanos, SwitchId};

/// Keys that are looked at one by one when a lease is asked for. Of more a list by switch is made.
const LOOKED_AT: usize = 64;
/// Keys of which that list is made; beyond, all of them count for every switch.
const LISTED: usize = 4096;
/// How long the list is good for: leases are asked for by thousands.
const LIST_NS: Nanos = 50_000_000;

/// Whether others may write to the backend, and whether the store hears of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Watch {
    /// Nobody else writes, or the operator has said that it does not matter.
    #[default]
    Unneeded,
    /// The backend tells of every change to a key that was read for a grant.
    Tracked,
    /// Others may write and the backend would not tell: nothing may be granted.
    Impossible,
}

/// What the store knows of outside writes, and what it has not finished doing about them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutsideWatch<K> {
    watch: Watch,
    seen_ns: Nanos,
    /// Keys that are being called back; everything since then may be missing from their copies.
    open: BTreeMap<K, Nanos>,
    /// No later than the earliest in `open`.
    open_since_ns: Nanos,
    /// Every key is to be called back, and not all have been begun with.
    all_since_ns: Option<Nanos>,
    list: OpenBySwitch,
}

/// Since when something of a switch's copies may be missing, for each that may hold one of an open
/// key. Nothing is granted of a key while it is open, so what was listed since may only have become
/// less: to go by the list for a while is to lend too little, and never too much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct OpenBySwitch {
    /// When it was made.
    made_ns: Option<Nanos>,
    since_ns: BTreeMap<SwitchId, Nanos>,
    /// The earliest of the keys that were opened since: they count for every switch.
    newer_ns: Option<Nanos>,
}

impl<K: Ord> OutsideWatch<K> {
    /// At a time when no copy exists.
    pub fn new(watch: Watch, now_ns: Nanos) -> OutsideWatch<K> {
        OutsideWatch {
            watch,
            seen_ns: now_ns,
            open: BTreeMap::new(),
            open_since_ns: now_ns,
            all_since_ns: None,
            list: OpenBySwitch::default(),
        }
    }

    /// The backend has come to tell, or has ceased to. What was granted before it ceased is called
    /// back after this: [`OutsideWatch::all_changed`].
    pub fn watches(&mut self, watch: Watch) {
        self.watch = watch;
    }

    /// What the backend can tell.
    pub fn watch(&self) -> Watch {
        self.watch
    }

    /// Whether a read may be answered with a grant.
    pub fn may_grant_reads(&self) -> bool {
        match self.watch {
            Watch::Unneeded => true,
            Watch::Tracked => self.all_since_ns.is_none(),
            Watch::Impossible => false,
        }
    }

    /// Whether a write may be answered with a grant. Not if outside writes are tracked: the backend
    /// tracks what is read, and another's write might come between our write and a read.
    pub fn may_grant_writes(&self) -> bool {
        self.watch == Watch::Unneeded
    }

    /// A question that was put to the backend at `asked_ns` has been answered, on the connection on
    /// which it also tells of changes: everything before has been told.
    pub fn seen(&mut self, asked_ns: Nanos) {
        self.seen_ns = self.seen_ns.max(asked_ns);
    }

    /// The time up to which everything has been told.
    pub fn seen_ns(&self) -> Nanos {
        self.seen_ns
    }

    /// A key was changed by another; its copies are being called back.
    pub fn opened(&mut self, key: K) {
        let since_ns = self.all_since_ns.unwrap_or(self.seen_ns);
        if self.open.is_empty() {
            self.open_since_ns = since_ns;
        }
        self.open_since_ns = self.open_since_ns.min(since_ns);
        self.open.entry(key).or_insert(since_ns);
        if self.list.made_ns.is_some() {
            let newer_ns = self.list.newer_ns.unwrap_or(since_ns);
            self.list.newer_ns = Some(newer_ns.min(since_ns));
        }
    }

    /// No copy of this key is served any more.
    pub fn closed(&mut self, key: &K) {
        if !self.open.is_empty() {
            self.open.remove(key);
        }
    }

    /// Everything may have been changed: no grants until [`OutsideWatch::all_opened`].
    pub fn all_changed(&mut self) {
        self.all_since_ns = Some(self.all_since_ns.unwrap_or(self.seen_ns));
    }

    /// Every key that has copies has been [`OutsideWatch::opened`] since
    /// [`OutsideWatch::all_changed`].
    pub fn all_opened(&mut self) {
        self.all_since_ns = None;
    }

    /// How much of a lease of `length_ns` a switch may be lent now, counted from now. `copies`:
    /// those that there may be of a key, in the order of their switches. `None`: so little is left
    /// that it had better lapse; a new term begins then.
    pub fn lendable_ns<'a>(
        &mut self,
        switch: SwitchId,
        length_ns: Nanos,
        now_ns: Nanos,
        copies: impl Fn(&K) -> &'a [Copy],
    ) -> Option<Nanos> {
        let seen_ns = match self.watch {
            Watch::Unneeded => return Some(length_ns),
            Watch::Tracked => self.seen_ns,
            // There are no copies but those that are being called back.
            Watch::Impossible => now_ns,
        };
        let since_ns = seen_ns.min(self.all_since_ns.unwrap_or(Nanos::MAX));
        let open_ns = match self.open.len() {
            keys if keys <= LOOKED_AT => {
                let at = |copies: &[Copy]| copies.binary_search_by_key(&switch, |c| c.switch);
                let held = self.open.iter().filter(|(key, _)| at(copies(key)).is_ok());
                held.map(|(_, since_ns)| *since_ns).min()
            }
            keys if keys <= LISTED => {
                if self.list.made_ns.is_none_or(|made_ns| now_ns >= made_ns + LIST_NS) {
                    self.list_open(now_ns, copies);
                }
                let listed_ns = self.list.since_ns.get(&switch).copied();
                listed_ns.into_iter().chain(self.list.newer_ns).min()
            }
            _ => Some(self.open_since_ns),
        };
        let open_ns = open_ns.unwrap_or(Nanos::MAX);
        let age_ns = now_ns.saturating_sub(since_ns.min(open_ns));
        (age_ns <= length_ns / 2).then(|| length_ns - age_ns)
    }

    fn list_open<'a>(&mut self, now_ns: Nanos, copies: impl Fn(&K) -> &'a [Copy]) {
        let mut list = OpenBySwitch { made_ns: Some(now_ns), ..OpenBySwitch::default() };
        for (key, since_ns) in &self.open {
            for copy in copies(key) {
                let earliest_ns = list.since_ns.entry(copy.switch).or_insert(*since_ns);
                *earliest_ns = (*earliest_ns).min(*since_ns);
            }
        }
        self.list = list;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Nanos = 1000;

    /// Switch 1 has a copy of every key.
    fn held<K>(_: &K) -> &'static [Copy] {
        &[Copy { switch: 1, granted: 1, term: 1 }]
    }

    fn tracked() -> OutsideWatch<u8> {
        OutsideWatch::new(Watch::Tracked, 0)
    }

    #[test]
    fn a_lease_is_lent_from_what_was_seen_last() {
        let mut outside = tracked();
        outside.seen(500);
        outside.seen(400);
        assert_eq!(outside.lendable_ns(1, LENGTH, 600, held), Some(900));
        assert_eq!(outside.lendable_ns(1, LENGTH, 1000, held), Some(500));
        assert_eq!(outside.lendable_ns(1, LENGTH, 1001, held), None);
        let mut unneeded: OutsideWatch<u8> = OutsideWatch::new(Watch::Unneeded, 0);
        assert_eq!(unneeded.lendable_ns(1, LENGTH, 1_000_000, held), Some(LENGTH));
    }

    #[test]
    fn a_key_being_called_back_holds_the_leases_of_its_switches_back() {
        let mut outside = tracked();
        outside.seen(500);
        outside.opened(1);
        outside.seen(800);
        assert_eq!(outside.lendable_ns(1, LENGTH, 800, held), Some(700));
        assert_eq!(outside.lendable_ns(2, LENGTH, 800, held), Some(1000));
        outside.opened(1);
        assert_eq!(outside.lendable_ns(1, LENGTH, 800, held), Some(700), "as before");
        outside.closed(&1);
        assert_eq!(outside.lendable_ns(1, LENGTH, 800, held), Some(1000));
    }

    #[test]
    fn too_many_keys_count_for_every_switch() {
        let mut outside: OutsideWatch<usize> = OutsideWatch::new(Watch::Tracked, 0);
        outside.seen(100);
        (0..=LISTED).for_each(|key| outside.opened(key));
        outside.seen(400);
        assert_eq!(outside.lendable_ns(2, LENGTH, 400, held), Some(700));
    }

    #[test]
    fn of_many_keys_a_list_is_kept_for_a_while_that_lends_nobody_too_much() {
        const LENGTH: Nanos = 10 * LIST_NS;
        let mut outside: OutsideWatch<usize> = OutsideWatch::new(Watch::Tracked, 0);
        outside.seen(100);
        (0..=LOOKED_AT).for_each(|key| outside.opened(key));
        outside.seen(400);
        assert_eq!(outside.lendable_ns(1, LENGTH, 400, held), Some(LENGTH - 300));
        assert_eq!(outside.lendable_ns(2, LENGTH, 400, held), Some(LENGTH));
        // Another key is opened: for all, until there is a new list.
        outside.opened(1_000);
        outside.seen(500);
        let unheld = |key: &usize| if *key == 1_000 { &[][..] } else { held(key) };
        assert_eq!(outside.lendable_ns(2, LENGTH, 500, unheld), Some(LENGTH - 100));
        let later_ns = 400 + LIST_NS;
        outside.seen(later_ns);
        assert_eq!(outside.lendable_ns(2, LENGTH, later_ns, unheld), Some(LENGTH));
        assert_eq!(outside.lendable_ns(1, LENGTH, later_ns, unheld), Some(LENGTH + 100 - later_ns));
        // What was acknowledged since the list was made counts until the next.
        let gone = |_: &usize| &[][..];
        assert_eq!(outside.lendable_ns(1, LENGTH, later_ns, gone), Some(LENGTH + 100 - later_ns));
        let last_ns = later_ns + LIST_NS;
        outside.seen(last_ns);
        assert_eq!(outside.lendable_ns(1, LENGTH, last_ns, gone), Some(LENGTH));
    }

    #[test]
    fn while_everything_is_called_back_nothing_is_granted_and_no_lease_goes_beyond() {
        let mut outside = tracked();
        outside.seen(100);
        outside.all_changed();
        outside.seen(300);
        outside.all_changed();
        assert!(!outside.may_grant_reads());
        assert_eq!(outside.lendable_ns(2, LENGTH, 300, held), Some(800));
        outside.opened(7);
        outside.all_opened();
        assert!(outside.may_grant_reads());
        assert_eq!(outside.lendable_ns(2, LENGTH, 300, held), Some(1000));
        assert_eq!(outside.lendable_ns(1, LENGTH, 300, held), Some(800), "from before");
    }

    #[test]
    fn what_may_be_granted() {
        // (watch, on reads, on writes)
        let rows = [
            (Watch::Unneeded, true, true),
            (Watch::Tracked, true, false),
            (Watch::Impossible, false, false),
        ];
        for (watch, reads, writes) in rows {
            let outside: OutsideWatch<u8> = OutsideWatch::new(watch, 0);
            assert_eq!(
                (outside.may_grant_reads(), outside.may_grant_writes()),
                (reads, writes),
                "{watch:?}"
            );
        }
    }
}
