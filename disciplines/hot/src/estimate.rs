//! How many requests a key gets, estimated from Poisson counts.

/// A count that a rate of `lower(n)` per window would hardly stay below: two deviations under `n`.
pub fn lower(n: f64) -> f64 {
    (n - 2.0 * n.max(0.0).sqrt()).max(0.0)
}

/// A rate that would hardly yield as few as `n` requests: three deviations above, and 3 for none at
/// all.
pub fn upper(n: f64) -> f64 {
    n + 3.0 * n.max(0.0).sqrt() + 3.0
}

/// The requests to expect in a window of a key of this `rate` (requests per window) that was not
/// reported, so that it had fewer than `threshold`.
pub fn unreported(rate: f64, threshold: u32) -> f64 {
    if rate <= 0.0 || threshold <= 1 {
        return 0.0;
    }
    if threshold > 64 {
        return rate.min(f64::from(threshold - 1));
    }
    // rate * P(n < threshold - 1) / P(n < threshold), with the common factor e^-rate left out.
    let (mut term, mut below, mut all) = (1.0, 0.0, 0.0);
    for n in 0..threshold {
        if n > 0 {
            term *= rate / f64::from(n);
        }
        below = all;
        all += term;
    }
    rate * below / all
}

/// The mean of `min(n, rate)` for a Poisson count `n` of this `rate`, nearly.
pub fn usual_overlap(rate: f64) -> f64 {
    if rate < 1.0 { rate * (1.0 - (-rate).exp()) } else { rate - 0.4 * rate.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn below_two_only_none_or_one_is_left() {
        // E[n | n < 2] = rate / (1 + rate)
        assert!((unreported(0.7, 2) - 0.7 / 1.7).abs() < 1e-12);
        assert_eq!(unreported(0.7, 1), 0.0);
    }

    proptest! {
        #[test]
        fn what_was_not_reported_is_below_rate_and_threshold(rate in 0.0..1e6f64, threshold in 1u32..100_000) {
            let n = unreported(rate, threshold);
            prop_assert!(n >= 0.0 && n <= rate + 1e-9 && n <= f64::from(threshold - 1) + 1e-9);
        }

        #[test]
        fn bounds_enclose_the_count(n in 0.0..1e9f64) {
            prop_assert!(lower(n) <= n && n <= upper(n));
        }
    }
}
