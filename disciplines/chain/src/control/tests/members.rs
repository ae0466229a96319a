//! Who is in which chain, and when that changes.

use super::*;

#[test]
fn chains_begin_when_all_switches_are_there() {
    let rig = Rig::new(&[1, 2, 3], 4, 3);
    let view = rig.view();
    assert_eq!((view.number, view.chains.len()), (1 << 48 | 1, 4));
    for chain in 0..4 {
        let members: BTreeSet<SwitchId> = rig.chain(chain).into_iter().collect();
        assert_eq!(members, [1, 2, 3].into());
    }
    for (id, switch) in &rig.switches {
        let own = switch.view.as_ref().unwrap();
        assert_eq!(own.life, switch.life);
        assert_eq!(own.members[usize::from(own.slot.unwrap())].unwrap().switch, *id);
    }
}

#[test]
fn who_is_silent_leaves_every_chain_and_comes_back_filled() {
    let mut rig = Rig::new(&[1, 2, 3], 4, 3);
    rig.wants("key");
    rig.switches.get_mut(&3).unwrap().attached = false;
    rig.tell(|to, now, out| to.detached(now, 3, out));
    assert_eq!(rig.view().number, 1 << 48 | 1, "its programs may go on");
    rig.falls_silent(3);
    let view = rig.view();
    assert_eq!(view.number, 1 << 48 | 2);
    for chain in 0..4 {
        assert!(!rig.chain(chain).contains(&3), "at once");
    }
    rig.attach(3);
    rig.run(5);
    assert_eq!(rig.view().number, 1 << 48 | 2, "it is barred");
    rig.story.clear();
    rig.run(10);
    let view = rig.view();
    assert!(view.chains.iter().all(|c| c.filling && c.fill_number == view.number));
    assert_eq!(rig.story, ["remove key at 3", "put key at 3"]);
    rig.filled();
    let view = rig.view();
    assert_eq!(view.number, 1 << 48 | 4);
    assert!(view.chains.iter().all(|c| !c.filling && c.slots.len() == 3));
    assert!(view.chains.iter().all(|c| view.members[usize::from(c.slots[2])].unwrap().switch == 3));
}

#[test]
fn chains_follow_the_length_that_they_are_to_have() {
    let mut rig = Rig::new(&[1, 2, 3, 4], 8, 3);
    rig.wants("key");
    let before: Vec<_> = (0..8).map(|chain| rig.chain(chain)).collect();
    rig.detach(4);
    rig.set_length(2);
    rig.run(30);
    assert_eq!(rig.view().number, 1 << 48 | 1, "while somebody is away everybody stays");
    rig.attach(4);
    rig.run(30);
    for (chain, before) in before.iter().enumerate() {
        // They began in the order in which the chain wants them.
        assert_eq!(rig.chain(chain), before[..2]);
    }
    let number = rig.view().number;
    let has_key = |rig: &Rig| {
        (0..8).any(|chain| rig.holders("key") == rig.chain(chain).into_iter().collect())
    };
    assert!(has_key(&rig), "nobody else has its items any more");
    rig.run(30);
    assert_eq!(rig.view().number, number);
    rig.set_length(3);
    rig.run(30);
    while rig.view().chains.iter().any(|chain| chain.filling) {
        rig.filled();
        rig.run(30);
    }
    assert!((0..8).all(|chain| rig.chain(chain).len() == 3));
    rig.set_length(1);
    rig.run(30);
    assert!((0..8).all(|chain| rig.chain(chain) == before[chain][..1]));
}

#[test]
fn a_switch_with_other_tables_is_gone() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.switches.get_mut(&2).unwrap().life = 999;
    rig.attach(2);
    assert!(!rig.chain(0).contains(&2));
    rig.settle();
    let view = rig.switches[&2].view.as_ref().unwrap();
    let slot = view.slot.unwrap();
    assert!(view.chains.iter().all(|c| !c.slots.contains(&slot)), "it only says where keys are");
    assert_eq!(view.life, 999);
}

/// Another controller begins, which believes that each switch has these.
fn restarted(rig: &mut Rig, believed: &[Key]) {
    for switch in rig.switches.values_mut() {
        switch.believed = believed.iter().cloned().collect();
    }
    rig.restart();
    rig.run(5);
}

#[test]
fn what_was_removed_just_before_a_controller_begins_is_not_lost() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let session = Key::copy_from_slice(&chain_wire::session_key(5));
    rig.wants("stays");
    rig.wants(std::str::from_utf8(&session).unwrap());
    // Two have forgotten the session.
    for at in [1, 2] {
        rig.switches.get_mut(&at).unwrap().items.remove(&session);
    }
    let number = rig.view().number;
    restarted(&mut rig, &[Key::from("stays"), Key::from("gone"), session.clone()]);
    assert_eq!((rig.view().number, rig.chain(0).len()), (number, 3));
}

