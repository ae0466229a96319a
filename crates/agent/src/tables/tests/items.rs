//! Given records, and items that nobody but their discipline may remove.

use std::collections::BTreeSet;

use dataplane::GIVEN_MAX;
use wire::{Op, ReadCount};

use super::*;

#[test]
fn a_given_record_is_there_at_once_without_a_store() {
    let mut switch = Switch::start();
    switch.put(CHAIN, "a", b"one");
    switch.put(COPIES, "b", b"");
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    assert_eq!(switch.record(COPIES, "b"), Some(vec![]));
    assert_eq!(switch.change(&key(COPIES, "c"), &FETCHED), Outcome::Done);
    assert_eq!(switch.record(COPIES, "c"), None);
    let now = switch.now + Duration::from_secs(9);
    let tables = switch.tables();
    let wants = |name| {
        let key = key(COPIES, name);
        let place = tables.memory.place_of(&key).unwrap();
        let leases = dataplane::Leases::open(tables.configurations.backing()).unwrap();
        tables.memory.wants_value(&key, place, &leases).is_some()
    };
    assert!(wants("c") && !wants("b"));
    tables.now = now;
    tables.fill();
    assert_eq!(switch.held().len(), 3);
}

#[test]
fn stores_are_asked_when_the_time_that_is_told_has_come() {
    let mut switch = Switch::start();
    assert_eq!(switch.change(&key(COPIES, "c"), &FETCHED), Outcome::Done);
    let mut asked = |ms| {
        let now = switch.now + Duration::from_millis(ms);
        switch.tables().tick(now).unwrap();
        let sent = switch.sent.0.take().into_iter();
        let op = |(store, bytes): Datagram| {
            let packet = wire::Packet::decode(&bytes).unwrap();
            assert_eq!(store, "10.0.2.1:7117".parse().unwrap());
            (packet.header.op, packet.key.to_vec())
        };
        sent.map(op).collect::<Vec<_>>()
    };
    let lease = || (Op::LeaseRequest, vec![]);
    let fetch = || (Op::FetchRequest, b"c".to_vec());
    // One lease request came with the setup.
    assert_eq!(asked(0), [lease(), lease()]);
    assert_eq!(asked(79), []);
    assert_eq!(asked(80), [fetch()]);
    assert_eq!(asked(200), [lease()]);
    assert_eq!(asked(239), []);
    assert_eq!(asked(240), [fetch()]);
}

/// Its answers would pass by the programs, and its writes wait for a lease.
#[test]
fn nothing_is_kept_of_a_store_at_another_port() {
    let mut switch = Switch::start();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for name in names {
        assert_eq!(switch.change(&key(COPIES, name), &FETCHED), Outcome::Done);
    }
    let seen: SocketAddr = "10.0.2.1:7117".parse().unwrap();
    let mut cluster = Cluster::single(seen, 4);
    cluster.stores[0].last = 1;
    let beside = |at: &str, partition| wire::Store::new(at.parse().unwrap(), partition, partition);
    cluster.stores.extend([beside("10.0.2.1:7118", 2), beside("10.0.2.2:7118", 3)]);
    switch.sent.0.take();
    switch.hear(setup_of(cluster, &[(COPIES, "copies")], |id| format!("{id:032x}")));
    let store_of = |switch: &mut Switch, name: &'static str| {
        let served = switch.tables().served.as_ref().unwrap();
        let hash = served.hash_of(&key(COPIES, name)).unwrap();
        served.cluster.store_of(COPIES, hash).address
    };
    let (kept, left): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| store_of(&mut switch, name) == seen);
    assert!(!kept.is_empty() && !left.is_empty());
    let held: BTreeSet<_> = switch.held().into_iter().map(|held| held.key).collect();
    assert_eq!(held, kept.iter().map(|name| name.as_bytes().to_vec()).collect());
    for name in left {
        assert_eq!(switch.change(&key(COPIES, name), &FETCHED), Outcome::Refused);
    }
    for seconds in 1..4 {
        let now = switch.now + Duration::from_secs(seconds);
        switch.tables().tick(now).unwrap();
    }
    let sent = switch.sent.0.take();
    assert!(sent.iter().all(|(store, _)| *store == seen) && sent.len() > kept.len());
    let leases = dataplane::Leases::open(switch.place.backing()).unwrap();
    assert_eq!(leases.all().iter().map(|lease| lease.store).collect::<Vec<_>>(), [seen.ip()]);
}

