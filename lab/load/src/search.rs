//! The highest offered rate of which less than a given part is lost.

use std::time::Duration;

/// When to stop searching.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The loss that is allowed, a part of one.
    pub loss: f64,
    /// Good enough: the lowest failing rate is within this part of the highest passing one.
    pub precision: f64,
    /// Most measurements.
    pub steps: usize,
    /// Most time.
    pub time: Duration,
    /// Rates above this are not tried: the generator could not offer them.
    pub max_rate: f64,
}

/// A rate that fails is measured again before one below this part of it is tried.
const FAR_DOWN: f64 = 0.9;

/// One measurement: the offered rate and the part that was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests per second.
    pub rate: f64,
    /// Part lost.
    pub loss: f64,
}

/// Where to look next, given all measurements so far; none: it is known well enough.
pub fn next_rate(points: &[Point], limits: &Limits) -> Option<f64> {
    let passes = |point: &&Point| point.loss < limits.loss;
    let low = points.iter().filter(passes).max_by(|a, b| a.rate.total_cmp(&b.rate));
    // A failure below a pass is noise of one of the two: only failures above count.
    let floor = low.map_or(0.0, |low| low.rate);
    let high = points.iter().filter(|p| !passes(p) && p.rate > floor);
    let high = high.min_by(|a, b| a.rate.total_cmp(&b.rate));
    match (low, high) {
        (None, None) => None,
        (Some(low), None) if low.rate >= limits.max_rate * 0.999 => None,
        (Some(low), None) => {
            // The further below the limit the loss is, the larger the step.
            let room = (limits.loss - low.loss) / limits.loss;
            Some((low.rate * (1.04 + 0.16 * room)).min(limits.max_rate))
        }
        (None, Some(high)) => {
            let excess = high.loss - limits.loss;
            let part = (1.0 - 1.5 * excess - 0.02).clamp(0.4, 0.97);
            // Before it goes far down: a machine that was held up for a moment loses much at
            // any rate.
            let tried = points.iter().filter(|p| p.rate == high.rate).count();
            Some(if part < FAR_DOWN && tried == 1 { high.rate } else { high.rate * part })
        }
        (Some(low), Some(high)) => {
            let gap = high.rate - low.rate;
            if gap <= low.rate * limits.precision {
                return None;
            }
            // Where a straight line between the two meets the limit, but well inside the gap.
            let slope = (high.loss - low.loss) / gap;
            let guess = low.rate + (limits.loss - low.loss) / slope.max(1e-12);
            Some(guess.clamp(low.rate + 0.2 * gap, high.rate - 0.2 * gap))
        }
    }
}

/// So often a rate that did not pass again is followed by one that is lower by the precision. After
/// that each is lower by twice as much as the one before: what was measured was one lucky moment.
const SMALL_STEPS: i32 = 5;
/// Most times that a rate is asked whether it passes again.
const CONFIRMATIONS: i32 = 12;
/// A step down leaves at least this part of the rate.
const LEAST_LEFT: f64 = 0.5;
/// Most steps down, each twice as large as the one before, from a rate that did not pass when the
/// search should have been over: where loss grows slowly, its own steps are small.
const DESCENTS: i32 = 8;
/// Most measurements between a rate that passed only then and the lowest that failed.
const REFINEMENTS: usize = 4;

/// The rate so many steps down: the first is as large as the precision, each further one twice as
/// large.
fn below(rate: f64, limits: &Limits, number: i32) -> f64 {
    rate * (1.0 - limits.precision * 2f64.powi(number)).max(LEAST_LEFT)
}

/// What a search has found.
#[derive(Clone, Debug)]
pub struct SearchResult<T> {
    /// The rate, offered.
    pub rate: f64,
    /// What was measured there: the second time, where it passed twice. The best of many
    /// measurements is one that was lucky.
    pub measured: T,
    /// Whether it passed twice.
    pub is_confirmed: bool,
    /// All measurements.
    pub points: Vec<Point>,
}

