//! The Rust side of the data plane: loads the programs, pins their maps, attaches them to
//! interfaces, and gives the agent typed access to the tables.
//!
//! In: BPF objects (the entry program from `bpf/`, one per discipline), interface names, and what
//! the agent decides to keep. Out: table entries that the programs read on every packet, counters,
//! hot keys. `control`'s agent and the `switch` command call this crate. The tables are memory
//! shared with the programs; `docs/coherence.md` says in which order they may be written.

mod attach;
mod error;
mod ffi;
mod layout;
mod load;
mod maps;
pub mod native;
mod programs;
mod refusal;

use attach::{detach, interface, links, modes, neighbour, offloads, pin, ports, recirculation};
use load::{accepted, check, kernel, object, pinned, sizes, verifier};
use maps::{
    backing, bpffs, cells, clock, counters, events, grace, group, lease, lent, map, mapped, page,
    page_items, port_bytes, probation, rows, sketch, table, tally, tenant, traffic,
};

pub use accepted::forget_accepted;
pub use attach::attachment::{Attached, Mode, check_interface};
pub use backing::Backing;
pub use bpffs::{Home, switches};
pub use cells::{Cells, PageUsage, Place, cells_needed, cells_needed_given};
pub use check::{Checked, check};
pub use counters::{Counter, Counters};
pub use detach::detach;
pub use error::Error;
pub use events::{Event, Events};
pub use interface::{interfaces, longest_frame};
pub use kernel::cpus;
pub use layout::{
    BLANKS, GIVEN_MAX, NO_DISCIPLINE, NO_LEASE, PAGE_START_CELLS, PARAMETERS,
    PROGRAMS_PER_DISCIPLINE, SourceCheck, TALLIES, VALUE_MAX_BYTES,
};
pub use lease::{LeaseState, Leases};
pub use lent::Lent;
pub use links::attached;
pub use load::dataplane::Dataplane;
pub use native::LocalMaps;
pub use object::{MapLayout, Object, RECIRCULATION, maps_of};
pub use page_items::PageItems;
pub use probation::{Probation, Used};
pub use programs::Programs;
pub use recirculation::{Going, Loops};
pub use refusal::Refusal;
pub use rows::{KeyValue, Rows};
pub use sizes::Sizes;
pub use sketch::Sketches;
pub use table::{Busy, Held, InsertError, Table};
pub use tally::Tallies;
pub use tenant::TenantEntry;
pub use traffic::{FlowCount, Traffic};
