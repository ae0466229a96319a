//! The items that a switch is believed to hold.

use std::{
    collections::BTreeSet,
    ops::Bound::{self, Unbounded},
};

use api::Digest;
use decide::{ItemKey, Key};
use wire::maps::{HashMap, HashSet};

/// What a switch holds, as the controller believes.
#[derive(Debug, Default)]
pub struct BelievedItems {
    /// In order, so that who lists a tenant's keys goes through no others.
    by_tenant: HashMap<u32, BTreeSet<Key>>,
    count: usize,
    /// The switch told all that it holds, since this controller leads.
    is_told: bool,
    digest: Digest,
    /// Keys that came or went since the last [`BelievedItems::take_changed`].
    changed: HashSet<ItemKey>,
}

impl BelievedItems {
    /// As remembered.
    pub fn new(keys: HashSet<ItemKey>) -> BelievedItems {
        let mut held = BelievedItems::default();
        for key in keys {
            held.insert(key);
        }
        held.changed.clear();
        held
    }

    /// The switch holds it now.
    pub fn insert(&mut self, key: ItemKey) {
        if !self.by_tenant.entry(key.tenant).or_default().insert(key.key.clone()) {
            return;
        }
        self.count += 1;
        self.digest.add(&key);
        self.changed.insert(key);
    }

    /// The switch does not hold it any longer.
    pub fn remove(&mut self, key: &ItemKey) {
        let Some(keys) = self.by_tenant.get_mut(&key.tenant) else { return };
        if !keys.remove(&key.key) {
            return;
        }
        if keys.is_empty() {
            self.by_tenant.remove(&key.tenant);
        }
        self.count -= 1;
        self.digest.remove(key);
        self.changed.insert(key.clone());
    }

    fn holds(&self, key: &ItemKey) -> bool {
        self.by_tenant.get(&key.tenant).is_some_and(|keys| keys.contains(&key.key))
    }

    /// The switch told all that it holds: returns, both sorted, what that is and what it was
    /// believed to hold beside.
    pub fn replace(&mut self, told: Vec<ItemKey>) -> (Vec<ItemKey>, Vec<ItemKey>) {
        let told: HashSet<ItemKey> = told.into_iter().collect();
        let believed = self.by_tenant.iter().flat_map(|(tenant, keys)| {
            keys.iter().map(|key| ItemKey { tenant: *tenant, key: key.clone() })
        });
        let mut lost: Vec<ItemKey> = believed.filter(|key| !told.contains(key)).collect();
        lost.iter().for_each(|key| self.remove(key));
        let mut held: Vec<ItemKey> = told.into_iter().collect();
        held.iter().for_each(|key| self.insert(key.clone()));
        self.is_told = true;
        lost.sort();
        held.sort();
        (held, lost)
    }

    /// Whether this is what the switch told, and was done since; else it is what was remembered.
    pub fn is_told(&self) -> bool {
        self.is_told
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Those of a tenant from a key on, in their order.
    pub fn keys_from(&self, tenant: u32, first: Bound<&[u8]>) -> impl Iterator<Item = &Key> {
        let its = self.by_tenant.get(&tenant);
        its.into_iter().flat_map(move |keys| keys.range::<[u8], _>((first, Unbounded)))
    }

    /// How many of a tenant.
    pub fn of(&self, tenant: u32) -> usize {
        self.by_tenant.get(&tenant).map_or(0, BTreeSet::len)
    }

    /// To compare with the switch's own.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Keys that changed since the last call, and whether they are held.
    pub fn take_changed(&mut self) -> Vec<(ItemKey, bool)> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .map(|key| {
                let held = self.holds(&key);
                (key, held)
            })
            .collect()
    }

    /// A change could not be written; it belongs to the next.
    pub fn put_back(&mut self, key: ItemKey) {
        self.changed.insert(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ItemKey {
        ItemKey { tenant: u32::from(n % 2), key: vec![n].into() }
    }

    #[test]
    fn equal_sets_have_equal_digests_whatever_the_way_there() {
        let mut one = BelievedItems::default();
        (0..10).for_each(|n| one.insert(key(n)));
        (5..10).for_each(|n| one.remove(&key(n)));
        one.insert(key(1));
        let two = BelievedItems::new((0..5).rev().map(key).collect());
        assert_eq!(one.digest(), two.digest());
        assert_eq!((one.of(0), one.of(1), one.len()), (3, 2, 5));
        let beyond: Vec<&Key> = one.keys_from(1, Bound::Excluded(&[1])).collect();
        assert_eq!(beyond, [&key(3).key], "in order, and no others");
        one.remove(&key(0));
        assert_ne!(one.digest(), two.digest());
    }

    #[test]
    fn what_the_switch_says_replaces_what_was_believed() {
        let mut held = BelievedItems::new([key(1), key(2)].into_iter().collect());
        let (now, lost) = held.replace(vec![key(2), key(3)]);
        assert_eq!((now, lost), (vec![key(2), key(3)], vec![key(1)]));
        let mut changed = held.take_changed();
        changed.sort();
        assert_eq!(changed, [(key(1), false), (key(3), true)]);
    }
}
