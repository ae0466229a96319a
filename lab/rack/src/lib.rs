//! The lab: racks of network namespaces on one machine, with the roles of this program as real
//! processes in them.
//!
//! A [`plan::topology::Topology`] goes in; [`rack::Lab`] makes its namespaces, links (also faulty
//! ones, [`link`]) and processes ([`plan::roles`] has their command lines), and removes them
//! whatever happens ([`state`]). Everything random comes from one [`seed`].
//!
//! Called by `shortstop-lab`, by experiments, measurements and tests. Of the other crates it
//! knows `plan` and `seed`.

pub mod cpu_share;
pub mod interrupt;
pub mod link;
pub mod namespace;
pub mod port;
pub mod privilege;
pub mod process;
pub mod progress;
pub mod rack;
pub mod state;
pub mod steered;
pub mod testing;
