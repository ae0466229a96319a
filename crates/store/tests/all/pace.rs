//! The pace of servers that stores stand for in experiments.

use emulated::{Pace, Rate, RateChange};

fn thousand_per_s() -> Pace {
    Pace::new(Some(Rate { requests_per_s: 1000.0, queue: 4 }))
}

#[test]
fn a_rate_may_be_another_some_time_after_the_first_request() {
    let mut pace = thousand_per_s();
    pace.change_later("2:250".parse().unwrap());
    let begin = 77_000_000_000;
    let mut served = [0; 4];
    for i in 0..40_000 {
        let taken = pace.admit(0, begin + i * 100_000);
        served[i as usize / 10_000] += u32::from(taken.is_some());
    }
    for (count, expected) in served.into_iter().zip([1000, 1000, 250, 250]) {
        assert!((expected - 6..=expected + 6).contains(&count), "{served:?}");
    }
}

#[test]
fn a_limited_partition_serves_its_rate_and_drops_the_rest() {
    let mut pace = thousand_per_s();
    let mut replies = Vec::new();
    for i in 0..100_000 {
        // 100,000 requests in one second at a partition that serves 1,000.
        replies.extend(pace.admit(0, i * 10_000));
    }
    assert!((1000..=1006).contains(&replies.len()), "{}", replies.len());
    assert!(replies.windows(2).all(|w| w[1] - w[0] == 1_000_000), "evenly spaced");
}

#[test]
fn an_idle_partition_serves_a_burst_of_its_queue_whatever_others_do() {
    let mut pace = thousand_per_s();
    for partition in [0, 7] {
        let taken = (0..20).filter_map(|_| pace.admit(partition, 5)).count();
        assert_eq!(taken, 5, "one in service and four in the queue");
    }
}

#[test]
fn without_a_limit_everything_leaves_at_once() {
    assert_eq!(Pace::new(None).admit(1, 77), Some(0));
}

#[test]
fn what_is_no_change_of_speed_says_what_was_expected() {
    for text in ["", "3", "0:5", "1:-2", "x:y"] {
        let error = text.parse::<RateChange>().unwrap_err();
        assert!(error.contains("SECONDS:REQ_PER_S"), "{error}");
    }
}
