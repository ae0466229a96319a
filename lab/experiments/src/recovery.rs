//! How long a rack takes until it answers again what it could, after popularity has changed.

use load::{Interval, PhaseResult};

/// What of the requests is looked at, and how closely.
#[derive(Clone, Copy, Debug)]
pub struct Criterion {
    /// What of an interval's requests counts.
    pub count: fn(&Interval) -> u32,
    /// The part of the requests that counts once the rack has learnt everything there is to learn.
    pub optimum: f64,
    /// Length in milliseconds of a stretch that has to reach the optimum, soon after a change and
    /// later. Short ones tell times apart, long ones forgive what arrivals and a busy machine do.
    pub stretch_ms: [f64; 2],
}

impl Criterion {
    /// Requests that were answered, of which the rack answers this part when it has learnt
    /// everything.
    pub fn answers(optimum: f64) -> Criterion {
        Criterion { count: |interval| interval.answered, optimum, stretch_ms: [20.0, 100.0] }
    }

    /// Requests that a switch answered. Chance makes their part differ more from one stretch to
    /// the next.
    pub fn hits(optimum: f64) -> Criterion {
        Criterion { count: |interval| interval.cached, optimum, stretch_ms: [200.0, 200.0] }
    }

    /// What counted of these intervals' requests, over the optimum.
    fn reached(&self, intervals: &[Interval]) -> f64 {
        let sent: u32 = intervals.iter().map(|interval| interval.sent).sum();
        let counted: u32 = intervals.iter().map(self.count).sum();
        match sent {
            0 => 1.0,
            _ => f64::from(counted) / f64::from(sent) / self.optimum.max(f64::MIN_POSITIVE),
        }
    }
}

/// So much of the optimum has to be reached.
const ENOUGH: f64 = 0.95;
/// How long after a change is soon, in milliseconds.
const SOON_MS: f64 = 200.0;

/// All changes of a phase together.
#[derive(Debug, PartialEq)]
pub struct Recoveries {
    /// Milliseconds from each change until the first moment from which on, up to the next change,
    /// every stretch reached 95 % of the optimum; the shortest first. As long as the period if
    /// there is none.
    pub ms: Vec<f64>,
    /// Their median.
    pub p50: f64,
    /// Their 95th percentile: of fewer than twenty changes the longest.
    pub p95: f64,
    /// The longest.
    pub longest: f64,
    /// The least part of the optimum that a (longer) stretch reached after a change.
    pub lowest: f64,
    /// The part of the optimum that was reached, mean over all changes: (milliseconds since the
    /// change, part).
    pub curve: Vec<(f64, f64)>,
}

impl Recoveries {
    /// Of a phase with a change every so many milliseconds.
    pub fn of(result: &PhaseResult, every_ms: f64, watched: &Criterion) -> Recoveries {
        let step = result.interval_ms as f64;
        // The last interval is cut short by the end of the phase.
        let end = result.intervals.len().saturating_sub(1);
        let index = |ms: f64| ((ms / step) as usize).min(end);
        let periods = result.changes_ms.iter().map(|change| {
            let period = &result.intervals[index(*change)..index(change + every_ms)];
            (change % step, period)
        });
        let periods: Vec<(f64, &[Interval])> = periods.filter(|(_, p)| p.len() > 1).collect();
        let of = |(into, period): &(f64, &[Interval])| recovered(period, step, *into, watched);
        let mut ms: Vec<f64> = periods.iter().map(of).collect();
        ms.sort_unstable_by(f64::total_cmp);
        let long = stretch(watched.stretch_ms[1], step);
        let lows = periods.iter().flat_map(|(_, p)| p.windows(long));
        Recoveries {
            p50: quantile(&ms, 0.5),
            p95: quantile(&ms, 0.95),
            longest: quantile(&ms, 1.0),
            lowest: lows.map(|low| watched.reached(low)).fold(f64::INFINITY, f64::min),
            curve: curve(&periods, step, watched),
            ms,
        }
    }

