//! to be written
#![allow(missing_docs)]
pub mod interrupt;
pub mod link;
pub mod load;
pub mod model;
pub mod namespace;
pub mod process;
pub mod rack;
pub mod state;
pub mod topology;
pub mod workload;
