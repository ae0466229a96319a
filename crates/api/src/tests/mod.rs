//! The client against controllers that are not: listeners that say what a test wants.

mod admin;
mod fake;
mod store;
