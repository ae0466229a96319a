//! Keys that members were believed to have, and have not. What is believed is written a moment
//! late: a controller that begins believes of keys that were removed just before that they are
//! there. So a member has lost a key only if another one, which has everything, has it still.

use std::collections::{BTreeMap, BTreeSet};

use decide::{Key, SwitchId};

use super::context::Facts;

/// Keys of users, by the switch that has them not. Each is here until all who could have it have
/// said what they have, or the switch is no member of its chain.
#[derive(Debug, Default)]
pub(super) struct MissingKeys(BTreeMap<SwitchId, BTreeSet<Key>>);

impl MissingKeys {
    /// A switch has not these keys.
    pub fn add(&mut self, switch: SwitchId, keys: impl Iterator<Item = Key>) {
        self.0.entry(switch).or_default().extend(keys);
    }

    /// Takes out the switches that have lost something.
    pub fn take_lost(&mut self, facts: &Facts) -> BTreeSet<SwitchId> {
        let mut lost = BTreeSet::new();
        if facts.stores.is_none() {
            return lost;
        }
        self.0.retain(|switch, keys| {
            keys.retain(|key| {
                if facts.has(*switch, key) {
                    return false;
                }
                let others = others(facts, *switch, key);
                if others.iter().any(|other| facts.has(*other, key)) {
                    lost.insert(*switch);
                }
                others.iter().any(|other| !facts.held.contains_key(other))
            });
            !keys.is_empty() && !lost.contains(switch)
        });
        lost
    }
}

/// The others of a key's chain that have everything; none: the switch is not in it.
fn others(facts: &Facts, switch: SwitchId, key: &Key) -> Vec<SwitchId> {
    let Some(chain) = facts.chain_with(key) else { return vec![] };
    let mut members = facts.members_of(chain);
    if !members.contains(&switch) {
        return vec![];
    }
    members.truncate(members.len() - usize::from(facts.chains()[chain].filling));
    members.retain(|member| *member != switch);
    members
}
