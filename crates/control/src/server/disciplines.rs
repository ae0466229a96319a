//! The disciplines that run on the controller, and which tenant chose which.

use std::{collections::BTreeMap, time::Duration};

use decide::{Action, Discipline, Items, Limits, Registration, Runs, SwitchId};

use super::config::CoreConfig;

static NONE: Registration = decide::NONE;

/// The disciplines that tenants may choose: the registered ones, and `none`.
pub fn choice(registered: &'static [Registration]) -> impl Iterator<Item = &'static Registration> {
    let has_none = registered.iter().any(|r| r.name == NONE.name);
    registered.iter().chain((!has_none).then_some(&NONE))
}

/// One instance of each discipline, for all switches.
pub struct Disciplines {
    all: Vec<(&'static Registration, Box<dyn Discipline>)>,
    default: usize,
    /// The discipline of each tenant. A tenant whose choice is not there any longer is not in it.
    chosen: BTreeMap<u32, usize>,
}

impl Disciplines {
    /// Starts all that tenants may choose; `default` is for tenants that choose none.
    ///
    /// # Panics
    /// If the default is not one of them.
    pub fn start(
        registered: &'static [Registration],
        default: &str,
        config: &CoreConfig,
    ) -> Disciplines {
        let limits = Limits { lease: config.cluster.lease(), ..config.limits };
        let all = choice(registered).map(|r| {
            let settings = r.settings(&config.settings);
            (r, (r.control)(Limits { settings, ..limits }))
        });
        Disciplines::new(all.collect(), default)
    }

    /// These.
    ///
    /// # Panics
    /// If the default is not one of them.
    pub fn new(
        all: Vec<(&'static Registration, Box<dyn Discipline>)>,
        default: &str,
    ) -> Disciplines {
        let default = all.iter().position(|(r, _)| r.name == default);
        Disciplines {
            default: default.expect("the default was checked to be registered"),
            all,
            chosen: BTreeMap::new(),
        }
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.all.iter().map(|(r, _)| r.name).collect();
        names.sort_unstable();
        names
    }

    /// The default's name.
    pub fn default_name(&self) -> &'static str {
        self.all[self.default].0.name
    }

    /// Notes what a tenant chose. One that is not there any longer leaves the tenant without a
    /// discipline.
    pub fn choose(&mut self, tenant: u32, name: Option<&str>) {
        let by_name = |name| self.all.iter().position(|(r, _)| r.name == name);
        match name.map_or(Some(self.default), by_name) {
            Some(which) => self.chosen.insert(tenant, which),
            None => self.chosen.remove(&tenant),
        };
    }

    /// A tenant's discipline, if it is known here.
    pub fn of(&self, tenant: u32) -> Option<&'static Registration> {
        self.chosen.get(&tenant).map(|which| self.all[*which].0)
    }

    /// The name of a tenant's discipline; empty if it is unknown here.
    pub fn name_of(&self, tenant: u32) -> &'static str {
        self.of(tenant).map_or("", |r| r.name)
    }

    /// The discipline of that name, or the default one; none: it is not known.
    pub fn named(&self, name: Option<&str>) -> Option<&'static Registration> {
        let name = name.unwrap_or(self.default_name());
        let mut all = self.all.iter();
        all.find(|(r, _)| r.name == name).map(|(r, _)| *r)
    }

    /// What the maps of a tenant's discipline are named after: what it left in the switches is
    /// found by all that share it.
    pub fn family_of(&self, tenant: u32) -> &'static str {
        match self.of(tenant) {
            Some(r) if !r.maps_of.is_empty() => r.maps_of,
            of => of.map_or("", |r| r.name),
        }
    }

    /// Whether a tenant's items are nowhere else than in the switches. With an unknown discipline
    /// they may be.
    pub fn has_truth(&self, tenant: u32) -> bool {
        self.of(tenant).is_none_or(|r| r.items == Items::Truth)
    }

    /// Whether a tenant's packets reach its discipline on every switch, with pages there
    /// or without.
    pub fn runs_everywhere(&self, tenant: u32) -> bool {
        self.of(tenant).is_some_and(|r| r.runs == Runs::Everywhere)
    }

    /// Whether switches make items of a tenant by themselves.
    pub fn has_probation(&self, tenant: u32) -> bool {
        self.of(tenant).is_some_and(|r| r.probation.is_some())
    }

    /// Items of a tenant that its discipline would have on a switch.
    pub fn wanted(&self, switch: SwitchId, tenant: u32) -> usize {
        let chosen = self.chosen.get(&tenant);
        chosen.map_or(0, |which| self.all[*which].1.wanted(switch, tenant))
    }

    /// Items of a tenant that its discipline would have on a switch if memory cost nobody anything.
    pub fn could_use(&self, switch: SwitchId, tenant: u32) -> usize {
        let chosen = self.chosen.get(&tenant);
        chosen.map_or(0, |which| self.all[*which].1.could_use(switch, tenant))
    }

    /// Named counters of a switch, over all disciplines.
    pub fn counters(&self, switch: SwitchId) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for (_, discipline) in &self.all {
            for (name, count) in discipline.counters(switch) {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }

    /// Has a tenant's discipline take an event in, at this time.
    pub fn tell(
        &mut self,
        now: Duration,
        tenant: u32,
        event: impl FnOnce(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) -> Vec<Action> {
        let mut out = Vec::new();
        if let Some(which) = self.chosen.get(&tenant) {
            event(&mut *self.all[*which].1, now, &mut out);
        }
        out
    }

    /// Has all disciplines take in an event that is about no tenant, at this time.
    pub fn tell_all(
        &mut self,
        now: Duration,
        event: impl Fn(&mut dyn Discipline, Duration, &mut Vec<Action>),
    ) -> Vec<Action> {
        let mut out = Vec::new();
        for (_, discipline) in &mut self.all {
            event(&mut **discipline, now, &mut out);
        }
        out
    }
}
