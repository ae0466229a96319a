//! A write waits for a switch that does not answer for as long as that may serve its copy, in the
//! whole system: what the hunt comes upon once in some thousands of plans.

use scenario::Deed;
use store::mutants::{Mutant, choose};

use crate::leaving::{KEY, READER, WRITER, with_a_copy};

/// Longer than a packet's way to the store and back and than the mutant waits, and far below
/// a lease.
const SOME_MS: u64 = 200;
/// Longer than a lease.
const LEASE_IS_OVER_MS: u64 = 6_000;

/// The switch and its reader are cut off, and the friend writes. Whether the reader is told the old
/// value by the switch after the friend was told that the new one is there.
fn reads_what_was_overwritten(broken: Option<Mutant>) -> bool {
    let mut scenario = with_a_copy();
    let old = scenario.read(READER, KEY);
    let links = &scenario.world.plan().links;
    let is_between = |ends: &[String; 2]| ends.iter().all(|end| end.starts_with("switch"));
    let between = links.iter().position(|link| is_between(&link.ends));
    choose(broken);
    scenario.world.set_link(between.expect("the two of the row"), false);
    let call = scenario.begin(WRITER, Deed::Write(0), KEY);
    scenario.pass(SOME_MS);
    let is_written = scenario.outcome(WRITER, call).is_some();
    assert_eq!(scenario.read(READER, KEY), old, "the switch has a lease, and serves");
    scenario.until(LEASE_IS_OVER_MS, |scenario| scenario.outcome(WRITER, call).is_some());
    choose(None);
    if !is_written {
        scenario.judge();
    }
    is_written
}

#[test]
fn a_write_waits_for_a_switch_that_may_serve_the_copy_that_it_has() {
    assert!(!reads_what_was_overwritten(None));
    assert!(reads_what_was_overwritten(Some(Mutant::WaitTimesOut)));
}
