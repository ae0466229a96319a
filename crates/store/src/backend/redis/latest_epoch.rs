//! The number of the newest answer that was believed: of a failover, as Sentinels count them, or of
//! a map of a Redis Cluster.
//!
//! An answer with a lower one is of those that have not heard of what is new. But numbers begin
//! again where Sentinels forget a master (SENTINEL REMOVE), or are made anew, and where nodes go
//! back to files of before: from then on nobody knows the higher one, for good.

use std::time::Duration;

use anyhow::bail;

use crate::slot_map::NodeAddress;

/// For so long most of those who are asked have to name one master with a lower number, and nobody
/// may know the higher one. Who comes back with what he knew before has heard the others by then.
const BEGINS_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The highest number so far.
pub(super) struct LatestEpoch {
    /// Who is asked, and what has the numbers.
    who: &'static str,
    what: &'static str,
    epoch: u64,
    /// A lower number, the master that is named with it, and since when there was no other answer.
    lower: Option<(u64, NodeAddress, u64)>,
}

impl LatestEpoch {
    /// Before any answer, of these who number that.
    pub fn new(who: &'static str, what: &'static str) -> LatestEpoch {
        LatestEpoch { who, what, epoch: 0, lower: None }
    }

    /// There is an answer with this number. `master`: whom more than half of those who are asked
    /// name with it, if they agree.
    ///
    /// # Errors
    /// It is of those who have not heard of what is new, as far as one can tell.
    pub fn hears(
        &mut self,
        epoch: u64,
        master: Option<NodeAddress>,
        now_ns: u64,
    ) -> anyhow::Result<()> {
        let lower = self.lower.take();
        let (who, what, before) = (self.who, self.what, self.epoch);
        if epoch < before {
            if let Some(master) = master {
                let same = lower.filter(|(known, at, _)| (*known, at) == (epoch, &master));
                let since_ns = same.map_or(now_ns, |(.., since_ns)| since_ns);
                if now_ns < since_ns + BEGINS_AGAIN_AFTER.as_nanos() as u64 {
                    self.lower = Some((epoch, master, since_ns));
                } else {
                    tracing::warn!(
                        "backend: the {who} know {what} {epoch}, and {what} {before} was known before: for \
                         {BEGINS_AGAIN_AFTER:?} most of them have named the master at {master}, and nobody knows better, \
                         so numbers have begun again"
                    );
                    self.epoch = epoch;
                    return Ok(());
                }
            }
            bail!(
                "the {who} that answered know {what} {epoch}, and {what} {before} was known before"
            );
        }
        self.epoch = epoch;
        Ok(())
    }

    /// Too few have answered.
    pub fn hears_nothing(&mut self) {
        self.lower = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_lower_number_counts_when_nobody_knows_the_higher_one_for_a_while() {
        let at = |port| Some(NodeAddress { host: "h".into(), port });
        let after_7 = || {
            let mut latest = LatestEpoch::new("nodes", "map");
            assert!(latest.hears(7, None, 0).is_ok() && latest.hears(0, at(1), S).is_err());
            latest
        };
        let mut latest = after_7();
        assert!(latest.hears(0, at(1), 11 * S - 1).is_err());
        assert!(latest.hears(0, at(1), 11 * S).is_ok() && latest.hears(1, None, 11 * S).is_ok());
        // What comes between (the number, whom it names; none: too few have answered).
        for between in [Some((7, at(1))), Some((0, at(2))), Some((1, at(1))), Some((0, None)), None]
        {
            let mut latest = after_7();
            match between.clone() {
                Some((epoch, master)) => drop(latest.hears(epoch, master, 2 * S)),
                None => latest.hears_nothing(),
            }
            assert!(latest.hears(0, at(1), 11 * S).is_err(), "{between:?}");
        }
    }
}