/// Programs have counted so many reads of an item.
fn read(switch: &mut Switch, key: &ItemKey, reads: u32) {
    let tables = switch.tables();
    let place = tables.memory.place_of(key).unwrap();
    let at = tables.configurations.backing();
    let mut page = at.element("hits", place.page).unwrap();
    let cell = usize::from(place.cell) * 4;
    page[cell..cell + 4].copy_from_slice(&reads.to_ne_bytes());
    at.set_element("hits", place.page, &page).unwrap();
}

#[test]
fn a_store_hears_in_each_window_how_often_copies_of_its_keys_were_read() {
    let mut switch = Switch::start();
    let (copy, list, data) = (key(COPIES, "a"), key(COPIES, "b"), key(CHAIN, "c"));
    assert_eq!(switch.change(&copy, &FETCHED), Outcome::Done);
    assert_eq!(switch.change(&list, &given(b"r")), Outcome::Done);
    assert_eq!(switch.change(&data, &given(b"r")), Outcome::Done);
    let hash = |switch: &mut Switch, key| switch.tables().served.as_ref().unwrap().hash_of(key);
    let (of_copy, of_list) = (hash(&mut switch, &copy), hash(&mut switch, &list));
    let told = |switch: &mut Switch, window: u64| {
        let now = switch.now + Duration::from_secs(window);
        switch.tables().tick(now).unwrap();
        let mut counts = vec![];
        for (store, bytes) in switch.sent.0.take() {
            let packet = wire::Packet::decode(&bytes).unwrap();
            if packet.header.op == Op::ReadCounts {
                assert_eq!(store, "10.0.2.1:7117".parse().unwrap());
                assert_eq!(packet.header.epoch.switch(), 1);
                let rows = ReadCount::decode(packet.value);
                counts.extend(rows.map(|row| (row.tenant, Some(row.hash), row.reads)));
            }
        }
        counts.sort_by_key(|(_, _, reads)| *reads);
        counts
    };
    assert_eq!(told(&mut switch, 1), []);
    for (key, reads) in [(&copy, 1000), (&list, 5), (&data, 7)] {
        read(&mut switch, key, reads);
    }
    assert_eq!(told(&mut switch, 2), [(COPIES, of_list, 5), (COPIES, of_copy, 1000)]);
    assert_eq!(told(&mut switch, 3), [], "once");
    read(&mut switch, &copy, 1001);
    assert_eq!(told(&mut switch, 4), [(COPIES, of_copy, 1)]);
}

#[test]
fn another_put_replaces_a_copy_and_leaves_the_data() {
    let mut switch = Switch::start();
    for tenant in [CHAIN, COPIES] {
        switch.put(tenant, "a", b"one");
        switch.put(tenant, "a", b"two");
    }
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    assert_eq!(switch.record(COPIES, "a"), Some(b"two".to_vec()));
    let long = [7; 300];
    switch.put(COPIES, "a", &long);
    assert_eq!(switch.record(COPIES, "a"), Some(long.to_vec()));
    // From the one kind of copy to the other and back.
    assert_eq!(switch.change(&key(COPIES, "a"), &FETCHED), Outcome::Done);
    assert_eq!(switch.record(COPIES, "a"), None);
    switch.put(COPIES, "a", b"two");
    assert_eq!(switch.record(COPIES, "a"), Some(b"two".to_vec()));
    assert_eq!(switch.held().len(), 2);
    assert_eq!(switch.change(&key(CHAIN, "a"), &Change::Remove), Outcome::Done);
    assert_eq!(switch.record(CHAIN, "a"), None);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut switch = Switch::start();
    let too_long = [0; GIVEN_MAX + 1];
    let long_key = key(CHAIN, vec![b'k'; wire::MAX_KEY + 1]);
    for (key, change) in [
        (key(CHAIN, "a"), FETCHED),
        (key(CHAIN, "a"), given(&too_long)),
        (key(COPIES, "a"), given(&too_long)),
        (key(CHAIN, ""), given(b"r")),
        (long_key, given(b"r")),
        (key(99, "a"), given(b"r")),
    ] {
        let outcome = switch.change(&key, &change);
        assert_eq!(outcome, Outcome::Refused, "{key:?} {change:?}");
    }
    assert_eq!(switch.held(), []);
    switch.set_up(&[(CHAIN, "none"), (COPIES, "copies")]);
    let unknown = switch.change(&key(CHAIN, "a"), &given(b"r"));
    assert_eq!(unknown, Outcome::Refused);
}

