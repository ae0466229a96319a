//! The tenants as the controller keeps them: who they are, what they may use, which secrets
//! are theirs.
//!
//! They come from the cluster file ("declared") or from the admin API. What the cluster file says
//! of a declared tenant is taken over once, and each field again when the file says something else
//! of it; in between, changes made at run time hold. A tenant that the file has no more stays until
//! somebody removes it: controllers that stand by for each other may have different files.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::SocketAddr,
};

use api::types::Terms;
use decide::SwitchId;
use serde::{Deserialize, Serialize};
use wire::{Cluster, TENANT_OPEN, TENANT_SYSTEM};

use super::journal::Journal;

/// Most tenants of a controller: as many as a switch's table holds.
pub const TENANTS_MAX: usize = 4000;

/// A part of a quota that goes back when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedQuota {
    /// How many.
    pub pages: u32,
    /// Seconds since 1970.
    pub ends: u64,
    /// Pages that are in use then are looked at again after so many seconds more.
    pub every_s: u64,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Number.
    pub id: u32,
    /// What it was given; no other has its name.
    #[serde(flatten)]
    pub terms: Terms,
    /// 32 hex digits; empty for the open tenant.
    pub secret: String,
    /// The second valid secret while the secret is rotated.
    pub also_secret: Option<String>,
    /// Seeds key hashes; stays when the secret is rotated.
    pub hash_secret: Option<String>,
    /// What an operator gave it for good, where it has given pages back by itself; none: the quota.
    /// It may ask for no more.
    pub given: Option<u32>,
    /// Parts of the quota that end.
    pub timed: Vec<TimedQuota>,
    /// Guaranteed pages that were asked for on a certain switch, whatever the policy says.
    pub pinned: BTreeMap<SwitchId, u32>,
    /// What the cluster file said of it when that was last taken over.
    pub declared: Option<wire::Tenant>,
}

impl Tenant {
    /// One without pages of its own that may borrow.
    pub fn new(id: u32) -> Tenant {
        Tenant {
            id,
            terms: Terms {
                name: match id {
                    TENANT_OPEN => "open".into(),
                    _ => format!("tenant {id}"),
                },
                ..Terms::default()
            },
            secret: String::new(),
            also_secret: None,
            hash_secret: None,
            given: None,
            timed: vec![],
            pinned: BTreeMap::new(),
            declared: None,
        }
    }

    /// Takes over what the cluster file says otherwise than before, or than it is where the file
    /// never had it; the rest may have been changed at run time since.
    fn take_over(&mut self, file: &wire::Tenant) {
        let before = self.declared.take().unwrap_or_else(|| self.to_wire());
        self.take_secrets(&before, file);
        follow(&mut self.hash_secret, &before.hash_secret, &file.hash_secret);
        follow(&mut self.terms.rate, &before.rate, &file.rate);
        let (over_before, over_now) = (before.over_rate.into(), file.over_rate.into());
        follow(&mut self.terms.over_rate, &over_before, &over_now);
        follow(&mut self.terms.stores, &before.stores, &file.stores);
        follow(&mut self.terms.write_back_ms, &before.write_back_ms, &file.write_back_ms);
        self.declared = Some(file.clone());
    }

    /// The two secrets that are valid. Those of a rotation at run time, which the file knows
    /// nothing of, stay unless the file's secret is another one.
    fn take_secrets(&mut self, before: &wire::Tenant, file: &wire::Tenant) {
        let id = self.id;
        if file.secret != before.secret {
            if !self.secret.is_empty() && !is_same_secret(&self.secret, &file.secret) {
                tracing::warn!(
                    "tenant {id}: its secret is now the cluster file's, where it was changed: clients that sign with \
                     another than the file's secret and also_secret are denied"
                );
            }
            self.secret.clone_from(&file.secret);
            self.also_secret.clone_from(&file.also_secret);
            return;
        }
        if file.also_secret == before.also_secret {
            return;
        }
        if self.also_secret.is_some() && self.also_secret != before.also_secret {
            tracing::warn!(
                "tenant {id}: the cluster file's other also_secret is left out, for a rotation goes on that began at \
                 run time: finish it (`shortstop tenant rotate {id} --finish`), then change the file again"
            );
            return;
        }
        self.also_secret.clone_from(&file.also_secret);
    }

    /// What seeds the hashes of its keys.
    fn seed(&self) -> &str {
        self.hash_secret.as_deref().unwrap_or(&self.secret)
    }

