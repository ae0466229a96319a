//! Loads the programs of a switch into the kernel: from objects to a [`dataplane::Dataplane`],
//! whose maps are pinned.
//!
//! [`object`] is what a discipline registered, [`sizes`] how large tables are, [`kernel`] whether
//! this kernel is one at all. [`pinned`] takes over what an earlier agent left; [`verifier`] loads,
//! and says what was refused and why; [`accepted`] remembers what was not. Nothing here knows an
//! interface.

pub(crate) mod accepted;
pub(crate) mod check;
pub(crate) mod dataplane;
pub(crate) mod kernel;
pub(crate) mod object;
pub(crate) mod pinned;
pub(crate) mod sizes;
pub(crate) mod verifier;
