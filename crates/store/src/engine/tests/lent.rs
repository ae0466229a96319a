//! Write-back: a store, the owner and keeper of a key, and clients, over a network that does what the test says.

mod switch;
mod world;

use super::*;
use world::{ClientOp, World};

const MS: u64 = 1_000_000;

/// A world in which the key is lent.
fn lent() -> World {
    let mut world = World::new(1, 100);
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
    let applied = world.store().counters().writes_applied;
    for _ in 0..5 {
        world.op(0, ClientOp::Write);
        world.run(5);
        world.op(0, ClientOp::Read);
        world.run(5);
    }
    assert_eq!(world.owner().absorbed, 5);
    assert_eq!(
        world.store().counters().writes_applied,
        applied,
        "the owner answers"
    );
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
        (counters.loans, counters.loans_returned, counters.loans_lost),
        (1, 1, 0)
    );
    world.op(0, ClientOp::Write);
    world.run(50);
    world.check();
    assert_eq!(world.unanswered(), 0);
}