/// Searches from `start` with `measure(rate)`, which returns the part lost, how long it took, and
/// whatever else it measured. The highest rate that passed has to pass once more, or the first
/// below it that passes is taken. If none passed, it is the lowest rate tried.
///
/// # Errors
/// Those of `measure`.
pub fn saturation<T>(
    start: f64,
    limits: &Limits,
    mut measure: impl FnMut(f64) -> anyhow::Result<(f64, Duration, T)>,
) -> anyhow::Result<SearchResult<T>> {
    let mut spent = Duration::ZERO;
    let mut points = vec![];
    let mut rate = start.min(limits.max_rate);
    let mut best: Option<(Point, T)> = None;
    let (mut descents, mut refinements) = (0, 0);
    loop {
        let (loss, took, measured) = measure(rate)?;
        spent += took;
        let point = Point { rate, loss };
        points.push(point);
        let passes = loss < limits.loss;
        let better = best.as_ref().is_none_or(|(old, _)| {
            let old_passes = old.loss < limits.loss;
            if passes { !old_passes || rate > old.rate } else { !old_passes && rate < old.rate }
        });
        if better {
            best = Some((point, measured));
        }
        let done = points.len() >= limits.steps || spent >= limits.time;
        let passed = best.as_ref().is_some_and(|(point, _)| point.loss < limits.loss);
        // Out of time without a single pass: more tries below, so that there is a result.
        let hopeless = points.len() >= limits.steps + 3;
        match next_rate(&points, limits) {
            Some(next) if !done || (!passed && !hopeless) => rate = next,
            Some(_) if !passed && descents < DESCENTS => {
                rate = below(rate, limits, descents);
                descents += 1;
            }
            Some(next) if passed && descents > 0 && refinements < REFINEMENTS => {
                rate = next;
                refinements += 1;
            }
            _ => break,
        }
    }
    let (point, measured) = best.expect("there was at least one measurement");
    let mut found = SearchResult { rate: point.rate, measured, is_confirmed: false, points };
    if point.loss >= limits.loss {
        return Ok(found);
    }
    for number in 1..=CONFIRMATIONS {
        let (loss, _, measured) = measure(found.rate)?;
        let rate = found.rate;
        found.points.push(Point { rate, loss });
        found.measured = measured;
        found.is_confirmed = loss < limits.loss;
        if found.is_confirmed {
            break;
        }
        found.rate = below(found.rate, limits, (number - SMALL_STEPS).max(0));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::lost;

    fn limits() -> Limits {
        Limits {
            loss: 0.02,
            precision: 0.02,
            steps: 30,
            time: Duration::from_secs(60),
            max_rate: 1e9,
        }
    }

    #[test]
    fn a_generator_at_its_limit_ends_the_search() {
        let limits = Limits { max_rate: 500.0, ..limits() };
        let found = saturation(400.0, &limits, |_| Ok((0.0, Duration::ZERO, ()))).unwrap();
        assert_eq!((found.rate, found.is_confirmed), (500.0, true));
        assert!(found.points.len() <= 5);
    }

    #[test]
    fn one_bad_moment_does_not_send_the_search_far_down() {
        let mut measured = 0;
        let SearchResult { rate, points, .. } = saturation(400.0, &limits(), |rate| {
            measured += 1;
            let loss = if measured == 1 || rate > 500.0 { 0.5 } else { 0.0 };
            Ok((loss, Duration::ZERO, ()))
        })
        .unwrap();
        assert!((480.0..=500.0).contains(&rate), "{rate}");
        assert!(points.iter().all(|p| p.rate >= 400.0), "{points:?}");
    }

    #[test]
    fn time_is_what_the_measurements_took() {
        let took = Duration::from_secs(25);
        let measure = |_| Ok((0.0, took, ()));
        let found = saturation(400.0, &limits(), measure).unwrap();
        // And one that confirms.
        assert_eq!(found.points.len(), 3 + 1);
    }

    #[test]
    fn a_lucky_measurement_is_not_the_result() {
        // From 500 on everything is lost, but for one moment.
        let mut measured = 0;
        let found = saturation(600.0, &limits(), |rate| {
            measured += 1;
            let loss = if measured > 1 && rate >= 500.0 { 0.5 } else { 0.0 };
            Ok((loss, Duration::ZERO, measured))
        })
        .unwrap();
        assert!(found.is_confirmed && found.measured == measured, "{found:?}");
        assert!((400.0..500.0).contains(&found.rate), "{found:?}");
    }

    #[test]
    fn what_never_passes_again_is_not_confirmed() {
        let mut measured = 0;
        let found = saturation(600.0, &limits(), |_| {
            measured += 1;
            Ok((if measured > 1 { 0.5 } else { 0.0 }, Duration::ZERO, ()))
        });
        assert!(!found.unwrap().is_confirmed);
    }

    #[test]
    fn steps_are_bounded_even_if_nothing_passes() {
        let limits = Limits { steps: 4, ..limits() };
        let found = saturation(400.0, &limits, |_| Ok((0.5, Duration::ZERO, ()))).unwrap();
        assert!(found.points.len() <= 7 + 8 && !found.is_confirmed);
    }

    #[test]
    fn a_loss_that_grows_slowly_is_left_behind_all_the_same() {
        // Of a hundred thousand a second 1.9 % are lost, and it is 0.2 % at ten thousand.
        let limits = Limits { loss: 0.002, steps: 8, ..limits() };
        let found = saturation(100_000.0, &limits, |rate| {
            Ok((0.019 * rate / 100_000.0, Duration::ZERO, ()))
        })
        .unwrap();
        assert!(found.is_confirmed, "{found:?}");
        assert!((8_500.0..10_600.0).contains(&found.rate), "{found:?}");
    }

    proptest! {
        #[test]
        fn finds_the_saturation_of_the_model(hot in 0.01f64..0.9, start in 0.3f64..4.0) {
            let shares = [hot, (1.0 - hot) / 2.0, (1.0 - hot) / 2.0];
            let truth = crate::model::saturation(&shares, 100.0, 0.02);
            let measure = |load| Ok((lost(load, &shares, 100.0), Duration::ZERO, ()));
            let SearchResult { rate, is_confirmed, .. } = saturation(truth * start, &limits(), measure).unwrap();
            prop_assert!(is_confirmed);
            prop_assert!(rate <= truth * 1.0001 && rate >= truth * 0.97, "{rate} of {truth}");
        }
    }
}