#[test]
fn who_has_not_what_others_have_leaves_once_they_have_said_so() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    let key = Key::from("key");
    rig.switches.get_mut(&chain[0]).unwrap().items.clear();
    chain[1..].iter().for_each(|other| rig.detach(*other));
    rig.control = Control::new(Protocol::NetCraq);
    rig.begin();
    rig.tell_rooms();
    rig.switches.get_mut(&chain[0]).unwrap().believed = [key].into();
    rig.attach(chain[0]);
    rig.run(1);
    assert_eq!(rig.chain(0), chain, "the others have not said anything yet");
    rig.attach(chain[2]);
    rig.run(1);
    assert_eq!(rig.chain(0), chain[1..]);
}

/// This controller removed none of it.
#[test]
fn who_has_not_a_session_that_it_had_under_this_controller_leaves() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let session = Key::copy_from_slice(&chain_wire::session_key(5));
    rig.wants(std::str::from_utf8(&session).unwrap());
    let at = rig.switches.get_mut(&2).unwrap();
    at.items.clear();
    at.believed = [session].into();
    rig.detach(2);
    rig.attach(2);
    assert!(!rig.chain(0).contains(&2));
}

#[test]
fn the_last_that_has_everything_stays() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.falls_silent(2);
    let left = rig.chain(0);
    assert_eq!(left.len(), 1);
    rig.run(15);
    assert_eq!(rig.chain(0).len(), 2, "the other is filling");
    rig.run(30);
    let (alone, before) = (left[0], rig.view().number);
    rig.switches.get_mut(&alone).unwrap().life = 999;
    rig.attach(alone);
    rig.run(5);
    let view = rig.view();
    assert_eq!(view.number >> 48, (before >> 48) + 1, "nobody has it: it begins anew");
    assert_eq!((rig.chain(0).len(), view.chains[0].filling), (2, false));
}

/// The chains of one are to be of three: a switch that is filled in chains of both others; one of
/// these, which begins anew with other tables; and the chains that the other fills.
fn one_is_lost_while_another_joins() -> (Rig, Vec<usize>) {
    let mut rig = Rig::new(&[1, 2, 3], 16, 1);
    rig.wants("key");
    rig.set_length(3);
    rig.run(3);
    let filling = rig.filling();
    let lost = rig.chain(filling[0])[0];
    let is_others = |at: &usize| rig.chain(*at)[0] != lost;
    let go_on: Vec<usize> = filling.into_iter().filter(is_others).collect();
    assert!(!go_on.is_empty());
    let at = rig.switches.get_mut(&lost).unwrap();
    at.life = 999;
    at.items.clear();
    rig.detach(lost);
    rig.attach(lost);
    (rig, go_on)
}

#[test]
fn who_joins_is_filled_although_another_chain_is_lost() {
    let (mut rig, go_on) = one_is_lost_while_another_joins();
    let before: Vec<_> = go_on.iter().map(|at| rig.chain(*at)).collect();
    rig.run(50);
    let after: Vec<_> = go_on.iter().map(|at| rig.chain(*at)).collect();
    assert_eq!((after, rig.filling()), (before, go_on), "one joins at a time");
    for _ in 0..10 {
        rig.filled();
        rig.run(10);
    }
    assert!(rig.view().chains.iter().all(|chain| !chain.filling && chain.slots.len() == 3));
}

/// What was said by whoever had its slot before says nothing of it: it may not have been told yet.
#[test]
fn a_member_that_was_never_heard_is_waited_for_whoever_had_its_slot() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    for switch in [1, 2] {
        rig.silent(switch, &[]);
    }
    for switch in [1, 2] {
        rig.switches.get_mut(&switch).unwrap().life = 999;
        rig.attach(switch);
    }
    rig.run(30);
    let (chain, view) = (rig.chain(0), rig.view());
    assert_eq!((view.number >> 48, chain.len()), (2, 2), "they begin anew");
    let unheard = 1 << view.chains[0].slots[1];
    let report = State { number: view.number, silent: 0, unheard, filled: vec![] };
    for _ in 0..2 {
        rig.report(chain[0], &report);
        rig.run(1);
    }
    assert_eq!(rig.chain(0), chain);
}

#[test]
fn who_may_have_its_tables_is_waited_for_until_it_is_forgotten() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let before = rig.view().number;
    rig.switches.get_mut(&3).unwrap().attached = false;
    rig.tell(|to, now, out| to.detached(now, 3, out));
    for switch in [1, 2] {
        rig.switches.get_mut(&switch).unwrap().life = 999;
        rig.attach(switch);
    }
    rig.run(100);
    assert!(rig.chain(0).contains(&3));
    assert_eq!(rig.view().number >> 48, before >> 48);
    rig.switches.remove(&3);
    rig.tell_rooms();
    rig.run(100);
    assert_eq!(rig.view().number >> 48, (before >> 48) + 1);
    assert_eq!(rig.chain(0).len(), 2);
}

