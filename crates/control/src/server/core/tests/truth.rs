//! Tenants whose items are nowhere else: nothing of theirs is taken or changed that would lose it.

use super::*;

#[test]
fn pages_of_items_that_are_nowhere_else_are_neither_lent_nor_borrowed() {
    let mut stage = Stage::new(20);
    stage.create_as(of(1, "truth", 8)).unwrap();
    stage.create(2, 4).unwrap();
    stage.wants(2, 100 * 128);
    stage.settle();
    assert_eq!(stage.pages(), [(1, 8), (2, 12)].into());
    stage.wants(1, 100 * 128);
    stage.wants(2, 0);
    stage.settle();
    assert_eq!(stage.pages()[&1], 8);
}

#[test]
fn pages_with_items_that_are_nowhere_else_are_not_taken() {
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 4)).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    let refused = |result: Result<Vec<PageId>, Refusal>, says: &str| {
        let refused = result.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Conflict);
        assert!(refused.message.contains(says), "{refused}");
    };
    let some = |pages: &[PageId]| ReturnPages { pages: pages.to_vec(), count: None };
    let count = |count| ReturnPages { pages: vec![], count: Some(count) };
    // The switch did not say yet what is on which page.
    refused(stage.give_back(1, &some(&all[..1])), "may hold items");
    refused(stage.give_back(1, &count(1)), "4 may hold items");

    stage.window_ends(1, &[all[1], all[3]]);
    refused(stage.give_back(1, &some(&all[1..2])), "may hold items");
    refused(stage.give_back(1, &count(3)), "2 may hold items");
    refused(stage.change(1, quota(1)).map(|made| made.left), "2 may hold items");
    let other = TenantChange { discipline: Some("test".into()), ..TenantChange::default() };
    refused(stage.change(1, other).map(|made| made.left), "would lose them");

    // Those without items go: one by its name, one by the number.
    assert_eq!(stage.give_back(1, &some(&all[..1])).unwrap(), [all[0]]);
    assert_eq!(stage.give_back(1, &count(1)).unwrap(), [all[2]]);
    stage.create(2, 6).unwrap();
    stage.wants(2, 100 * 128);
    stage.settle();
    let kept = stage.core.own_pages(1);
    assert_eq!(kept, [all[1], all[3]].into());
    let removed = stage.core.change(ASKED, |view| changes::remove(view, 1));
    removed.unwrap();
    stage.settle();
    assert_eq!(stage.pages(), [(2, 8)].into());
}

#[test]
fn options_that_a_change_does_not_name_stay_and_those_of_items_with_their_items() {
    let mut stage = Stage::new(8);
    let spec = TenantSpec {
        options: [("depth".into(), 3), ("width".into(), 5)].into(),
        ..of(1, "truth", 4)
    };
    stage.create_as(spec).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all[..1]);
    let option = |name: &str, number| TenantChange {
        options: Some([(name.into(), number)].into()),
        ..TenantChange::default()
    };
    let options = |stage: &Stage| stage.core.tenants.get(1).unwrap().terms.options.clone();
    let are = |depth, width| BTreeMap::from([("depth".into(), depth), ("width".into(), width)]);
    stage.change(1, option("width", 7)).unwrap();
    assert_eq!(options(&stage), are(3, 7));
    // Items were made with three; a member that joins would make four of them.
    for other in [2, 4] {
        let refused = stage.change(1, option("depth", other)).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Conflict);
        let says = "option depth stays as it is while there are items";
        assert!(refused.message.contains(says), "{refused}");
    }
    stage.change(1, option("depth", 3)).unwrap();
    stage.window_ends(1, &[]);
    stage.change(1, option("depth", 4)).unwrap();
    assert_eq!(options(&stage), are(4, 7));
}

#[test]
fn a_timed_part_of_a_quota_goes_back_only_as_far_as_its_pages_are_empty() {
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 0)).unwrap();
    let request = PageRequest { pages: 4, switch: None, lease_s: Some(60) };
    stage.ask(1, request).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all[2..]);
    stage.core.lapse(61);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 2);
    stage.settle();
    assert_eq!(stage.core.own_pages(1), all[2..].iter().copied().collect());
}

