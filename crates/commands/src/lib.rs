//! What commands have in common: errors of one line, the exit status, the log ([`command_line`]);
//! lengths of time, files with secrets, the ways to stores ([`target`]) and to controllers
//! ([`reach`], [`api`]); and how values are read and printed.
//!
//! Beside the commands of the two programs those call it that disciplines bring: each is registered
//! as a [`DisciplineCommand`], so that the program knows none of them by name.

#![deny(clippy::print_stdout)]

pub mod api;
pub mod command_line;
pub mod common;
mod discipline;
pub mod output;
pub mod reach;
pub mod secrets;
pub mod target;
pub mod value;

pub use discipline::{CommandArgs, DisciplineCommand, Run};