    /// Its keys lie where the seed puts them that it began with, and switches have copies under it.
    fn keep_seed_of(&mut self, known: Option<&Tenant>) {
        let Some(known) = known.filter(|known| known.seed() != self.seed()) else { return };
        tracing::warn!(
            "tenant {0}: the cluster file has another seed for the hashes of its keys: the one that it had stays, and clients need it (`shortstop tenant show {0} --secrets`)",
            self.id
        );
        self.hash_secret = Some(known.seed().into());
    }

    /// Whether this cluster file has it, and not merely another tenant of its number.
    pub fn is_of(&self, file: &Cluster) -> bool {
        self.declared.is_some() && file.tenant(self.id).is_some()
    }

    /// Those of its stores that the cluster has; empty: it may use all. None: it is limited to
    /// some, and none of them is the cluster's any longer, which does not mean that it may use
    /// others: it has no store until somebody gives it one.
    pub fn stores_in(&self, file: &Cluster) -> Option<Vec<SocketAddr>> {
        let stores = &self.terms.stores;
        if stores.is_empty() {
            return Some(vec![]);
        }
        file.check_stores_of(stores).ok()?;
        let known: HashSet<SocketAddr> = file.stores.iter().map(|store| store.address).collect();
        let there = stores.iter().copied().filter(|store| known.contains(store));
        Some(there.collect()).filter(|there: &Vec<SocketAddr>| !there.is_empty())
    }

    /// Whether there are any: as [`Tenant::stores_in`], in a step per store.
    pub fn has_stores_in(&self, file: &Cluster) -> bool {
        let stores = &self.terms.stores;
        let is_there = |store: &SocketAddr| file.stores.iter().any(|s| s.address == *store);
        stores.is_empty() || file.check_stores_of(stores).is_ok() && stores.iter().any(is_there)
    }

    /// Says which of its stores the cluster has no longer. What it was given stays as it is: the
    /// next start may have a file that has them.
    fn warn_of_lost_stores(&self, file: &Cluster) {
        let (id, stores) = (self.id, &self.terms.stores);
        match self.stores_in(file) {
            Some(there) if there.len() == stores.len() => {}
            Some(there) => tracing::warn!(
                "tenant {id}: of its stores the cluster file has only {there:?}, and all of its keys are on those now: \
                 give it others (`shortstop tenant change {id} --stores`), or put the missing ones back in the file"
            ),
            None => tracing::error!(
                "tenant {id}: none of its stores {stores:?} is in the cluster file, so nobody serves it: give it \
                 others (`shortstop tenant change {id} --stores`), or put them back in the file"
            ),
        }
    }

    /// As clients, stores and switches know it.
    pub fn to_wire(&self) -> wire::Tenant {
        wire::Tenant {
            id: self.id,
            secret: self.secret.clone(),
            also_secret: self.also_secret.clone(),
            hash_secret: self.hash_secret.clone(),
            rate: self.terms.rate,
            over_rate: self.terms.over_rate.into(),
            stores: self.terms.stores.clone(),
            write_back_ms: self.terms.write_back_ms,
        }
    }
}

/// Ours becomes the file's where the file changed.
fn follow<T: PartialEq + Clone>(ours: &mut T, before: &T, file: &T) {
    if before != file {
        ours.clone_from(file);
    }
}

