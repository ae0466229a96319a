//! Chains of switches in the simulator: the C, the control half and the halves in agents together,
//! against a client that does one thing after another.

mod client;
mod forgetting;
mod rig;
mod snapshots;
mod stood_still;

use std::collections::BTreeSet;

use plan::topology;
use wire::Status;

use self::{
    client::{Command, seen, write},
    rig::{Fault, Rig},
};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const TENANT: u32 = 7;
/// A client's request takes no longer while members come and go in order, in milliseconds.
const NOT_MISSED_MS: u64 = 100;

#[test]
fn a_chain_of_three_is_written_at_its_head_and_read_anywhere() {
    for discipline in ["netcraq", "netchain"] {
        let mut rig = Rig::new(discipline, 3, &[("chains", 1)]);
        let done = rig.ask(&[write("k", "one"), write("k", "two")], 2000);
        assert_eq!(seen(&done), [(Status::Ok, 1), (Status::Ok, 2)], "{discipline}");
        println!("{discipline}: written in {} us", done[1].ns / 1000);
        let places = if discipline == "netcraq" { 0..3 } else { 2..3 };
        let reads: Vec<Command> = places.map(|place| Command::Read("k", place)).collect();
        for done in rig.ask(&reads, 1000) {
            let seen = (done.status, done.version, &*done.value);
            assert_eq!(seen, (Status::Ok, 2, "two"), "{discipline}");
        }
        let done = rig.ask(
            &[
                Command::Write("k", "no".into(), Some(1)),
                Command::Write("k", "three".into(), Some(2)),
                Command::Delete("k"),
                Command::Read("k", 2),
            ],
            1000,
        );
        let expected =
            [(Status::Mismatch, 2), (Status::Ok, 3), (Status::Ok, 4), (Status::NotFound, 4)];
        assert_eq!(seen(&done), expected, "{discipline}");
    }
}

/// Members hear each other where an agent's packets leave with another address than the one that
/// the switch is known by.
#[test]
fn a_chain_in_a_line_stays_whole() {
    for discipline in ["netcraq", "netchain"] {
        let line = (rig::line(3), 3);
        let mut rig = Rig::shaped(discipline, line, &[("chains", 1)], 1);
        let usual = rig.longest_ms(20);
        rig.pass(2000);
        let later = rig.longest_ms(20);
        assert_eq!(rig.members().len(), 3, "{discipline}");
        assert!(usual < 500 && later < 50, "{usual} ms, then {later} ms");
    }
}

/// Whichever member fails in whichever way, the chain goes on without it, and with it again once it
/// is back.
#[test]
fn a_member_that_fails_leaves_and_is_filled_again() {
    let faults = [Fault::AgentKilled, Fault::PoweredOff, Fault::Silent, Fault::Restarted];
    for (discipline, fault) in
        ["netcraq", "netchain"].into_iter().flat_map(|d| faults.map(|f| (d, f)))
    {
        for place in 0..3 {
            let mut rig = Rig::new(discipline, 3, &[("chains", 1)]);
            let usual = rig.longest_ms(20);
            let members = rig.members();
            let failed = members[place];
            rig.fails(failed, fault);
            let without = rig.longest_ms(300);
            rig.pass(2000);
            rig.recovers(failed, fault);
            rig.pass(5000);
            let again = rig.longest_ms(20);
            let now = rig.members();
            println!(
                "{discipline} {fault:?} at {place}: {usual} ms, {without} ms without, {again} ms again; {members:?}, then {now:?}"
            );
            if without >= 500 || again >= 50 || now.len() != 3 {
                rig.show();
            }
            assert!(without < 500, "{without} ms");
            assert_eq!(now.len(), 3, "it is back");
            assert!(again < 50, "{again} ms");
            match fault {
                Fault::AgentKilled => {
                    assert_eq!((now, without < 50), (members, true), "its programs go on")
                }
                _ => assert_eq!(now[2], failed, "as the tail"),
            }
        }
    }
}

/// Whichever member is detached in order is not missed: no client waits longer than for a few ways
/// there and back, neither then nor when it is a member again.
#[test]
fn a_member_that_leaves_in_order_is_not_missed() {
    for (discipline, place) in
        ["netcraq", "netchain"].into_iter().flat_map(|d| [0, 1, 2].map(|p| (d, p)))
    {
        let mut rig = Rig::new(discipline, 3, &[("chains", 1)]);
        rig.longest_ms(20);
        let left = rig.members()[place];
        let without = rig.leaves(left, 300);
        let shorter = rig.members();
        rig.comes_back(left);
        let joining = rig.longest_ms(300);
        rig.pass(3000);
        let again = rig.longest_ms(20);
        let now = rig.members();
        println!("{discipline} at {place}: {without} ms without, {joining} ms joining, {again} ms");
        if without.max(joining).max(again) > NOT_MISSED_MS {
            rig.show();
        }
        assert!(!shorter.contains(&left), "{shorter:?}");
        assert!(without.max(joining).max(again) <= NOT_MISSED_MS, "{discipline} at {place}");
        assert_eq!((now.len(), now[2]), (3, left), "it is back, as the tail");
    }
}

