//! How likely each rank is asked for, and drawing by that. Sources draw; experiments and the
//! analytic model take the chances themselves.

use anyhow::ensure;
use rand::{
    Rng, RngExt,
    distr::{Distribution, Uniform},
};
use rand_distr::Zipf;
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
        self.chances(n).collect()
    }

    /// The same, one after the other and without memory.
    pub fn chances(&self, n: usize) -> impl Iterator<Item = f64> + use<> {
        let law = *self;
        let weight = move |rank: usize| match law {
            Popularity::Uniform => 1.0,
            Popularity::Zipf(theta) => (rank as f64).powf(-theta),
        };
        let sum: f64 = match law {
            Popularity::Uniform => n as f64,
            // The small ones first: they would be lost beside a large sum.
            Popularity::Zipf(theta) => {
                let tail = tail_of_zipf(theta, n);
                tail + (1..=n.min(SUMMED)).rev().map(weight).sum::<f64>()
            }
        };
        (1..=n).map(move |rank| weight(rank) / sum)
    }
}

/// Ranks whose weights are summed one by one.
const SUMMED: usize = 100_000;

/// The sum of `r^-theta` over the ranks beyond [`SUMMED`] up to `n`: Euler's and Maclaurin's
/// formula, right to twelve digits there.
fn tail_of_zipf(theta: f64, n: usize) -> f64 {
    if n <= SUMMED {
        return 0.0;
    }
    let (a, b) = (SUMMED as f64, n as f64);
    let integral = if (theta - 1.0).abs() < 1e-9 {
        (b / a).ln()
    } else {
        (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta)
    };
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0));
    integral + ends + slopes
}

/// Draws ranks. Needs no memory, however many there are; a draw costs a few powers.
#[derive(Clone, Copy, Debug)]
pub enum Ranks {
    /// Each alike.
    Uniform(Uniform<u32>),
    /// By Zipf's law.
    Zipf(Zipf<f64>),
}

impl Ranks {
    /// Draws among the hottest `n` ranks.
    ///
    /// # Errors
    /// No rank, more than 2^32, or an exponent below 0.
    pub fn new(popularity: Popularity, n: usize) -> anyhow::Result<Ranks> {
        ensure!(
            n > 0 && u32::try_from(n).is_ok(),
            "popularity of {n} keys: 1 to 2^32 are possible"
        );
        Ok(match popularity {
            Popularity::Uniform => Ranks::Uniform(Uniform::new(0, n as u32)?),
            Popularity::Zipf(theta) => Ranks::Zipf(Zipf::new(n as f64, theta)?),
        })
    }

    /// One rank, from 0.
    #[inline]
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        match self {
            Ranks::Uniform(all) => all.sample(rng),
            Ranks::Zipf(law) => rng.sample(law) as u32 - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seed::rng;

    #[test]
    fn zipf_by_hand() {
        let p = Popularity::Zipf(1.0).probabilities(3);
        for (got, want) in p.iter().zip([6.0 / 11.0, 3.0 / 11.0, 2.0 / 11.0]) {
            assert!((got - want).abs() < 1e-12);
        }
    }

    #[test]
    fn long_sums_are_right_without_summing() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 2.0] {
            let n = 3 * SUMMED;
            let summed: f64 = (SUMMED + 1..=n).rev().map(|r| (r as f64).powf(-theta)).sum();
            let error = (tail_of_zipf(theta, n) / summed - 1.0).abs();
            assert!(error < 1e-10, "{theta}: {error}");
            let all: f64 = Popularity::Zipf(theta).chances(n).sum();
            assert!((all - 1.0).abs() < 1e-9, "{theta}: {all}");
        }
    }

    #[test]
    fn samples_follow_the_law_at_head_and_tail() {
        const N: usize = 10_000;
        const DRAWS: u32 = 400_000;
        for theta in [0.5, 0.9, 0.99, 1.0, 1.2, 1.5, 2.0, 2.7] {
            let popularity = Popularity::Zipf(theta);
            let p = popularity.probabilities(N);
            let ranks = Ranks::new(popularity, N).unwrap();
            let mut rng = rng(7, "zipf");
            let mut seen = vec![0u32; N];
            (0..DRAWS).for_each(|_| seen[ranks.draw(&mut rng) as usize] += 1);
            for range in [0..1, 1..2, 2..10, 10..100, 100..1000, 1000..N] {
                let want: f64 = p[range.clone()].iter().sum();
                let got = f64::from(seen[range.clone()].iter().sum::<u32>()) / f64::from(DRAWS);
                let sigma = (want * (1.0 - want) / f64::from(DRAWS)).sqrt();
                let text = format!("theta {theta}, ranks {range:?}: {got} instead of {want}");
                assert!((got - want).abs() <= 5.0 * sigma, "{text}");
            }
        }
    }

    #[test]
    fn every_rank_can_be_drawn_and_no_other() {
        let mut rng = rng(2, "ranks");
        for popularity in [Popularity::Uniform, Popularity::Zipf(0.0), Popularity::Zipf(1.0)] {
            let one = Ranks::new(popularity, 1).unwrap();
            assert!((0..100).all(|_| one.draw(&mut rng) == 0));
            let some = Ranks::new(popularity, 5).unwrap();
            let mut seen = [0; 5];
            (0..1000).for_each(|_| seen[some.draw(&mut rng) as usize] += 1);
            assert!(seen.iter().all(|count| *count > 0), "{popularity:?}: {seen:?}");
        }
        assert!(Ranks::new(Popularity::Uniform, 0).is_err());
        assert!(Ranks::new(Popularity::Zipf(-1.0), 5).is_err());
    }
}
