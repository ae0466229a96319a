//! Write-back in a plan: tenants whose hot keys are lent to switches, and what may not be done to
//! two of these at once.

use std::ops::Range;

use rand::{RngExt, seq::IndexedRandom};
use seed::rng;

use crate::{Act, Deed, HuntPlan, Shape, Tenant, disks::forgets_loans, plan::one_in};

/// What stores and switches count of loans; each comes about in enough seeds
/// ([`HuntResult::loans`](crate::HuntResult::loans)).
pub const LOANS: [&str; 10] = [
    "loans",
    "loans_returned",
    "loans_lapsed",
    "loans_found",
    "loan_flushes",
    "writes_moved",
    "writes_kept",
    "lent_read",
    "lent_answer",
    "keep_again",
];
/// Whether a counter of a store or a switch is about loans.
pub fn is_of_loans(name: &str) -> bool {
    const BEGINNINGS: [&str; 5] = ["loan", "lent", "lend", "keep", "take"];
    LOANS.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// What a store counts of loans whose last moments are lost.
pub(crate) const LOST: &str = "loans_lost";

/// The switch of the first host of clients.
const FIRST: &str = "switch1";

impl HuntPlan {
    /// One plan in three has tenants with write-back: then two switches on the way, and clients
    /// that write the same few keys. Whether this one has.
    pub(crate) fn draw_write_back(&mut self, disciplines: &[&str]) -> bool {
        let mut rng = rng(self.seed, "write-back");
        if !one_in(&mut rng, 3) {
            return false;
        }
        if self.shape == Shape::Line(1) {
            self.shape = Shape::Line(2);
        }
        let bounds = [10, 20, 50, 100, 200, 500];
        if self.tenants.is_empty() {
            self.tenants.push(Tenant {
                id: 7,
                quota: rng.random_range(1..=3),
                discipline: (*disciplines.choose(&mut rng).expect("disciplines")).to_owned(),
                write_back_ms: 0,
            });
        }
        for (number, tenant) in self.tenants.iter_mut().enumerate() {
            if number == 0 || one_in(&mut rng, 2) {
                tenant.write_back_ms = *bounds.choose(&mut rng).expect("some");
            }
        }
        if one_in(&mut rng, 2) {
            self.open = None;
        }
        let clients = &mut self.clients;
        // A host at another switch reads and writes past the owner: no loan is long then.
        clients.hosts = if one_in(&mut rng, 3) { 2 } else { 1 };
        clients.second_links &= one_in(&mut rng, 2);
        clients.keys = rng.random_range(1..=4);
        clients.plain = *[0.9, 0.98, 1.0].choose(&mut rng).expect("some");
        clients.pause_us = *[500, 2_000, 10_000].choose(&mut rng).expect("some");
        // Copies of what was asked before a loan, or in one, that come when it is over.
        if one_in(&mut rng, 3) {
            self.faults.reorder = 0.2;
            self.faults.reorder_ms = 400.0;
        }
        true
    }

    /// Whether keys may be lent from the beginning.
    pub fn writes_back(&self) -> bool {
        self.tenants.iter().any(|tenant| tenant.write_back_ms > 0)
    }

    /// What is done to such a plan besides, and what is not.
    pub(crate) fn draw_write_back_deeds(&mut self) {
        let mut rng = rng(self.seed, "deeds of write-back");
        for _ in 0..rng.random_range(0..=2) {
            let tenant = self.tenants.choose(&mut rng).expect("one at least").id;
            let at_ms = rng.random_range(0..self.lasts_ms);
            let bound_ms = *[0, 10, 100, 500].choose(&mut rng).expect("some");
            self.deeds.push(Deed { at_ms, for_ms: 0, act: Act::WriteBack { tenant, bound_ms } });
        }
        // An owner whose lease runs out, and a store that dies while its keys are lent.
        if one_in(&mut rng, 4) {
            self.deeds.push(Deed {
                at_ms: rng.random_range(0..self.lasts_ms),
                for_ms: u64::from(self.longest_lease_ms()) + rng.random_range(100..=1_000),
                act: Act::Suspend { machine: FIRST.into() },
            });
        }
        if one_in(&mut rng, 4) {
            let at_ms = rng.random_range(0..self.lasts_ms);
            let process = format!("store{}/store", rng.random_range(1..=self.stores.len()));
            let for_ms = rng.random_range(1..=1_000);
            self.deeds.push(Deed { at_ms, for_ms, act: Act::Kill { process } });
        }
        // Most plans are such that nothing may be lost; what stores count as lost is a fault then.
        if !one_in(&mut rng, 5) {
            self.spare_loans();
        }
    }

    /// Takes away deeds until no loan can lose both of its switches.
    fn spare_loans(&mut self) {
        while self.may_lose_loans() {
            let last = self.deeds.iter().rposition(|deed| self.harms_loans(deed));
            self.deeds.remove(last.expect("it may lose loans"));
        }
    }

    /// Whether a store may forget a loan, both switches of one may lose their tables, or one while
    /// the other cannot be reached for longer than a store waits: then answered writes may be lost,
    /// as `docs/coherence.md` says.
    pub(crate) fn may_lose_loans(&self) -> bool {
        if self.forgets_loans() {
            return true;
        }
        let mut rebooted: Vec<&str> = self.deeds.iter().filter_map(Deed::loses_tables).collect();
        rebooted.sort_unstable();
        rebooted.dedup();
        let away_ms = |which: &dyn Fn(&&Deed) -> bool| -> u64 {
            let deeds = self.deeds.iter().filter(which);
            deeds.map(|deed| self.unreachable_ms(deed)).sum()
        };
        let away_inside_ms = away_ms(&|deed| !self.is_at_edge(deed));
        let lends_ms = self.stores.iter().map(|store| store.lease_ms);
        let relends_ms = self.deeds.iter().filter_map(|deed| match deed.act {
            Act::Relend { lease_ms, .. } => Some(lease_ms),
            _ => None,
        });
        // A store waits for one lease; some of it goes by before messages come through.
        let waits_ms = lends_ms.chain(relends_ms).min().unwrap_or(0) / 2;
        match rebooted.as_slice() {
            [] => away_inside_ms > u64::from(waits_ms),
            [FIRST] => away_inside_ms > 0,
            [_] => away_ms(&|_| true) > 0,
            _ => true,
        }
    }

    /// Whether a store may forget a loan.
    pub(crate) fn forgets_loans(&self) -> bool {
        let lends = |deed: &Deed| matches!(deed.act, Act::WriteBack { .. });
        let is_lent = self.writes_back() || self.deeds.iter().any(lends);
        is_lent && self.deeds.iter().any(forgets_loans)
    }

    /// Whether a deed keeps the first switch away from the stores, and no other: the clients',
    /// where it is the owner of what is lent.
    fn is_at_edge(&self, deed: &Deed) -> bool {
        match (self.shape, &deed.act) {
            (Shape::Line(_) | Shape::Detour, Act::Suspend { machine }) => machine == FIRST,
            (Shape::Line(_), Act::Cut { link }) => {
                let ends = self.links();
                ends.get(*link).is_some_and(|[a, b]| a == FIRST && b == "switch2")
            }
            _ => false,
        }
    }

    /// The times, in milliseconds after the clients' start, of which answered writes may be lost:
    /// the bound before something happened to a switch, and until stores know.
    pub(crate) fn losses_ms(&self) -> Vec<Range<u64>> {
        let bounds = self.tenants.iter().map(|tenant| tenant.write_back_ms);
        let changed = self.deeds.iter().filter_map(|deed| match deed.act {
            Act::WriteBack { bound_ms, .. } => Some(bound_ms),
            _ => None,
        });
        let bound_ms = u64::from(bounds.chain(changed).max().unwrap_or(0));
        let lease_ms = u64::from(self.longest_lease_ms());
        let harmful = self.deeds.iter().filter(|deed| self.harms_loans(deed));
        let times = harmful.map(|deed| {
            let until_ms = deed.at_ms + deed.for_ms + 2 * lease_ms;
            deed.at_ms.saturating_sub(bound_ms + lease_ms)..until_ms
        });
        times.collect()
    }

    /// Whether a deed takes away a part of what keeps loans: a switch's tables, the way to it, or
    /// the store's journal.
    fn harms_loans(&self, deed: &Deed) -> bool {
        deed.loses_tables().is_some() || forgets_loans(deed) || self.unreachable_ms(deed) > 0
    }

    /// For how long a deed keeps a switch away from stores.
    fn unreachable_ms(&self, deed: &Deed) -> u64 {
        match &deed.act {
            Act::Suspend { machine } if machine.starts_with("switch") => deed.for_ms,
            Act::Cut { link } => {
                let ends = self.links();
                let is_theirs =
                    |end: &String| end.starts_with("switch") || end.starts_with("store");
                let between = ends.get(*link).is_some_and(|ends| ends.iter().all(is_theirs));
                u64::from(between) * deed.for_ms
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(deeds: Vec<Deed>) -> HuntPlan {
        let text = include_str!("write_back/plan.json");
        HuntPlan { deeds, ..serde_json::from_str(text).unwrap() }
    }

    fn reboot(switch: u32) -> Deed {
        let machine = format!("switch{switch}");
        Deed { at_ms: 100, for_ms: 50, act: Act::Reboot { machine } }
    }

    fn suspend(machine: &str, for_ms: u64) -> Deed {
        Deed { at_ms: 900, for_ms, act: Act::Suspend { machine: machine.into() } }
    }

    #[test]
    fn answered_writes_may_be_lost_when_both_switches_are() {
        for (deeds, may_lose) in [
            (vec![], false),
            (vec![reboot(1), reboot(1)], false),
            (vec![reboot(1), reboot(2)], true),
            (vec![reboot(1), suspend("store1", 5000)], false),
            (vec![reboot(1), suspend("switch2", 1)], true),
            (vec![reboot(1), suspend("switch1", 5000)], false),
            (vec![suspend("switch1", 5000)], false),
            (vec![reboot(2), suspend("switch1", 1)], true),
            (vec![suspend("switch2", 400)], false),
            (vec![suspend("switch2", 4000)], true),
        ] {
            assert_eq!(plan(deeds.clone()).may_lose_loans(), may_lose, "{deeds:?}");
        }
    }

    #[test]
    fn a_plan_that_spares_loans_cannot_lose_them() {
        let mut plan =
            plan(vec![reboot(1), suspend("store1", 9), reboot(2), suspend("switch1", 9)]);
        plan.spare_loans();
        assert_eq!(plan.deeds, [reboot(1), suspend("store1", 9)]);
    }
}
