//! Write-back: a store, the owner and keeper of a key, and clients, over a network that does what
//! the test says.
//!
//! Among the slowest tests, some five seconds each: what a network may do to a loan is looked for
//! by hundreds of seeds, and each way to break the rules needs some of them to show.

mod switch;
pub(super) mod world;

use super::*;
use world::{ClientOp, Faults, Stop, World};

const MS: u64 = 1_000_000;

/// A world in which the key is lent.
fn lent() -> World {
    lent_in(World::new(1, 100))
}

fn lent_in(mut world: World) -> World {
    world.run(3_000);
    for _ in 0..8 {
        world.op(0, ClientOp::Write);
        world.run(5);
    }
    world.run(20);
    assert!(world.is_owned(), "{:?}", world.store().counters());
    world
}

#[test]
fn a_hot_key_is_lent_written_pulled_and_called_back() {
    let mut world = lent();
    let applied = world.store().counters().write.writes_applied;
    for _ in 0..5 {
        world.op(0, ClientOp::Write);
        world.run(5);
        world.op(0, ClientOp::Read);
        world.run(5);
    }
    assert_eq!(world.owner().absorbed, 5);
    assert_eq!(world.store().counters().write.writes_applied, applied, "the owner answers");
    world.run(100);
    assert_eq!(world.stored(), world.newest(0), "pulled within the bound");
    world.op(0, ClientOp::Write);
    world.run(5);
    assert_ne!(world.stored(), world.newest(0));
    // Somebody reads on another path.
    world.op(1, ClientOp::ReadAround);
    world.run(50);
    assert_eq!(world.stored(), world.newest(0));
    assert!(!world.is_owned());
    let counters = world.store().counters().clone();
    assert_eq!(
        (counters.loans.loans, counters.loans.loans_returned, counters.loans.loans_lost),
        (1, 1, 0)
    );
    world.op(0, ClientOp::Write);
    world.run(50);
    world.check();
    assert_eq!(world.unanswered(), 0);
}

#[test]
fn a_lent_key_that_is_written_no_more_is_called_back_and_one_that_is_stays() {
    let mut world = lent();
    for _ in 0..30 {
        world.op(0, ClientOp::Write);
        world.run(100);
    }
    assert!(world.is_owned(), "10 a second, lent from 8 on");
    world.run(2_200);
    assert!(!world.is_owned());
    let counters = world.counters();
    assert_eq!((counters.loans.loans_returned, counters.loans.loans_cold), (1, 1));
    assert_eq!(world.stored(), world.newest(0));
    world.op(0, ClientOp::Write);
    world.run(50);
    world.check();
    assert_eq!(world.unanswered(), 0);
}

/// The same world, with a write that the owner has answered and the store has not.
fn with_an_unflushed_write() -> World {
    let mut world = lent();
    world.op(0, ClientOp::Write);
    world.run(2);
    assert!(world.is_idle(0));
    assert_ne!(world.stored(), world.newest(0));
    world
}

/// Everything is as it should be: the write is there, and the key can be read and written.
fn comes_back(mut world: World) {
    let unanswered = world.unanswered();
    world.run(100);
    assert_eq!(world.stored(), world.newest(0));
    for op in [ClientOp::ReadAround, ClientOp::Write] {
        world.op(1, op);
        world.run(100);
        assert!(world.is_idle(1), "{op:?}");
    }
    assert_eq!((world.unanswered(), world.counters().loans.loans_lost), (unanswered, 0));
    world.check();
}

#[test]
fn any_one_that_dies_loses_nothing() {
    let deaths: [fn(&mut World); 7] = [
        |world| world.owner().crash(),
        |world| world.keeper().crash(),
        |world| world.owner().mute = true,
        |world| world.keeper().mute = true,
        |world| world.cut = vec![Stop::X],
        |world| world.cut = vec![Stop::Y],
        |world| {
            world.kill_store();
            world.start();
        },
    ];
    for (n, dies) in deaths.into_iter().enumerate() {
        let mut world = with_an_unflushed_write();
        dies(&mut world);
        // Somebody wants it, and asks in vain maybe.
        world.op(1, ClientOp::ReadAround);
        world.run(2_500);
        world.cut.clear();
        println!("{n}");
        comes_back(world);
    }
}