#[test]
fn a_chain_meets_those_that_it_superseded_a_moment_ago() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.falls_silent(2);
    rig.run(15);
    rig.filled();
    let (began, chain) = (rig.now, rig.chain(0));
    assert!(!rig.view().chains[0].filling);
    // The old one dies right after the new one is full: within two seconds they answer for one
    // another.
    rig.switches.get_mut(&chain[0]).unwrap().attached = false;
    rig.tell(|to, now, out| to.detached(now, chain[0], out));
    rig.falls_silent(chain[0]);
    assert_eq!(rig.chain(0), chain);
    // Another controller knows of them too.
    let began = began.max(rig.now);
    rig.restart();
    rig.switches.get_mut(&chain[0]).unwrap().attached = false;
    rig.tell(|to, now, out| to.detached(now, chain[0], out));
    while rig.chain(0).len() == 2 {
        rig.falls_silent(chain[0]);
        rig.run(1);
    }
    assert_eq!(rig.chain(0), [chain[1]]);
    assert!(rig.now - began >= Duration::from_secs(2));
}

#[test]
fn another_controller_goes_on_where_the_last_one_was() {
    let mut rig = Rig::new(&[1, 2, 3], 2, 3);
    rig.wants("key");
    rig.falls_silent(3);
    rig.run(15);
    let before = rig.view();
    assert!(before.chains[0].filling);
    rig.story.clear();
    rig.restart();
    rig.settle();
    assert_eq!(rig.view(), before);
    assert_eq!(rig.story, [""; 0]);
    rig.filled();
    assert!(!rig.view().chains[0].filling);
    assert_eq!(rig.view().number, before.number + 1);
    rig.falls_silent(2);
    assert_eq!(rig.chain(0).len(), 2, "at once");
}

#[test]
fn numbers_outlive_the_tenant() {
    let mut rig = Rig::new(&[1, 2], 1, 2);
    rig.tell(|to, now, out| to.room(now, TENANT, &[], out));
    rig.tell(|to, now, out| to.gone(now, TENANT, out));
    let memory = memory::Memory::decode(&rig.remembered).unwrap();
    assert_eq!((memory.number, memory.view), (1 << 48 | 1, None));
    rig.switches.values_mut().for_each(|s| s.items.clear());
    rig.restart();
    rig.run(10);
    assert_eq!(rig.view().number, 1 << 48 | 2);
}

/// Numbers that a controller without memory gives out are above those that switches had in force,
/// or no row of its would be one to them.
#[test]
fn a_controller_that_forgot_all_goes_on_above_what_was_in_force() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let was = rig.view().number + 57;
    rig.remembered = vec![];
    rig.restart();
    rig.run(10);
    assert!(rig.view().number < was);
    let report = State { number: was, silent: 0, unheard: 0, filled: vec![] };
    rig.report(2, &report);
    assert_eq!(rig.view().number, was + 1);
    assert_eq!(rig.chain(0).len(), 3);
    // Where something was written since, nobody knows which of them has all of it.
    rig.wants("k");
    rig.run(5);
    assert_eq!(rig.holders("k").len(), 3);
    let (number, later) = (rig.view().number, State { number: was + 100, ..report });
    rig.report(2, &later);
    assert_eq!(rig.view().number, number);
}

/// A chain of three of these switches that has a key, its members and who is none.
fn with_spares(switches: &[SwitchId]) -> (Rig, Vec<SwitchId>, Vec<SwitchId>) {
    let mut rig = Rig::new(switches, 1, 3);
    rig.wants("key");
    let chain = rig.chain(0);
    let is_spare = |switch: &&SwitchId| !chain.contains(switch);
    let spares = switches.iter().filter(is_spare).copied().collect();
    (rig, chain, spares)
}

/// A link that loses everything breaks no stream for long: who is behind it is asked for nothing
/// that others wait for.
#[test]
fn who_is_cut_off_is_not_asked_to_join() {
    let (mut rig, chain, spares) = with_spares(&[1, 2, 3, 4]);
    rig.detach(spares[0]);
    rig.switches.get_mut(&chain[2]).unwrap().is_cut_off = true;
    rig.falls_silent(chain[2]);
    rig.run(30);
    assert_eq!(rig.chain(0), chain[..2], "nobody else is there");
    rig.attach(spares[0]);
    rig.run(5);
    assert_eq!(rig.chain(0), [chain[0], chain[1], spares[0]]);
}

