//! The tenants as the controller keeps them: who they are, what they may use, which secrets
//! are theirs.
//!
//! They come from the cluster file ("declared") or from the admin API. What the cluster file says
//! of a declared tenant is taken over once, and again whenever the file says something else; in
//! between, changes made at run time hold.

use std::collections::{BTreeMap, BTreeSet};

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

    fn take_over(&mut self, file: &wire::Tenant) {
        self.secret.clone_from(&file.secret);
        self.also_secret.clone_from(&file.also_secret);
        self.hash_secret.clone_from(&file.hash_secret);
        self.terms.rate = file.rate;
        self.terms.over_rate = file.over_rate.into();
        self.terms.stores.clone_from(&file.stores);
        self.terms.write_back_ms = file.write_back_ms;
        self.declared = Some(file.clone());
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
            let known = tenants.by_id.get(&entry.id);
            if known.is_some_and(|t| t.declared.as_ref() == Some(entry)) {
                continue;
            }
            let mut tenant = known.cloned().unwrap_or_else(|| Tenant::new(entry.id));
            tenant.take_over(entry);
            tenant.keep_seed_of(known);
            changed.push(tenants.put(tenant));
        }
        let no_longer_declared: Vec<u32> = tenants
            .by_id
            .values()
            .filter(|t| t.declared.is_some() && file.tenant(t.id).is_none())
            .map(|t| t.id)
            .collect();
        let gone = no_longer_declared.into_iter();
        changed.extend(gone.filter_map(|id| tenants.remove(id)));
        (tenants, changed)
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

    /// The cluster with those tenants of ours that `wanted` says yes to.
    pub fn cluster(&self, file: &Cluster, wanted: impl Fn(&Tenant) -> bool) -> Cluster {
        let listed = self.iter().filter(|t| t.id != TENANT_OPEN && wanted(t)).map(Tenant::to_wire);
        Cluster { tenants: listed.collect(), ..file.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tenants: &str) -> Cluster {
        let head = "partitions = 1\n[[store]]\naddress = \"10.0.0.1:7117\"\nfirst = 0\nlast = 0\n";
        Cluster::parse(&format!("{head}{tenants}")).unwrap()
    }

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
        let secret = SEVEN.replace(&seed, &"0e".repeat(16));
        let (other, _) = Tenants::new(first.by_id.clone(), [], &file(&secret));
        let other = other.get(7).unwrap();
        assert_eq!((&*other.secret, other.seed()), (&*"0e".repeat(16), &*seed));
        let (gone, changed) = Tenants::new(first.by_id.clone(), [], &file(""));
        assert!(gone.get(7).is_none());
        assert_eq!(changed, [TenantChanged(7)]);
        assert!(gone.is_retired(7), "what it left in the stores is under its number");
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
