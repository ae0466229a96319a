//! Messages to the controller.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use api::proto::{FromSwitch, KeyCount, TenantCounts, TenantKeys, from_switch::Body};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::debug;

/// Keys in one message.
pub(super) const KEYS_PER_MESSAGE: usize = 4_000;

/// Bytes of keys with their counts in the one message that a window comes to: the controller takes
/// none of more than 8 MiB, and there is more in it than these.
const COUNTS_MAX: usize = 4 << 20;
/// Most bytes that a key takes there beside itself: two tags and lengths, and its count.
const COUNT_BYTES: usize = 18;

/// To the session, unless it cannot keep up: every report is made again in the next window, every
/// command without an acknowledgement is repeated. False: it was left out.
pub(super) fn send(out: &Sender<FromSwitch>, body: Body) -> bool {
    let sent = out.try_send(FromSwitch { body: Some(body) }).is_ok();
    if !sent {
        debug!("a message to the controller was left out: no stream, or a slow one");
    }
    sent
}

/// What begins what the tables say on a new stream, in the queue to the session: whatever is before
/// it was for an earlier one. It goes to no controller.
pub(super) fn beginning() -> FromSwitch {
    FromSwitch { body: None }
}

/// Keys by their tenants.
pub(super) fn tenant_keys<'a>(keys: impl IntoIterator<Item = &'a ItemKey>) -> Vec<TenantKeys> {
    let mut tenants: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for key in keys {
        tenants.entry(key.tenant).or_default().push(key.key.clone());
    }
    let of = |(tenant, keys)| TenantKeys { tenant, keys };
    tenants.into_iter().map(of).collect()
}

/// Keys with their counts, by their tenants.
pub(super) fn tenant_counts(counts: &[(ItemKey, u64)]) -> Vec<TenantCounts> {
    let mut tenants: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for (ItemKey { tenant, key }, count) in counts {
        tenants.entry(*tenant).or_default().push(KeyCount { key: key.clone(), count: *count });
    }
    let of = |(tenant, keys)| TenantCounts { tenant, keys };
    tenants.into_iter().map(of).collect()
}

/// Those of these counts that one message has room for. Where there are more, each tenant has an
/// equal share of half of the room for its keys that were asked for most, and the other half is for
/// whatever was asked for most.
pub(super) fn that_fit(mut counts: Vec<(ItemKey, u64)>) -> Vec<(ItemKey, u64)> {
    let bytes = |(key, _): &(ItemKey, u64)| key.key.len() + COUNT_BYTES;
    if counts.iter().map(bytes).sum::<usize>() <= COUNTS_MAX {
        return counts;
    }
    counts.sort_unstable_by_key(|(_, count)| Reverse(*count));
    let tenants: BTreeSet<u32> = counts.iter().map(|(key, _)| key.tenant).collect();
    let share = COUNTS_MAX / 2 / tenants.len();
    let mut used = BTreeMap::<u32, usize>::new();
    let (mut told, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|count| {
        let used = used.entry(count.0.tenant).or_default();
        *used += bytes(count);
        *used <= share
    });
    let mut all: usize = told.iter().map(bytes).sum();
    told.extend(others.into_iter().take_while(|count| {
        all += bytes(count);
        all <= COUNTS_MAX
    }));
    told
}

#[cfg(test)]
mod tests {
    use api::proto::Counters;
    use prost::Message as _;

    use super::*;

    fn key(tenant: u32, key: &'static str) -> ItemKey {
        ItemKey { tenant, key: key.into() }
    }

    #[test]
    fn what_is_told_is_grouped_by_tenant() {
        let keys = [key(9, "a"), key(7, "b"), key(9, "c")];
        let of = |tenant, keys: &[&'static str]| TenantKeys {
            tenant,
            keys: keys.iter().map(|key| (*key).into()).collect(),
        };
        assert_eq!(tenant_keys(&keys), [of(7, &["b"]), of(9, &["a", "c"])]);
        let counts = tenant_counts(&keys.map(|key| (key, 3)));
        let told: Vec<_> = counts.iter().map(|t| (t.tenant, t.keys.len())).collect();
        assert_eq!(told, [(7, 1), (9, 2)]);
    }

    /// One that is longer is thrown out by the controller, and the switch's stream with it.
    #[test]
    fn what_a_window_comes_to_is_one_message_that_the_controller_takes() {
        const LARGE: u32 = 40_000;
        let item = |tenant, n: u32| {
            let key = [&n.to_be_bytes()[..], &[0; 246]].concat();
            (ItemKey { tenant, key: key.into() }, u64::from(n) << 40)
        };
        let few: Vec<_> = (1..=10).map(|n| item(9, n)).collect();
        let many = (11..=LARGE).map(|n| item(7, n));
        let told = that_fit(few.iter().cloned().chain(many).collect());
        let bytes = Counters { items: tenant_counts(&told), ..Counters::default() }.encoded_len();
        assert!((COUNTS_MAX / 10 * 9..=COUNTS_MAX).contains(&bytes), "{bytes}");
        let of = |tenant| told.iter().filter(move |(key, _)| key.tenant == tenant);
        assert_eq!(of(9).count(), few.len(), "a tenant with few keys has its share");
        let least = of(7).map(|(_, count)| count >> 40).min().unwrap();
        assert_eq!(of(7).count() as u64, u64::from(LARGE) + 1 - least, "those asked for most");
        assert_eq!(that_fit(few.clone()), few);
    }
}
