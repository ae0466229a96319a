//! What it costs that a switch has many tenants.

use anyhow::ensure;
use dataplane::TenantEntry;
use wire::Secret;

use super::{
    Rig,
    hits::{ITEMS, KEY_LEN},
    pair::Side,
};
use crate::{
    cache::{self, Cache, pages_for},
    drive::{self, Aim},
    packet,
    report::{Report, Side as Told, Target::AtMost},
    runs::TX,
};

const TENANTS: u32 = 1024;
/// As many in each tenant's name, and on each page.
const ALL: u32 = ITEMS.next_multiple_of(TENANTS);

/// A switch with a page for each of [`TENANTS`], and on each as many of [`ALL`] items, which are
/// those of `tenants` tenants. So a hit touches the same memory, however many they are.
fn switch(rig: &Rig, tenants: u32) -> anyhow::Result<(Cache, Aim)> {
    let pages = TENANTS * pages_for((ALL / TENANTS) as usize, KEY_LEN, 128)?;
    let of = |number| cache::tenant(drive::tenant_of(number), Secret::NONE);
    let discipline = cache::discipline(rig.options.discipline, pages);
    let store = packet::STORE.into();
    let mut cache = Cache::load("tenants", &[discipline], of(0), pages, store)?;
    let all: Vec<TenantEntry> = (0..tenants).map(of).collect();
    cache.set_tenants(&all)?;
    cache.items.groups = Some(TENANTS);
    for number in 0..ALL {
        let (hash, key) = (drive::hash(number, 0), drive::key(number));
        let tenant = &all[(number % tenants) as usize];
        let filled = cache.fill(tenant, hash, &key, &[b'v'; 128])?;
        ensure!(filled, "item {number} finds no room in its bucket");
    }
    let reads = Aim { keys: ALL, tenants, value_len: 128, verdict: TX, ..Aim::default() };
    Ok((cache, reads))
}

/// A hit on a random one of all items where they are those of many tenants, over the same where
/// they are one tenant's.
///
/// # Errors
/// The kernel refuses, or not all are hits.
pub fn many(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let (of_many, reads_of_many) = switch(rig, TENANTS)?;
    let (of_one, reads_of_one) = switch(rig, 1)?;
    let sides = [
        Side { program: &of_many.entry, aim: reads_of_many },
        Side { program: &of_one.entry, aim: reads_of_one },
    ];
    let [ours, theirs] = rig.measure(sides, || Ok(()))?;
    rig.counted("hit", of_many.count("hit")?, rig.runs())?;
    rig.counted("hit", of_one.count("hit")?, rig.runs())?;
    let sides =
        [Told::new("hit, one of 1024 tenants", &ours.net), Told::new("of one", &theirs.net)];
    report.ratio(key, AtMost(1.05), "ns", sides);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_tenants_have_one_number_and_none_is_a_special_one() {
        let all: HashSet<u32> = (0..TENANTS).map(drive::tenant_of).collect();
        assert_eq!(all.len(), TENANTS as usize);
        assert!(!all.contains(&wire::TENANT_OPEN) && !all.contains(&wire::TENANT_SYSTEM));
    }
}
