use rand::{Rng, RngExt};

/// Draws an index with given weights, exactly and in constant time (Walker's alias method): one
/// random column, then that column or its alias. Eight bytes per index.
#[derive(Clone, Debug)]
pub struct AliasTable {
    /// Per column: the chance (scaled to 2^32) of staying in it, and where to go otherwise.
    columns: Vec<(u32, u32)>,
}

impl AliasTable {
    /// A table for `weights`, which need not sum to one.
    ///
    /// # Panics
    /// If there are no weights, more than 2^32, or if they are negative or all zero.
    pub fn new(weights: &[f64]) -> AliasTable {
        let n = weights.len();
        let sum: f64 = weights.iter().sum();
        assert!(
            n > 0 && u32::try_from(n).is_ok(),
            "an alias table takes 1 to 2^32 weights"
        );
        assert!(
            sum > 0.0 && weights.iter().all(|w| *w >= 0.0),
            "weights must be positive"
        );
        let mut rest: Vec<f64> = weights.iter().map(|w| w * n as f64 / sum).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..n as u32).partition(|i| rest[*i as usize] < 1.0);
        let mut columns: Vec<(u32, u32)> = (0..n as u32).map(|i| (u32::MAX, i)).collect();
        while let (Some(&under), Some(&over)) = (small.last(), large.last()) {
            small.pop();
            let chance = rest[under as usize];
            columns[under as usize] = ((chance * 4_294_967_296.0) as u32, over);
            rest[over as usize] -= 1.0 - chance;
            if rest[over as usize] < 1.0 {
                large.pop();
                small.push(over);
            }
        }
        AliasTable { columns }
    }

    /// One index.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u32 {
        let bits: u64 = rng.random();
        let column = ((u128::from(bits >> 32) * self.columns.len() as u128) >> 32) as u32;
        let (stay, alias) = self.columns[column as usize];
        if (bits as u32) < stay { column } else { alias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::random::rng;

    #[test]
    fn frequencies_follow_the_weights() {
        let weights = [5.0, 0.0, 1.0, 3.0, 1.0];
        let table = AliasTable::new(&weights);
        let mut rng = rng(1, "alias");
        let mut seen = [0u32; 5];
        const DRAWS: u32 = 200_000;
        for _ in 0..DRAWS {
            seen[table.sample(&mut rng) as usize] += 1;
        }
        assert_eq!(seen[1], 0, "a weight of zero is never drawn");
        for (weight, count) in weights.iter().zip(seen) {
            let expected = weight / 10.0;
            let sigma = (expected * (1.0 - expected) / f64::from(DRAWS)).sqrt();
            let got = f64::from(count) / f64::from(DRAWS);
            assert!(
                (got - expected).abs() <= 5.0 * sigma,
                "{weight}: {got} instead of {expected}"
            );
        }
    }

    #[test]
    fn one_weight_is_always_drawn() {
        let table = AliasTable::new(&[0.25]);
        let mut rng = rng(2, "alias");
        assert!((0..100).all(|_| table.sample(&mut rng) == 0));
    }
}
