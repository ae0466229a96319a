//! What a tenant is given, asks for and gives back, and its secrets.

use super::*;

#[test]
fn a_quota_above_what_there_is_is_refused_and_what_is_free_is_said() {
    let mut stage = Stage::new(10);
    stage.create(1, 7).unwrap();
    let refused = stage.create(2, 4).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NoRoom);
    assert!(refused.message.contains("3 on switch 1"), "{refused}");
    assert!(stage.core.tenants.get(2).is_none());
    let request = |pages, switch| PageRequest { pages, switch, lease_s: None };
    let refused = stage.ask(1, request(4, None)).unwrap_err();
    assert!(refused.message.contains("3 on switch 1"), "{refused}");
    let refused = stage.ask(1, request(1, Some(9))).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound);
    stage.settle();
    let granted = stage.ask(1, request(3, Some(1))).unwrap();
    assert_eq!(granted.len(), 3);
    stage.settle();
    assert_eq!(stage.pages()[&1], 10);
}

#[test]
fn a_discipline_that_kernels_refuse_is_refused_with_their_reason() {
    let mut stage = Stage::new(10);
    let wants = |id: u32, discipline: &str, write_back_ms: u32| TenantSpec {
        id: Some(id),
        discipline: discipline.into(),
        quota: 1,
        write_back_ms,
        ..TenantSpec::default()
    };
    // Copies need one switch that has the programs, what is nowhere else needs them all.
    stage.attach_without(2, &["test", "truth"]);
    stage.create_as(wants(1, "test", 0)).unwrap();
    let refused = stage.create_as(wants(2, "truth", 0)).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    let all = ["discipline truth", "switch 2 (tor 2)", "unbounded"];
    assert!(all.iter().all(|part| refused.message.contains(part)), "{refused}");
    stage.attach_without(1, &["test", "write-back"]);
    let refused = stage.create_as(wants(2, "test", 0)).unwrap_err();
    assert!(refused.message.contains("switch 1 (tor 1)"), "{refused}");
    stage.create_as(wants(2, "everywhere", 1000)).unwrap();
    stage.attach_without(2, &["write-back"]);
    let refused = stage.create_as(wants(3, "everywhere", 1000)).unwrap_err();
    assert!(refused.message.contains("Leave --write-back out"), "{refused}");
}

#[test]
fn what_a_tenant_has_is_not_refused_for_a_switch_that_came_later() {
    let mut stage = Stage::new(10);
    stage.create_as(of(1, "truth", 1)).unwrap();
    stage.create(2, 1).unwrap();
    stage.attach_without(2, &["truth"]);
    let rate = TenantChange { rate: Some(5), ..TenantChange::default() };
    stage.change(1, rate).unwrap();
    let write_back = TenantChange { write_back_ms: Some(10), ..TenantChange::default() };
    stage.change(1, write_back).unwrap();
    let truth = TenantChange { discipline: Some("truth".into()), ..TenantChange::default() };
    let refused = stage.change(2, truth).unwrap_err();
    assert!(refused.message.contains("discipline truth does not run here"), "{refused}");
}

#[test]
fn a_tenant_of_the_cluster_file_is_removed_once_the_file_has_it_no_more() {
    let mut stage = Stage::new(10);
    stage.create(1, 2).unwrap();
    let mut tenant = stage.core.tenants.get(1).unwrap().clone();
    let entry = tenant.to_wire();
    tenant.declared = Some(entry.clone());
    let _ = stage.core.tenants.put(tenant);
    stage.core.config.cluster.tenants.push(entry);
    let is_declared = |stage: &Stage| stage.core.view().tenant(1, false).unwrap().declared;
    let remove = |stage: &mut Stage| stage.core.change(ASKED, |view| changes::remove(view, 1));
    assert!(is_declared(&stage));
    assert_eq!(remove(&mut stage).unwrap_err().kind, RefusalKind::Conflict);
    stage.core.config.cluster.tenants.clear();
    assert!(!is_declared(&stage));
    remove(&mut stage).unwrap();
    assert!(stage.core.tenants.is_retired(1));
}

#[test]
fn a_tenant_asks_for_no_more_than_it_was_given() {
    let mut stage = Stage::new(20);
    stage.create(1, 6).unwrap();
    let mut own = |pages: i32| {
        let count = Some(pages.unsigned_abs());
        let back = ReturnPages { count, ..ReturnPages::default() };
        let request = PageRequest { pages: pages.unsigned_abs(), switch: None, lease_s: None };
        match pages > 0 {
            true => stage.core.ask_pages(ASKED, 1, request, true),
            false => stage.core.return_pages(ASKED, 1, &back, true),
        }
    };
    assert_eq!(own(1).unwrap_err().kind, RefusalKind::Forbidden);
    assert_eq!(own(-4).unwrap().quota, 2);
    assert_eq!(own(3).unwrap().quota, 5);
    let refused = own(2).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains("1 may be: its operator gave it 6"));
    assert_eq!(own(1).unwrap().quota, 6);
    // An operator's word is the new ceiling, whichever way it was said.
    let lower = TenantChange { quota: Some(3), ..TenantChange::default() };
    stage.change(1, lower).unwrap();
    let request = |pages| PageRequest { pages, switch: None, lease_s: None };
    assert!(stage.core.ask_pages(ASKED, 1, request(1), true).is_err());
    stage.ask(1, request(2)).unwrap();
    assert!(stage.core.ask_pages(ASKED, 1, request(1), true).is_err());
}

