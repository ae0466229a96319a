//! Which members have items of which keys.

use super::*;

#[test]
fn a_key_has_its_item_at_the_head_last() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    assert_eq!(rig.story.pop().unwrap(), format!("put key at {}", chain[0]));
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
    let numbers: BTreeSet<(u64, u64)> = rig
        .switches
        .values()
        .map(|s| match &s.items[&b"key"[..]] {
            decide::Record::Given(bytes) => {
                let record = KeyRecord::decode(bytes).unwrap();
                (record.base, record.filled)
            }
            decide::Record::Fetched => panic!("it is given"),
        })
        .collect();
    assert_eq!(numbers, [(0, 1 << 48 | 1)].into());
    rig.story.clear();
    rig.wants("key");
    assert_eq!(rig.story, [""; 0], "it is there");
    rig.wants("\0other");
    assert_eq!(rig.story, [""; 0], "no user has such keys");
}

#[test]
fn a_key_without_room_is_nowhere_and_no_other_is_tried() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let head = rig.chain(0)[0];
    rig.switches.get_mut(&head).unwrap().room = 0;
    rig.wants("key");
    assert_eq!(rig.holders("key"), [].into());
    rig.story.clear();
    rig.wants("other");
    assert_eq!(rig.story, [""; 0]);
}

#[test]
fn a_key_whose_bucket_is_full_somewhere_is_nowhere_and_whoever_asks_is_told() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let [crowded, session] =
        [Key::from_static(b"crowded"), Key::copy_from_slice(&chain_wire::session_key(9))];
    let tail = rig.chain(0)[2];
    let at = rig.switches.get_mut(&tail).unwrap();
    at.crowded = [crowded.clone(), session.clone()].into();
    for key in [&crowded, &session] {
        let hot = HotKeys { switch: 1, tenant: TENANT, window: 1, keys: &[(key.clone(), 1)] };
        rig.tell(|to, now, out| to.hot(now, hot, out));
        rig.settle();
    }
    assert!(rig.switches.values().all(|s| s.items.is_empty()));
    let row = |key: &Key| crate::view::no_room_row(TENANT, Some(stores().hash_of(key)));
    for switch in rig.switches.values() {
        assert_eq!(switch.no_room.len(), 2);
        assert!([&crowded, &session].iter().all(|key| switch.no_room.contains(&row(key))));
    }
    rig.wants("other");
    assert_eq!(rig.holders("other"), [1, 2, 3].into(), "there is room for others");
    // Some other key has gone.
    rig.switches.values_mut().for_each(|s| s.crowded.clear());
    rig.story.clear();
    rig.wants("crowded");
    assert_eq!(rig.story, [""; 0], "it is left alone for a while");
    rig.run(101);
    assert!(rig.switches.values().all(|s| s.no_room.is_empty()));
    rig.wants("crowded");
    assert_eq!(rig.holders("crowded"), [1, 2, 3].into());
}

fn session() -> Key {
    Key::copy_from_slice(&chain_wire::session_key(9))
}

impl Rig {
    fn wants_key(&mut self, key: &Key) {
        let hot = HotKeys { switch: 1, tenant: TENANT, window: 1, keys: &[(key.clone(), 1)] };
        self.tell(|to, now, out| to.hot(now, hot, out));
    }

    /// A switch does the change that it was asked for last, and answers.
    fn does_last(&mut self, switch: SwitchId) {
        let at = self.switches.get_mut(&switch).unwrap();
        let (key, change) = at.waits.pop().expect("it was asked");
        let outcome = at.does(&key, &change);
        self.answer(switch, &key, &change, outcome);
    }
}

/// Each member forgets sessions by itself: what the others noted of a client's writes stays.
#[test]
fn a_session_that_one_member_has_no_room_for_stays_where_it_was() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants_key(&session());
    rig.settle();
    let at = rig.switches.get_mut(&2).unwrap();
    at.items.clear();
    at.crowded = [session()].into();
    rig.restart();
    rig.run(3);
    rig.story.clear();
    rig.wants_key(&session());
    rig.run(3);
    assert_eq!(rig.story.len(), 1, "{:?}", rig.story);
    for has in [1, 3] {
        assert!(rig.switches[&has].items.contains_key(&session()), "at {has}");
    }
}

