//! From messages to what the controller works with: keys that were checked, by tenant.

use std::collections::BTreeMap;

use api::proto::{self, FromSwitch, TenantCounts, TenantKeys, TenantTallies, from_switch::Body};
use decide::{ItemKey, Key, Outcome, TALLIES, Tallies};

/// Keys of each tenant.
pub type Keys = BTreeMap<u32, Vec<Key>>;
/// Keys of each tenant with their requests.
pub type Counts = BTreeMap<u32, Vec<(Key, u64)>>;

/// The key, copied out of its message, so that one key does not keep the whole message in memory;
/// `None` if its length is not 1 to [`wire::MAX_KEY`].
fn key(bytes: &[u8]) -> Option<Key> {
    (1..=wire::MAX_KEY).contains(&bytes.len()).then(|| Key::copy_from_slice(bytes))
}

/// Whether a switch tells of anything but that it is there: of requests, for instance.
pub fn says_something(message: &FromSwitch) -> bool {
    match &message.body {
        Some(Body::Counters(counters)) => {
            let mut keys = counters.items.iter().flat_map(|group| &group.keys);
            !counters.tallies.is_empty() || keys.any(|key| key.count > 0)
        }
        Some(Body::Pages(_)) | None => false,
        Some(_) => true,
    }
}

/// The well-formed ones of these keys.
pub fn items(groups: &[TenantKeys]) -> Vec<ItemKey> {
    let of = |group: &TenantKeys| {
        let tenant = group.tenant;
        let keys = group.keys.iter().filter_map(|bytes| key(bytes));
        keys.map(move |key| ItemKey { tenant, key }).collect::<Vec<_>>()
    };
    groups.iter().flat_map(of).collect()
}

/// These keys by tenant, in the order that they have.
pub fn by_tenant(items: Vec<ItemKey>) -> Keys {
    let mut keys = Keys::new();
    for ItemKey { tenant, key } in items {
        keys.entry(tenant).or_default().push(key);
    }
    keys
}

/// The well-formed keys of tenants that `is_known`, and how many others there are.
pub fn counts(groups: &[TenantCounts], is_known: impl Fn(u32) -> bool) -> (Counts, u64) {
    let mut counts = Counts::new();
    let mut others = 0;
    for group in groups {
        if !is_known(group.tenant) {
            others += group.keys.len() as u64;
            continue;
        }
        let of = counts.entry(group.tenant).or_default();
        let before = of.len();
        let keys = group.keys.iter();
        of.extend(keys.filter_map(|k| Some((key(&k.key)?, k.count))));
        others += (group.keys.len() - (of.len() - before)) as u64;
    }
    (counts, others)
}

/// What was counted of each tenant. Words that are missing count as 0; one that nobody has is not
/// looked at.
pub fn tallies(of: &[TenantTallies]) -> BTreeMap<u32, Tallies> {
    let words = |of: &TenantTallies| {
        let mut tallies = [0; TALLIES];
        for tally in &of.tallies {
            if let Some(to) = tallies.get_mut(tally.word as usize) {
                *to = tally.count;
            }
        }
        (of.tenant, tallies)
    };
    of.iter().map(words).collect()
}

/// An outcome; one that we do not know counts as a refusal.
pub fn outcome(outcome: i32) -> Outcome {
    proto::Outcome::try_from(outcome).map_or(Outcome::Refused, Outcome::from)
}
