//! Redis's protocol, as the gateway and the store's RESP port read it.
//!
//! Bytes go in; nothing is copied of them. [`RequestParser`] says where a client's next command
//! ends and where its words stand; [`ReplyScanner`] says where a server's next reply ends, however
//! long it is and in whatever pieces it comes. [`CommandTable`] is what the server at hand says of
//! its commands (`COMMAND`), with one thing of ours beside it: the [`Class`], which says whether a
//! command may touch the copy of a string. Nobody here opens a socket or keeps a value.

use std::time::Duration;

mod class;
mod error;
mod inline;
mod keys;
mod named_keys;
mod number;
mod reply;
mod request;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use class::Class;
pub use error::ProtocolError;
pub use keys::{Finding, KeySpec, KeyWord, Search};
pub use number::integer;
pub use reply::{Reply, ReplyError, ReplyScanner, did_write, tells_of_writes};
pub use request::{Limits, Request, RequestParser};
pub use table::{Command, CommandTable, TableError};
pub use words::Words;

/// For how long after it was asked a gateway takes a Redis for the one behind a store, if the
/// store's RESP port has passed its answer on. A store asks another master nothing before.
pub const MASTER_HOLDS: Duration = Duration::from_secs(1);
