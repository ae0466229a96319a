//! Redis's protocol: from bytes to commands, and from answers to bytes.
//!
//! One file per step of a command's way: `connection` reads bytes, [`frame`] makes words of them,
//! `table` knows the commands, `session` answers those about the connection, `job` carries out
//! those on keys by `data`; `reply` turns answers into bytes.

pub(crate) mod connection;
pub mod frame;
pub(crate) mod info;
mod job;
mod reply;
pub(crate) mod session;
mod table;

/// A number as Redis reads them: digits, with a minus before them or without, and nothing that
/// could be left out.
fn integer(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}
