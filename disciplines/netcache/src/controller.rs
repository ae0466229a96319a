//! The controller of `netcache`: hands each event to the cache of the switch that it came from.

use std::{collections::BTreeMap, time::Duration};

use control::{Action, Discipline, Event, Limits, SwitchId};

use crate::switch::SwitchCache;

/// Makes a controller within these limits.
pub fn controller(limits: Limits) -> Box<dyn Discipline> {
    Box::new(Controller::new(limits))
}

/// Decides for every switch on its own which items it caches.
pub struct Controller {
    limits: Limits,
    switches: BTreeMap<SwitchId, SwitchCache>,
}

impl Controller {
    /// Knows no switch yet.
    pub fn new(limits: Limits) -> Controller {
        Controller {
            limits,
            switches: BTreeMap::new(),
        }
    }
}

impl Discipline for Controller {
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        if let Event::Attached {
            switch,
            held,
            lost,
            threshold,
        } = event
        {
            let limits = self.limits;
            let cache = self
                .switches
                .entry(switch)
                .or_insert_with(|| SwitchCache::new(switch, limits, threshold, now));
            cache.attached(now, held, lost, out);
            return;
        }
        let (Event::Hot { switch, .. }
        | Event::WindowEnd { switch, .. }
        | Event::Answered { switch, .. }
        | Event::Dropped { switch, .. }) = event
        else {
            return; // Nothing depends on the clock alone, nor on a switch that is away.
        };
        let Some(cache) = self.switches.get_mut(&switch) else {
            return;
        };
        match event {
            Event::Hot { window, keys, .. } => cache.hot(now, window, keys, out),
            Event::WindowEnd { window, items, .. } => cache.window_end(now, window, items, out),
            Event::Answered {
                change,
                key,
                outcome,
                ..
            } => {
                cache.answered(now, change, key, outcome, out);
            }
            Event::Dropped { keys, .. } => cache.dropped(now, keys),
            Event::Attached { .. } | Event::Detached { .. } | Event::Tick => {}
        }
    }

    fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        self.switches
            .get(&switch)
            .map(SwitchCache::counters)
            .unwrap_or_default()
    }
}
