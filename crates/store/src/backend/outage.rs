//! What the log says of a backend that fails: that it does, and that it answers again. Requests
//! fail by the thousand each second, and connections come and go; the log has few lines for all.

use std::time::Duration;

/// Nothing more is said of failures so long after the last that was said.
const QUIET_NS: u64 = 10_000_000_000;

/// The failures that go on, if there are any. Times are nanoseconds of a clock that does not
/// go back.
#[derive(Debug, Default)]
pub(super) struct Outage {
    began_ns: Option<u64>,
    /// Of those that go on something was said: this reason.
    said: Option<String>,
    said_ns: Option<u64>,
    /// The server that answered last.
    at: Option<String>,
}

impl Outage {
    /// Something has failed: whether that is to be said. It is once, and again when it fails for
    /// another reason.
    pub fn failed(&mut self, why: &str, now_ns: u64) -> bool {
        self.began_ns.get_or_insert(now_ns);
        let is_quiet = self.said_ns.is_some_and(|said_ns| now_ns < said_ns + QUIET_NS);
        if is_quiet || self.said.as_deref() == Some(why) {
            return false;
        }
        self.said = Some(why.into());
        self.said_ns = Some(now_ns);
        true
    }

    /// Nothing fails any more: for how long something did, if that was said and is over now.
    pub fn answered(&mut self, now_ns: u64) -> Option<Duration> {
        let began_ns = self.began_ns.take()?;
        self.said.take().map(|_| Duration::from_nanos(now_ns - began_ns))
    }

    /// The server of this name is connected, and nothing fails any more: what is to be said of
    /// that. That it is another server than before always is, however soon after something else.
    pub fn connected(&mut self, name: &str, now_ns: u64) -> Option<String> {
        let after = self.answered(now_ns);
        let before = self.at.replace(name.into()).filter(|before| before != name);
        if after.is_none() && before.is_none() {
            return None;
        }
        let place = before.map(|before| format!(", in the place of {before}"));
        let after = after.map(|after| format!(", after {:.1} s", after.as_secs_f64()));
        let (place, after) = (place.unwrap_or_default(), after.unwrap_or_default());
        Some(format!("{name} is connected{place}{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_outage_is_said_when_it_begins_and_when_it_is_over() {
        let mut outage = Outage::default();
        assert_eq!(outage.answered(0), None);
        let said = (0..25_000).filter(|ms| outage.failed("gone", (7 + ms) * MS)).count();
        assert_eq!(said, 1);
        assert_eq!(outage.answered(25_007 * MS), Some(Duration::from_secs(25)));
        assert_eq!(outage.answered(25_008 * MS), None);
        assert!(outage.failed("gone", 25_009 * MS), "another one");
    }

    #[test]
    fn another_reason_is_said_and_reasons_that_take_turns_are_not() {
        let mut outage = Outage::default();
        let why = |ms: u64| if ms.is_multiple_of(2) { "gone" } else { "no answer" };
        let said: Vec<_> = (0..25_000).filter(|ms| outage.failed(why(*ms), ms * MS)).collect();
        assert_eq!(said, [0, 10_001, 20_002]);
    }

    #[test]
    fn of_outages_that_come_and_go_few_are_said() {
        let mut outage = Outage::default();
        let mut lines = 0;
        for ms in 0..25_000 {
            lines += usize::from(outage.failed("gone", 2 * ms * MS));
            lines += usize::from(outage.answered((2 * ms + 1) * MS).is_some());
        }
        assert_eq!(lines, 10, "five times that it began, and as often that it was over");
    }

    #[test]
    fn another_server_is_said_however_soon() {
        let mut outage = Outage::default();
        // (what failed, who is connected then, what is said of it)
        let rows = [
            (None, "A", None),
            (Some("gone"), "A", Some("A is connected, after 0.5 s")),
            (Some("gone"), "A", None),
            (Some("a replica"), "B", Some("B is connected, in the place of A")),
            (None, "B", None),
        ];
        for (second, (why, name, expected)) in (1..).zip(rows) {
            let ms = second * 1000;
            if let Some(why) = why {
                outage.failed(why, ms * MS);
            }
            let said = outage.connected(name, (ms + 500) * MS);
            assert_eq!(said.as_deref(), expected, "{why:?}, {name}");
        }
        assert!(outage.failed("gone", 20_000 * MS));
        let said = outage.connected("A", 21_000 * MS);
        assert_eq!(said.as_deref(), Some("A is connected, in the place of B, after 1.0 s"));
    }
}
