//! What a rack is to be, as data: machines with the roles that run there, the links between them,
//! their addresses and routes. No input or output happens here.
//!
//! Layouts of experiments, the hunt and tests write a [`Plan`], from the [`shapes`] of networks or
//! as a [`Line`]. The crate `lab` makes namespaces and processes of it, the crate `sim` a world in
//! virtual time: both start the same [`roles`] under the same names, at the addresses that
//! [`network`] gives them. What people write in a file is a [`topology`], with command lines in the
//! place of roles.

mod cluster;
mod hardware;
mod line;
pub mod network;
mod plan;
pub mod roles;
pub mod shapes;
pub mod topology;

pub use hardware::{Clocks, Hardware, ProgramCosts};
pub use line::{Line, client, control, server, switch};
pub use plan::{CLIENT_CPU, LEASE_MS, OTHER_CPU, Plan, SeatedRole, Site};