/// Of every chain a switch leaves, and the next one soon after; a chain of one is handed on before.
#[test]
fn switches_leave_chains_one_after_the_other_and_hand_them_on() {
    let mut rig = Rig::new("netcraq", 3, &[("chains", 8), ("length", 1)]);
    rig.keys(40);
    for left in [1, 2] {
        rig.leaves(left, 20);
        let values: Vec<String> = rig.values();
        assert!(values.iter().all(|value| !value.is_empty()), "{values:?}");
        assert!(rig.chains().iter().all(|chain| !chain.contains(&left)), "{:?}", rig.chains());
    }
}

/// Another member fails while its chain goes over to what the failure of the first one made
/// necessary.
#[test]
fn a_member_that_fails_soon_after_another_is_missed_as_shortly() {
    let mut all = vec![];
    for between_ms in [50, 150, 200, 250, 300, 350, 400] {
        let mut rig = Rig::new("netcraq", 4, &[("chains", 1), ("length", 4)]);
        rig.longest_ms(20);
        let members = rig.members();
        rig.fails(members[1], Fault::PoweredOff);
        rig.pass(between_ms);
        rig.fails(members[2], Fault::PoweredOff);
        let longest = rig.longest_ms(200);
        println!("{between_ms} ms after the first: {longest} ms");
        all.push(longest);
    }
    assert!(all.iter().all(|longest| *longest < 500), "{all:?}");
}

/// Two switches that no chain has both of lose their power at the same moment: each chain goes on
/// with the member that it has left, and with another one soon. Whatever was written in any of them
/// is there.
#[test]
fn chains_over_one_set_of_switches_lose_different_members_at_once() {
    for (discipline, seed) in [("netcraq", 1), ("netchain", 2)] {
        let options = [("chains", 8), ("length", 2)];
        let mut rig = Rig::seeded(discipline, 6, &options, seed);
        let before = rig.keys(40);
        let chains = rig.chains();
        let heads: BTreeSet<u32> = chains.iter().map(|chain| chain[0]).collect();
        assert!(heads.len() > 1, "{chains:?}");
        let pairs = (1..=6).flat_map(|a| (1..a).map(move |b| [a, b]));
        let has = |pair: &[u32; 2]| pair.map(|n| chains.iter().any(|c| c.contains(&n)));
        let both = |[a, b]: &[u32; 2]| chains.iter().any(|c| c.contains(a) && c.contains(b));
        let mut apart = pairs.filter(|pair| has(pair) == [true; 2] && !both(pair));
        let failed = apart.next().expect("two that no chain has both of");
        failed.iter().for_each(|n| rig.fails(*n, Fault::PoweredOff));
        let written: Vec<String> = (32..40).map(|n| n.to_string()).collect();
        let begun_ns = rig.world.now_ns();
        assert_eq!(rig.values(), written, "{discipline}");
        let without = (rig.world.now_ns() - begun_ns) / MS;
        let meanwhile = rig.keys(200);
        rig.pass(3000);
        let settled = rig.keys(40);
        let after = rig.chains();
        println!("{discipline}: {failed:?} of {chains:?}, then {after:?}");
        println!("longest {before}, all keys {without}, {meanwhile}, {settled} ms");
        for chain in &after {
            let is_whole = chain.len() == 2 && failed.iter().all(|n| !chain.contains(n));
            assert!(is_whole, "{after:?} without {failed:?}");
        }
        assert!(without < 500 && meanwhile < 500 && settled < 50);
    }
}

/// Links that lose, double and reorder, a member that goes and comes back, and another controller
/// meanwhile: what was written is read.
#[test]
fn what_was_written_is_read_whatever_links_do() {
    for (discipline, seed) in [("netcraq", 1), ("netchain", 2), ("netcraq", 3)] {
        let mut rig =
            Rig::seeded(discipline, 4, &[("chains", 4), ("versions", seed % 3)], seed.into());
        let fault =
            topology::Fault { loss: 0.05, duplicate: 0.05, reorder: 0.1, ..Default::default() };
        (0..4).for_each(|link| rig.world.set_fault(link, fault));
        let before = rig.keys(40);
        rig.fails(1 + seed % 4, Fault::PoweredOff);
        let control = rig.world.process("control/control").unwrap();
        rig.world.kill(control);
        rig.world.start(control).unwrap();
        let without = rig.keys(40);
        rig.recovers(1 + seed % 4, Fault::PoweredOff);
        let joining = rig.keys(60);
        rig.fails(1 + (seed + 1) % 4, Fault::Restarted);
        let again = rig.keys(60);
        println!("{discipline} {seed}: longest {before}, {without}, {joining}, {again} ms");
        assert!(without < 1500 && joining < 500 && again < 500);
    }
}
