//! The contract of a discipline, without any I/O: what it decides, and how it registers.
//!
//! A discipline has up to four parts. Its *switch half* is C (`bpf/discipline.h` is the contract of
//! that side). Its *control half* implements [`Discipline`], a method for each event that concerns
//! it: what happened goes in, actions come out, and the controller carries them out, repeats them
//! until they are acknowledged and remembers them. Its *store half*, where there is one, implements
//! [`StoreHalf`] in the same way, and its half in the switches' agents [`AgentHalf`]. A
//! [`Registration`] names them all; it is the one value that the rest of the system learns a
//! discipline from.
//!
//! Disciplines depend on this crate; `control` runs the control halves, `agent` loads the switch
//! halves and runs the agent halves, `store` runs the store halves. What flows through here is
//! opaque to all of them: a [`Record`] is whatever the discipline's C finds behind a key, a
//! [`Configuration`] whatever it finds in its parameter words and tables, a message to a store
//! whatever its store half reads.

mod action;
mod agent;
mod configuration;
mod discipline;
mod event;
mod given;
mod memory;
mod none;
mod registration;
mod settings;
mod store;
mod stores;

use std::time::Duration;

use bytes::Bytes;
pub use wire::SwitchId;

pub use action::{Action, Change, KEPT_MAX, KEPT_MOST, REMEMBERED_MAX, Record};
pub use agent::{AgentAction, AgentHalf, Item};
pub use configuration::{Configuration, Group, PARAMETERS, Row};
pub use discipline::{Discipline, ENDING_WITHIN};
pub use event::{
    Answer, Eviction, HotKeys, Inventory, Life, Outcome, Room, TALLIES, Tallies, WindowEnd,
};
pub use given::check_settings;
pub use memory::{ITEMS_PER_PAGE_USUAL, PAGE_START_CELLS, PROBATION_ONE_IN};
pub use none::{NONE, NoDiscipline};
pub use registration::{
    Items, MapSize, NO_DISCIPLINE, Native, PROGRAMS_MAX, Program, Registration, Role, Runs, Sizes,
    StoreMaker, Totals, WRITE_BACK,
};
pub use settings::{SETTINGS_MAX, Setting, Settings};
pub use store::{MESSAGE_MAX, Operation, OperationId, Request, StoreAction, StoreHalf};
pub use stores::Stores;

/// A key of one tenant: 1 to [`wire::MAX_KEY`] bytes.
pub type Key = Bytes;

/// A key with its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey {
    /// The tenant that owns the key space.
    pub tenant: u32,
    /// The key's bytes, 1 to [`wire::MAX_KEY`] of them.
    pub key: Key,
}

/// Bounds that a discipline must keep, per switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most items that a tenant may have on one switch at a time, however many pages it has.
    pub max_items: usize,
    /// Most keys per statistics window that a switch should report as hot, over all tenants.
    pub reports_per_window: u32,
    /// Length of a statistics window in milliseconds.
    pub window_ms: u32,
    /// How long copies are answered at most after the store that lent them was last heard of.
    pub lease: Duration,
    /// Seed of everything random.
    pub seed: u64,
    /// What operators set of the discipline that is given these limits.
    pub settings: Settings,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_items: 10_000,
            reports_per_window: 5_000,
            window_ms: 1_000,
            lease: Duration::from_secs(2),
            seed: 1,
            settings: Settings::default(),
        }
    }
}
