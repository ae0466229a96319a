//! The median of repeated measurements, and how far they lie apart.

use serde::Serialize;

/// What repeated measurements of one figure came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the batches were below it.
    pub median: f64,
    /// A tenth of the batches were below it.
    pub low: f64,
    /// A tenth of the batches were above it.
    pub high: f64,
}

impl Spread {
    /// Of these measurements, without those that came to no number; none at all is no number.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = ((values.len().max(1) - 1) as f64 * share).round() as usize;
            values.get(index).copied().unwrap_or(f64::NAN)
        };
        Spread { median: at(0.5), low: at(0.1), high: at(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_ignores_what_is_no_number() {
        let values = (0..=10).map(f64::from).chain([f64::NAN, f64::INFINITY]).collect();
        assert_eq!(Spread::of(values), Spread { median: 5.0, low: 1.0, high: 9.0 });
        assert!(Spread::of(vec![]).median.is_nan());
    }
}
