//! What a line says: a command, the beginning of one, or nothing that goes on.

use std::borrow::Cow;

use crate::Class;

/// Longest name that a key has, and longest word that stands for one.
pub const KEY_BYTES: usize = 250;
/// Longest block that memcached can be told of.
pub(crate) const BLOCK_BYTES: u64 = i32::MAX as u64 - 2;

/// A command that goes on to memcached as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its bytes, the first of the buffer, which the caller takes off.
    pub len: usize,
    /// What it may do to copies.
    pub class: Class,
    /// The names of the keys that it may change, as memcached has them: decoded, and in any order.
    pub changed: Vec<Cow<'a, [u8]>>,
    /// It may leave a value as it is, with the number that memcached gave it (CAS), and change
    /// until when it lives.
    pub may_touch: bool,
    /// The client wants no answer (`noreply`), not even that it was refused.
    pub is_silent: bool,
}

impl<'a> Request<'a> {
    /// One that changes nothing; its length is not known yet.
    pub(crate) fn read() -> Request<'a> {
        Request { len: 0, class: Class::Read, changed: vec![], may_touch: false, is_silent: false }
    }

    /// One that may change these keys.
    pub(crate) fn write(changed: Vec<Cow<'a, [u8]>>) -> Request<'a> {
        Request { class: Class::Write, changed, ..Request::read() }
    }
}

/// What a line says.
pub(crate) enum Line<'a> {
    /// A command without a block.
    Whole(Request<'a>),
    /// A command with a block of so many bytes.
    Block(Request<'a>, u64),
    NoOp,
    Quit,
    /// Whether this is a store's memcached port.
    PortQuestion,
    /// It does not go on, and what follows is the next command.
    Refused(Cow<'static, str>),
    /// It does not go on, nor does its block of so many bytes.
    RefusedBlock(Cow<'static, str>, u64),
    /// It does not go on, and nothing behind it is looked at.
    RefusedForGood(Cow<'static, str>),
}

impl Line<'_> {
    /// A line that does not go on, and is answered so.
    pub fn refused(answer: &'static str) -> Self {
        Line::Refused(answer.into())
    }
}