#[test]
fn if_both_lose_their_memory_what_was_flushed_last_is_there_and_the_loss_is_counted() {
    let mut world = with_an_unflushed_write();
    world.run(100);
    let flushed = world.stored();
    world.op(0, ClientOp::Write);
    world.run(2);
    world.owner().crash();
    world.keeper().crash();
    world.run(500);
    assert_eq!(world.stored(), flushed);
    assert_eq!(world.counters().loans.loans_lost, 1);
    world.op(1, ClientOp::ReadAround);
    world.run(50);
    assert!(world.is_idle(1));
}

#[test]
fn a_tenant_whose_write_back_ends_or_that_leaves_has_its_keys_called_back() {
    let changes: [fn(&mut wire::Cluster); 3] = [
        |cluster| cluster.tenants[0].write_back_ms = 0,
        |cluster| cluster.tenants.clear(),
        // Another tenant has its number.
        |cluster| cluster.tenants[0].secret = "08".repeat(16),
    ];
    for change in changes {
        let mut world = with_an_unflushed_write();
        let now_ns = world.now_ns();
        let (engine, out) = world.engine();
        let mut cluster = engine.facts.config.cluster.clone();
        change(&mut cluster);
        engine.update(cluster, now_ns, out).unwrap();
        world.run(50);
        assert_eq!(world.stored(), world.newest(0));
        assert_eq!(world.store().loans(), 0);
    }
}

#[test]
fn a_store_that_ends_calls_everything_back_and_lends_nothing_more() {
    let mut world = World::new(1, 100);
    world.outlives();
    let mut world = lent_in(world);
    world.op(0, ClientOp::Write);
    world.run(2);
    let now_ns = world.now_ns();
    let (engine, out) = world.engine();
    assert_eq!(engine.loans(), 1);
    engine.stop_lending(now_ns, out);
    world.run(20);
    assert_eq!(world.store().loans(), 0);
    assert_eq!(world.stored(), world.newest(0));
    for _ in 0..20 {
        world.op(0, ClientOp::Write);
        world.run(100);
    }
    assert_eq!((world.store().loans(), world.counters().loans.loans), (0, 1));
}

/// The store has ended while it called its keys back, for its backend was down: nobody but the
/// switches has what they answered.
#[test]
fn what_was_called_back_and_not_written_outlives_the_store_whatever_others_lend() {
    let mut world = World::new(1, 100);
    world.outlives();
    let mut world = lent_in(world);
    world.op(0, ClientOp::Write);
    world.run(2);
    world.reach_backend(false);
    let now_ns = world.now_ns();
    let (engine, out) = world.engine();
    engine.stop_lending(now_ns, out);
    world.run(5_000);
    assert_ne!(world.stored(), world.newest(0));
    assert_eq!((world.journal().len(), world.records()), (1, 2));
    world.kill_store();
    world.run(15_000);
    world.fill_switches();
    world.reach_backend(true);
    world.start();
    world.run(4_000);
    assert_eq!((world.store().loans(), world.counters().loans.loans_lost), (0, 0));
    assert_eq!(world.stored(), world.newest(0));
    // The store has said that it is over.
    world.fill_switches();
    assert_eq!(world.records(), 0);
}

/// A store whose data goes with it has no journal; its switches keep what its next life knows
/// nothing of.
#[test]
fn a_loan_that_nobody_knows_any_more_is_over_once_its_key_is_lent_anew() {
    let mut world = lent();
    world.kill_store();
    world.restore_journal(vec![]);
    world.start();
    world.run(3_000);
    assert!(!world.is_owned());
    let is_lent = (0..400).any(|_| {
        if world.is_idle(1) {
            world.op(1, ClientOp::Write);
        }
        world.run(50);
        world.is_owned()
    });
    assert!(is_lent, "{:?}", world.counters());
    world.run(500);
    assert_eq!((world.owner().awaited(), world.keeper().awaited()), (0, 0));
}

#[test]
fn what_cannot_be_kept_is_not_lent_and_the_status_says_why() {
    let mut world = World::new(1, 100);
    world.outlives();
    world.engine().0.loans.journal = None;
    world.run(3_000);
    for _ in 0..20 {
        world.op(0, ClientOp::Write);
        world.run(5);
    }
    assert_eq!(world.counters().loans.loans, 0);
    assert!(world.counters().loans.loans_refused_unsafe > 0);
    let status = world.store().status(world.now_ns());
    assert!(status.loans.none_because.unwrap().contains("--state"));
}

#[test]
fn a_delete_and_a_write_by_another_path_end_a_loan_and_take_place() {
    for op in [ClientOp::Delete, ClientOp::WriteAround] {
        let mut world = with_an_unflushed_write();
        world.op(1, op);
        world.run(50);
        assert!(world.is_idle(1));
        assert_eq!(world.counters().loans.loans_returned, 1, "{op:?}");
        world.op(2, ClientOp::ReadAround);
        world.run(20);
        world.check();
        assert_eq!(world.unanswered(), 0);
    }
}

