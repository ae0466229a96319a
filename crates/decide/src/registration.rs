//! How a discipline registers.

use crate::{AgentHalf, Discipline, Limits, OperationId, Setting, StoreHalf};

/// Steps and egress programs that a discipline may have, each (`PROGRAMS_PER_DISCIPLINE` in
/// `bpf/maps.h`).
pub const PROGRAMS_MAX: usize = 8;
/// The number of tenants whose packets are only forwarded (`NO_DISCIPLINE` in `bpf/maps.h`).
/// Registered numbers are below it.
pub const NO_DISCIPLINE: u32 = 15;

/// What a switch cannot do whose kernel refuses the programs of loans. Stands among the names of
/// the disciplines that are refused.
pub const WRITE_BACK: &str = "write-back";

/// What a discipline's items are to the rest of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    /// A store has the data: an item may be dropped at any time, its page lent, compacted and taken
    /// back.
    Copies,
    /// They are the data. Nothing but their own discipline removes one: no eviction, no lending, no
    /// compaction, no fetch, no page that changes hands while they lie on it. Only the end of their
    /// tenant ends them.
    Truth,
}

/// On which switches a tenant's packets reach the discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Where the tenant has pages.
    WherePages,
    /// On every switch: it needs no items to do its work.
    Everywhere,
}

/// When a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Tail-called: the first step by the entry program, others by `next_step` with their position
    /// among the steps; step 1, where there is one, also by a packet that comes back from
    /// `recirculate`.
    Step,
    /// On each copy of a fan-out, as it leaves a port of the group. At most one.
    Egress,
}

/// One program of a discipline's object.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The C function's name.
    pub name: &'static str,
    /// When it runs.
    pub role: Role,
}

/// What the sizes of a discipline's own maps may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Pages of the switch's memory.
    pub pages: u32,
    /// CPUs that may run the programs.
    pub cpus: u32,
}

/// The size of a map that the discipline's C defines. Maps without one have the size that the C
/// says.
#[derive(Clone, Copy, Debug)]
pub struct MapSize {
    /// The map's name: begins with [`Registration::maps_of`], since all maps of a switch are pinned
    /// in one directory.
    pub name: &'static str,
    /// Its entries.
    pub entries: fn(Sizes) -> u32,
}

/// Makes the half of a discipline in a store, and says which operations of the network it takes.
#[derive(Clone, Copy, Debug)]
pub struct StoreMaker {
    /// The ops that reach it; no other discipline's may be among them.
    pub operations: &'static [OperationId],
    /// Whether it also takes requests for keys whose partition another store owns.
    pub foreign_partitions: bool,
    /// Whether it has its store hold copies of other stores' keys ([`crate::StoreAction::Hold`]);
    /// of other halves that is refused.
    pub holds_copies: bool,
    /// Makes it, for one store.
    pub make: fn() -> Box<dyn StoreHalf>,
}

/// What a switch's status sums up, and the load of experiments, beside the counters of the shared
/// code: names of counters of one discipline.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Reads that were answered here.
    pub hits: &'static [&'static str],
    /// Reads of what is here that went on all the same, since too many wait for it.
    pub overflows: &'static [&'static str],
    /// Other reads that were not answered here.
    pub misses: &'static [&'static str],
    /// Values that began to go round.
    pub rounds_begun: &'static [&'static str],
    /// Values that no longer go round.
    pub rounds_ended: &'static [&'static str],
    /// Those of these that nobody asked for.
    pub rounds_parked: &'static [&'static str],
}

impl Totals {
    /// None of its own counters is part of a total.
    pub const NONE: Totals = Totals {
        hits: &[],
        overflows: &[],
        misses: &[],
        rounds_begun: &[],
        rounds_ended: &[],
        rounds_parked: &[],
    };
}

/// Leads to the native code of an object: the `NAME_unit` of its source, `NAME.bpf.c`.
pub type Native = unsafe extern "C" fn() -> *const std::ffi::c_void;

/// A discipline as the rest of the system knows it.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// Its name, as tenants' setups and options use it.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Its number for ever, below [`NO_DISCIPLINE`]: pinned tables of running switches have it.
    pub number: u32,
    /// What its items are.
    pub items: Items,
    /// The reads of a key, seen by one CPU within 67 ms, after which the switch itself gives the
    /// key an item on probation. If the control half puts the key as well, the item is confirmed;
    /// if not, it goes again. None: items come by the control half only. Only for copies whose
    /// programs answer by `find_answer` alone.
    pub probation: Option<u32>,
    /// Where it runs.
    pub runs: Runs,
    /// What operators may set of it, at most [`crate::SETTINGS_MAX`]; its control half finds the
    /// numbers in the same order in [`Limits::settings`].
    pub settings: &'static [Setting],
    /// What may be set of each of its tenants (`--option NAME=N`), at most [`crate::SETTINGS_MAX`];
    /// [`Discipline::options`] brings the numbers.
    pub options: &'static [Setting],
    /// Makes its control half, for one controller.
    pub control: fn(Limits) -> Box<dyn Discipline>,
    /// Its switch half: a BPF object. Disciplines that differ in their control halves only may
    /// share one object.
    pub object: &'static [u8],
    /// The same programs as native code, which `bpf::compile` makes beside the object.
    pub native: Option<Native>,
    /// The programs in it, the steps in the order of their numbers.
    pub programs: &'static [Program],
    /// What the names of its own maps begin with, before an underscore: its name, or one that
    /// disciplines of one object have in common.
    pub maps_of: &'static str,
    /// Sizes of maps that depend on the switch.
    pub maps: &'static [MapSize],
    /// The list of ends that only its packets come to, as its C has it: the text of `counters.h`
    /// in its folder, with rows as `bpf/counters.h` has them. Disciplines of one object have the
    /// same; empty: there are none.
    pub counters: &'static str,
    /// Which of its counters the totals of a switch have.
    pub totals: Totals,
    /// Its store half, if it has one.
    pub store: Option<StoreMaker>,
    /// Makes its half in a switch's agent, if it has one.
    pub agent: Option<fn() -> Box<dyn AgentHalf>>,
}
