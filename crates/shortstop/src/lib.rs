//! The commands of `shortstop`, one file each in [`cmd`], and what its command line shares with that of `shortstop-lab`.
//!
//! A library only for the latter, which starts a store as `shortstop store` does, around data of its own.

pub mod cmd;
pub mod command_line;
