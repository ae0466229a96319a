use serde::{Deserialize, Serialize};

/// How requests spread over ranks (rank 0 is the hottest).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Popularity {
    /// Each rank alike.
    Uniform,
    /// Rank r (from 1) with a chance proportional to `r^-theta`.
    Zipf(f64),
}

impl Popularity {
    /// The name used in tables and files: `uniform`, `zipf_0.99`.
    pub fn name(&self) -> String {
        match self {
            Popularity::Uniform => "uniform".into(),
            Popularity::Zipf(theta) => format!("zipf_{theta:.2}"),
        }
    }

    /// The name used in titles: `uniform`, `Zipf 0.99`.
    pub fn title(&self) -> String {
        match self {
            Popularity::Uniform => "uniform".into(),
            Popularity::Zipf(theta) => format!("Zipf {theta:.2}"),
        }
    }

    /// The chance of each of `n` ranks; sums to one.
    pub fn probabilities(&self, n: usize) -> Vec<f64> {
        match self {
            Popularity::Uniform => vec![1.0 / n as f64; n],
            Popularity::Zipf(theta) => {
                let mut weights = zipf_weights(n, *theta);
                let sum: f64 = weights.iter().rev().sum();
                weights.iter_mut().for_each(|w| *w /= sum);
                weights
            }
        }
    }
}

/// `r^-theta` for r = 1 to n.
pub fn zipf_weights(n: usize, theta: f64) -> Vec<f64> {
    (1..=n).map(|r| (r as f64).powf(-theta)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::AliasTable;
    use lab::random::rng;

    #[test]
    fn zipf_by_hand() {
        let p = Popularity::Zipf(1.0).probabilities(3);
        for (got, want) in p.iter().zip([6.0 / 11.0, 3.0 / 11.0, 2.0 / 11.0]) {
            assert!((got - want).abs() < 1e-12);
        }
    }

    #[test]
    fn samples_follow_the_law_at_head_and_tail() {
        const N: usize = 10_000;
        const DRAWS: u32 = 400_000;
        for theta in [0.5, 0.9, 0.99, 1.2] {
            let p = Popularity::Zipf(theta).probabilities(N);
            let table = AliasTable::new(&p);
            let mut rng = rng(7, "zipf");
            let mut seen = vec![0u32; N];
            (0..DRAWS).for_each(|_| seen[table.sample(&mut rng) as usize] += 1);
            for range in [0..1, 1..2, 2..10, 10..100, 100..1000, 1000..N] {
                let want: f64 = p[range.clone()].iter().sum();
                let got = f64::from(seen[range.clone()].iter().sum::<u32>()) / f64::from(DRAWS);
                let sigma = (want * (1.0 - want) / f64::from(DRAWS)).sqrt();
                let text = format!("theta {theta}, ranks {range:?}: {got} instead of {want}");
                assert!((got - want).abs() <= 5.0 * sigma, "{text}");
            }
        }
    }
}