#[test]
fn who_is_cut_off_while_it_joins_gives_its_place_to_another() {
    let (mut rig, chain, spares) = with_spares(&[1, 2, 3, 4, 5]);
    rig.detach(chain[2]);
    rig.falls_silent(chain[2]);
    // What the first is asked for, now that everybody has the view, it is not told any more.
    rig.confirm();
    let asked = |rig: &Rig, of: &SwitchId| !rig.switches[of].waits.is_empty();
    let first = spares.iter().find(|spare| asked(&rig, spare));
    let first = *first.expect("one of them is asked");
    rig.switches.get_mut(&first).unwrap().is_cut_off = true;
    rig.run(15);
    let other = spares.iter().find(|spare| **spare != first);
    assert_eq!(rig.chain(0)[2..], [*other.unwrap()]);
}

/// It has its slot until nobody goes by what it was granted, and may come back at once.
#[test]
fn who_is_to_leave_is_in_no_chain_and_keeps_its_slot_for_a_while() {
    let mut rig = Rig::new(&[1, 2, 3], 4, 3);
    rig.wants("key");
    let before = rig.view().number;
    rig.leaves(2);
    rig.leaves(2);
    assert_eq!(rig.view().number, before + 1, "once, however often it says so");
    for chain in 0..4 {
        assert!(!rig.chain(chain).contains(&2), "at once");
    }
    assert_eq!(rig.slots(), [1, 2, 3].into(), "the others are to hear that it knows");
    let own = rig.switches[&2].view.clone().unwrap();
    assert_eq!(own.members[usize::from(own.slot.unwrap())].unwrap().switch, 2);
    // A second one waits: under another number the first would not be heard.
    rig.leaves(3);
    rig.run(3);
    assert_eq!((rig.view().number, rig.slots()), (before + 1, [1, 2, 3].into()));
    // It is back meanwhile, with other tables.
    rig.detach(2);
    rig.switches.get_mut(&2).unwrap().life = 999;
    rig.switches.get_mut(&2).unwrap().items.clear();
    rig.attach(2);
    rig.settle();
    assert_eq!(rig.view().number, before + 1);
    assert_eq!(
        rig.switches[&2].view.as_ref().unwrap().life,
        999,
        "its tables can say who has keys"
    );
    rig.run(3);
    assert_eq!(rig.chain(0), [1], "the second one has left");
    rig.run(10);
    rig.filled();
    rig.run(1);
    for chain in 0..4 {
        let members: BTreeSet<SwitchId> = rig.chain(chain).into_iter().collect();
        assert_eq!(members, [1, 2].into(), "not barred, and who is to leave is not asked");
    }
    assert_eq!(rig.holders("key"), [1, 2, 3].into());
}

/// What nobody else has is handed on, if there is somebody.
#[test]
fn a_chain_of_one_is_handed_on_by_who_is_to_leave() {
    let mut rig = Rig::new(&[1, 2], 1, 1);
    let [only] = rig.chain(0)[..] else { panic!("of one") };
    let other = 3 - only;
    rig.leaves(only);
    rig.run(3);
    assert_eq!((rig.chain(0), rig.view().chains[0].filling), (vec![only, other], true));
    rig.filled();
    rig.run(5);
    assert_eq!(rig.chain(0), [only, other], "the last moments had the one only");
    rig.run(20);
    assert_eq!(rig.chain(0), [other]);
    // And now nobody is there who could have it.
    rig.detach(only);
    rig.leaves(other);
    rig.run(40);
    assert_eq!(rig.chain(0), [other]);
}

#[test]
fn one_that_failed_as_it_was_to_leave_is_missed_like_any_other() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    rig.leaves(2);
    let number = rig.view().number;
    // Another fails while its slot is taken.
    rig.falls_silent(3);
    assert_eq!((rig.view().number, rig.chain(0)), (number + 1, vec![1]));
    assert_eq!(rig.slots(), [1, 2].into());
    rig.run(6);
    assert_eq!(rig.slots(), [1].into());
}

#[test]
fn members_are_told_at_once_whether_clients_may_read_relaxed() {
    let mut rig = Rig::new(&[1, 2, 3], 1, 3);
    let told = |rig: &Rig| {
        let views = rig.switches.values().map(|switch| switch.view.as_ref().unwrap());
        views.map(|view| (view.number, view.is_relaxed)).collect::<Vec<_>>()
    };
    let number = rig.view().number;
    for may in [true, false] {
        let options = rig.options.with(4, may.into());
        rig.tell(|to, now, out| to.options(now, TENANT, options, out));
        assert_eq!(told(&rig), [(number, may); 3]);
    }
    // Another controller finds it so.
    rig.options = rig.options.with(4, 1);
    rig.restart();
    assert!(told(&rig).iter().all(|(_, may)| *may));
}
