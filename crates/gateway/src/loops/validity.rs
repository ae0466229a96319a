//! For how long what a server has said counts, by a clock that goes on while the machine is
//! suspended: others change rights and roles meanwhile.

/// For how long it counts, and how often it is asked again. Times are nanoseconds of the clock of
/// leases ([`client::kit::now_ns`]).
pub(super) struct Validity {
    pub holds_ns: u64,
    pub asked_every_ns: u64,
}

impl Validity {
    /// Whether what was said to the question of then counts.
    pub fn holds(&self, asked_ns: Option<u64>, now_ns: u64) -> bool {
        asked_ns.is_some_and(|asked_ns| now_ns < asked_ns + self.holds_ns)
    }

    /// Whether it is to be asked again that was asked then.
    pub fn is_due(&self, asked_ns: Option<u64>, now_ns: u64) -> bool {
        asked_ns.is_none_or(|asked_ns| now_ns >= asked_ns + self.asked_every_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check::ROLE, rights::RIGHT};

    #[test]
    fn what_was_said_before_a_suspension_is_asked_again_and_does_not_count_before() {
        let (asked_ns, hour_ns) = (Some(5_000_000_000), 3_600_000_000_000);
        for validity in [ROLE, RIGHT] {
            let rows = [
                (0, (true, false)),
                (validity.asked_every_ns, (true, true)),
                (validity.holds_ns, (false, true)),
                (hour_ns, (false, true)),
            ];
            for (later_ns, expected) in rows {
                let now_ns = 5_000_000_000 + later_ns;
                let is = (validity.holds(asked_ns, now_ns), validity.is_due(asked_ns, now_ns));
                assert_eq!(is, expected, "{later_ns} ns later");
            }
            assert!(!validity.holds(None, hour_ns) && validity.is_due(None, hour_ns));
        }
    }
}
