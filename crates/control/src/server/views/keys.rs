//! Which keys switches have items of.

use std::{collections::BTreeSet, ops::Bound};

use api::types::KeyList;
use decide::SwitchId;
use wire::OWN_KEYS;

use super::View;
use crate::admin::{KeyFilter, Refusal};

impl View<'_> {
    /// Keys of a tenant, in their order.
    ///
    /// # Errors
    /// There is no such tenant.
    pub fn keys(&self, id: u32, filter: &KeyFilter) -> Result<KeyList, Refusal> {
        self.known(id)?;
        let with_pages: BTreeSet<SwitchId> =
            self.memory.ledger().held(id).map(|(page, _)| page.switch).collect();
        let all = || self.around.switches.iter();
        let unheard =
            all().filter(|(id, switch)| with_pages.contains(id) && !switch.held.is_told());
        // Of each switch as many as are asked for, and none of another tenant: all of them wait
        // meanwhile.
        let wanted: BTreeSet<&[u8]> = all()
            .flat_map(|(_, switch)| {
                let keys = switch.held.keys_from(id, first_of(filter)).map(|key| &key[..]);
                keys.take_while(|key| key.starts_with(&filter.prefix)).take(filter.limit)
            })
            .collect();
        let first = wanted.into_iter().take(filter.limit);
        Ok(KeyList {
            keys: first.map(hex::encode).collect(),
            unheard: unheard.map(|(id, _)| id).collect(),
        })
    }
}

/// Where a list begins: clients' keys begin after those that disciplines have for themselves.
fn first_of(filter: &KeyFilter) -> Bound<&[u8]> {
    const FIRST: &[u8] = &[OWN_KEYS + 1];
    let least = filter.prefix.as_slice().max(FIRST);
    match filter.after.as_slice() {
        after if after >= least => Bound::Excluded(after),
        _ => Bound::Included(least),
    }
}
