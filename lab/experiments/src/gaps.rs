//! For how long nobody was answered.

/// The longest time between two of these, in ascending order and in nanoseconds, that lies between
/// two others, in milliseconds. A gap that nobody has closed by then is as long as it is until
/// then; infinite: there are no such times.
pub fn longest_gap_ms(times: &[u64], [from_ns, to_ns]: [u64; 2]) -> f64 {
    let open_from_ns = times.last().filter(|last| **last < to_ns);
    let closed = times.windows(2).filter(|pair| pair[1] > from_ns && pair[0] < to_ns);
    let closed = closed.map(|pair| pair[1] - pair[0]);
    let longest = closed.chain(open_from_ns.map(|last_ns| to_ns - last_ns)).max();
    longest.map_or(f64::INFINITY, |gap_ns| gap_ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_nobody_closes_lasts_until_the_end() {
        let gap = |times: &[u64], within: [u64; 2]| {
            let times: Vec<u64> = times.iter().map(|ms| ms * 1_000_000).collect();
            longest_gap_ms(&times, within.map(|ms| ms * 1_000_000))
        };
        assert_eq!(gap(&[0, 10], [20, 100]), 90.0);
        assert_eq!(gap(&[0, 10, 30, 90, 200], [20, 100]), 110.0);
        assert_eq!(gap(&[0, 10, 30, 90, 200], [20, 80]), 60.0);
        assert_eq!(gap(&[], [20, 100]), f64::INFINITY);
    }
}
