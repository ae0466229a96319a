//! The lab: racks of network namespaces on one machine, load on them, and what comes out.
//!
//! A [`topology::Topology`] goes in; [`rack::Lab`] makes its namespaces, links (also faulty ones, [`link`])
//! and processes, and removes them whatever happens ([`state`]). The [`load`] generator offers a
//! [`workload`] and checks every answer. An [`experiment::Experiment`] combines these into one
//! measurement, holds it against the analytic [`model`], and gives back rows, a summary, a
//! [`table`] and SVG plots ([`plot`]). Everything random comes from one seed.
//!
//! Called by the binary's `lab` subcommand and by tests. It starts the other roles as real processes of
//! the same binary and knows of the other crates only `wire`, and `client` for the histories that it records.

pub mod experiment;
pub mod history;
pub mod interrupt;
pub mod link;
pub mod load;
pub mod model;
pub mod namespace;
pub mod plot;
pub mod process;
pub mod progress;
pub mod rack;
pub mod search;
pub mod state;
pub mod table;
pub mod topology;
pub mod workload;

pub use experiment::{Backend, Experiment, Options, Report};
