//! memcached's text and meta protocol, as the store's memcached port and the gateway read it.
//!
//! Bytes go in; nothing is copied of them but names that travel as base64. [`RequestParser`] says
//! where a client's next command ends, what it may do to copies ([`Class`]), and which keys it may
//! change; [`ReplyScanner`] says where the answers to a batch end, however long they are and in
//! whatever pieces they come; [`Exchange`] has a batch carried out on a connection that somebody
//! has opened. Nobody here opens a socket or keeps a value.
//!
//! **What is not understood does not go on.** Where a command ends, two readers must agree: a block
//! that is a value to one and commands to the other would be commands that nobody has looked at. So
//! the parser has an answer of its own, in memcached's words, for each line before a block that it
//! does not take as a whole, and for what it does not know. A line without a block is a line to
//! both, and memcached judges what it says.

mod class;
mod exchange;
mod line;
mod meta;
mod number;
mod reply;
mod request;
mod subject;
#[cfg(test)]
mod tests;
mod text;

pub use class::Class;
pub use exchange::Exchange;
pub use line::{KEY_BYTES, Request};
pub use reply::{Progress, ReplyError, ReplyScanner, TERMINATOR};
pub use request::{Front, LINE_BYTES, Limits, READ_LINE_BYTES, Refusal, RequestParser};
pub use subject::{AskedItem, AskedValues, CommandSubject, subject, values_in};

/// What a store's memcached port is recognised by: no memcached knows this command.
pub const PORT_QUESTION: &str = "shortstop\r\n";
/// What it answers.
pub const PORT_ANSWER: &str = "SHORTSTOP memcached port\r\n";
/// What a meta no-op is answered with, when all before it is.
pub const NO_OP_ANSWER: &str = "MN\r\n";
