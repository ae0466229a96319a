//! Which member of a chain answers fastest, as far as was measured.

use std::{collections::BTreeMap, net::SocketAddr};

/// One request in so many goes to a member drawn at random, so that one that was slow for a while
/// is found again.
const LOOK_AROUND: f64 = 1.0 / 64.0;
/// What a member counts as that did not answer, in nanoseconds.
const SILENT_NS: u64 = 100_000_000;

/// Smoothed round trips in nanoseconds.
#[derive(Default)]
pub(super) struct RoundTrips {
    trips: BTreeMap<SocketAddr, u64>,
}

impl RoundTrips {
    /// One exchange took so long.
    pub fn measured(&mut self, member: SocketAddr, ns: u64) {
        let trip = self.trips.entry(member).or_insert(ns);
        *trip = *trip - *trip / 8 + ns / 8;
    }

    /// A member did not answer in time.
    pub fn silent(&mut self, member: SocketAddr) {
        self.trips.insert(member, SILENT_NS);
    }

    /// The place of the member to ask; `random` is uniform in 0..1. Those that were never measured
    /// come first.
    pub fn choose(&self, members: &[SocketAddr], random: f64) -> usize {
        if random < LOOK_AROUND {
            return (random / LOOK_AROUND * members.len() as f64) as usize % members.len();
        }
        let trip = |at: &usize| self.trips.get(&members[*at]).copied().unwrap_or(0);
        (0..members.len()).min_by_key(trip).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_asked_and_the_others_now_and_then() {
        let members: Vec<SocketAddr> = (1..4).map(|n| ([10, 0, 0, n], 7117).into()).collect();
        let mut near = RoundTrips::default();
        for (at, ns) in [(0, 900), (1, 300), (2, 700)] {
            assert_eq!(near.choose(&members, 0.5), at, "not measured yet");
            near.measured(members[at], ns);
        }
        assert_eq!(near.choose(&members, 0.5), 1);
        assert_eq!(near.choose(&members, LOOK_AROUND * 0.99), 2);
        near.silent(members[1]);
        assert_eq!(near.choose(&members, 0.5), 2);
    }
}
