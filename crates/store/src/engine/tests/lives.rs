//! What one life of a store must not have in common with the next.

use super::*;

/// The same data for two lives that begin at these times of the wall clock.
const WALLS_S: [(u32, u32); 3] = [
    (1_700_000_000, 1_700_000_000),
    (1_700_000_000, 1_699_999_999),
    (1_700_000_005, 1_700_000_000),
];

/// Random numbers of two lives.
const FIRST: u64 = 0x1122_3344_5566_7788;
const SECOND: u64 = 0x99aa_bbcc_ddee_ff00;

#[test]
fn no_life_lends_in_a_term_of_another_whatever_the_wall_clock_says() {
    for (before_s, after_s) in WALLS_S {
        let term = |wall_s, random| {
            let mut store = Store::born(wall_s, random);
            store.lease().expect("a lease").client
        };
        assert_ne!(term(before_s, FIRST), term(after_s, SECOND), "{before_s}, {after_s}");
    }
}

#[test]
fn no_life_gives_out_a_version_of_another_whatever_the_wall_clock_says() {
    for (before_s, after_s) in WALLS_S {
        let version = |wall_s, random| {
            let mut store = Store::born(wall_s, random);
            let header = Header { request: 1, ..Header::new(Op::WriteRequest) };
            store.ask(header, b"k").expect("written").version
        };
        assert_ne!(version(before_s, FIRST), version(after_s, SECOND), "{before_s}, {after_s}");
    }
}

#[test]
fn a_store_started_with_shorter_leases_waits_for_the_long_ones_of_its_former_life() {
    let started = |lease_ms, lease_max_ms| {
        let mut store = Store::with(|config| {
            config.cluster.lease_ms = lease_ms;
            config.cluster.lease_max_ms = lease_max_ms;
        });
        let lent = store.lease().map(|reply| reply.expiry_ms);
        (lent, store.write(TENANT_OPEN, 1, 1, b"k"))
    };
    // Three seconds after its start.
    assert_eq!(started(2000, 2000), (Some(2000), Some(Status::Ok)));
    assert_eq!(started(2000, 10_000), (None, Some(Status::TryAgain)));
}

#[cfg(debug_assertions)]
#[test]
fn a_store_that_does_not_wait_for_longer_leases_is_noticed() {
    use holder::mutants::{Mutant, is_noticed};
    let test = a_store_started_with_shorter_leases_waits_for_the_long_ones_of_its_former_life;
    assert!(is_noticed(Mutant::LongerLeaseForgotten, test));
}