#[test]
fn a_write_that_finds_no_place_in_the_queue_calls_its_key_back_all_the_same() {
    let mut world = with_an_unflushed_write();
    let engine = world.engine().0;
    Arc::make_mut(&mut engine.facts.config).key_queue_limit = 0;
    world.op(1, ClientOp::WriteAround);
    world.run(50);
    assert_eq!(world.counters().loans.loans_returned, 1);
    assert!(world.is_idle(1), "it came again, and found the key here");
}

#[test]
fn what_a_restored_journal_knows_of_is_not_put_over_what_came_after_it() {
    for after_ms in [50, 12_000] {
        let mut world = with_an_unflushed_write();
        let backup = world.journal();
        assert_eq!(backup.len(), 1);
        world.op(1, ClientOp::WriteAround);
        world.run(after_ms);
        assert!(world.is_idle(1));
        assert_eq!(world.journal(), []);
        world.kill_store();
        world.restore_journal(backup);
        world.start();
        world.run(4_000);
        assert_eq!((world.store().loans(), world.counters().loans.loans_found), (0, 1));
        assert_eq!(world.stored(), world.newest(1), "after {after_ms} ms");
        assert_eq!(world.records() == 0, after_ms > 11_000, "a record is asked for 11 s");
    }
}

#[test]
fn what_is_back_is_read_although_its_journal_does_not_forget_it() {
    let mut world = with_an_unflushed_write();
    world.journal_forgets(false);
    world.op(1, ClientOp::ReadAround);
    world.run(50);
    assert!(world.is_idle(1), "what is read is what was written");
    assert_eq!((world.store().loans(), world.stored()), (1, world.newest(0)));
    world.op(2, ClientOp::WriteAround);
    world.run(50);
    assert!(!world.is_idle(2), "a crash would bring back what was before");
    world.journal_forgets(true);
    world.run(2_000);
    assert_eq!((world.store().loans(), world.journal()), (0, vec![]));
    world.check();
}

#[test]
fn a_switch_that_was_not_reached_is_told_again_that_a_loan_is_over() {
    let mut world = with_an_unflushed_write();
    world.op(1, ClientOp::ReadAround);
    while world.store().loans() > 0 {
        world.run(1);
    }
    // What was said at once is lost, if it did not arrive yet.
    world.cut = vec![Stop::X, Stop::Y];
    world.run(1_000);
    world.cut.clear();
    world.run(12_000);
    assert_eq!(world.records(), 0);
    assert_eq!(world.counters().loans.dropped_loan, 0);
}

/// A write was moved to a loan and kept, maybe; then the keeper lost its memory, so that nobody can
/// tell; others have written since. A copy of it that was on its way all the time, from when its
/// client meant it for the store, comes last. What the key has then, and what others wrote.
fn a_late_copy_of_a_write_that_was_moved() -> (Option<u64>, Option<u64>) {
    const VALUE: u64 = 4711;
    let mut world = lent();
    let own = world.engine().0.facts.replies.life;
    world.hand_in(own, Flags::NONE, VALUE);
    let moved = world.told.pop().expect("an answer");
    assert_eq!((moved.status, moved.expiry_ms), (Status::OtherLife, wire::LIFE_MOVED));
    // The owner has passed it on, to a keeper that has no memory of it.
    world.keeper().crash();
    world.hand_in(moved.life, Flags::NONE, VALUE);
    world.run(200);
    let untold = world.told.pop().expect("an answer");
    assert_eq!((untold.status, world.counters().loans.writes_untold), (Status::OtherLife, 1));
    world.op(1, ClientOp::WriteAround);
    world.run(50);
    assert!(world.is_idle(1));
    world.hand_in(own, Flags::ALL, VALUE);
    world.run(50);
    (world.stored(), world.newest(1))
}

#[test]
fn a_write_that_was_moved_to_a_loan_is_never_new_again() {
    let (stored, newest) = a_late_copy_of_a_write_that_was_moved();
    assert_eq!(stored, newest);
}

#[cfg(debug_assertions)]
#[test]
fn the_mutant_that_forgets_what_was_moved_is_found() {
    use crate::mutants::{Mutant, choose};
    choose(Some(Mutant::MovedForgotten));
    let (stored, newest) = a_late_copy_of_a_write_that_was_moved();
    choose(None);
    assert_ne!(stored, newest);
}

