//! Which keys switches have items of.

use std::collections::BTreeSet;

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
        let switches = self.around.switches;
        let all = || switches.ids().filter_map(|id| Some((id, switches.get(id)?)));
        let unheard = all().filter(|(id, switch)| with_pages.contains(id) && !switch.is_heard());
        let keys = all().flat_map(|(_, switch)| switch.keys_of(id));
        let wanted: BTreeSet<&[u8]> = keys
            .map(|key| &key[..])
            .filter(|key| key.first() != Some(&OWN_KEYS))
            .filter(|key| key.starts_with(&filter.prefix) && *key > &filter.after[..])
            .collect();
        let first = wanted.into_iter().take(filter.limit);
        Ok(KeyList {
            keys: first.map(hex::encode).collect(),
            unheard: unheard.map(|(id, _)| id).collect(),
        })
    }
}
