//! Pages on their way from one tenant to another, and over changes of switches and leaders.

use api::types::{LIST_MAX, PageKind};

use super::*;
use crate::{admin::PageFilter, state::ROW_MAX};

#[test]
fn a_switch_that_is_gone_for_good_is_forgotten() {
    let mut stage = Stage::new(4);
    let store = stage.core.store_came(&StoreHello::default());
    stage.create(1, 4).unwrap();
    stage.settle();
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
    let forget = |stage: &mut Stage, id| stage.core.forget_switch(ASKED, id).map(drop);
    let refused = forget(&mut stage, 1).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("is attached"), "{refused}");
    assert_eq!(forget(&mut stage, 2).unwrap_err().kind, RefusalKind::NotFound);
    stage.core.detach(stage.now, stage.stream);
    forget(&mut stage, 1).unwrap();
    assert_eq!(stage.core.memory.ledger().rows().count(), 0);
    assert_eq!(stage.core.view().topology().switches.len(), 0);
    assert_eq!(stage.placed(store), Some(vec![]));
    stage.write();
    let left = |stage: &Stage, prefix| stage.loaded.rows.keys().any(|k| k.starts_with(prefix));
    assert!(!left(&stage, "switch/") && !left(&stage, "page/"));
    assert_eq!(forget(&mut stage, 1).unwrap_err().kind, RefusalKind::NotFound);

    // It comes back all the same: as a new one, whose table has a version above that which it has
    // in force.
    let before = stage.table.version;
    stage.stream = stage.attach(1, 4);
    stage.settle();
    assert!(stage.table.version > before);
    assert_eq!(stage.pages(), [(1, 4)].into());
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
}

/// Its number may be another's later, and a controller that restarts believes what is written.
#[test]
fn what_a_forgotten_switch_held_does_not_come_back_with_a_write_that_failed() {
    let mut stage = Stage::new(4);
    stage.create(1, 2).unwrap();
    stage.settle();
    stage.core.detach(stage.now, stage.stream);
    let stream = stage.core.attach(stage.now, &hello(1, 4)).unwrap();
    stage.holds(stream, vec![TenantKeys { tenant: 1, keys: vec!["k".into()] }]);
    let (batch, _) = stage.core.take_batch(true);
    assert!(batch.items.iter().any(|(switch, _, held)| *switch == 1 && *held));
    stage.core.detach(stage.now, stream);
    stage.core.forget_switch(ASKED, 1).unwrap();
    stage.core.put_back(batch);
    let (next, _) = stage.core.take_batch(true);
    assert!(!next.items.is_empty() && next.items.iter().all(|(.., held)| !held));
}

#[test]
fn a_page_table_is_sent_when_it_is_durable_and_not_before() {
    let mut stage = Stage::new(4);
    stage.create(1, 2).unwrap();
    assert!(!stage.receive(), "a crash now would forget whose the pages are");
    assert!(stage.setup.tenants.is_empty());
    stage.write();
    assert!(stage.receive());
    assert_eq!(stage.pages(), [(1, 2)].into());
    assert_eq!(stage.setup.tenants[0].tenant, 1);
}

#[test]
fn a_page_goes_on_when_its_switch_says_that_it_is_clear() {
    let mut stage = Stage::new(4);
    stage.create(1, 4).unwrap();
    stage.settle();
    let change = TenantChange { quota: Some(0), borrow: Some(false), ..TenantChange::default() };
    stage.change(1, change).unwrap();
    stage.create(2, 4).unwrap();
    for _ in 0..5 {
        stage.now += TICK;
        stage.core.tick(stage.now, 1_000);
        stage.write();
        stage.receive();
        assert_eq!(stage.pages(), BTreeMap::new(), "nobody's until it is clear");
    }
    stage.confirm();
    stage.settle();
    assert_eq!(stage.pages(), [(2, 4)].into());
}

/// They are in the tenant's row, which can be written up to a length.
#[test]
fn so_many_parts_of_a_quota_end_by_themselves_and_no_more() {
    let mut stage = Stage::new(LIST_MAX as u32 + 1);
    stage.create(1, 0).unwrap();
    let one = |lease_s| PageRequest { pages: 1, switch: None, lease_s };
    for _ in 0..LIST_MAX {
        stage.ask(1, one(Some(60))).unwrap();
    }
    let refused = stage.ask(1, one(Some(60))).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    assert!(refused.message.contains("ask for more pages at a time"), "{refused}");
    stage.ask(1, one(None)).unwrap();
    stage.write();
    assert!(stage.loaded.rows["tenant/1"].len() < ROW_MAX);
}

#[test]
fn idle_pages_are_lent_and_come_back_when_the_owner_wants_them() {
    let mut stage = Stage::new(20);
    stage.create(1, 16).unwrap();
    stage.create(2, 2).unwrap();
    stage.wants(1, 128);
    stage.wants(2, 100 * 128);
    stage.settle();
    let (owner, borrower) = (stage.pages()[&1], stage.pages()[&2]);
    assert!(owner <= 4 && borrower >= 16, "{owner} and {borrower}");
    assert_eq!(stage.wanting.rooms.lock().unwrap()[&2] as usize, borrower);

    stage.wants(1, 16 * 128);
    stage.settle();
    assert_eq!(stage.pages(), [(1, 16), (2, 4)].into());
    // Nothing moves to and fro when nothing changes.
    let version = stage.table.version;
    stage.settle();
    assert_eq!(stage.table.version, version);
}

