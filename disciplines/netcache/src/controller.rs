//! The controller of `netcache`: every switch decides alone.

use std::{collections::BTreeMap, time::Duration};

use decide::{
    Action, Answer, Discipline, Eviction, HotKeys, Inventory, Key, Limits, Room, Setting, SwitchId,
    WindowEnd,
};
use hot::{Caches, Permit, beside_probation};

/// The longest items that are cached, for comparison with switches that hold no longer ones.
pub const SETTINGS: &[Setting] = &[
    Setting::new(
        "longest_key",
        "bytes of the longest key that is cached; 0: as long as any",
        0,
        0,
        u8::MAX as u32,
    ),
    Setting::new(
        "longest_value",
        "bytes of the longest value that is cached; 0: as long as a packet holds",
        0,
        0,
        u16::MAX as u32,
    ),
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
    /// The most bytes of a key that is cached; 0: as long as any.
    longest_key: usize,
}

/// Permits keys of at most so many bytes; 0: of any length.
fn up_to(longest: usize) -> impl Fn(&Caches, u32, &Key) -> Permit {
    move |_, _, key| match longest == 0 || key.len() <= longest {
        true => Permit::Yes,
        false => Permit::No,
    }
}

impl Discipline for Controller {
    fn attached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.caches.attached(switch);
    }

    fn detached(&mut self, _now: Duration, switch: SwitchId, _out: &mut Vec<Action>) {
        self.caches.detached(switch);
    }

    fn room(&mut self, now: Duration, tenant: u32, rooms: &[Room], out: &mut Vec<Action>) {
        self.caches.room(now, tenant, rooms, out);
    }

    fn holds(&mut self, now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let permit = up_to(self.longest_key);
        self.caches.holds(now, inventory, permit, out);
    }

    fn hot(&mut self, now: Duration, keys: HotKeys<'_>, out: &mut Vec<Action>) {
        let permit = up_to(self.longest_key);
        self.caches.hot(now, keys, permit, out);
    }

    fn window_end(&mut self, now: Duration, end: WindowEnd<'_>, out: &mut Vec<Action>) {
        let permit = up_to(self.longest_key);
        self.caches.window_end(now, end, permit, out);
    }

    fn answered(&mut self, now: Duration, answer: Answer<'_>, out: &mut Vec<Action>) {
        self.caches.answered(now, answer, out);
    }

    fn dropped(&mut self, now: Duration, eviction: Eviction<'_>, _out: &mut Vec<Action>) {
        self.caches.dropped(now, eviction);
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