/// As one is that the network has not set yet.
#[test]
fn a_clock_that_was_years_ahead_keeps_no_timed_part_for_years() {
    const IN_2040: u64 = 2_208_988_800;
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 0)).unwrap();
    stage.ask(1, PageRequest { pages: 4, switch: None, lease_s: Some(60) }).unwrap();
    stage.settle();
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all);
    let quota_at = |stage: &mut Stage, clock_s| {
        stage.core.lapse(clock_s);
        stage.core.tenants.get(1).unwrap().terms.quota
    };
    assert_eq!(quota_at(&mut stage, IN_2040), 4, "its pages are in use");
    assert_eq!(quota_at(&mut stage, 100), 4);
    stage.window_ends(1, &[]);
    assert_eq!(quota_at(&mut stage, 159), 4);
    assert_eq!(quota_at(&mut stage, 160), 0, "as long after today as was asked for");
}

#[test]
fn what_is_nowhere_else_stays_on_its_switch_whatever_the_policy_says() {
    let mut stage = Stage::new(8);
    let second = stage.attach(2, 8);
    stage.create_as(of(1, "truth", 4)).unwrap();
    stage.create_as(of(2, "test", 4)).unwrap();
    stage.settle();
    stage.sent_to(second);
    let placed = |stage: &Stage, tenant| stage.core.memory.placements().of(tenant).to_vec();
    assert_eq!(placed(&stage, 1), [(1, 2), (2, 2)]);
    assert_eq!(placed(&stage, 2), [(1, 2), (2, 2)]);
    stage.attach(3, 8);
    stage.settle();
    assert_eq!(placed(&stage, 1), [(1, 2), (2, 2), (3, 1)]);
    assert_eq!(placed(&stage, 2), [(1, 1), (2, 1), (3, 2)]);
}

/// It may have to hold what each of the others does.
#[test]
fn a_switch_that_comes_back_has_its_share_although_others_hold_items_on_all_of_the_quota() {
    let mut stage = Stage::new(8);
    let second = stage.attach(2, 8);
    stage.create_as(of(1, "truth", 6)).unwrap();
    stage.settle();
    let placed = |stage: &Stage| {
        let mut placed = stage.core.memory.placements().of(1).to_vec();
        placed.sort_unstable();
        placed
    };
    // Placements are looked at every five seconds.
    let looks_again = |stage: &mut Stage| (0..3).for_each(|_| stage.settle());
    assert_eq!(placed(&stage), [(1, 3), (2, 3)]);
    stage.core.detach(stage.now, second);
    stage.core.forget_switch(ASKED, 2).map(drop).unwrap();
    stage.settle();
    assert_eq!(placed(&stage), [(1, 6)]);
    let all: Vec<PageId> = stage.core.own_pages(1).into_iter().collect();
    stage.window_ends(1, &all);
    let back = stage.attach(2, 8);
    stage.settle();
    stage.sent_to(back);
    assert_eq!(placed(&stage), [(1, 6), (2, 3)]);
    // What is over goes as it becomes empty.
    stage.window_ends(1, &all[..4]);
    looks_again(&mut stage);
    assert_eq!(placed(&stage), [(1, 4), (2, 3)]);
    stage.window_ends(1, &all[..1]);
    looks_again(&mut stage);
    assert_eq!(placed(&stage), [(1, 3), (2, 3)]);
}

/// A switch is told the newest setup alone: it would take a tenant of the same number for the one
/// before, and keep all of its items.
#[test]
fn a_number_is_given_again_when_every_switch_is_clear_of_its_tenant() {
    let mut stage = Stage::new(8);
    stage.create_as(of(1, "truth", 4)).unwrap();
    stage.settle();
    stage.core.change(ASKED, |view| changes::remove(view, 1)).unwrap();
    let again = TenantSpec { reuse: true, ..of(1, "truth", 4) };
    let refused = stage.create_as(again.clone()).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("switch 1 (tor 1)"), "{refused}");
    stage.settle();
    assert!(stage.setup.tenants.is_empty());
    assert_eq!(stage.create_as(again), Ok(1));
}