/// Whether two secrets in hex digits are the same.
fn is_same_secret(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// A tenant came, changed or went: to be remembered, and to be told to stores and switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "changes of tenants are remembered and told"]
pub struct TenantChanged(pub u32);

/// All tenants of a controller.
#[derive(Debug, Default)]
pub struct Tenants {
    by_id: BTreeMap<u32, Tenant>,
    /// Numbers of tenants that were removed: what they left in the stores is under these.
    retired: BTreeSet<u32>,
}

impl Tenants {
    /// Those that were remembered, brought in line with the cluster file; with what was changed
    /// for that.
    pub fn new(
        remembered: impl IntoIterator<Item = (u32, Tenant)>,
        retired: impl IntoIterator<Item = u32>,
        file: &Cluster,
    ) -> (Tenants, Vec<TenantChanged>) {
        let mut tenants = Tenants {
            by_id: remembered.into_iter().collect(),
            retired: retired.into_iter().collect(),
        };
        let mut changed = vec![];
        if file.open_tenant && !tenants.by_id.contains_key(&TENANT_OPEN) {
            changed.push(tenants.put(Tenant::new(TENANT_OPEN)));
        }
        if !file.open_tenant {
            changed.extend(tenants.remove(TENANT_OPEN));
        }
        for entry in &file.tenants {
            changed.extend(tenants.declare(entry));
        }
        for tenant in tenants.iter().filter(|t| t.declared.is_some() && !t.is_of(file)) {
            tracing::warn!(
                "tenant {0} stays, although it came from a cluster file and is not in this one: put it back there, or \
                 remove it with `shortstop tenant remove {0}`",
                tenant.id
            );
        }
        tenants.iter().for_each(|tenant| tenant.warn_of_lost_stores(file));
        (tenants, changed)
    }

    /// Brings one in line with what the cluster file says of it, unless its number was given to
    /// another one.
    fn declare(&mut self, entry: &wire::Tenant) -> Option<TenantChanged> {
        let id = entry.id;
        let known = self.by_id.get(&id);
        if known.is_some_and(|t| t.declared.as_ref() == Some(entry)) {
            return None;
        }
        if known.is_none() && self.is_retired(id) {
            tracing::error!(
                "tenant {id} of the cluster file is left out: a tenant of this number was removed, and the stores may \
                 still have its values. Give the entry a number that none had, or, if it is to find them, make it \
                 with the entry's secret: `shortstop tenant create --id {id} --reuse --secret SECRET`"
            );
            return None;
        }
        if let Some(other) = known.filter(|t| t.declared.is_none())
            && !is_same_secret(&other.secret, &entry.secret)
        {
            tracing::error!(
                "tenant {id} of the cluster file is left out: tenant {id} {:?} was made at run time and has another \
                 secret. Give the entry a number that none has, or, if it is to be that one, its secret \
                 (`shortstop tenant show {id} --secrets`)",
                other.terms.name
            );
            return None;
        }
        let mut tenant = known.cloned().unwrap_or_else(|| Tenant::new(id));
        tenant.take_over(entry);
        tenant.keep_seed_of(known);
        Some(self.put(tenant))
    }

    /// One of them.
    pub fn get(&self, id: u32) -> Option<&Tenant> {
        self.by_id.get(&id)
    }

    /// All, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.by_id.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether a tenant of this number was removed.
    pub fn is_retired(&self, id: u32) -> bool {
        self.retired.contains(&id)
    }

    /// Adds or replaces one.
    pub fn put(&mut self, tenant: Tenant) -> TenantChanged {
        let id = tenant.id;
        self.retired.remove(&id);
        self.by_id.insert(id, tenant);
        TenantChanged(id)
    }

    /// Removes one, if it is there.
    pub fn remove(&mut self, id: u32) -> Option<TenantChanged> {
        self.by_id.remove(&id)?;
        self.retired.insert(id);
        Some(TenantChanged(id))
    }

    /// Notes what is to be remembered of a change.
    pub fn note(&self, TenantChanged(id): TenantChanged, journal: &mut Journal) {
        match self.get(id) {
            Some(tenant) => journal.put(format!("tenant/{id}"), tenant),
            None => journal.delete(format!("tenant/{id}")),
        }
        match self.is_retired(id) {
            true => journal.put(format!("retired/{id}"), &true),
            false => journal.delete(format!("retired/{id}")),
        }
    }

    /// The lowest number from 1 that nobody has or had.
    pub fn free_id(&self) -> u32 {
        (1..TENANT_SYSTEM)
            .find(|id| !self.by_id.contains_key(id) && !self.retired.contains(id))
            .expect("there are fewer tenants than numbers")
    }

    /// The cluster with those tenants of ours that `wanted` says yes to and that have stores.
    pub fn cluster(&self, file: &Cluster, wanted: impl Fn(&Tenant) -> bool) -> Cluster {
        self.cluster_on(file, |tenant| wanted(tenant).then(|| tenant.stores_in(file))?)
    }

    /// The cluster with those tenants of ours for which there are `stores`; empty: all.
    pub fn cluster_on(
        &self,
        file: &Cluster,
        stores: impl Fn(&Tenant) -> Option<Vec<SocketAddr>>,
    ) -> Cluster {
        let listed = self.iter().filter(|tenant| tenant.id != TENANT_OPEN);
        let on =
            |tenant: &Tenant| Some(wire::Tenant { stores: stores(tenant)?, ..tenant.to_wire() });
        Cluster { tenants: listed.filter_map(on).collect(), ..file.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tenants: &str) -> Cluster {
        let head = "partitions = 1\n[[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 0\n";
        Cluster::parse(&format!("{head}{tenants}")).unwrap()
    }

    const OTHER: &str = "0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e0e";
    const THIRD: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";
    const SEVEN: &str = "[[tenant]]\nid = 7\nsecret = \"000102030405060708090a0b0c0d0e0f\"\n";

    #[test]
    fn what_the_file_says_is_taken_over_when_it_changes_and_only_then() {
        let (mut first, changed) = Tenants::new([], [], &file(SEVEN));
        assert_eq!(first.iter().map(|t| t.id).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(changed, [0, 7].map(TenantChanged));
        let mut seven = first.get(7).unwrap().clone();
        seven.terms.rate = 99;
        let _ = first.put(seven);

        let (same, _) = Tenants::new(first.by_id.clone(), [], &file(SEVEN));
        assert_eq!(same.get(7).unwrap().terms.rate, 99, "changed at run time, and kept");
        let edited = format!("{SEVEN}rate = 5\n");
        let (edited, _) = Tenants::new(first.by_id.clone(), [], &file(&edited));
        assert_eq!(edited.get(7).unwrap().terms.rate, 5);
        let seed = first.get(7).unwrap().seed().to_string();
        let secret = SEVEN.replace(&seed, OTHER);
        let (other, _) = Tenants::new(first.by_id.clone(), [], &file(&secret));
        let other = other.get(7).unwrap();
        assert_eq!((&*other.secret, other.seed()), (OTHER, &*seed));
        assert_eq!(other.terms.rate, 99, "the file says nothing else of it");
    }

    /// Tenant 7 of the file, in the midst of a rotation at run time.
    fn rotating() -> Tenant {
        let (first, _) = Tenants::new([], [], &file(SEVEN));
        let mut seven = first.get(7).unwrap().clone();
        seven.also_secret = Some(std::mem::replace(&mut seven.secret, OTHER.into()));
        seven.hash_secret.clone_from(&seven.also_secret);
        seven
    }

    #[test]
    fn no_old_secret_comes_back_because_the_file_changes_elsewhere() {
        let secrets = |text: &str, known: Tenant| {
            let (tenants, _) = Tenants::new([(7, known)], [], &file(text));
            let seven = tenants.get(7).unwrap().clone();
            (seven.secret, seven.also_secret, seven.hash_secret)
        };
        let before = rotating();
        let old = before.also_secret.clone();
        let rate = format!("{SEVEN}rate = 5\n");
        assert_eq!(secrets(&rate, before.clone()), (OTHER.into(), old.clone(), old.clone()));
        let also = format!("{SEVEN}also_secret = \"{THIRD}\"\n");
        assert_eq!(secrets(&also, before.clone()), (OTHER.into(), old.clone(), old.clone()));
        let finished = Tenant { also_secret: None, ..before.clone() };
        assert_eq!(secrets(&rate, finished.clone()), (OTHER.into(), None, old.clone()));
        assert_eq!(secrets(&also, finished), (OTHER.into(), Some(THIRD.into()), old.clone()));
        // The file's own secret is another: those that it lists are valid, and no others.
        let third = SEVEN.replace(old.as_ref().unwrap(), THIRD);
        assert_eq!(secrets(&third, before), (THIRD.into(), None, old));
    }

    #[test]
    fn one_that_is_not_in_this_file_stays_as_it_is_and_its_number_is_not_retired() {
        let seven = rotating();
        let (without, changed) = Tenants::new([(7, seven.clone())], [], &file(""));
        assert_eq!(without.get(7), Some(&seven));
        assert!(!seven.is_of(&file("")) && seven.is_of(&file(SEVEN)));
        assert_eq!(changed, [TenantChanged(0)]);
        // Back under the file that has it, nothing of it is taken over again.
        let (again, changed) = Tenants::new(without.by_id, [], &file(SEVEN));
        assert_eq!(again.get(7), Some(&seven));
        assert!(changed.is_empty());
    }

    #[test]
    fn an_entry_whose_number_was_given_to_another_tenant_is_left_out() {
        let made = Tenant { secret: OTHER.into(), ..Tenant::new(7) };
        let (tenants, _) = Tenants::new([(7, made.clone())], [], &file(SEVEN));
        assert_eq!(tenants.get(7), Some(&made));
        assert!(!made.is_of(&file(SEVEN)), "it is removed like any other");
        let (tenants, changed) = Tenants::new([], [7], &file(SEVEN));
        assert!(tenants.get(7).is_none() && tenants.is_retired(7));
        assert_eq!(changed, [TenantChanged(0)]);
        // With its secret the entry is that tenant.
        let same = SEVEN.replace("000102030405060708090a0b0c0d0e0f", &OTHER.to_uppercase());
        let (tenants, _) = Tenants::new([(7, made)], [], &file(&format!("{same}rate = 5\n")));
        let seven = tenants.get(7).unwrap();
        assert_eq!(seven.terms.rate, 5);
        assert!(seven.is_of(&file(&same)));
    }

    #[test]
    fn a_tenant_that_the_file_never_had_stays() {
        let (mut tenants, _) = Tenants::new([], [], &file(""));
        let _ = tenants.put(Tenant::new(9));
        let (again, _) = Tenants::new(tenants.by_id, [], &file(""));
        assert!(again.get(9).is_some());
        assert_eq!(again.free_id(), 1);
    }
}
