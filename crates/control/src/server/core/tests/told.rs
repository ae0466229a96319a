//! What stores, switches and disciplines are told of tenants.

use super::*;

#[test]
fn stores_learn_where_tenants_are_before_the_switch_there_does() {
    let mut stage = Stage::new(4);
    let store = stage.core.store_came(&StoreHello::default());
    stage.settle();
    assert_eq!(stage.placed(store), Some(vec![]));
    stage.create(1, 2).unwrap();
    assert!(!stage.receive(), "not durable yet");
    assert_eq!(stage.placed(store), Some(vec![(1, 1)]));
    stage.settle();
    stage.create(2, 1).unwrap();
    assert_eq!(stage.placed(store), Some(vec![(1, 1), (2, 1)]));
    stage.settle();
    assert_eq!(stage.placed(store), None, "nothing changed");
    let again = stage.core.store_came(&StoreHello::default());
    assert_eq!(stage.placed(again), Some(vec![(1, 1), (2, 1)]));
    let remove = |view: &View<'_>| changes::remove(view, 1);
    stage.core.change(ASKED, remove).unwrap();
    assert_eq!(stage.placed(store), Some(vec![(2, 1)]));
}

#[test]
fn a_discipline_hears_that_a_store_was_not_told_all_once_there_is_room_again() {
    let mut stage = Stage::new(4);
    stage.create(1, 1).unwrap();
    let address = "10.0.0.1:7117".into();
    let store = stage.core.store_came(&StoreHello { address, ..StoreHello::default() });
    *stage.wanting.messages.lock().unwrap() = 20_000;
    stage.settle();
    let mut heard = vec![];
    while let Some(message) = stage.core.next_for_store(store) {
        if let Some(to_store::Body::Message(message)) = message.body {
            heard.push(message.seq);
        }
    }
    assert!((1..20_000).contains(&heard.len()), "{}", heard.len());
    let not_told = |stage: &mut Stage, seq: u64| {
        let ack = api::proto::from_store::Body::Ack(api::proto::HalfAck { seq });
        stage.core.store_said(stage.now, store, FromStore { body: Some(ack) });
        *stage.wanting.not_told.lock().unwrap()
    };
    assert_eq!(not_told(&mut stage, heard[0]), 0, "it is full still");
    assert_eq!(not_told(&mut stage, heard[heard.len() - 1]), 1);
    *stage.wanting.messages.lock().unwrap() = 1;
    stage.settle();
    assert!(stage.core.next_for_store(store).is_some(), "it is told anew");
}

#[test]
fn a_discipline_that_runs_everywhere_is_in_every_setup() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 0);
    let spec = TenantSpec { borrow: false, ..of(1, "everywhere", 0) };
    stage.create_as(spec).unwrap();
    stage.create_as(TenantSpec { borrow: false, ..of(2, "test", 1) }).unwrap();
    stage.settle();
    let (setups, _) = stage.sent_to(second);
    let setup = setups.last().unwrap();
    let disciplines = |setup: &Setup| {
        let tenants = setup.tenants.iter();
        let told = tenants.map(|t| (t.tenant, t.discipline.clone()));
        told.collect::<Vec<_>>()
    };
    assert_eq!(disciplines(setup), [(1, "everywhere".into())]);
    let both = [(1, "everywhere".into()), (2, "test".into())];
    assert_eq!(disciplines(&stage.setup), both);
    // Windows end for all that may use a switch, in their order.
    for stream in [second, stage.stream] {
        stage.say(stream, from_switch::Body::Counters(Counters::default()));
    }
    let windows = stage.wanting.windows.lock().unwrap().clone();
    assert_eq!(windows, [(2, 1), (1, 1), (1, 2)]);
}

#[test]
fn a_tenant_with_write_back_is_in_every_setup() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 0);
    stage.create_as(TenantSpec { borrow: false, ..of(1, "test", 1) }).unwrap();
    stage.settle();
    stage.sent_to(second);
    // What a write passes second keeps it, with pages there or without.
    for (write_back_ms, expected) in [(100, vec![(1, "test".to_owned())]), (0, vec![])] {
        let change = TenantChange { write_back_ms: Some(write_back_ms), ..TenantChange::default() };
        stage.change(1, change).unwrap();
        stage.write();
        let (setups, _) = stage.sent_to(second);
        let told = setups.last().unwrap().tenants.iter();
        let told: Vec<_> = told.map(|t| (t.tenant, t.discipline.clone())).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_change_of_a_tenant_is_told_to_the_switches_where_it_is() {
    let mut stage = Stage::new(4);
    let second = stage.attach(2, 4);
    stage.create_as(TenantSpec { borrow: false, ..of(1, "test", 0) }).unwrap();
    let on_first = PageRequest { pages: 1, switch: Some(1), lease_s: None };
    stage.ask(1, on_first).unwrap();
    stage.settle();
    stage.sent_to(second);
    let faster = TenantChange { rate: Some(9), ..TenantChange::default() };
    stage.change(1, faster).unwrap();
    stage.write();
    assert_eq!(stage.sent_to(second).0, []);
    let (setups, _) = stage.sent_to(stage.stream);
    assert_eq!(setups[0].cluster.as_ref().unwrap().tenants[0].rate, 9);
}

#[test]
fn a_discipline_learns_which_stores_keys_are_on_once_and_again_after_a_change() {
    let mut stage = Stage::new(10);
    let told = |stage: &Stage| stage.wanting.homes.lock().unwrap().get(&1).copied();
    stage.create(1, 2).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(1));
    stage.change(1, quota(3)).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(1), "its stores are the same");
    let another = TenantChange { discipline: Some("truth".into()), ..TenantChange::default() };
    stage.change(1, another).unwrap();
    stage.settle();
    assert_eq!(told(&stage), Some(2), "another discipline knows nothing");
}

#[test]
fn a_discipline_learns_again_which_stores_keys_are_on_when_rooms_come_back() {
    let mut stage = Stage::new(10);
    let told = |stage: &Stage| stage.wanting.homes.lock().unwrap().get(&1).copied();
    let pages = |stage: &Stage| stage.wanting.rooms.lock().unwrap().get(&1).copied();
    stage.create(1, 4).unwrap();
    let alone = TenantChange { borrow: Some(false), ..TenantChange::default() };
    stage.change(1, alone).unwrap();
    stage.settle();
    stage.change(1, quota(0)).unwrap();
    stage.settle();
    assert_eq!(pages(&stage), Some(0));
    let before = told(&stage);
    stage.change(1, quota(4)).unwrap();
    stage.settle();
    assert_eq!(pages(&stage), Some(4));
    assert_eq!(told(&stage), before.map(|times| times + 1));
}
