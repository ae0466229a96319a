//! The Rust side of the data plane: loads the programs, pins their maps, attaches them to
//! interfaces, and gives the agent typed access to the tables.
//!
//! In: BPF objects (the entry program from `bpf/`, one per discipline), interface names, and what
//! the agent decides to keep. Out: table entries that the programs read on every packet, counters,
//! hot keys. The agent, soft switches and the `switch` command call this crate. The tables are
//! memory shared with the programs; `docs/coherence.md` says in which order they may be written.
//!
//! Four folders, each of which knows only those before it: [`maps`] are the tables, [`load`] loads
//! programs into the kernel, [`attach`] puts them on interfaces, [`native`] runs them in this
//! process.

mod attach;
mod error;
mod ffi;
mod layout;
mod load;
mod maps;
pub mod native;
mod programs;
mod refusal;
mod writes;

pub use attach::{
    attachment::{Attachment, Mode, check_interface},
    detach::{detach, free_interfaces},
    interface::{interfaces, longest_frame},
    kept::{KeptPorts, PortNews},
    links::attached,
    recirculation::{Loops, RecirculationPorts},
};
pub use error::Error;
pub use layout::{
    BLANKS, GIVEN_MAX, NO_DISCIPLINE, NO_LEASE, PAGE_START_CELLS, PARAMETERS,
    PROGRAMS_PER_DISCIPLINE, SourceCheck, TALLIES, VALUE_MAX_BYTES,
};
pub use load::{
    accepted::forget_accepted,
    check::{ProgramCheck, check},
    dataplane::Dataplane,
    kernel::cpus,
    object::{MapLayout, Object, RECIRCULATION, maps_of},
    sizes::Sizes,
};
pub use maps::{
    backing::{Backing, Elements},
    bpffs::{Home, switches},
    cells::{Cells, PageUsage, Place, cells_needed, cells_needed_given},
    counters::{Counter, Counters},
    events::{Event, Events},
    lease::{LeaseState, Leases},
    lent::LoanCounts,
    local::LocalMaps,
    map::first_elements,
    mount::is_seen_by_all,
    page_items::PageItems,
    probation::{BlankOutcome, Probation},
    rows::{KeyValue, Rows},
    sketch::Sketches,
    table::{Busy, HeldItem, InsertError, Table},
    tally::Tallies,
    tenant::TenantEntry,
    traffic::{FlowCount, Traffic},
};
pub use programs::Programs;
pub use refusal::Refusal;
#[cfg(debug_assertions)]
pub use writes::before_each_write;
