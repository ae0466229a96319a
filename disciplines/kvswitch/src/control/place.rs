//! How many servers have a key, and which (paper, 4.1.2).

/// Servers that should share a key of this load, in requests of a window, so that none of them has
/// more than `threshold` of it; at least one, at most `most`.
pub fn replicas(load: f64, threshold: f64, most: usize) -> usize {
    // What is no number at all becomes 0 or the most there is.
    let wanted = (load / threshold).ceil() as usize;
    wanted.clamp(1, most.max(1))
}

/// `count` servers of a ring that `loads` tells of: `home`, and of each further stretch of
/// `loads.len() / count` of them the one that has least to do; where there is no choice, or none
/// has less than another, these are a step apart, as in the paper. One that may not be chosen is
/// passed over for the next that may: there are fewer if there are not so many. The home is first
/// if it may be chosen.
pub fn ring(home: usize, count: usize, loads: &[f64], may: impl Fn(usize) -> bool) -> Vec<usize> {
    let servers = loads.len();
    if servers == 0 {
        return vec![];
    }
    let count = count.clamp(1, servers);
    let step = servers / count;
    let mut chosen: Vec<usize> = vec![];
    for turn in 0..count {
        let first = home + turn * step;
        let free = |at: &usize| may(*at) && !chosen.contains(at);
        let mut next = (first..first + servers).map(|at| at % servers).filter(free);
        let stretch = if turn == 0 && may(home) { 1 } else { step };
        let in_stretch = (first..first + stretch).map(|at| at % servers).filter(free);
        let least = in_stretch.min_by(|a, b| loads[*a].total_cmp(&loads[*b]));
        chosen.extend(least.or_else(|| next.next()));
    }
    chosen
}

/// A weight below this is half a turn or less.
const FULL: f64 = 0.75;
/// Turns of a server of weight 1 where another has less.
const TURNS: f64 = 4.0;

/// Turns of servers of these weights, 1 at most: as many as bring each what its weight says, at
/// least one each, `most` in all.
pub fn turns(weights: &[f64], most: usize) -> Vec<usize> {
    let all_alike = weights.iter().all(|weight| *weight >= FULL);
    let each = match all_alike {
        true => 1.0,
        false => TURNS.min((most / weights.len().max(1)) as f64),
    };
    let turns = |weight: &f64| ((weight * each).round() as usize).max(1);
    weights.iter().map(turns).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_many_as_bring_each_below_the_threshold() {
        let cases = [(0.0, 1), (99.0, 1), (100.0, 1), (101.0, 2), (950.0, 10), (1e9, 32)];
        for (load, expected) in cases {
            assert_eq!(replicas(load, 100.0, 32), expected, "{load}");
        }
        assert_eq!(
            (replicas(5.0, 0.0, 8), replicas(0.0, 0.0, 8), replicas(5.0, 1.0, 0)),
            (8, 1, 1)
        );
    }

    /// The two examples of the paper's figure 4, which counts from 1.
    #[test]
    fn servers_stand_a_step_apart() {
        assert_eq!(ring(0, 4, &[0.0; 8], |_| true), [0, 2, 4, 6]);
        assert_eq!(ring(3, 5, &[0.0; 8], |_| true), [3, 4, 5, 6, 7]);
    }

    #[test]
    fn of_each_stretch_the_server_with_least_to_do_is_chosen() {
        let loads = [9.0, 9.0, 5.0, 4.0, 7.0, 7.0, 1.0, 2.0];
        assert_eq!(ring(0, 4, &loads, |_| true), [0, 3, 4, 6]);
        assert_eq!(ring(0, 2, &loads, |_| true), [0, 6]);
    }

    #[test]
    fn who_may_not_is_passed_over() {
        assert_eq!(ring(0, 4, &[0.0; 8], |at| at != 2), [0, 3, 4, 6]);
        assert_eq!(ring(0, 2, &[0.0; 8], |at| at != 0), [1, 4]);
        assert_eq!(ring(3, 3, &[0.0; 4], |at| at == 2), [2]);
        assert_eq!(ring(0, 3, &[], |_| true), [0; 0]);
    }

    #[test]
    fn a_slow_server_has_fewer_turns() {
        assert_eq!(turns(&[1.0, 0.9, 1.0], 64), [1, 1, 1]);
        assert_eq!(turns(&[1.0, 0.5, 0.125], 64), [4, 2, 1]);
        let many = [1.0, 0.5].repeat(16);
        assert_eq!(turns(&many, 64)[..2], [2, 1]);
        assert_eq!(turns(&[1.0, 0.1].repeat(32), 64), [1; 64]);
        assert_eq!(turns(&[], 64), [0; 0]);
    }

    proptest! {
        #[test]
        fn nobody_stands_twice_and_nobody_who_may_not(home in 0usize..40, count in 0usize..50, dead in prop::collection::vec(any::<bool>(), 1..40)) {
            let servers = dead.len();
            let home = home % servers;
            let loads: Vec<f64> = (0..servers).map(|at| (at * 7 % 5) as f64).collect();
            let chosen = ring(home, count, &loads, |at| !dead[at]);
            let alive = dead.iter().filter(|dead| !**dead).count();
            prop_assert_eq!(chosen.len(), count.clamp(1, servers).min(alive));
            prop_assert!(chosen.iter().all(|at| !dead[*at]));
            let unique: std::collections::BTreeSet<_> = chosen.iter().collect();
            prop_assert_eq!(unique.len(), chosen.len());
            prop_assert!(dead[home] || chosen[0] == home);
        }
    }
}
