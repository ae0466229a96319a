//! The discipline that does nothing.

use std::time::Duration;

use crate::{
    Action, Change, Discipline, Inventory, Items, NO_DISCIPLINE, Registration, Runs, Totals,
};

/// The discipline `none`: switches forward, and hold nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDiscipline;

/// How it registers: under the number that no program has.
pub const NONE: Registration = Registration {
    name: "none",
    about: "forwards everything, caches nothing",
    number: NO_DISCIPLINE,
    items: Items::Copies,
    probation: None,
    runs: Runs::WherePages,
    settings: &[],
    options: &[],
    control: |_| Box::new(NoDiscipline),
    object: &[],
    native: None,
    programs: &[],
    maps_of: "",
    maps: &[],
    counters: "",
    totals: Totals::NONE,
    store: None,
    agent: None,
};

impl Discipline for NoDiscipline {
    fn holds(&mut self, _now: Duration, inventory: Inventory<'_>, out: &mut Vec<Action>) {
        let Inventory { switch, tenant, .. } = inventory;
        out.extend(inventory.held.iter().map(|key| Action::Change {
            switch,
            tenant,
            key: key.clone(),
            change: Change::Remove,
        }));
    }
}
