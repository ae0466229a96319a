//! Whose keys are marked as read when there are more than the backend is told of: tenants take
//! turns.
//!
//! First the key of each tenant that was read most, then each one's next: who has many hot keys
//! takes no other tenant's turn, and has what the others leave. Where there is not one for each,
//! those come first whose last turn was longest ago.
//!
//! Cost: a sort of all keys, a look-up for each, a sort of those that are chosen.

use std::cmp::Reverse;

use wire::maps::HashMap;

use crate::directory::KeyId;

/// Which tenant had its last turn when.
#[derive(Default)]
pub(super) struct Turns {
    round: u64,
    /// Of tenants with keys that wait: the last round in which one of them was marked.
    last: HashMap<u32, u64>,
}

/// What becomes of keys that wait, each with its reads.
pub(super) struct Choice {
    /// Those whose turn it is, first those that come first.
    pub chosen: Vec<(u64, KeyId)>,
    /// Those that are to wait no longer.
    pub left_out: Vec<(u64, KeyId)>,
}

impl Turns {
    /// Of all keys that wait, each with its reads, it is the turn of so many at most. Of the others
    /// so many go on waiting that with these they are `kept`.
    pub fn choose(&mut self, mut all: Vec<(u64, KeyId)>, most: usize, kept: usize) -> Choice {
        self.round += 1;
        all.sort_unstable_by_key(|key| Reverse(*key));
        let mut ranks: HashMap<u32, usize> = HashMap::default();
        let mut ranked: Vec<_> = (all.into_iter())
            .map(|(reads, id)| {
                let rank = ranks.entry(id.0).or_default();
                *rank += 1;
                (*rank, self.last.get(&id.0).copied().unwrap_or(0), Reverse((reads, id)))
            })
            .collect();
        let mut left_out = vec![];
        if kept < ranked.len() {
            ranked.select_nth_unstable(kept);
            left_out.extend(ranked.drain(kept..).map(|(.., Reverse(key))| key));
        }
        if most < ranked.len() {
            ranked.select_nth_unstable(most);
            ranked.truncate(most);
        }
        ranked.sort_unstable();
        self.last.retain(|tenant, _| ranks.contains_key(tenant));
        let chosen: Vec<_> = ranked.into_iter().map(|(.., Reverse(key))| key).collect();
        self.last.extend(chosen.iter().map(|(_, id)| (id.0, self.round)));
        Choice { chosen, left_out }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wire::KeyHash;

    use super::*;

    fn key(tenant: u32, n: u8, reads: u64) -> (u64, KeyId) {
        (reads, (tenant, KeyHash([n; 16])))
    }

    #[test]
    fn who_has_many_hot_keys_has_what_the_others_leave() {
        let mut all: Vec<_> = (0..100).map(|n| key(7, n, 1_000 + u64::from(n))).collect();
        all.extend([key(8, 1, 5), key(8, 2, 6), key(9, 1, 1)]);
        let mut turns = Turns::default();
        let first = [key(7, 99, 1_099), key(8, 2, 6), key(9, 1, 1), key(7, 98, 1_098)];
        let second = [key(8, 1, 5), key(7, 97, 1_097)];
        assert_eq!(turns.choose(all.clone(), 6, 200).chosen, [&first[..], &second].concat());
        assert_eq!(turns.choose(all.clone(), 200, 200).chosen.len(), 103);
    }

    #[test]
    fn what_is_read_least_waits_no_longer_where_too_many_do() {
        let mut all: Vec<_> = (0..100).map(|n| key(7, n, 1_000 + u64::from(n))).collect();
        all.extend([key(8, 1, 5), key(8, 2, 6)]);
        let Choice { chosen, mut left_out } = Turns::default().choose(all, 1, 10);
        assert_eq!(chosen.len(), 1);
        left_out.sort_unstable();
        let expected: Vec<_> = (0..92).map(|n| key(7, n, 1_000 + u64::from(n))).collect();
        assert_eq!(left_out, expected, "eight of one tenant and two of the other stay");
    }

    #[test]
    fn each_tenant_has_its_turn_though_there_is_not_one_for_each() {
        let all: Vec<_> = (0..10).map(|tenant| key(tenant, 1, 1 << (4 * tenant))).collect();
        let mut turns = Turns::default();
        for _ in 0..3 {
            let chosen: Vec<_> =
                (0..5).flat_map(|_| turns.choose(all.clone(), 2, 10).chosen).collect();
            let tenants: BTreeSet<u32> = chosen.iter().map(|(_, id)| id.0).collect();
            assert_eq!(tenants.len(), 10, "{chosen:?}");
        }
    }
}
