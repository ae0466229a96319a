//! The controller against a modelled switch, without a kernel: does it learn the hottest keys,
//! follow them when they change, and keep still when there is nothing to learn? Everything is
//! seeded. Ratios are printed: `cargo test -p netcache --test all learning -- --nocapture`.

use crate::model::{Model, Zipf};

const KEYS: usize = 1_000_000;
const ITEMS: usize = 10_000;

fn learned(theta: f64, per_s: usize, at_s: usize) -> f64 {
    let mut model = Model::new(Zipf::new(KEYS, theta), ITEMS, 7);
    for second in 1..=at_s {
        model.second(per_s);
        let share = model.learned();
        println!("zipf {theta}, {per_s}/s, {second:2} s: {share:.4} of the best {}", model.line());
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
    let mut model = Model::new(Zipf::new(KEYS, 0.99), ITEMS, 7);
    for second in 1..=10 {
        model.second(1_000_000);
        println!("1000000/s, {second:2} s: {:.4} of the best {}", model.learned(), model.line());
        assert!(
            second < 4 || model.reports_in_second <= 6_000,
            "{} reports",
            model.reports_in_second
        );
    }
    assert!(model.learned() >= 0.98);
}

#[test]
fn follows_hot_in_within_a_second() {
    let mut model = Model::new(Zipf::new(KEYS, 0.99), ITEMS, 7);
    for _ in 0..12 {
        model.second(100_000);
    }
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
    let mut model = Model::new(Zipf::new(KEYS, 0.99), ITEMS, 7);
    for _ in 0..12 {
        model.second(100_000);
    }
    model.hot_in(2 * ITEMS);
    for tenth in 1..=100 {
        model.batch(10_000);
        if tenth % 5 == 0 {
            println!(
                "all changed, {tenth} tenths: {:.4} of the best {}",
                model.learned(),
                model.line()
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
        let mut model = Model::new(Zipf::new(KEYS, 0.0), ITEMS, 7);
        let (mut changes, mut reports) = (0, 0);
        for second in 1..=25 {
            model.second(per_s);
            println!("uniform, {per_s}/s, {second:2} s: {}", model.line());
            if second > 10 {
                changes += model.changes_in_second;
                reports += model.reports_in_second;
            }
        }
        assert!(changes / 15 <= ITEMS / 10, "{} changes a second", changes / 15);
        assert!(reports / 15 <= 5_000, "{} reports a second", reports / 15);
    }
}

#[test]
fn a_stable_hot_set_is_left_alone() {
    let mut model = Model::new(Zipf::new(100_000, 1.1), 1000, 3);
    for _ in 0..30 {
        model.second(50_000);
    }
    println!("stable: {:.4} of the best {}", model.learned(), model.line());
    assert!(model.changes_in_second <= 20, "{}", model.changes_in_second);
}
