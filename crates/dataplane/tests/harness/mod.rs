//! Runs data-plane programs on packets, in the kernel, without an interface: a packet goes in, verdict, packet and
//! the counters that moved come out. Knows no discipline: a discipline's own tests include this folder
//! and name theirs when they load a [`Switch`].
#![allow(dead_code, missing_docs, unused_imports)] // each test crate uses its own part

pub mod frame;
pub mod message;
pub mod namespace;
pub mod switch;

pub use frame::{Frame, Seen};
pub use message::Message;
pub use switch::{Run, Runner, Switch, Verdict};

/// Bytes from hex digits, as the vectors have them.
pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}