#[test]
fn a_new_controller_goes_on_with_the_same_owners_and_a_higher_term() {
    let mut stage = Stage::new(8);
    stage.create(1, 3).unwrap();
    stage.create(2, 5).unwrap();
    stage.settle();
    let owners = |stage: &Stage| {
        let pages = stage.table.owners.iter();
        pages.map(|o| (o.tenant, o.pages.clone())).collect::<BTreeMap<_, _>>()
    };
    let (before, version) = (owners(&stage), stage.table.version);
    let loaded = std::mem::take(&mut stage.loaded);
    let mut next = Stage::from(8, loaded, stage.wanting.clone(), 2);
    next.settle();
    assert_eq!(owners(&next), before);
    assert_eq!(next.table.term, 2);
    assert!(next.table.version >= version);
    let log: Vec<String> = next.core.audit.after(0).map(|(_, e)| e.what.clone()).collect();
    assert_eq!(log, ["tenant.create", "tenant.create"]);
}

/// A state that is new, or was put back, begins terms anew that switches have heard of: what this
/// controller says in them they would leave out for good.
#[test]
fn a_switch_that_has_heard_of_another_lead_of_this_term_or_a_later_one_outruns_it() {
    let stage = Stage::new(8);
    let (now, mut core) = (stage.now, stage.core);
    let mut attach = |id, term, life| {
        let hello = Hello { term, life, ..hello(id, 8) };
        core.attach(now, &hello)
    };
    for heard in [1, 2, 7] {
        let expected = CloseReason::Outrun { id: 2, heard, term: 1 };
        assert_eq!(attach(2, heard, 5), Err(expected));
    }
    let end = 1 << 62;
    assert!(matches!(attach(2, end - 1, 5), Err(CloseReason::Outrun { .. })));
    for heard in [end, u64::MAX] {
        let wrong = attach(2, heard, 5).unwrap_err();
        assert!(matches!(wrong, CloseReason::Invalid(_)), "{wrong}");
    }
    // Once it attached in this lead it has its term from it; other tables have it from elsewhere.
    attach(2, 0, 5).unwrap();
    attach(2, 1, 5).unwrap();
    assert!(matches!(attach(2, 1, 6), Err(CloseReason::Outrun { heard: 1, .. })));
}

/// However high a switch once had this controller's terms begin, what switches hear from it is
/// nothing that it refuses later.
#[test]
fn a_controller_takes_switches_that_have_heard_of_its_own_term_however_high() {
    let term = (1 << 62) + 1;
    let attach = |core: &mut Core, heard| {
        let hello = Hello { term: heard, life: 5, ..hello(2, 8) };
        core.attach(Duration::ZERO, &hello).map(|_| ())
    };
    let mut core = Stage::from(8, LoadedState::default(), WantingDiscipline::default(), term).core;
    for heard in [0, term, term - 1] {
        assert_eq!(attach(&mut core, heard), Ok(()), "{heard}");
    }
}

#[test]
fn pages_are_listed_by_tenant_and_from_where_the_list_before_ended() {
    let mut stage = Stage::new(4);
    stage.create_as(of(1, "test", 2)).unwrap();
    stage.create_as(of(2, "test", 1)).unwrap();
    stage.settle();
    let second = stage.attach(2, 3);
    stage.sent_to(second);
    let list = |filter: PageFilter| {
        let pages = stage.core.view().pages(PageFilter { limit: 9, ..filter }).unwrap();
        pages.iter().map(|page| format!("{}/{}", page.switch, page.page)).collect::<Vec<_>>()
    };
    let all = list(PageFilter::default());
    assert_eq!(all, ["1/0", "1/1", "1/2", "1/3", "2/0", "2/1", "2/2"]);
    for (n, page) in all.iter().enumerate() {
        let after = Some(page.parse().unwrap());
        assert_eq!(list(PageFilter { after, ..PageFilter::default() }), all[n + 1..]);
    }
    // Each page is in the list of its tenant, and what is free in nobody's.
    for tenant in [1, 2] {
        let of = PageFilter { tenant: Some(tenant), ..PageFilter::default() };
        let rows = stage.core.memory.ledger().rows().filter(|(_, row)| row.tenant() == tenant);
        let its: Vec<String> = rows.map(|(page, _)| page.to_string()).collect();
        assert!(!its.is_empty() && list(of) == its, "tenant {tenant}: {its:?}");
        let after = Some(its[0].parse().unwrap());
        assert_eq!(list(PageFilter { after, ..of }), its[1..]);
        let free = PageFilter { kind: Some(PageKind::Free), ..of };
        assert!(list(free).is_empty());
    }
}
