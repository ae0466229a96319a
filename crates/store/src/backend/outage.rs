//! What the log says of a backend that fails: that it does, now and then that it still does, and
//! that it answers again. Requests fail by the thousand each second; the log has one line for all.

use std::time::Duration;

/// That it still fails is said so often.
const AGAIN_NS: u64 = 10_000_000_000;

/// The failures that go on, if there are any. Times are nanoseconds of a clock that does not
/// go back.
#[derive(Debug, Default)]
pub(super) struct Outage {
    began_ns: Option<u64>,
    said_ns: u64,
    unsaid: u64,
}

impl Outage {
    /// A batch has failed: whether that is to be said, and of how many before it was not.
    pub fn failed(&mut self, now_ns: u64) -> Option<u64> {
        let is_first = self.began_ns.is_none();
        self.began_ns.get_or_insert(now_ns);
        if !is_first && now_ns < self.said_ns + AGAIN_NS {
            self.unsaid += 1;
            return None;
        }
        self.said_ns = now_ns;
        Some(std::mem::take(&mut self.unsaid))
    }

    /// A batch was answered: for how long none was, if that is over now.
    pub fn answered(&mut self, now_ns: u64) -> Option<Duration> {
        let began_ns = self.began_ns.take()?;
        self.unsaid = 0;
        Some(Duration::from_nanos(now_ns - began_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_outage_is_said_when_it_begins_every_ten_seconds_and_when_it_is_over() {
        let mut outage = Outage::default();
        assert_eq!(outage.answered(0), None);
        let said: Vec<_> = (0..25_000).filter_map(|ms| outage.failed((7 + ms) * MS)).collect();
        assert_eq!(said, [0, 9_999, 9_999]);
        assert_eq!(outage.answered(25_007 * MS), Some(Duration::from_secs(25)));
        assert_eq!(outage.answered(25_008 * MS), None);
        assert_eq!(outage.failed(25_009 * MS), Some(0), "another one is said at once");
    }
}
