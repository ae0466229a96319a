//! The ledger against a model of switches that get tables late, repeatedly and out of order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SWITCHES: u16 = 3;
const TENANTS: u32 = 4;
const PAGES: u32 = 6;

fn own(tenant: u32) -> Hold {
    Hold { tenant, kind: Kind::Own, since_s: 100 }
}

fn page(text: &str) -> PageId {
    text.parse().unwrap()
}

#[test]
fn a_page_goes_from_hand_to_hand_only_by_way_of_a_confirmation() {
    let mut ledger = Ledger::new();
    assert_eq!(ledger.switch(3, 4).unwrap(), []);
    assert_eq!(ledger.give(3, 3, own(7)).len(), 3);
    assert_eq!(ledger.owners(3), (1, Owners::from([(7, vec![0, 1, 2])])));
    ledger.take(7, &[page("3/1")]).unwrap();
    assert_eq!(ledger.owners(3), (2, Owners::from([(7, vec![0, 2])])));
    // Page 1 is leaving: only page 3 can be given.
    assert_eq!(ledger.free(3), 1);
    assert_eq!(ledger.give(3, 9, own(8)), [page("3/3")]);
    assert_eq!(ledger.confirmed(3, 1), []);
    assert_eq!(ledger.confirmed(3, 4), [], "a version that was never made");
    assert_eq!(ledger.confirmed(3, 3), [page("3/1")]);
    assert_eq!(ledger.give(3, 9, own(8)), [page("3/1")]);
    let expected = Owners::from([(7, vec![0, 2]), (8, vec![1, 3])]);
    assert_eq!(ledger.owners(3), (4, expected));
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_changes_nothing() {
    let mut ledger = Ledger::new();
    ledger.switch(3, 4).unwrap();
    ledger.switch(5, 2).unwrap();
    ledger.give(3, 2, own(7));
    ledger.give(3, 1, own(8));
    ledger.take(7, &[page("3/1")]).unwrap();
    let before = (ledger.owners(3), ledger.counts(3));
    // (pages that tenant 7 returns, error)
    let rows = [
        (vec!["3/3"], "page 3/3 is not held by tenant 7: it is free"),
        (vec!["3/0", "3/2"], "page 3/2 is not held by tenant 7: it is another tenant's"),
        (
            vec!["3/1"],
            "page 3/1 is returned twice: tenant 7 gave it back already, switch 3 is clearing it",
        ),
        (vec!["3/0", "3/0"], "page 3/0 is returned twice: it is named twice in one request"),
        (vec!["9/0"], "page 9/0: there is no switch 9"),
        (vec!["3/17"], "page 3/17 does not exist: switch 3 has 4 pages, numbered from 0"),
    ];
    for (pages, says) in rows {
        let pages: Vec<PageId> = pages.into_iter().map(page).collect();
        assert_eq!(ledger.take(7, &pages).unwrap_err().to_string(), says);
        assert_eq!((ledger.owners(3), ledger.counts(3)), before);
    }
    let error = ledger.switch(4, PAGES_MAX + 1).unwrap_err().to_string();
    assert!(error.starts_with("switch 4: 1048577 pages, at most 1048576"), "{error}");
}

#[test]
fn kinds_and_the_choice_of_the_coldest() {
    let mut ledger = Ledger::new();
    ledger.switch(1, 8).unwrap();
    ledger.give(1, 4, own(7));
    let (version, _) = ledger.owners(1);
    let requests = |p: PageId| [9, 2, 0, 2][p.page as usize];
    // Of pages 1 and 3 with equal requests, the higher goes first.
    let lent = ledger.convert(1, 7, Kind::Own, 2, requests);
    assert_eq!(lent, [page("1/2"), page("1/3")]);
    assert_eq!(ledger.owners(1).0, version, "the switch need not know");
    let count = Count { own: 2, lent: 2, leaving: 0 };
    assert_eq!(ledger.counts(1), BTreeMap::from([(7, count)]));
    assert_eq!(ledger.take_from(1, 7, Kind::Lent, 1, requests), [page("1/2")]);
    assert_eq!(ledger.counts(1)[&7].leaving, 1);
    assert_eq!(ledger.held(7).count(), 3);
    assert_eq!(ledger.remove_tenant(7).len(), 3);
    assert_eq!(ledger.owners(1).1, Owners::new());
    assert_eq!(ledger.confirmed(1, ledger.owners(1).0).len(), 4);
}

#[test]
fn a_switch_that_shrinks_says_what_was_lost() {
    let mut ledger = Ledger::new();
    ledger.switch(1, 4).unwrap();
    ledger.give(1, 4, own(7));
    let lost = ledger.switch(1, 3).unwrap();
    assert_eq!(lost, [(page("1/3"), own(7))]);
}

#[test]
fn rows_that_make_no_sense_are_left_out() {
    let switch = SwitchRow { pages: 2, version: 3 };
    let leaving = PageRow::Leaving { from: 7, version: 9 };
    let rows = ["1/0", "1/2", "2/0"].map(|p| (page(p), leaving));
    let ledger = Ledger::restore([(1, switch)], rows);
    assert_eq!(ledger.rows().count(), 1);
    assert_eq!(ledger.owners(1), (9, Owners::new()));
    let json = serde_json::to_string(&PageRow::Held(own(7))).unwrap();
    assert_eq!(json, r#"{"state":"held","tenant":7,"kind":"own","since_s":100}"#);
    assert_eq!(serde_json::from_str::<PageRow>(&json).unwrap(), PageRow::Held(own(7)));
}

/// A switch that clears a page only when a table has it as nobody's, and so shows every page that
/// would go from hand to hand without that.
#[derive(Default)]
struct ModelSwitch {
    version: u64,
    owners: BTreeMap<u32, u32>,
    /// Whose items are in each page.
    items: BTreeMap<u32, BTreeSet<u32>>,
    /// Tables and confirmations under way; any may come next, again and again.
    tables: Vec<(u64, Owners)>,
    confirmations: Vec<u64>,
}

impl ModelSwitch {
    fn apply(&mut self, version: u64, owners: &Owners) {
        if version < self.version {
            return;
        }
        self.version = version;
        self.owners.clear();
        for (tenant, pages) in owners {
            for page in pages {
                let before = self.owners.insert(*page, *tenant);
                assert_eq!(before, None, "page {page} has two owners in one table");
            }
        }
        self.items.retain(|page, _| self.owners.contains_key(page));
        self.confirmations.push(version);
    }

    fn insert_everywhere(&mut self) {
        for (page, tenant) in &self.owners {
            let tenants = self.items.entry(*page).or_default();
            tenants.insert(*tenant);
            assert_eq!(tenants.len(), 1, "page {page} has items of {tenants:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Give(u16, u32, u32, Kind),
    TakeFrom(u16, u32, Kind, u32),
    TakeOne(u32, PageId),
    Convert(u16, u32, Kind, u32),
    RemoveTenant(u32),
    Write,
    Send(u16),
    Apply(u16, usize),
    Confirm(u16, usize),
    ControllerRestarts,
    SwitchRestarts(u16, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (s, t, n) = (1..=SWITCHES, 1..=TENANTS, 1..=PAGES);
    let kind = prop_oneof![Just(Kind::Own), Just(Kind::Lent)];
    let id = (s.clone(), 0..PAGES).prop_map(|(switch, page)| PageId { switch, page });
    let which = any::<usize>();
    let step = prop_oneof![
        6 => (s.clone(), t.clone(), n.clone(), kind.clone())
            .prop_map(|(s, t, n, k)| Step::Give(s, t, n, k)),
        4 => (s.clone(), t.clone(), kind.clone(), n.clone())
            .prop_map(|(s, t, k, n)| Step::TakeFrom(s, t, k, n)),
        2 => (t.clone(), id).prop_map(|(t, id)| Step::TakeOne(t, id)),
        1 => (s.clone(), t.clone(), kind, n.clone())
            .prop_map(|(s, t, k, n)| Step::Convert(s, t, k, n)),
        1 => t.prop_map(Step::RemoveTenant),
        5 => Just(Step::Write),
        8 => s.clone().prop_map(Step::Send),
        8 => (s.clone(), which).prop_map(|(s, i)| Step::Apply(s, i)),
        8 => (s.clone(), which).prop_map(|(s, i)| Step::Confirm(s, i)),
        1 => Just(Step::ControllerRestarts),
        1 => (s, n).prop_map(|(s, n)| Step::SwitchRestarts(s, n)),
    ];
    proptest::collection::vec(step, 0..200)
}

#[derive(Default)]
struct World {
    ledger: Ledger,
    /// What was written.
    switch_rows: BTreeMap<u16, SwitchRow>,
    page_rows: BTreeMap<PageId, PageRow>,
    switches: BTreeMap<u16, ModelSwitch>,
}

impl World {
    fn new() -> World {
        let mut world = World::default();
        for id in 1..=SWITCHES {
            world.ledger.switch(id, PAGES).unwrap();
            world.switches.insert(id, ModelSwitch::default());
        }
        world.write();
        world
    }

    fn write(&mut self) {
        let Changes { switches, pages } = self.ledger.take_changes();
        self.switch_rows.extend(switches);
        for (id, row) in pages {
            match row {
                Some(row) => self.page_rows.insert(id, row),
                None => self.page_rows.remove(&id),
            };
        }
    }

    fn step(&mut self, step: Step) {
        let ledger = &mut self.ledger;
        match step {
            Step::Give(switch, tenant, n, kind) => {
                let free = ledger.free(switch);
                let hold = Hold { kind, ..own(tenant) };
                let before: BTreeSet<PageId> = ledger.rows().map(|(id, _)| id).collect();
                let given = ledger.give(switch, n, hold);
                assert_eq!(given.len() as u32, n.min(free));
                assert!(given.iter().all(|id| !before.contains(id)));
            }
            Step::TakeFrom(switch, tenant, kind, n) => {
                ledger.take_from(switch, tenant, kind, n, |_| 0);
            }
            Step::TakeOne(tenant, id) => {
                let holds = matches!(ledger.row(id), Some(PageRow::Held(h)) if h.tenant == tenant);
                assert_eq!(ledger.take(tenant, &[id]).is_ok(), holds);
            }
            Step::Convert(switch, tenant, kind, n) => {
                ledger.convert(switch, tenant, kind, n, |_| 0);
            }
            Step::RemoveTenant(tenant) => {
                ledger.remove_tenant(tenant);
                assert_eq!(ledger.held(tenant).count(), 0);
            }
            Step::Write => self.write(),
            Step::Send(switch) => {
                let dirty = ledger.dirty_switches.contains(&switch)
                    || ledger.dirty_pages.iter().any(|id| id.switch == switch);
                if !dirty {
                    let table = ledger.owners(switch);
                    self.model(switch).tables.push(table);
                }
            }
            Step::Apply(switch, which) => {
                let model = self.model(switch);
                if !model.tables.is_empty() {
                    let (version, owners) = model.tables[which % model.tables.len()].clone();
                    model.apply(version, &owners);
                    model.insert_everywhere();
                }
            }
            Step::Confirm(switch, which) => {
                let confirmations = &self.switches[&switch].confirmations;
                if !confirmations.is_empty() {
                    let version = confirmations[which % confirmations.len()];
                    ledger.confirmed(switch, version);
                }
            }
            Step::ControllerRestarts => {
                let (switches, pages) = (self.switch_rows.clone(), self.page_rows.clone());
                self.ledger = Ledger::restore(switches, pages);
            }
            Step::SwitchRestarts(switch, pages) => {
                // Its stream ends, and its memory is made anew.
                self.switches.insert(switch, ModelSwitch::default());
                ledger.switch(switch, pages).unwrap();
            }
        }
    }

    fn model(&mut self, switch: u16) -> &mut ModelSwitch {
        self.switches.get_mut(&switch).unwrap()
    }

    /// Nothing is lost, nothing is double.
    fn check(&self) {
        for (switch, pages) in self.ledger.switches() {
            let counts = self.ledger.counts(switch);
            let counted: u32 = counts.values().map(|c| c.own + c.lent + c.leaving).sum();
            assert_eq!(self.ledger.free(switch) + counted, pages);
            let (_, owners) = self.ledger.owners(switch);
            let listed: Vec<u32> = owners.into_values().flatten().collect();
            let distinct: BTreeSet<u32> = listed.iter().copied().collect();
            assert_eq!(listed.len(), distinct.len());
            assert!(distinct.iter().all(|page| *page < pages));
            self.check_tenants(switch);
        }
    }

    /// What is found by tenant is what a pass over all pages finds.
    fn check_tenants(&self, switch: u16) {
        let (mut all, mut sum) = (vec![], Count::default());
        for (tenant, count) in self.ledger.counts(switch) {
            let rows: Vec<(u32, PageRow)> = self.ledger.rows_on(switch, tenant).collect();
            let count_of = |which: fn(&PageRow) -> bool| {
                rows.iter().filter(|(_, row)| which(row)).count() as u32
            };
            let counted = Count {
                own: count_of(|row| matches!(row, PageRow::Held(h) if h.kind == Kind::Own)),
                lent: count_of(|row| matches!(row, PageRow::Held(h) if h.kind == Kind::Lent)),
                leaving: count_of(|row| matches!(row, PageRow::Leaving { .. })),
            };
            assert_eq!((self.ledger.count(switch, tenant), counted), (count, count));
            assert_ne!(count, Count::default(), "who has nothing is not listed");
            assert!(rows.iter().all(|(_, row)| row.tenant() == tenant));
            sum.own += count.own;
            sum.lent += count.lent;
            sum.leaving += count.leaving;
            all.extend(rows);
        }
        assert_eq!(self.ledger.sum(switch), sum);
        all.sort_by_key(|(page, _)| *page);
        let rows = self.ledger.rows().filter(|(id, _)| id.switch == switch);
        assert!(rows.map(|(id, row)| (id.page, row)).eq(all));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_page_ever_has_two_owners(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        // At rest everything that left becomes free again.
        world.write();
        for id in 1..=SWITCHES {
            let (version, owners) = world.ledger.owners(id);
            world.model(id).apply(version, &owners);
            world.model(id).insert_everywhere();
            world.ledger.confirmed(id, version);
        }
        prop_assert!(world.ledger.rows().all(|(_, row)| matches!(row, PageRow::Held(_))));
    }
}