#[test]
fn a_page_with_data_on_it_stays_its_tenants() {
    let mut switch = Switch::start();
    switch.put(CHAIN, "a", b"one");
    switch.put(COPIES, "b", b"two");
    switch.give_pages(2, &[(COPIES, &[0]), (CHAIN, &[2])]);
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    assert_eq!(switch.record(COPIES, "b"), None, "its page was taken");
    assert_eq!(switch.pages_applied(), [0u64; 0]);
    let no_room = switch.change(&key(COPIES, "b"), &given(b"two"));
    assert_eq!(no_room, Outcome::NoRoom, "the page is not its yet");
    switch.tables().end_window().unwrap();
    assert_eq!(switch.pages_applied(), [0u64; 0]);
    // Its own discipline removes it: now the page changes hands.
    switch.change(&key(CHAIN, "a"), &Change::Remove);
    switch.tables().end_window().unwrap();
    assert_eq!(switch.pages_applied(), [2]);
    switch.put(COPIES, "b", b"two");
    switch.put(CHAIN, "a", b"one");
}

#[test]
fn data_outlasts_agents_and_ids_and_ends_with_its_tenant() {
    let mut switch = Switch::start();
    switch.put(CHAIN, "a", b"one");
    switch.put(COPIES, "b", b"two");
    switch.change(&key(COPIES, "c"), &FETCHED);
    switch.restart(1);
    assert_eq!(switch.held().len(), 3);
    switch.restart(2);
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    assert_eq!(switch.record(COPIES, "b"), Some(b"two".to_vec()));
    assert_eq!(switch.held().len(), 2, "stores know copies by the id");
    // Nobody said yet whose discipline is which.
    switch.give_pages(3, &[(OTHERS, &[0, 1, 2, 3])]);
    assert_eq!(switch.held().len(), 2);
    assert_eq!(switch.pages_applied(), [0u64; 0]);
    switch.set_up(&[(CHAIN, "trial"), (COPIES, "copies"), (OTHERS, "copies")]);
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    assert_eq!(switch.record(COPIES, "b"), None);
    assert_eq!(switch.pages_applied(), [0u64; 0]);
    switch.set_up(&[(COPIES, "copies"), (OTHERS, "copies")]);
    assert_eq!(switch.held(), []);
    let heard = switch.heard();
    assert!(heard.iter().any(|body| matches!(body, Body::Dropped(d) if d.keys[0].tenant == CHAIN)));
    assert!(heard.iter().any(|body| matches!(body, Body::Pages(p) if p.version == 3)));
}

#[test]
fn data_stays_when_its_discipline_is_not_known_here_and_goes_when_it_is_another() {
    let mut switch = Switch::start();
    switch.put(CHAIN, "a", b"one");
    switch.set_up(&[(CHAIN, "of a later version")]);
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    switch.set_up(&[(CHAIN, "trial")]);
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()));
    switch.set_up_with(&[(CHAIN, "trial")], |_| "f".repeat(32));
    assert_eq!(switch.record(CHAIN, "a"), Some(b"one".to_vec()), "a wrong secret is no reason");
    switch.set_up(&[(CHAIN, "copies")]);
    assert_eq!(switch.held(), []);
}