#[test]
fn a_page_returned_twice_is_refused() {
    let mut stage = Stage::new(8);
    stage.create(1, 4).unwrap();
    stage.settle();
    let page = stage.core.memory.ledger().held(1).next().unwrap().0;
    let this = ReturnPages { pages: vec![page], count: None };
    stage.give_back(1, &this).unwrap();
    let again = stage.give_back(1, &this).unwrap_err();
    assert!(again.message.contains("returned twice"), "{again}");
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 3);
    let two = ReturnPages { pages: vec![], count: Some(2) };
    let gone = stage.give_back(1, &two).unwrap();
    assert_eq!(gone.len(), 2);
    let too_many = stage.give_back(1, &two).unwrap_err();
    assert!(too_many.message.contains("its quota is 1"), "{too_many}");
}

#[test]
fn a_rotation_keeps_the_seed_of_hashes() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let first = stage.core.tenants.get(1).unwrap().clone();
    let rotate = |view: &View<'_>| changes::rotate_secret(view, 1, Secret([8; 16]));
    let finish = |view: &View<'_>| changes::finish_rotation(view, 1);
    let rotated = stage.core.change(ASKED, rotate).unwrap().tenant.unwrap();
    assert_eq!(rotated.also_secret.as_deref(), Some(first.secret.as_str()));
    let again = stage.core.change(ASKED, rotate);
    assert!(again.is_err(), "one at a time");
    let cluster = stage.cluster_of_stores();
    let secrets = cluster.secrets_of(1).unwrap();
    assert_eq!(secrets.hash.seed(), wire::Secret(hex_of(&first.secret)));
    assert_eq!(secrets.also, secrets.hash.seed());
    stage.core.change(ASKED, finish).unwrap();
    assert!(stage.core.change(ASKED, finish).is_err());
    let cluster = stage.cluster_of_stores();
    let after = cluster.secrets_of(1).unwrap();
    assert_eq!((after.hash, after.also), (secrets.hash, wire::Secret::NONE));
}

#[test]
fn who_was_not_told_of_a_secret_is_named() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    stage.settle();
    let store = stage.core.view().around.stores().next();
    let store =
        store.map(|address| StoreHello { address: address.to_string(), ..StoreHello::default() });
    let stores: Vec<_> = store.iter().map(|hello| stage.core.store_came(hello)).collect();
    let told = |stage: &mut Stage| {
        stage.settle();
        for store in &stores {
            while stage.core.next_for_store(*store).is_some() {}
        }
        stage.core.not_told()
    };
    assert_eq!(told(&mut stage), [""; 0]);
    let rotate = |view: &View<'_>| changes::rotate_secret(view, 1, Secret([8; 16]));
    stage.core.change(ASKED, rotate).unwrap();
    assert!(stage.core.not_told().contains(&"switch 1 (tor 1)".into()), "it is not sent yet");
    assert_eq!(told(&mut stage), [""; 0]);
    stage.core.detach(stage.now, stage.stream);
    stage.core.change(ASKED, |view| changes::finish_rotation(view, 1)).unwrap();
    assert_eq!(told(&mut stage), ["switch 1 (tor 1)"]);
}

fn hex_of(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    hex::decode_to_slice(text, &mut bytes).unwrap();
    bytes
}

#[test]
fn pages_asked_for_with_a_lease_go_back_unless_they_are_used() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let request = PageRequest { pages: 3, switch: None, lease_s: Some(60) };
    stage.ask(1, request).unwrap();
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 4);
    stage.core.lapse(60);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 4, "not over yet");
    stage.core.lapse(61);
    assert_eq!(stage.core.tenants.get(1).unwrap().terms.quota, 1);
}

#[test]
fn a_tenant_does_not_keep_what_it_was_given_for_a_time_by_giving_it_back() {
    let mut stage = Stage::new(12);
    stage.create(1, 2).unwrap();
    let request = |pages, lease_s| PageRequest { pages, switch: None, lease_s };
    stage.ask(1, request(8, Some(60))).unwrap();
    for count in [1, 7] {
        let back = ReturnPages { count: Some(count), ..ReturnPages::default() };
        stage.core.return_pages(ASKED, 1, &back, true).unwrap();
        let refused = stage.core.ask_pages(ASKED, 1, request(count, None), true);
        assert_eq!(refused.unwrap_err().kind, RefusalKind::Forbidden);
    }
    stage.core.lapse(61);
    let quota = stage.core.tenants.get(1).unwrap().terms.quota;
    // What was there for good is to be had again.
    let mut ask = |pages| stage.core.ask_pages(ASKED, 1, request(pages, None), true);
    assert!(ask(3 - quota).is_err());
    assert_eq!(ask(2 - quota).unwrap().quota, 2);
}

#[test]
fn the_number_of_a_removed_tenant_is_not_given_away_by_accident() {
    let mut stage = Stage::new(8);
    stage.create(1, 1).unwrap();
    let removed = stage.core.change(ASKED, |view| changes::remove(view, 1));
    removed.unwrap();
    stage.settle();
    assert!(stage.setup.tenants.is_empty());
    let refused = stage.create(1, 1).unwrap_err();
    assert!(refused.message.contains("was removed"), "{refused}");
    let any = stage.create_as(TenantSpec::default());
    assert_eq!(any, Ok(2));
    stage.settle();
    let loaded = std::mem::take(&mut stage.loaded);
    let mut next = Stage::from(8, loaded, stage.wanting.clone(), 2);
    assert!(next.create(1, 1).is_err(), "also after a restart");
    let again = TenantSpec { id: Some(1), reuse: true, ..TenantSpec::default() };
    assert_eq!(next.create_as(again), Ok(1));
}
