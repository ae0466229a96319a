//! What is kept of keys outside of the switches.

use super::*;
use crate::snapshot::{Part, SavedVersion};

fn saved(seq: u64) -> SavedVersion {
    SavedVersion { seq, value: Some(Bytes::from_static(b"v")) }
}

impl Rig {
    /// A chain of three whose keys are kept, of so many at most.
    fn keeping(most: usize) -> Rig {
        let mut rig = Rig::new(&[1, 2, 3], 1, 3);
        let options = rig.options.with(3, 1);
        rig.tell(|to, now, out| to.options(now, TENANT, options, out));
        rig.kept_most = most;
        rig.run(1);
        rig
    }

    /// The tail tells what was committed, in one part.
    fn tells(&mut self, keys: &[(&'static str, SavedVersion)]) {
        let tail = *self.chain(0).last().unwrap();
        let round = self.saves[&tail].round;
        let keys = keys.iter().map(|(key, saved)| (Key::from(*key), saved.clone())).collect();
        let part = Part { round, nth: 0, is_last: true, keys }.encode();
        self.tell(|to, now, out| to.switch_reported(now, tail, TENANT, &part, out));
    }

    /// Keys that are kept, as the status says; and those that there is no room for.
    fn counted(&self) -> (u64, u64) {
        let counters = self.control.counters(1);
        (counters["chain_kept_keys"], counters["chain_unkept_keys"])
    }

    fn kept_keys(&self) -> Vec<&[u8]> {
        self.kept.keys().map(|key| &key[..]).collect()
    }
}

/// All switches of before are forgotten before there are others: no switch has memory of the tenant
/// for a while, which is there all the same.
#[test]
fn what_was_kept_waits_for_other_switches() {
    let mut rig = Rig::new(&[1, 2, 3], 2, 3);
    rig.wants("key");
    rig.kept = [(Key::from("key"), saved(5).encode().unwrap())].into();
    rig.restart();
    rig.run(10);
    for switch in [1, 2, 3] {
        rig.detach(switch);
        rig.switches.remove(&switch);
        rig.tell_rooms();
    }
    rig.run(100);
    assert_eq!(rig.kept_keys(), [b"key"]);
    [4, 5, 6].into_iter().for_each(|switch| rig.add(switch));
    rig.run(100);
    assert_eq!(rig.kept_keys(), [b"key"]);
    assert_eq!(rig.holders("key"), [4, 5, 6].into());
    assert_eq!((rig.view().chains.len(), rig.chain(0).len()), (2, 3), "as its options say");
    rig.tell(|to, now, out| to.room(now, TENANT, &[], out));
    rig.tell(|to, now, out| to.gone(now, TENANT, out));
    assert_eq!(rig.kept_keys(), [b""; 0]);
}

#[test]
fn a_key_that_there_is_no_room_for_is_not_counted_as_kept_and_is_kept_once_there_is_some() {
    let mut rig = Rig::keeping(2);
    rig.tells(&[("a", saved(1)), ("b", saved(1)), ("c", saved(1)), ("d", saved(1))]);
    assert_eq!((rig.kept_keys(), rig.counted()), (vec![&b"a"[..], b"b"], (2, 2)));
    rig.run(10);
    let deleted = SavedVersion { seq: 2, value: None };
    rig.tells(&[("c", saved(2)), ("d", deleted.clone()), ("a", saved(2))]);
    assert_eq!((rig.kept_keys(), rig.counted()), (vec![&b"a"[..], b"b"], (2, 1)));
    rig.run(10);
    rig.tells(&[("b", deleted)]);
    assert_eq!((rig.kept_keys(), rig.counted()), (vec![&b"a"[..], b"c"], (2, 0)));
    assert_eq!(rig.kept[&b"c"[..]], saved(2).encode().unwrap(), "as it is now");
}

#[test]
fn a_key_is_kept_in_the_place_of_one_that_goes_with_the_same_report() {
    let mut rig = Rig::keeping(1);
    rig.tells(&[("a", saved(1))]);
    rig.run(10);
    rig.tells(&[("b", saved(1)), ("a", SavedVersion { seq: 2, value: None })]);
    assert_eq!((rig.kept_keys(), rig.counted()), (vec![&b"b"[..]], (1, 0)));
}

/// A name of a key that is in one of these chains.
fn key_in(chains: &[usize]) -> String {
    let count = 16;
    let is_in = |name: &String| {
        let chain = chain_wire::chain_of(stores().hash_of(name.as_bytes()), count);
        chains.contains(&usize::from(chain))
    };
    (0..).map(|n| format!("key{n}")).find(is_in).expect("some")
}

#[test]
fn a_chain_begins_anew_without_a_switch_that_has_no_room_for_what_was_kept() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 2);
    rig.kept = [(Key::from("key"), saved(5).encode().unwrap())].into();
    rig.restart();
    rig.run(10);
    let (first, before) = (rig.chain(0)[0], rig.view().number);
    for at in rig.switches.values_mut() {
        at.life += 900;
    }
    rig.switches.get_mut(&first).unwrap().crowded = [Key::from("key")].into();
    [1, 2, 3].into_iter().for_each(|switch| rig.attach(switch));
    rig.run(100);
    assert_eq!(rig.view().number >> 48, (before >> 48) + 1);
    assert!(!rig.chain(0).contains(&first));
    assert_eq!(rig.holders("key"), rig.chain(0).into_iter().collect());
}

/// Nobody has room for what was kept of one chain.
#[test]
fn a_chain_that_stays_lost_keeps_no_new_keys_or_clients_from_others() {
    let mut rig = Rig::new(&[1, 2, 3], 16, 1);
    let lost = rig.chain(0)[0];
    let (its, others): (Vec<usize>, Vec<usize>) = (0..16).partition(|at| rig.chain(*at) == [lost]);
    let (its, others) = (key_in(&its), key_in(&others));
    rig.kept = [(Key::from(its.clone()), saved(5).encode().unwrap())].into();
    rig.restart();
    rig.run(10);
    for at in rig.switches.values_mut() {
        at.crowded = [Key::from(its.clone())].into();
    }
    rig.switches.get_mut(&lost).unwrap().life = 999;
    rig.attach(lost);
    rig.run(50);
    let number = rig.view().number;
    let session = String::from_utf8(chain_wire::session_key(9).to_vec()).unwrap();
    [&others, &session, &its].into_iter().for_each(|name| rig.wants(name));
    rig.run(50);
    assert_eq!(rig.view().number, number, "it stays lost");
    assert_eq!(rig.holders(&others).len(), 1);
    assert_eq!(rig.holders(&session), [1, 2, 3].into_iter().filter(|s| *s != lost).collect());
    assert_eq!(rig.holders(&its), [].into());
    // There is room by now.
    rig.switches.values_mut().for_each(|at| at.crowded.clear());
    rig.now += Duration::from_secs(65);
    rig.run(50);
    assert_eq!(rig.view().number >> 48, (number >> 48) + 1);
    assert_eq!(rig.holders(&its).len(), 1);
}