/// So many keys of a tenant that share a bucket with the one key that is there.
fn sharing_a_bucket(switch: &mut Switch, tenant: u32, count: usize) -> Vec<ItemKey> {
    let tables = switch.tables();
    let served = tables.served.as_ref().unwrap();
    let table = Table::open(tables.configurations.backing()).unwrap();
    let shares = |key: &ItemKey| {
        let hash = served.hash_of(key).unwrap();
        table.neighbours(tenant, hash).next().is_some()
    };
    let keys = (0..).map(|n: u32| key(tenant, format!("key {n}").into_bytes()));
    keys.filter(shares).take(count).collect()
}

#[test]
fn in_a_full_bucket_copies_make_way_but_for_one_and_data_does_not() {
    let mut switch = Switch::start();
    switch.put(CHAIN, "a", b"one");
    let data = sharing_a_bucket(&mut switch, CHAIN, 7);
    let copies = sharing_a_bucket(&mut switch, COPIES, 3);
    for key in &data[..5] {
        assert_eq!(switch.change(key, &given(b"r")), Outcome::Done);
    }
    for key in &copies[..2] {
        assert_eq!(switch.change(key, &FETCHED), Outcome::Done);
    }
    let (outcome, dropped) = switch.change_telling(&data[5], &given(b"r"));
    assert_eq!((outcome, dropped.len()), (Outcome::Done, 1));
    let (outcome, dropped) = switch.change_telling(&data[6], &given(b"r"));
    assert_eq!((outcome, dropped), (Outcome::BucketFull, vec![]));
    let (outcome, dropped) = switch.change_telling(&copies[2], &FETCHED);
    assert_eq!((outcome, dropped.len()), (Outcome::Done, 1));
    assert_eq!(switch.held().len(), 8);
    // Where one goes there is room.
    assert_eq!(switch.change(&data[0], &Change::Remove), Outcome::Done);
    assert_eq!(switch.change(&data[6], &given(b"r")), Outcome::Done);
}

/// A tenant that picks its keys fills a bucket; whoever has less of it finds room, and stays.
#[test]
fn in_a_full_bucket_the_tenant_with_most_of_it_makes_way() {
    let mut switch = Switch::start();
    assert_eq!(switch.change(&key(COPIES, "a"), &FETCHED), Outcome::Done);
    let others = sharing_a_bucket(&mut switch, OTHERS, 12);
    let dropped = others.iter().map(|key| {
        let (outcome, dropped) = switch.change_telling(key, &FETCHED);
        assert_eq!(outcome, Outcome::Done);
        dropped
    });
    let dropped: Vec<Key> = dropped.flatten().collect();
    assert_eq!(dropped.len(), 5, "of the others' own");
    assert!(!dropped.contains(&key(COPIES, "a").key));
}

/// What a controller believes that took every message as it came is what is there, though one
/// command's item makes way for that of the next.
#[test]
fn what_makes_way_within_one_message_is_believed_to_be_gone_and_what_comes_back_to_be_there() {
    let mut switch = Switch::start();
    assert_eq!(switch.change(&key(COPIES, "a"), &FETCHED), Outcome::Done);
    let keys = sharing_a_bucket(&mut switch, OTHERS, 12);
    let mut believed = BTreeSet::from([key(COPIES, "a").key]);
    let mut come = |switch: &mut Switch, keys: &[&ItemKey]| {
        let command = |(seq, key): (u64, &&ItemKey)| convert::command(seq, key, &FETCHED);
        let commands = (0..).zip(keys).map(command).collect();
        switch.hear(to_switch::Body::Commands(Commands { commands }));
        let mut dropped = 0;
        for body in switch.heard() {
            match body {
                Body::Acks(acks) => {
                    let is_done = |ack: &&Ack| Outcome::from(ack.outcome()) == Outcome::Done;
                    let done = acks.acks.iter().filter(is_done);
                    believed.extend(done.map(|ack| keys[ack.seq as usize].key.clone()));
                }
                Body::Dropped(told) => {
                    for key in told.keys.iter().flat_map(|of| &of.keys) {
                        dropped += 1;
                        assert!(believed.remove(key), "{key:?} was there");
                    }
                }
                _ => {}
            }
        }
        let held = switch.held().into_iter().map(|held| held.key.into());
        assert_eq!(held.collect::<BTreeSet<Key>>(), believed);
        dropped
    };
    let all: Vec<&ItemKey> = keys.iter().collect();
    assert_eq!(come(&mut switch, &all), 5, "of the twelve that came at once");
    // The first that would make way is put again, as by a command that is repeated.
    let held: BTreeSet<Key> = switch.held().into_iter().map(|held| held.key.into()).collect();
    let (there, away): (Vec<&ItemKey>, Vec<&ItemKey>) =
        all.into_iter().partition(|key| held.contains(&key.key));
    let first = there.into_iter().min().unwrap();
    assert_eq!(come(&mut switch, &[away[0], first]), 1, "another made way for it");
}

