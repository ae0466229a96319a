//! The commands of `shortstop`, one file each in [`cmd`].
//!
//! A library only for `shortstop-lab`, which starts a store as `shortstop store` does, around data
//! of its own.

#![deny(clippy::print_stdout)]
#![deny(unsafe_code)]

pub mod cmd;
