//! The disciplines that run on the controller, and which tenant chose which.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{Action, Discipline, Event, ItemKey, Limits, SwitchId};

/// Makes a discipline's control half. Called each time that the controller begins to lead.
pub type DisciplineMaker = Arc<dyn Fn(Limits) -> Box<dyn Discipline> + Send + Sync>;

/// One instance of each discipline, for all switches.
pub struct Applications {
    by_name: BTreeMap<String, Box<dyn Discipline>>,
    default: String,
    chosen: BTreeMap<u32, String>,
}

impl Applications {
    /// Those that tenants may choose; the first is for tenants that chose none.
    ///
    /// # Panics
    /// If there is none at all.
    pub fn new(all: Vec<(String, Box<dyn Discipline>)>) -> Applications {
        let default = all.first().expect("at least one discipline").0.clone();
        Applications {
            by_name: all.into_iter().collect(),
            default,
            chosen: BTreeMap::new(),
        }
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The default's name.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// Notes what a tenant chose. One that is not there any longer leaves the tenant without a discipline.
    pub fn choose(&mut self, tenant: u32, name: Option<&str>) {
        let name = name.unwrap_or(&self.default).to_owned();
        self.chosen.insert(tenant, name);
    }

    /// The name of a tenant's discipline; empty if it is unknown here.
    pub fn of(&self, tenant: u32) -> &str {
        self.chosen
            .get(&tenant)
            .filter(|name| self.by_name.contains_key(*name))
            .map_or("", String::as_str)
    }

    /// Items of a tenant that its discipline would cache on a switch.
    pub fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        self.by_name
            .get(self.of(tenant))
            .map_or(0, |d| d.wanted(switch, tenant))
    }

    /// Named counters of a switch, over all disciplines.
    pub fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for discipline in self.by_name.values() {
            for (name, count) in discipline.counters(switch) {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }

    /// Passes an event on to those whom it concerns, each with the keys of its own tenants.
    pub fn tell(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        let Applications {
            by_name, chosen, ..
        } = self;
        let is_of = |name: &str, tenant: u32| chosen.get(&tenant).is_some_and(|n| n == name);
        let plain = |name: &str, keys: &[ItemKey]| -> Vec<ItemKey> {
            let of = |key: &&ItemKey| is_of(name, key.tenant);
            keys.iter().filter(of).cloned().collect()
        };
        let counted = |name: &str, keys: &[(ItemKey, u64)]| -> Vec<(ItemKey, u64)> {
            let of = |(key, _): &&(ItemKey, u64)| is_of(name, key.tenant);
            keys.iter().filter(of).cloned().collect()
        };
        for (name, discipline) in by_name.iter_mut() {
            match event {
                Event::Detached { .. } | Event::Tick => discipline.on(now, event, out),
                Event::Room { tenant, .. } if is_of(name, tenant) => discipline.on(now, event, out),
                Event::Answered { key, .. } if is_of(name, key.tenant) => {
                    discipline.on(now, event, out);
                }
                Event::Room { .. } | Event::Answered { .. } => {}
                Event::Attached { switch, held, lost } => {
                    let (held, lost) = (&plain(name, held)[..], &plain(name, lost)[..]);
                    discipline.on(now, Event::Attached { switch, held, lost }, out);
                }
                Event::Hot {
                    switch,
                    window,
                    keys,
                } => {
                    let keys = &counted(name, keys)[..];
                    if !keys.is_empty() {
                        let event = Event::Hot {
                            switch,
                            window,
                            keys,
                        };
                        discipline.on(now, event, out);
                    }
                }
                Event::WindowEnd {
                    switch,
                    window,
                    items,
                } => {
                    let items = &counted(name, items)[..];
                    let event = Event::WindowEnd {
                        switch,
                        window,
                        items,
                    };
                    discipline.on(now, event, out);
                }
                Event::Dropped { switch, keys } => {
                    let keys = &plain(name, keys)[..];
                    if !keys.is_empty() {
                        discipline.on(now, Event::Dropped { switch, keys }, out);
                    }
                }
            }
        }
    }
}