#[test]
fn a_session_that_is_used_while_it_is_made_stays_there_and_is_not_asked_about_again() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.switches.get_mut(&2).unwrap().crowded = [session()].into();
    rig.holds_back = true;
    rig.wants_key(&session());
    [1, 3].into_iter().for_each(|at| rig.does_last(at));
    let mut used = crate::record::SessionRecord::new(9, rig.view().number, rig.view().number);
    used.notes[0].request = 16;
    let used = decide::Record::Given(used.encode());
    rig.switches.get_mut(&1).unwrap().items.insert(session(), used);
    rig.does_last(2);
    rig.story.clear();
    rig.holds_back = false;
    rig.run(3);
    assert_eq!(rig.story, [""; 0], "all was asked for as it failed");
    let has = |at: SwitchId| rig.switches[&at].items.contains_key(&session());
    assert_eq!([1, 2, 3].map(has), [true, false, false]);
}

/// A switch that joins is given all keys, also one that is just being made.
#[test]
fn a_key_is_made_although_one_that_joins_has_no_room_for_it() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let key = Key::from_static(b"key");
    rig.holds_back = true;
    rig.wants_key(&key);
    let record = decide::Record::Given(crate::record::new_key(0, 0, 2).unwrap());
    let tail = rig.chain(0)[2];
    for (switch, outcome) in [(4, Outcome::NoRoom), (tail, Outcome::Refused)] {
        rig.answer(switch, &key, &Change::Put(record.clone()), outcome);
    }
    rig.holds_back = false;
    rig.run(3);
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

#[test]
fn a_controller_that_does_not_know_all_makes_nothing() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let head = rig.chain(0)[0];
    rig.story.clear();
    // The head is heard of last.
    rig.control = Control::new(Protocol::NetCraq);
    rig.begin();
    rig.tell_rooms();
    let others: Vec<SwitchId> = [1, 2, 3].into_iter().filter(|s| *s != head).collect();
    rig.switches.get_mut(&head).unwrap().attached = false;
    others.iter().for_each(|other| rig.attach(*other));
    rig.settle();
    rig.wants("key");
    rig.run(1);
    assert_eq!(rig.story, [""; 0]);
    rig.attach(head);
    rig.run(1);
    assert_eq!(rig.story, [""; 0], "it is everywhere");
    assert_eq!(rig.chain(0)[0], head);
}

/// Not as an earlier controller's half-made key would be: the others may have versions of it.
#[test]
fn a_head_without_an_item_that_others_have_leaves() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    rig.switches.get_mut(&chain[0]).unwrap().items.clear();
    rig.restart();
    rig.settle();
    rig.story.clear();
    rig.wants("key");
    assert_eq!(rig.story, [""; 0]);
    rig.run(1);
    assert_eq!(rig.chain(0), chain[1..]);
    rig.run(15);
    rig.filled();
    assert_eq!(rig.chain(0)[2], chain[0]);
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

/// A member's record of a key as a delete left it, all committed.
fn deleted(last: u64) -> decide::Record {
    let version = crate::record::Version {
        seq: last,
        accepted: 1,
        client: 1,
        request: 16,
        session: 1,
        value: None,
    };
    decide::Record::Given(crate::record::restored_key(&version, 1, 2).unwrap())
}

impl Rig {
    /// The tail says that a key was deleted long ago.
    fn removable(&mut self, name: &str, last: u64) {
        let removable = crate::report::RemovableKeys {
            number: self.view().number,
            keys: vec![(Key::copy_from_slice(name.as_bytes()), last)],
        };
        let tail = *self.chain(0).last().unwrap();
        self.tell(|to, now, out| to.switch_reported(now, tail, TENANT, &removable.encode(), out));
        self.settle();
    }

    fn delete(&mut self, name: &str, last: u64) {
        for switch in self.switches.values_mut() {
            let key = Key::copy_from_slice(name.as_bytes());
            switch.items.insert(key, deleted(last));
        }
    }
}

#[test]
fn a_deleted_key_goes_at_its_head_first_and_its_numbers_never_come_again() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    rig.delete("key", 7);
    let chain = rig.chain(0);
    rig.story.clear();
    rig.removable("key", 7);
    let expected = chain.iter().map(|switch| format!("remove if key at {switch}"));
    assert_eq!(rig.story, expected.collect::<Vec<_>>());
    assert_eq!(rig.holders("key"), [].into());
    rig.wants("key");
    let decide::Record::Given(record) = &rig.switches[&1].items[&b"key"[..]] else {
        panic!("it is given");
    };
    assert_eq!(KeyRecord::decode(record).unwrap().base, 7);
}

