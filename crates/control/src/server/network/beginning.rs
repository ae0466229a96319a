//! What a controller that begins to lead waits to hear of.
//!
//! A state that an earlier version wrote says nothing of interfaces, and none says anything of
//! traffic. What is worked out from what some switches told would take routes away, and move
//! pages, that are right.

use std::{collections::BTreeSet, time::Duration};

use decide::SwitchId;

/// So long it is waited for: a switch may be away, and a tenant without traffic.
const WAIT: Duration = Duration::from_secs(10);

/// The first time of a lead; over at once if no switch is remembered.
#[derive(Debug, Default)]
pub struct Beginning {
    /// Switches whose interfaces are neither remembered nor told yet.
    unheard: BTreeSet<SwitchId>,
    lasts: bool,
    /// Until when it lasts; none: no time passed yet.
    until: Option<Duration>,
}

impl Beginning {
    /// With the switches that are remembered; nothing is known of the interfaces of `unheard`.
    pub fn new(remembered: usize, unheard: impl Iterator<Item = SwitchId>) -> Beginning {
        Beginning { unheard: unheard.collect(), lasts: remembered > 0, until: None }
    }

    /// A switch is waited for no longer.
    pub fn heard(&mut self, id: SwitchId) {
        self.unheard.remove(&id);
    }

    /// Time passed. True: it ends now.
    pub fn tick(&mut self, now: Duration) -> bool {
        if !self.lasts {
            return false;
        }
        self.lasts = now < *self.until.get_or_insert(now + WAIT);
        if !self.lasts {
            self.unheard.clear();
        }
        !self.lasts
    }

    /// Whether no switch's interfaces are waited for.
    pub fn knows_interfaces(&self) -> bool {
        self.unheard.is_empty()
    }

    /// Whether it lasts.
    pub fn lasts(&self) -> bool {
        self.lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_is_waited_for_so_long_from_the_first_time_on() {
        let begun = Duration::from_secs(3600);
        let mut beginning = Beginning::new(3, [1, 2].into_iter());
        assert!(!beginning.tick(begun) && !beginning.tick(begun + WAIT / 2));
        beginning.heard(1);
        assert!(!beginning.knows_interfaces());
        assert!(beginning.tick(begun + WAIT));
        assert!(beginning.knows_interfaces() && !beginning.lasts());
        assert!(!beginning.tick(begun + WAIT), "once");
        assert!(!Beginning::new(0, [].into_iter()).lasts());
    }
}