    /// The part of the optimum that was reached from `ms` after the changes on, for a twentieth of
    /// a second; the mean over all changes. NaN if there is no such time.
    pub fn after(&self, ms: f64) -> f64 {
        let from = self.curve.iter().position(|(at, _)| *at >= ms);
        let steps = self.curve.get(from.unwrap_or(usize::MAX)..).unwrap_or(&[]);
        let (sum, count) = steps
            .iter()
            .take_while(|(at, _)| *at < ms + 50.0)
            .fold((0.0, 0.0), |(sum, n), (_, part)| (sum + part, n + 1.0));
        sum / count
    }
}

/// How many intervals make a stretch.
fn stretch(ms: f64, step: f64) -> usize {
    ((ms / step).round() as usize).max(1)
}

/// When the rack was itself again in a period that begins with a change, which came so far `into`
/// the first interval.
fn recovered(period: &[Interval], step: f64, into: f64, watched: &Criterion) -> f64 {
    let is_bad = |at: &usize| {
        let is_soon = *at as f64 * step < SOON_MS;
        let ms = watched.stretch_ms[usize::from(!is_soon)];
        let from = &period[*at..];
        let of = from.get(..stretch(ms, step)).unwrap_or(from);
        watched.reached(of) < ENOUGH
    };
    // What is too short at the end to be a stretch is a matter of chance.
    let long = stretch(watched.stretch_ms[1], step);
    let last = (0..period.len().saturating_sub(long - 1)).rfind(is_bad);
    last.map_or(0.0, |at| ((at + 1) as f64 * step - into).max(0.0))
}

fn curve(periods: &[(f64, &[Interval])], step: f64, watched: &Criterion) -> Vec<(f64, f64)> {
    let shortest = periods.iter().map(|(_, period)| period.len()).min();
    let at = |i: usize| {
        let all: Vec<Interval> = periods.iter().map(|(_, period)| period[i]).collect();
        (i as f64 * step, watched.reached(&all))
    };
    (0..shortest.unwrap_or(0)).map(at).collect()
}

/// The smallest value that at least a part `q` of the sorted values does not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals of 2 ms with a hundred requests each, of which these many were answered; changes
    /// at 100 ms and 600 ms.
    fn watched(answered: &dyn Fn(usize) -> u32) -> Recoveries {
        let interval = |i| Interval { sent: 100, answered: answered(i), ..Interval::default() };
        let result = PhaseResult {
            interval_ms: 2,
            intervals: (0..551).map(interval).collect(),
            changes_ms: vec![100.0, 600.0],
            ..PhaseResult::default()
        };
        Recoveries::of(&result, 500.0, &Criterion::answers(1.0))
    }

    #[test]
    fn a_dip_is_as_long_as_it_is() {
        // 30 ms of nothing after the first change: but for one interval that chance could
        // take away.
        let seen = watched(&|i| if (50..65).contains(&i) { 0 } else { 100 });
        assert_eq!(seen.ms, [0.0, 30.0]);
        assert_eq!((seen.p50, seen.p95, seen.longest), (0.0, 30.0, 30.0));
        assert!((seen.lowest - 0.7).abs() < 1e-9, "{}", seen.lowest);
        assert_eq!(seen.curve[14], (28.0, 0.5));
        assert_eq!(seen.curve[15], (30.0, 1.0));
        assert!((seen.after(0.0) - 0.7).abs() < 0.01, "{}", seen.after(0.0));
        assert_eq!(seen.after(100.0), 1.0);
    }

    #[test]
    fn a_lasting_loss_is_no_steady_state() {
        // As before the change, so after it: but less than there could be.
        let seen = watched(&|_| 90);
        assert!(seen.ms.iter().all(|ms| *ms > 400.0), "{:?}", seen.ms);
        assert!((seen.lowest - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_late_dip_counts_if_it_is_longer_than_a_hiccup() {
        let hiccup = watched(&|i| if i == 200 { 0 } else { 100 });
        assert_eq!(hiccup.ms, [0.0, 0.0]);
        let dip = watched(&|i| if (200..210).contains(&i) { 0 } else { 100 });
        assert!(dip.p95 > 300.0, "{dip:?}");
    }

    #[test]
    fn quantiles_by_hand() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.95), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
