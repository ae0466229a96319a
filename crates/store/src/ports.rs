//! What the store's ports have in common, at which it speaks another server's protocol: sockets
//! that take clients, what is sent to an end of a connection, and the way to the store's loop,
//! which has keys held.

mod address;
mod handshakes;
mod holding;
mod listener;
mod outlet;
mod port;

pub(crate) use address::AddressForm;
pub use address::PortAddress;
pub(crate) use holding::{Had, Hold, HoldMessage, HoldQuestion, HoldWait, Holder, LATE, NoHold};
pub(crate) use listener::ClientTaker;
pub(crate) use outlet::{Outlet, shrink};
pub(crate) use port::Port;
