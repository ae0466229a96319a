//! Counters that stay at 0 as long as everybody keeps to the rules, whatever is lost, cut or
//! killed. A plan's run has one of these, and so have the experiments' rigs; both fail by it.

use std::collections::{BTreeMap, BTreeSet};

use plan::topology::Fault;
use serde::{Deserialize, Serialize};

/// Of a store: what no client, switch or network that keeps to the rules brings about.
const STORE: [&str; 5] =
    ["wrong_partition", "dropped_op", "dropped_part", "dropped_lease_auth", "discipline_refused"];
/// Of a store: writes that their client's own window should have held back. They are never
/// answered; unless links hold packets back for so long that a copy comes when its client has long
/// heard of another.
const TOO_OLD: &str = "duplicates_too_old";
/// In milliseconds.
const LONG: f64 = 20.0;
/// Of a store: a switch that renews its lease and leaves invalidations unanswered; unless it was
/// away, or the way to it was cut.
const MUTE: &str = "leases_refused_mute";
/// Of a switch.
const SWITCH: [&str; 1] = ["drop_refused"];
/// Of a switch: a grant for an entry by somebody who is not its store; unless links flip bits, or a
/// switch left: it knows no stores any more, and a grant may have been on its way.
const REFUSED: &str = "grant_refused";
/// Of packets that are none, or not whole, at stores and switches: unless links flip bits.
const MALFORMED: [&str; 9] = [
    "denied_key_hash",
    "dropped_malformed",
    "drop_short_header",
    "drop_unknown_op",
    "drop_unknown_status",
    "drop_bad_key_length",
    "drop_bad_value_length",
    "drop_bad_part",
    "drop_truncated",
];

/// What must never be counted, whatever else goes wrong; and how often it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForbiddenCounts {
    /// Links flip bits: packets that are none are no wonder.
    bits_flip: bool,
    /// Links hold packets back for long.
    holds_back: bool,
    /// A switch did not run for a while, or could not be reached.
    was_away: bool,
    /// A switch left.
    left: bool,
    /// What somebody does on purpose.
    provoked: BTreeSet<String>,
    /// By name; none is 0.
    counts: BTreeMap<String, u64>,
}

impl ForbiddenCounts {
    /// A link does this to its packets from now on: what is no wonder then is not counted.
    pub fn expect(&mut self, fault: &Fault) {
        self.bits_flip |= fault.flip > 0.0;
        self.holds_back |= fault.reorder > 0.0 && fault.reorder_ms > LONG;
    }

    /// A switch does not run for a while, or a way to it is cut.
    pub fn expect_absence(&mut self) {
        self.was_away = true;
    }

    /// A switch leaves in order.
    pub fn expect_departure(&mut self) {
        self.was_away = true;
        self.left = true;
    }

    /// The counters of a store or a switch, by name: those of them that must be 0 are added.
    pub fn look<'a>(&mut self, counters: impl IntoIterator<Item = (&'a str, u64)>) {
        for (name, count) in counters {
            let is_malformed = MALFORMED.contains(&name) && !self.bits_flip;
            let is_too_old = name == TOO_OLD && !self.holds_back;
            let is_mute = name == MUTE && !self.was_away;
            let is_refused = name == REFUSED && !self.bits_flip && !self.left;
            if is_mute
                || is_refused
                || STORE.contains(&name)
                || SWITCH.contains(&name)
                || is_malformed
                || is_too_old
            {
                self.add(name, count);
            }
        }
    }

    /// As [`ForbiddenCounts::look`], of a JSON object of numbers.
    pub fn look_at(&mut self, counters: &serde_json::Value) {
        let all = counters.as_object().into_iter().flatten();
        self.look(all.filter_map(|(name, count)| Some((name.as_str(), count.as_u64()?))));
    }

    /// Leaves what is counted under this name out from now on: it is refused to somebody who tries
    /// it on purpose.
    pub fn leave(&mut self, name: &str) {
        self.provoked.insert(name.into());
    }

    /// So often this happened, which must not.
    pub fn add(&mut self, name: &str, count: u64) {
        if count > 0 && !self.provoked.contains(name) {
            *self.counts.entry(name.into()).or_default() += count;
        }
    }

    /// What was counted, by name.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// What was wrong, in words; none: nothing was.
    pub fn complaint(&self) -> Option<String> {
        let each: Vec<String> =
            self.counts.iter().map(|(name, count)| format!("{name} = {count}")).collect();
        (!each.is_empty()).then(|| format!("{}: must be 0", each.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_zero_is_what_the_store_and_the_switches_count() {
        let store = serde_json::to_value(store::Status::default().totals).unwrap();
        let switch = dataplane::Counters::list([]);
        let known = |name: &str| store.get(name).is_some() || switch.iter().any(|c| c.name == name);
        for name in STORE.iter().chain(&SWITCH).chain(&MALFORMED).chain([&TOO_OLD, &MUTE, &REFUSED])
        {
            assert!(known(name), "{name}");
        }
    }

    #[test]
    fn what_was_counted_is_said() {
        let mut never = ForbiddenCounts::default();
        never.look([("reads", 7), ("duplicates_too_old", 0)]);
        assert_eq!(never.complaint(), None);
        never.look([("duplicates_too_old", 2), ("drop_truncated", 1)]);
        let said = "drop_truncated = 1, duplicates_too_old = 2: must be 0";
        assert_eq!(never.complaint().as_deref(), Some(said));
        let mut faulty = ForbiddenCounts::default();
        faulty.expect(&Fault { flip: 0.1, reorder: 0.1, reorder_ms: 300.0, ..Fault::default() });
        faulty.expect_absence();
        faulty.look([("drop_truncated", 1), ("duplicates_too_old", 1), ("leases_refused_mute", 1)]);
        assert_eq!(faulty.complaint(), None);
        let mut left = ForbiddenCounts::default();
        left.expect_departure();
        left.look([("grant_refused", 1), ("leases_refused_mute", 1), ("drop_truncated", 1)]);
        assert_eq!(left.complaint().as_deref(), Some("drop_truncated = 1: must be 0"));
        let mut provoked = ForbiddenCounts::default();
        provoked.leave("drop_truncated");
        provoked.look([("drop_truncated", 1), ("wrong_partition", 1)]);
        let said = "wrong_partition = 1: must be 0";
        assert_eq!(provoked.complaint().as_deref(), Some(said));
    }
}