/// Rounds come rarely, and the delete and the removal of its item fell between two of them.
#[test]
fn nothing_is_kept_of_a_key_that_is_removed() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("gone");
    rig.wants("anew");
    let saved = |seq| {
        let value = Some(Bytes::from_static(b"v"));
        crate::snapshot::SavedVersion { seq, value }.encode().unwrap()
    };
    let [gone, anew] = [Key::from_static(b"gone"), Key::from_static(b"anew")];
    rig.kept = [(gone.clone(), saved(5)), (anew.clone(), saved(8))].into();
    rig.restart();
    rig.run(10);
    rig.delete("gone", 7);
    rig.removable("gone", 7);
    // What a tail said that did not know of a later version.
    rig.removable("anew", 7);
    assert!(!rig.kept.contains_key(&gone), "it would come back with the snapshot");
    assert!(rig.kept.contains_key(&anew));
    assert_eq!(rig.holders("gone"), [].into());
}

#[test]
fn a_key_that_was_written_again_stays() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    rig.delete("key", 8);
    rig.story.clear();
    rig.removable("key", 7);
    let head = rig.chain(0)[0];
    assert_eq!(rig.story, [format!("remove if key at {head}")]);
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

#[test]
fn sessions_are_at_every_member_and_a_spare_switch_is_none() {
    for chains in [1, 4] {
        let mut rig = Rig::new(&[1, 2, 3, 4], chains, 2);
        let members: BTreeSet<SwitchId> = (0..chains as usize).flat_map(|c| rig.chain(c)).collect();
        let view = rig.view();
        let said = view.members.iter().flatten().map(|m| m.switch);
        assert_eq!(said.collect::<BTreeSet<_>>(), members);
        let key = chain_wire::session_key(5);
        let name = String::from_utf8(key.to_vec()).unwrap();
        rig.wants(&name);
        assert_eq!(rig.holders(&name), members);
    }
}

/// A view that changes while a key is being removed leaves it at some: the head, which has it no
/// more, is filled again.
#[test]
fn a_removal_that_a_new_view_cuts_off_is_mended_when_the_key_is_wanted() {
    let mut rig = Rig::new(&[1, 2, 3, 4], 1, 3);
    rig.wants("k");
    rig.run(5);
    let members = rig.chain(0);
    rig.delete("k", 9);
    rig.holds_back = true;
    rig.removable("k", 9);
    // The head does it, and the others are not asked any more: the tail is gone.
    rig.holds_back = false;
    let at = rig.switches.get_mut(&members[0]).unwrap();
    let (key, change) = at.waits.pop().unwrap();
    assert_eq!(at.does(&key, &change), Outcome::Done);
    rig.falls_silent(members[2]);
    rig.answer(members[0], &key, &change, Outcome::Done);
    rig.run(1);
    assert!(!rig.holders("k").contains(&members[0]));
    rig.wants("k");
    rig.run(1);
    assert!(!rig.chain(0).contains(&members[0]), "it would begin anew");
    assert_eq!(rig.chain(0)[0], members[1], "who has the last version");
}

/// A write that is sent again says the number of then, and may come late: as long as that number
/// is in force nobody may have forgotten it.
#[test]
fn sessions_are_forgotten_under_a_number_that_was_made_a_minute_after_they_were_used() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants_key(&session());
    rig.run(1);
    let first = rig.view().number;
    let told = |rig: &mut Rig, seconds| {
        rig.now += Duration::from_secs(seconds);
        rig.run(2);
        let view = rig.switches[&1].view.as_ref().unwrap();
        (view.number - first, view.purge_below.saturating_sub(first))
    };
    assert_eq!(told(&mut rig, 100), (0, 0));
    assert_eq!(told(&mut rig, 500), (1, 0));
    assert_eq!(told(&mut rig, 58), (1, 0));
    assert_eq!(told(&mut rig, 2), (2, 1), "what was used under the first goes");
    assert_eq!(told(&mut rig, 500), (2, 1));
    assert_eq!(told(&mut rig, 100), (3, 2));
    // Numbers that come one after the other say nothing of time.
    let number = rig.view().number;
    rig.falls_silent(2);
    rig.run(3);
    assert!(rig.view().number > number);
    assert_eq!(told(&mut rig, 0).1, 2);
}
