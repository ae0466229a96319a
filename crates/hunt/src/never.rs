use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Of a store: what no client, switch or network that keeps to the rules brings about.
const STORE: [&str; 8] = [
    // A switch that renews its lease and answers no invalidation.
    "leases_refused_mute",
    // Writes that their client's own window should have held back: they are never answered.
    "duplicates_too_old",
    "denied_key_hash",
    "wrong_partition",
    "dropped_op",
    "dropped_fragment",
    "dropped_lease_auth",
    "discipline_refused",
];
/// Of a switch.
const SWITCH: [&str; 2] = ["grant_refused", "drop_refused"];
/// Of packets that are none, at stores and switches: unless links flip bits.
const MALFORMED: [&str; 8] = [
    "dropped_malformed",
    "drop_short_header",
    "drop_unknown_op",
    "drop_unknown_status",
    "drop_bad_key_length",
    "drop_bad_value_length",
    "drop_bad_fragment",
    "drop_truncated",
];

/// What must never be counted, whatever else goes wrong; and how often it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Never {
    /// Links flip bits: packets that are none are no wonder.
    bits_flip: bool,
    /// What somebody does on purpose.
    #[serde(default)]
    provoked: BTreeSet<String>,
    /// By name; none is 0.
    counts: BTreeMap<String, u64>,
}

impl Never {
    /// Nothing yet, of a network whose links flip bits or do not.
    pub fn new(bits_flip: bool) -> Never {
        Never {
            bits_flip,
            ..Never::default()
        }
    }

    /// The counters of a store or a switch, by name: those of them that must be 0 are added.
    pub fn look<'a>(&mut self, counters: impl IntoIterator<Item = (&'a str, u64)>) {
        for (name, count) in counters {
            let is_malformed = MALFORMED.contains(&name) && !self.bits_flip;
            if STORE.contains(&name) || SWITCH.contains(&name) || is_malformed {
                self.add(name, count);
            }
        }
    }

    /// As [`Never::look`], of a JSON object of numbers.
    pub fn look_at(&mut self, counters: &serde_json::Value) {
        let all = counters.as_object().into_iter().flatten();
        self.look(all.filter_map(|(name, count)| Some((name.as_str(), count.as_u64()?))));
    }

    /// Leaves what is counted under this name out from now on: it is refused to somebody who tries it on purpose.
    pub fn leave(&mut self, name: &str) {
        self.provoked.insert(name.into());
    }

    /// So often this happened, which must not.
    pub fn add(&mut self, name: &str, count: u64) {
        if count > 0 && !self.provoked.contains(name) {
            *self.counts.entry(name.into()).or_default() += count;
        }
    }

    /// What others have counted.
    pub fn merge(&mut self, other: &Never) {
        for (name, count) in &other.counts {
            self.add(name, *count);
        }
    }

    /// What was counted, by name.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// What was wrong, in words; none: nothing was.
    pub fn complaint(&self) -> Option<String> {
        let each: Vec<String> = self
            .counts
            .iter()
            .map(|(name, count)| format!("{name} = {count}"))
            .collect();
        (!each.is_empty()).then(|| format!("{}: must be 0", each.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_zero_is_what_the_store_and_the_switches_count() {
        let store = serde_json::to_value(store::Status::default().totals).unwrap();
        let switch = dataplane::Counters::list();
        let known = |name: &str| store.get(name).is_some() || switch.iter().any(|c| c.name == name);
        for name in STORE.iter().chain(&SWITCH).chain(&MALFORMED) {
            assert!(known(name), "{name}");
        }
    }

    #[test]
    fn what_was_counted_is_said() {
        let mut never = Never::default();
        never.look([("reads", 7), ("duplicates_too_old", 0)]);
        assert_eq!(never.complaint(), None);
        never.look([("duplicates_too_old", 2), ("drop_truncated", 1)]);
        let said = "drop_truncated = 1, duplicates_too_old = 2: must be 0";
        assert_eq!(never.complaint().as_deref(), Some(said));
        let mut provoked = Never::default();
        provoked.leave("drop_truncated");
        provoked.look([("drop_truncated", 1), ("wrong_partition", 1)]);
        let said = "wrong_partition = 1: must be 0";
        assert_eq!(provoked.complaint().as_deref(), Some(said));
        let mut flipping = Never::new(true);
        flipping.look([("drop_truncated", 1)]);
        assert_eq!(flipping.complaint(), None);
    }
}
