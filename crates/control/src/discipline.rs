//! The control half of a discipline, as the controller sees it: events in, actions out, no I/O.

use std::{collections::BTreeMap, time::Duration};

pub use decide::{ItemKey, Limits, Outcome};
pub use wire::SwitchId;

/// What a command changes at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Cache the key.
    Insert,
    /// Do not cache it any longer.
    Evict,
}

/// A tenant's memory on one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The switch.
    pub switch: SwitchId,
    /// Pages, its own and borrowed ones.
    pub pages: u32,
    /// Of these, borrowed: idle memory that its owner, or who is short of it, may take back at any time.
    pub lent: u32,
    /// The threshold that was last in force there for this tenant, if any is known.
    pub threshold: Option<u32>,
}

/// What happened at a switch. Counts are requests as the switch counts them (sampled, if it samples).
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The switch attached, for the first time or again.
    Attached {
        /// Which.
        switch: SwitchId,
        /// What it holds.
        held: &'a [ItemKey],
        /// What it was believed to hold and does not: lost by the switch, worth inserting again.
        lost: &'a [ItemKey],
    },
    /// A tenant's memory changed: all its switches, in the order in which its placement policy fills them. A switch that
    /// is not listed any longer holds nothing of it. Comes before a switch's [`Event::Attached`] and again whenever it changes.
    Room {
        /// Whose.
        tenant: u32,
        /// Where, and how much.
        rooms: &'a [Room],
    },
    /// The switch's stream ended; nothing can be asked of it until it attaches again.
    Detached {
        /// Which.
        switch: SwitchId,
    },
    /// Missed keys whose count in this window crossed the threshold or rose well beyond the last report.
    Hot {
        /// Which.
        switch: SwitchId,
        /// Number of the window.
        window: u64,
        /// Keys with the estimated requests in this window so far.
        keys: &'a [(ItemKey, u64)],
    },
    /// A window ended. Cached items that are not listed had no request in it.
    WindowEnd {
        /// Which.
        switch: SwitchId,
        /// Number of the window that ended.
        window: u64,
        /// Cached items with their requests in the window.
        items: &'a [(ItemKey, u64)],
    },
    /// A command was answered.
    Answered {
        /// Which.
        switch: SwitchId,
        /// What had been asked.
        change: Change,
        /// Of which key.
        key: &'a ItemKey,
        /// The answer.
        outcome: Outcome,
    },
    /// The switch gave items up by itself.
    Dropped {
        /// Which.
        switch: SwitchId,
        /// The items.
        keys: &'a [ItemKey],
    },
    /// Time passed; comes some ten times a second.
    Tick,
}

/// What the controller should do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Change what a switch caches. Carried out in order, at a bounded rate, and answered by
    /// [`Event::Answered`] exactly once.
    Change {
        /// Which switch.
        switch: SwitchId,
        /// What to do.
        change: Change,
        /// With which key.
        key: ItemKey,
    },
    /// From how many requests in a window on a switch reports a tenant's key as hot.
    Threshold {
        /// Which switch.
        switch: SwitchId,
        /// Whose keys.
        tenant: u32,
        /// Requests per window, at least 1.
        requests: u32,
    },
}

/// Decides what each switch caches. One instance serves all switches of a controller, for the tenants that chose it.
///
/// Implementations open no socket, read no clock and draw random numbers from [`Limits::seed`] only, so
/// that a run can be repeated and simulated.
pub trait Discipline: Send {
    /// Takes an event in at time `now` (since any fixed start, never going back) and appends what is to be done to `out`.
    fn on(&mut self, now: Duration, event: Event<'_>, out: &mut Vec<Action>);

    /// How many items of a tenant it would cache on a switch if there were room: those that are cached and those that are
    /// asked for often enough. Decides who is lent idle pages, and when their owner needs them back.
    fn wanted(&self, _switch: SwitchId, _tenant: u32) -> usize {
        0
    }

    /// Named counters of one switch since the start, for `status`.
    fn counters(&self, _switch: SwitchId) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

/// The discipline `none`: switches forward and cache nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDiscipline;

impl Discipline for NoDiscipline {
    fn on(&mut self, _now: Duration, event: Event<'_>, out: &mut Vec<Action>) {
        if let Event::Attached { switch, held, .. } = event {
            let evict = |key: &ItemKey| Action::Change {
                switch,
                change: Change::Evict,
                key: key.clone(),
            };
            out.extend(held.iter().map(evict));
        }
    }
}
