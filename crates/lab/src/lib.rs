//! to be written
pub mod model;
pub mod workload;