#[test]
fn copies_with_values_are_compacted_and_given_records_are_not() {
    for (change, makes_room) in [(FETCHED, true), (given(&[1; 128]), false)] {
        let mut switch = Switch::start();
        let keys: Vec<_> =
            (0..128u32).map(|n| key(COPIES, format!("key {n:012}").into_bytes())).collect();
        let outcomes: Vec<_> = keys.iter().map(|key| switch.change_telling(key, &change)).collect();
        // A bucket overflows now and then; none did for want of room.
        assert!(outcomes.iter().all(|(outcome, _)| *outcome != Outcome::NoRoom));
        for key in keys.iter().step_by(2) {
            switch.change(key, &Change::Remove);
        }
        let large = key(COPIES, "large");
        let (outcome, _) = switch.change_telling(&large, &given(&[2; 300]));
        let expected = if makes_room { Outcome::Done } else { Outcome::NoRoom };
        assert_eq!(outcome, expected);
        assert!(switch.held().len() >= 60, "the others are still there");
    }
}

/// A tenant's page is full of items, and every value turned out to be too large.
#[test]
fn programs_are_waited_for_once_however_many_values_are_too_large() {
    let mut switch = Switch::start();
    let keys: Vec<_> =
        (0..128u32).map(|n| key(COPIES, format!("key {n:012}").into_bytes())).collect();
    for key in &keys {
        switch.change_telling(key, &FETCHED);
    }
    let held = switch.held().len();
    assert!(held > 100, "a bucket overflows now and then");
    let waits = switch.tables().memory.waits();
    let too_large = keys.iter().map(|key| Event::TooLarge {
        tenant: key.tenant,
        key: key.key.to_vec(),
        value_len: 300,
    });
    switch.tables().heed(too_large.collect()).unwrap();
    assert_eq!(switch.tables().memory.waits() - waits, 1);
    // Six cells each: half of them are there, with more room; the controller hears of the others.
    assert_eq!(switch.held().len(), 64);
    assert!(switch.held().iter().all(|held| held.place.cells == 6));
    let dropped = |body| match body {
        Body::Dropped(d) => d.keys.iter().map(|t| t.keys.len()).sum(),
        _ => 0,
    };
    let told: usize = switch.heard().into_iter().map(dropped).sum();
    assert_eq!(told, held - 64);
}

#[test]
fn an_item_whose_value_nothing_holds_is_told_of_as_unfit_and_teaches_no_length() {
    let mut switch = Switch::start();
    assert_eq!(switch.change(&key(COPIES, "c"), &FETCHED), Outcome::Done);
    switch.heard();
    let too_large = Event::TooLarge { tenant: COPIES, key: b"c".to_vec(), value_len: u16::MAX };
    switch.tables().heed(vec![too_large]).unwrap();
    let told = switch.heard().into_iter().filter_map(|body| match body {
        Body::Dropped(dropped) => Some(dropped),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].keys.is_empty());
    assert_eq!((told[0].unfit[0].tenant, &told[0].unfit[0].keys[0][..]), (COPIES, &b"c"[..]));
    assert_eq!(switch.held(), []);
    assert_eq!(switch.change(&key(COPIES, "d"), &FETCHED), Outcome::Done);
    assert_eq!(switch.held()[0].place.cells, 3, "the usual length");
}
