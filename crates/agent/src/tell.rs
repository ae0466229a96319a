//! Messages to the controller.

use std::collections::BTreeMap;

use api::proto::{FromSwitch, KeyCount, TenantCounts, TenantKeys, from_switch::Body};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::debug;

/// Keys in one message.
pub(super) const KEYS_PER_MESSAGE: usize = 4_000;

/// To the session, unless it cannot keep up: every report is made again in the next window, every
/// command without an acknowledgement is repeated. False: it was left out.
pub(super) fn send(out: &Sender<FromSwitch>, body: Body) -> bool {
    let sent = out.try_send(FromSwitch { body: Some(body) }).is_ok();
    if !sent {
        debug!("a message to the controller was left out: no stream, or a slow one");
    }
    sent
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

#[cfg(test)]
mod tests {
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
}
