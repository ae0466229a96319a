//! The controller against a modelled switch, without a kernel: does it learn the hottest keys,
//! follow them when they change, and keep still when there is nothing to learn? Everything is
//! seeded. Ratios are printed: `cargo test -p netcache --test all learning -- --nocapture`.

use decide::{ITEMS_PER_PAGE_USUAL, Limits};
use hot::testing::{Line, Zipf};

const KEYS: usize = 1_000_000;
const ITEMS: usize = 10_000;
/// Changes that the switch applies in a tenth of a second.
const CHANGES_MOST: usize = 2_000;

/// One switch with room for so many items.
fn model(traffic: Zipf, items: usize, seed: u64) -> Line {
    let limits = Limits { max_items: items, seed, ..Limits::default() };
    let pages = items.div_ceil(ITEMS_PER_PAGE_USUAL) as u32;
    let mut line = Line::new(netcache::controller(limits), 0, &[(1, pages)], traffic, seed);
    line.switches[0].room = items;
    line.changes_most = CHANGES_MOST;
    line
}

fn told(model: &Line) -> String {
    format!(
        "({} read at the store, {} items, threshold {}, {} reports, {} changes)",
        model.store_reads_in_window,
        model.cached(),
        model.switches[0].threshold,
        model.reports_in_window,
        model.changes_in_window
    )
}

fn learned(theta: f64, per_s: usize, at_s: usize) -> f64 {
    let mut model = model(Zipf::new(KEYS, theta), ITEMS, 7);
    for second in 1..=at_s {
        model.seconds(1, per_s);
        let share = model.learned();
        println!("zipf {theta}, {per_s}/s, {second:2} s: {share:.4} of the best {}", told(&model));
    }
    model.learned()
}

#[test]
fn learns_the_hottest_of_a_million_keys() {
    assert!(learned(0.99, 100_000, 15) >= 0.965);
}

#[test]
fn learns_less_skewed_keys() {
    assert!(learned(0.95, 100_000, 15) >= 0.95);
    assert!(learned(0.90, 100_000, 15) >= 0.93);
}

#[test]
fn learns_at_high_rates_within_the_report_budget() {
    let mut model = model(Zipf::new(KEYS, 0.99), ITEMS, 7);
    for second in 1..=10 {
        model.seconds(1, 1_000_000);
        println!("1000000/s, {second:2} s: {:.4} of the best {}", model.learned(), told(&model));
        assert!(
            second < 4 || model.reports_in_window <= 6_000,
            "{} reports",
            model.reports_in_window
        );
    }
    assert!(model.learned() >= 0.98);
}

#[test]
fn follows_hot_in_within_a_second() {
    let mut model = model(Zipf::new(KEYS, 0.99), ITEMS, 7);
    model.seconds(12, 100_000);
    let before = model.learned();
    model.hot_in(200);
    let after = model.learned();
    for tenth in 1..=20 {
        model.batch(10_000);
        println!("hot-in of 200, {tenth} tenths: {:.4} of the best", model.learned());
        if tenth == 10 {
            assert!(model.learned() >= 0.95 * before, "{after} to {} of {before}", model.learned());
        }
    }
}

#[test]
fn follows_a_hot_set_that_changed_altogether() {
    let mut model = model(Zipf::new(KEYS, 0.99), ITEMS, 7);
    model.seconds(12, 100_000);
    model.hot_in(2 * ITEMS);
    for tenth in 1..=100 {
        model.batch(10_000);
        if tenth % 5 == 0 {
            println!(
                "all changed, {tenth} tenths: {:.4} of the best {}",
                model.learned(),
                told(&model)
            );
        }
        if tenth == 10 {
            assert!(model.learned() >= 0.6, "{}", model.learned());
        }
    }
    assert!(model.learned() >= 0.93, "{}", model.learned());
}

#[test]
fn uniform_traffic_does_not_churn_the_cache() {
    for per_s in [100_000, 1_000_000] {
        let mut model = model(Zipf::new(KEYS, 0.0), ITEMS, 7);
        let (mut changes, mut reports) = (0, 0);
        for second in 1..=16 {
            model.seconds(1, per_s);
            println!("uniform, {per_s}/s, {second:2} s: {}", told(&model));
            if second > 10 {
                changes += model.changes_in_window;
                reports += model.reports_in_window;
            }
        }
        assert!(changes / 6 <= ITEMS / 10, "{} changes a second", changes / 6);
        assert!(reports / 6 <= 5_000, "{} reports a second", reports / 6);
    }
}

#[test]
fn a_stable_hot_set_is_left_alone() {
    let mut model = model(Zipf::new(100_000, 1.1), 1000, 3);
    model.seconds(30, 50_000);
    println!("stable: {:.4} of the best {}", model.learned(), told(&model));
    assert!(model.changes_in_window <= 20, "{}", model.changes_in_window);
}
