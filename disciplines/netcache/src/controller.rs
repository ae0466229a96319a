//! The controller of `netcache`: every switch decides alone.

use std::{collections::BTreeMap, time::Duration};

use decide::{Action, Discipline, Event, Key, Limits, Setting, SwitchId};
use hot::{Caches, Permit, beside_probation};

/// The longest items that are cached, for comparison with switches that hold no longer ones.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "longest_key",
        about: "bytes of the longest key that is cached; 0: as long as any",
        usual: 0,
        least: 0,
        most: u8::MAX as u32,
    },
    Setting {
        name: "longest_value",
        about: "bytes of the longest value that is cached; 0: as long as a packet holds",
        usual: 0,
        least: 0,
        most: u16::MAX as u32,
    },
];

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    let (longest_key, longest_value) = (limits.settings[0], limits.settings[1]);
    Box::new(Controller {
        caches: Caches::new(beside_probation(limits), longest_key << 16 | longest_value),
        longest_key: longest_key as usize,
    })
}

struct Controller {
    caches: Caches,
    /// 0: as long as any.
    longest_key: usize,
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let longest = self.longest_key;
        let permit = |_: &Caches, _, key: &Key| match longest == 0 || key.len() <= longest {
            true => Permit::Yes,
            false => Permit::No,
        };
        self.caches.on(now, event, permit, out);
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.wanted(switch, tenant)
    }

    fn could_use(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.could_use(switch, tenant)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        self.caches.counters(switch)
    }
}