/// One run of everything at random: clients that read and write on both paths, packets that get
/// lost, come twice or late, and one thing that dies. Returns what was not linearizable, and how
/// much of what the run is for took place.
fn at_random(seed: u64) -> (Result<(), String>, Tally) {
    let mut world = World::new(seed, 40);
    let mut seen = Tally::default();
    world.run(1_500);
    world.faults = Faults {
        lose: (seed % 3 * 20) as u32,
        duplicate: (seed / 3 % 3 * 30) as u32,
        late: (seed / 9 % 3 * 40) as u32,
        latest_ms: [3, 100, 1200][(seed / 27 % 3) as usize],
    };
    let dies_at = world.draw() % 400;
    let back_at = dies_at + world.draw() % 100;
    let what = world.draw() % 8;
    for round in 0..400 {
        for client in 0..4 {
            if !world.is_idle(client) || world.draw().is_multiple_of(3) {
                continue;
            }
            let reads_around = seed % 4 == 3 && client == 3 && world.draw().is_multiple_of(2);
            let op = match world.draw() % [64, 512, 4096][(seed / 81 % 3) as usize] {
                _ if reads_around => ClientOp::ReadAround,
                0 => ClientOp::ReadAround,
                1 if client == 3 => ClientOp::WriteAround,
                2 if client == 2 => ClientOp::Delete,
                n if n % 3 == 0 => ClientOp::Read,
                _ => ClientOp::Write,
            };
            world.op(client, op);
        }
        if round == dies_at {
            match what {
                0 | 1 => world.kill_store(),
                2 => world.owner().crash(),
                3 => world.keeper().crash(),
                4 => world.owner().mute = true,
                5 => world.keeper().mute = true,
                6 => world.cut = vec![Stop::X],
                _ => world.cut = vec![Stop::Y],
            }
        }
        if round == back_at {
            if !world.is_up() {
                seen.add(&world);
                world.start();
            }
            world.owner().mute = false;
            world.keeper().mute = false;
            world.cut.clear();
        }
        world.run(1 + seed / 5 % 6);
    }
    world.faults = Faults::default();
    world.cut.clear();
    if !world.is_up() {
        world.start();
    }
    world.run(4_000);
    seen.add(&world);
    seen.absorbed = world.owner().absorbed;
    (world.verdict(), seen)
}

/// What took place in a run.
#[derive(Debug, Default)]
struct Tally {
    loans: u64,
    found: u64,
    kept: u64,
    moved: u64,
    lost: u64,
    absorbed: u64,
}

impl Tally {
    fn add(&mut self, world: &World) {
        if !world.is_up() {
            return;
        }
        let counters = world.counters();
        self.loans += counters.loans.loans;
        self.found += counters.loans.loans_found;
        self.kept += counters.loans.writes_kept;
        self.moved += counters.loans.writes_moved;
        self.lost += counters.loans.loans_lost;
    }
}

const SEEDS: u64 = 400;

/// Each way to break the rules of loans is found by one of these runs, but for one that takes more
/// in one order than they draw ([`the_mutant_that_forgets_what_was_moved_is_found`]).
#[cfg(debug_assertions)]
#[test]
fn every_mutant_of_loans_is_found() {
    super::all_are_found(
        |mutant| mutant.is_of_loans() && mutant != crate::mutants::Mutant::MovedForgotten,
        4 * SEEDS,
        |seed| at_random(seed).0.is_err(),
    );
}

#[test]
fn whatever_the_network_does_and_one_thing_that_dies_clients_see_one_copy() {
    let mut all = Tally::default();
    for seed in 0..SEEDS {
        let (verdict, seen) = at_random(seed);
        if let Err(what) = verdict {
            panic!("seed {seed}: {what}");
        }
        all.loans += seen.loans;
        all.found += seen.found;
        all.kept += seen.kept;
        all.moved += seen.moved;
        all.lost += seen.lost;
        all.absorbed += seen.absorbed;
    }
    println!("{all:?}");
    assert!(all.loans > SEEDS && all.absorbed > 20 * SEEDS, "{all:?}");
    assert!(all.found > 5 && all.kept > 5 && all.moved > 5, "{all:?}");
    assert_eq!(all.lost, 0, "one thing at a time died");
}

/// For a longer look.
#[test]
#[ignore = "minutes; for changes to loans"]
fn many_seeds() {
    for seed in SEEDS..50 * SEEDS {
        if let Err(what) = at_random(seed).0 {
            panic!("seed {seed}: {what}");
        }
    }
}
