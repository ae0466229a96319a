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

/// A controller that begins anew from what this one wrote, with another cluster file.
fn begun_with(stage: &mut Stage, change: impl Fn(&mut wire::Cluster)) -> Stage {
    stage.write();
    let loaded = LoadedState { rows: stage.loaded.rows.clone(), ..LoadedState::default() };
    let mut config = config(2);
    change(&mut config.cluster);
    Stage::with(config, 4, loaded, WantingDiscipline::default())
}

#[test]
fn who_lost_all_stores_is_served_nowhere_until_it_has_others() {
    let elsewhere: SocketAddr = "10.0.0.9:7117".parse().unwrap();
    let mut first = Stage::new(4);
    // (number, discipline): a cache, one in every setup, and one whose items are nowhere else.
    for (id, discipline) in [(1, "test"), (2, "everywhere"), (3, "truth"), (4, "test")] {
        first.create_as(TenantSpec { borrow: false, ..of(id, discipline, 1) }).unwrap();
    }
    first.settle();
    for id in 1..4 {
        let mut tenant = first.core.tenants.get(id).unwrap().clone();
        tenant.terms.stores = vec![elsewhere];
        let changed = first.core.tenants.put(tenant);
        first.core.tenants.note(changed, &mut first.core.journal);
    }
    let mut stage = begun_with(&mut first, |_| {});
    stage.settle();
    let told = |stage: &mut Stage| {
        let cluster = stage.cluster_of_stores();
        assert_eq!(cluster.check(), Ok(()));
        let setup = api::convert::cluster(stage.setup.cluster.as_ref().unwrap()).unwrap();
        let ids = |cluster: wire::Cluster| cluster.tenants.iter().map(|t| t.id).collect::<Vec<_>>();
        (ids(cluster), ids(setup))
    };
    // What is nowhere but on the switch stays there.
    assert_eq!(told(&mut stage), (vec![4], vec![3, 4]));
    assert_eq!(stage.pages(), BTreeMap::from([(3, 1), (4, 1)]));
    assert_eq!(stage.wanting.homes.lock().unwrap().keys().copied().collect::<Vec<_>>(), [3, 4]);
    let view = stage.core.view().tenant(1, false).unwrap();
    assert_eq!((view.terms.stores, view.lost_stores), (vec![elsewhere], vec![elsewhere]));
    let refused = stage.core.view().credentials(1).unwrap_err();
    assert!(refused.message.contains("none of its stores"), "{refused}");
    // Under a file that has the store again, it is as it was.
    let back = |cluster: &mut wire::Cluster| cluster.stores[0].address = elsewhere;
    let mut again = begun_with(&mut stage, back);
    again.settle();
    assert_eq!(told(&mut again), (vec![1, 2, 3, 4], vec![1, 2, 3, 4]));
    // An operator gives it others.
    for id in 1..4 {
        let here = TenantChange {
            stores: Some(vec!["10.0.0.1:7117".parse().unwrap()]),
            ..TenantChange::default()
        };
        stage.change(id, here).unwrap();
    }
    stage.settle();
    assert_eq!(told(&mut stage), (vec![1, 2, 3, 4], vec![1, 2, 3, 4]));
    assert_eq!(stage.pages(), BTreeMap::from([(1, 1), (2, 1), (3, 1), (4, 1)]));
    assert_eq!(stage.core.view().tenant(1, false).unwrap().lost_stores, []);
}

#[test]
fn who_lost_some_stores_goes_by_the_others() {
    let (here, elsewhere) = ("10.0.0.1:7117".parse().unwrap(), "10.0.0.9:7117".parse().unwrap());
    let mut first = Stage::new(4);
    first.create(1, 1).unwrap();
    let mut tenant = first.core.tenants.get(1).unwrap().clone();
    tenant.terms.stores = vec![elsewhere, here];
    let changed = first.core.tenants.put(tenant);
    first.core.tenants.note(changed, &mut first.core.journal);
    let mut stage = begun_with(&mut first, |_| {});
    stage.settle();
    assert_eq!(stage.cluster_of_stores().tenants[0].stores, [here]);
    assert_eq!(stage.pages(), BTreeMap::from([(1, 1)]));
    assert_eq!(stage.core.view().tenant(1, false).unwrap().lost_stores, [elsewhere]);
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
