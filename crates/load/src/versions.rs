use crate::workload::Stamp;

/// What is known of each key's newest value: the highest version that any answer named, and the stamp
/// that belongs to it. A read sent after that answer must not see an older version (linearizability,
/// as far as one client can see it).
pub(super) struct Versions {
    newest: Vec<(u64, u64)>,
}

/// The stamp of a populated value: no write has it.
pub(super) const POPULATED: Stamp = Stamp(0);

impl Versions {
    pub fn new(keys: usize) -> Versions {
        Versions {
            newest: vec![(0, 0); keys],
        }
    }

    /// The version that a request sent now must not fall behind.
    #[inline]
    pub fn floor(&self, key: u32) -> u64 {
        self.newest[key as usize].0
    }

    /// Takes note of an answer; false if it contradicts what was known when its request was sent, or
    /// shows another value under a version whose value is known.
    #[inline]
    pub fn learn(&mut self, key: u32, floor: u64, version: u64, stamp: Stamp) -> bool {
        let known = &mut self.newest[key as usize];
        if version > known.0 {
            *known = (version, stamp.0);
        }
        version >= floor && (version != known.0 || stamp.0 == known.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_than_known_when_sent_is_wrong() {
        let mut versions = Versions::new(1);
        assert!(versions.learn(0, 0, 10, POPULATED));
        let sent_before = versions.floor(0);
        assert!(
            versions.learn(0, sent_before, 11, Stamp(1)),
            "a write is acknowledged"
        );
        assert!(
            versions.learn(0, sent_before, 10, POPULATED),
            "a read from before may be older"
        );
        let sent_after = versions.floor(0);
        assert!(
            !versions.learn(0, sent_after, 10, POPULATED),
            "a read from after may not"
        );
    }

    #[test]
    fn one_version_has_one_value() {
        let mut versions = Versions::new(2);
        assert!(versions.learn(1, 0, 5, Stamp(3)));
        assert!(versions.learn(1, 5, 5, Stamp(3)));
        assert!(!versions.learn(1, 5, 5, Stamp(4)));
    }
}
