//! Final answers, as the operation's kind reads them.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use wire::{Flags, Header, Op, Status};

use crate::{Error, Metadata, Reservation, Value};

/// A final answer to an [`Operation`](crate::Operation). Its methods read it; each belongs to one
/// kind of operation.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(crate) store: SocketAddr,
    pub(crate) request: Request,
    pub(crate) header: Header,
    pub(crate) value: Bytes,
    /// Length of the whole value in bytes.
    pub(crate) len: usize,
    /// It is of a copy that the client keeps.
    pub(crate) from_copy: bool,
}

/// What an answer has to know of the request beside what its own packet says.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// In whose name it was made.
    pub tenant: u32,
    /// Bytes of the value that it was made with.
    pub value_len: usize,
    /// Whether it may change its key.
    pub is_write: bool,
}

impl Answer {
    /// The answer that one packet is: its header, with a whole value that is opened already;
    /// `store` has sent it, or the switch that answers in its place.
    pub fn new(store: SocketAddr, request: Request, header: Header, value: Bytes) -> Answer {
        Answer { store, request, header, len: value.len(), value, from_copy: false }
    }

    /// What a read found; none: there is no such key.
    ///
    /// # Errors
    /// The store's refusal.
    pub fn found(self) -> Result<Option<Value>, Error> {
        let header = &self.header;
        match header.status {
            Status::Ok => Ok(Some(Value {
                version: header.version,
                expires_in: (header.expiry_ms > 0)
                    .then(|| Duration::from_millis(header.expiry_ms.into())),
                from_switch: header.flags.has(Flags::CACHED),
                from_copy: self.from_copy,
                bytes: self.value,
            })),
            Status::NotFound => Ok(None),
            _ => Err(self.refusal()),
        }
    }

    /// What a read found, without the value; none: there is no such key.
    ///
    /// # Errors
    /// The store's refusal.
    pub fn about(self) -> Result<Option<Metadata>, Error> {
        let len = self.len;
        Ok(self.found()?.map(|value| Metadata {
            len,
            version: value.version,
            expires_in: value.expires_in,
            from_switch: value.from_switch,
            from_copy: value.from_copy,
        }))
    }

    /// The new version after a write.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if the condition did not hold, or the
    /// store's refusal.
    pub fn written(self) -> Result<u64, Error> {
        match self.header.status {
            Status::Ok => Ok(self.header.version),
            _ => Err(self.refusal()),
        }
    }

    /// Whether a removal removed something.
    ///
    /// # Errors
    /// As [`Answer::written`].
    pub fn removed(self) -> Result<bool, Error> {
        match self.header.status {
            Status::Ok => Ok(true),
            Status::NotFound => Ok(false),
            _ => Err(self.refusal()),
        }
    }

    /// The number and the value that a discipline answered with.
    ///
    /// # Errors
    /// The store's refusal.
    pub fn said(self) -> Result<(u64, Bytes), Error> {
        match self.header.status {
            Status::Ok => Ok((self.header.version, self.value)),
            _ => Err(self.refusal()),
        }
    }

    /// The same with a value that gives this memory back when it is dropped.
    pub(crate) fn holding(mut self, reserved: Option<Reservation>) -> Answer {
        if let Some(reserved) = reserved {
            self.value = reserved.hold(self.value);
        }
        self
    }

    /// The error for a status that is no success of this operation.
    fn refusal(&self) -> Error {
        let store = self.store;
        let Request { tenant, value_len: len, is_write: write } = self.request;
        match self.header.status {
            Status::Mismatch if write => Error::Mismatch { current: self.header.version },
            Status::WrongPartition => Error::WrongPartition { store },
            Status::TooLarge if self.header.op == Op::WriteReply && self.header.version > 0 => {
                Error::KeyTooLong { store, most: self.header.version }
            }
            Status::TooLarge => Error::TooLarge { store, len, write },
            Status::BackendError if self.header.version == wire::BACKEND_REFUSED => {
                Error::Refused { store, words: one_line(&self.value), write }
            }
            Status::BackendError => Error::Backend { store, write },
            Status::Denied => Error::Denied { store, tenant },
            _ => Error::BadReply { store, what: "a status that does not belong to it" },
        }
    }
}

/// What a backend said, as it may stand in a message.
fn one_line(words: &[u8]) -> String {
    if words.is_empty() {
        return "ERR why, this answer does not say: the store's log does".into();
    }
    let words = String::from_utf8_lossy(words);
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
