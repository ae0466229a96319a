//! The controller of `orbitcache`: every switch decides alone.

use std::{collections::BTreeMap, time::Duration};

use decide::{Action, Discipline, Event, Limits, SwitchId};
use hot::{Caches, Permit};

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller {
        caches: Caches::new(limits, 0x08ff_ffff),
    })
}

struct Controller {
    caches: Caches,
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        self.caches.on(now, event, |_, _, _| Permit::Yes, out);
    }

    fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.caches.wanted(switch, tenant)
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        self.caches.counters(switch)
    }
}
