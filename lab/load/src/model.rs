//! The analytic model that measurements are held against: what a rack of equally fast servers can
//! carry, for exactly this map of keys to servers and this set of cached keys, if everything else
//! were perfect. A fluid model: queues and randomness are left out.

use wire::partition_of;

use crate::workload::{KeySpace, Permutation, Popularity};

/// Ranks whose servers are looked up, from the hottest on. Those beyond share what is left among
/// the servers evenly: each is asked for so seldom that it makes no difference which server has it.
const LOOKED_UP: usize = 1 << 20;

/// Which server has the key of each rank. Two bytes per key, of the hottest million.
pub struct ServersByRank {
    keys: usize,
    server_of_rank: Vec<u16>,
    servers: u32,
}

impl ServersByRank {
    /// For these keys, the hottest first as `keys_by_rank` has them. At most 65,536 servers.
    pub fn new(keys: &KeySpace, keys_by_rank: &Permutation, servers: u32) -> ServersByRank {
        let server_of = |key| partition_of(keys.get(key).hash, servers) as u16;
        ServersByRank {
            keys: keys.len(),
            server_of_rank: keys_by_rank.keys().take(LOOKED_UP).map(server_of).collect(),
            servers,
        }
    }

    /// The ranks of a server's keys (0 is the hottest) among so many of the hottest.
    pub fn ranks_of(&self, server: usize, hottest: usize) -> Vec<u32> {
        let ranked = (0..).zip(self.server_of_rank.iter().take(hottest));
        ranked.filter(|(_, of)| usize::from(**of) == server).map(|(rank, _)| rank).collect()
    }

    /// The share of all requests that goes to each server; the `cached` hottest keys are answered
    /// on the way.
    pub fn shares(&self, popularity: Popularity, cached: usize) -> Vec<f64> {
        self.shares_unless(popularity, |rank| rank < cached)
    }

    /// The same; the keys of these ranks (0 is the hottest) are answered on the way.
    pub fn shares_unless(
        &self,
        popularity: Popularity,
        is_cached: impl Fn(usize) -> bool,
    ) -> Vec<f64> {
        let looked_up = self.server_of_rank.len();
        let mut left = 1.0;
        let chances = popularity.chances(self.keys).take(looked_up);
        let chances = chances.inspect(|chance| left -= chance);
        let servers_of = self.server_of_rank.iter().map(|server| u32::from(*server));
        let mut shares = server_shares(chances, servers_of, self.servers, is_cached);
        if looked_up < self.keys {
            let each = left.max(0.0) / f64::from(self.servers);
            shares.iter_mut().for_each(|share| *share += each);
        }
        shares
    }
}

/// The share of all requests that goes to each server.
///
/// From the hottest rank on, `probabilities` has the chance of each and `servers_of` its key's
/// server. Ranks that are cached are answered on the way and reach no server.
pub fn server_shares(
    probabilities: impl IntoIterator<Item = f64>,
    servers_of: impl IntoIterator<Item = u32>,
    servers: u32,
    is_cached: impl Fn(usize) -> bool,
) -> Vec<f64> {
    let mut shares = vec![0.0; servers as usize];
    for (rank, (p, server)) in probabilities.into_iter().zip(servers_of).enumerate() {
        if !is_cached(rank) {
            shares[server as usize] += p;
        }
    }
    shares
}

/// The highest load of which at most `loss` (a part of one) is lost. Infinite where servers see so
/// little that they cannot lose that much.
pub fn saturation(shares: &[f64], rate: f64, loss: f64) -> f64 {
    // With the j busiest servers overloaded, the loss is P_j - j*r/L: solved for L, the right j is
    // the one whose L overloads exactly those j.
    let mut sorted = shares.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut sum = 0.0;
    for (j, p) in sorted.iter().enumerate() {
        sum += p;
        if sum <= loss {
            continue;
        }
        let load = (j + 1) as f64 * rate / (sum - loss);
        let next_is_below = sorted.get(j + 1).is_none_or(|next| load * next <= rate);
        if load * p >= rate && next_is_below {
            return load;
        }
    }
    f64::INFINITY
}

/// The part of an offered load that is lost where each server drops what exceeds its rate.
pub fn lost(load: f64, shares: &[f64], rate: f64) -> f64 {
    let over = shares.iter().map(|share| (load * share - rate).max(0.0));
    over.sum::<f64>() / load
}

/// Mean absolute deviation over mean: 0 when all are equal.
pub fn imbalance(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    if mean <= 0.0 {
        return 0.0;
    }
    loads.iter().map(|load| (load - mean).abs()).sum::<f64>() / loads.len() as f64 / mean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_servers_by_hand() {
        // Four servers of 100/s: loss 2 % at L where (L - 400)/L = 0.02.
        assert!((saturation(&[0.25; 4], 100.0, 0.02) - 400.0 / 0.98).abs() < 1e-9);
        assert!((saturation(&[0.25; 4], 100.0, 0.0) - 400.0).abs() < 1e-9);
    }

    #[test]
    fn one_hot_server_by_hand() {
        // Only the half-share server overloads: 0.5 L - 100 = 0.02 L.
        let load = saturation(&[0.5, 0.25, 0.25], 100.0, 0.02);
        assert!((load - 100.0 / 0.48).abs() < 1e-9);
        assert!((lost(load, &[0.5, 0.25, 0.25], 100.0) - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_cache_takes_the_hot_keys_away() {
        // Ranks 0..4 with keys 3, 2, 1, 0; key k belongs to server k % 2.
        let p = [0.4, 0.3, 0.2, 0.1];
        let keys = [3, 2, 1, 0];
        let servers = keys.map(|key| key % 2);
        assert_eq!(server_shares(p, servers, 2, |_| false), [0.1 + 0.3, 0.4 + 0.2]);
        assert_eq!(server_shares(p, servers, 2, |rank| rank < 2), [0.1, 0.2]);
    }

    #[test]
    fn no_loss_is_possible_when_next_to_nothing_reaches_the_servers() {
        assert_eq!(saturation(&[0.01, 0.005], 100.0, 0.02), f64::INFINITY);
    }

    #[test]
    fn imbalance_by_hand() {
        assert_eq!(imbalance(&[5.0, 5.0]), 0.0);
        assert_eq!(imbalance(&[2.0, 0.0]), 1.0);
        assert_eq!(imbalance(&[]), 0.0);
    }

    proptest! {
        #[test]
        fn the_solution_has_that_loss(weights in proptest::collection::vec(0.001f64..1.0, 1..50),
                                      loss in 0.001f64..0.2) {
            let sum: f64 = weights.iter().sum();
            let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
            let load = saturation(&shares, 250.0, loss);
            prop_assert!(load.is_finite());
            prop_assert!((lost(load, &shares, 250.0) - loss).abs() < 1e-9);
        }
    }
}
