//! A client and a store with switches in a line between them, modelled without a kernel: does the
//! tenant's memory act as one cache? Everything is seeded.

use crate::model::{controller, line_of};
use hot::testing::Zipf;

const KEYS: usize = 1000;
const PAGES: u32 = 30;

fn even(switches: u32) -> Vec<u32> {
    vec![PAGES / switches; switches as usize]
}

#[test]
fn every_item_is_cached_once_however_many_switches() {
    for switches in 1..=3 {
        for traffic in [Zipf::new(KEYS, 0.0), Zipf::new(KEYS, 0.9)] {
            let mut line = line_of(&even(switches), traffic, 0.0);
            line.seconds(40, 10_000);
            assert_eq!(line.cached(), KEYS, "{switches} switches");
        }
    }
}

#[test]
fn pages_are_filled_in_turn() {
    let shares = [vec![1000], vec![512, 488], vec![384, 360, 256]];
    for (switches, shares) in (1..=3).zip(shares) {
        let mut line = line_of(&even(switches), Zipf::new(KEYS, 0.0), 0.0);
        line.seconds(10, 10_000);
        assert_eq!(line.held(), shares);
    }
}

#[test]
fn borrowed_memory_takes_what_guaranteed_pages_have_no_room_for() {
    for theta in [0.0, 0.99] {
        let mut line = line_of(&[1, 10, 1], Zipf::new(KEYS, theta), 0.0);
        line.lend(&[1, 0, 1]);
        line.seconds(20, 10_000);
        assert_eq!(line.held(), [0, 1000, 0]);
        let mut line = line_of(&[1, 3, 4, 3], Zipf::new(KEYS, theta), 0.0);
        line.lend(&[1, 0, 4, 0]);
        line.seconds(20, 10_000);
        assert_eq!(line.held(), [128, 384, 104, 384]);
    }
}

#[test]
fn borrowed_memory_does_not_win_by_reporting_first() {
    let mut line = line_of(&[1, 10], Zipf::new(KEYS, 0.0), 0.5);
    line.lend(&[1, 0]);
    line.seconds(20, 40_000);
    assert!(line.held()[0] <= 60, "{:?}", line.held());
}

#[test]
fn borrowed_memory_alone_is_filled_in_turn() {
    let mut line = line_of(&even(3), Zipf::new(KEYS, 0.0), 0.0);
    line.lend(&even(3));
    line.seconds(10, 10_000);
    assert_eq!(line.held(), [384, 360, 256]);
}

#[test]
fn keys_that_are_asked_for_less_than_once_a_second_get_in_while_there_is_room() {
    let mut line = line_of(&even(3), Zipf::new(KEYS, 0.0), 0.0);
    line.seconds(40, 500);
    assert_eq!(line.cached(), KEYS);
}

#[test]
fn once_all_is_cached_nothing_changes() {
    let mut line = line_of(&even(3), Zipf::new(KEYS, 0.9), 0.0);
    line.seconds(40, 10_000);
    let changes = line.changes;
    line.seconds(20, 10_000);
    assert_eq!(line.changes, changes);
    assert_eq!(line.store_reads_in_window, 0);
}

#[test]
fn lost_reports_cost_time_and_no_items() {
    for lost in [0.2, 0.7] {
        for traffic in [Zipf::new(KEYS, 0.0), Zipf::new(KEYS, 0.9)] {
            let mut line = line_of(&even(3), traffic, lost);
            line.seconds(80, 10_000);
            assert_eq!(line.cached(), KEYS, "{lost} of reports lost");
        }
    }
}

#[test]
fn little_memory_holds_the_hottest_whichever_switch_it_is_on() {
    for pages in [vec![1, 1, 1], vec![1, 2], vec![3]] {
        let mut line = line_of(&pages, Zipf::new(KEYS, 0.9), 0.0);
        line.seconds(60, 10_000);
        assert!(line.cached() >= 370, "{} items", line.cached());
        assert!(line.learned() >= 0.93, "{} {:?}", line.learned(), pages);
    }
}

#[test]
fn a_switch_that_loses_its_memory_is_filled_again() {
    let mut line = line_of(&even(3), Zipf::new(KEYS, 0.0), 0.0);
    line.seconds(10, 10_000);
    line.restart(1, true);
    line.seconds(10, 10_000);
    assert_eq!(line.cached(), KEYS);
}

#[test]
fn a_controller_that_restarts_believes_the_switches_and_ends_doubles() {
    let mut line = line_of(&even(2), Zipf::new(KEYS, 0.0), 0.0);
    line.seconds(10, 10_000);
    line.replace_controller(controller());
    line.double(7);
    line.seconds(10, 10_000);
    assert_eq!(line.cached(), KEYS);
    assert!(line.is_single());
}

#[test]
fn when_a_room_goes_its_items_find_a_place_in_the_others() {
    let mut line = line_of(&even(3), Zipf::new(KEYS, 0.0), 0.0);
    line.seconds(10, 10_000);
    line.pages(&[10, 0, 10]);
    line.seconds(10, 10_000);
    assert_eq!(line.held()[1], 0);
    assert_eq!(line.cached(), KEYS);
    line.pages(&[2, 10, 2]);
    line.seconds(20, 10_000);
    assert_eq!(line.cached(), KEYS);
}

#[test]
fn what_finds_no_room_anywhere_is_wanted_everywhere() {
    let mut line = line_of(&[1, 1], Zipf::new(KEYS, 0.0), 0.0);
    line.seconds(20, 20_000);
    for switch in 0..2 {
        let wanted = line.wanted(switch);
        assert!((800..=900).contains(&wanted), "{wanted} on {switch}");
    }
    line.pages(&[10, 10]);
    line.seconds(12, 20_000);
    assert_eq!(line.wanted(0) + line.wanted(1), KEYS);
}
