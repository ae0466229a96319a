//! The rack from end to end: real processes in network namespaces, used by hand, disturbed,
//! restarted and refused. Each test builds a rack of its own and removes it; without root they
//! fail, and say so.
//!
//! Nothing here depends on how fast something is: what has to come about is waited for, and what
//! must never be is looked for all along. What is not about the kernel's own ways of running a
//! switch is tried with a soft one too.

mod support;

mod backends;
mod by_hand;
mod command_line;
mod each_discipline;
mod echo;
mod failures;
mod refusals;
mod tenants;
mod tenants_life;
mod tenants_tls;
mod traffic;
mod variants;
mod write_back;
mod xdp;
