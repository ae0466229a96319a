//! Switches that had to leave, or that have no room, may not join for a while: twice as long each
//! time.

use std::{collections::BTreeMap, time::Duration};

use decide::SwitchId;

/// How long the first time.
const BARRED: Duration = Duration::from_secs(1);
const DOUBLINGS: u32 = 6;

/// Until when each switch may not join, and how often that was said.
#[derive(Debug, Default)]
pub(super) struct Barred {
    switches: BTreeMap<SwitchId, (Duration, u32)>,
}

impl Barred {
    /// Whether a switch may not join yet.
    pub fn is_barred(&self, now: Duration, switch: SwitchId) -> bool {
        self.switches.get(&switch).is_some_and(|(until, _)| *until > now)
    }

    /// A switch has left, or cannot join.
    pub fn bar(&mut self, now: Duration, switch: SwitchId) {
        let (until, times) = self.switches.entry(switch).or_default();
        if now > *until + BARRED * 128 {
            *times = 0;
        }
        *until = now + BARRED * (1 << (*times).min(DOUBLINGS));
        *times += 1;
    }
}
