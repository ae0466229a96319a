//! What a client is asked for, as a value, and what of it stands in the header of its request.
//!
//! [`crate::Client`]'s methods and the drivers of a [`crate::Machine`] make operations; a call
//! reads its key, value and header from there. So does a discipline's own client.

use std::time::Duration;

use wire::{Flags, Header, MAX_KEY, Op};

use crate::{Condition, Error};

/// What a client can be asked for: the methods of [`crate::Client`] as values.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// The value of a key: [`Answer::found`](crate::Answer::found).
    Get {
        /// Its name, 1 to 250 bytes.
        key: &'a [u8],
    },
    /// What a key has beside its value: [`Answer::about`](crate::Answer::about). Of a value in
    /// parts only the first one comes.
    About {
        /// Its name, 1 to 250 bytes.
        key: &'a [u8],
    },
    /// A write: [`Answer::written`](crate::Answer::written).
    Set {
        /// The key's name, 1 to 250 bytes.
        key: &'a [u8],
        /// What is written.
        value: &'a [u8],
        /// After how long it is forgotten; none: never.
        ttl: Option<Duration>,
        /// What must hold for it to take place.
        condition: Condition,
    },
    /// A removal: [`Answer::removed`](crate::Answer::removed).
    Delete {
        /// The key's name, 1 to 250 bytes.
        key: &'a [u8],
        /// What must hold for it to take place.
        condition: Condition,
    },
    /// An operation that the tenant's discipline defines: [`Answer::said`](crate::Answer::said).
    Ask {
        /// The key's name, 1 to 250 bytes.
        key: &'a [u8],
        /// What it means is the discipline's affair.
        number: u64,
        /// As for the number.
        value: &'a [u8],
    },
}

impl<'a> Operation<'a> {
    /// The name of its key.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Operation::Get { key }
            | Operation::About { key }
            | Operation::Set { key, .. }
            | Operation::Delete { key, .. }
            | Operation::Ask { key, .. } => key,
        }
    }

    /// What travels from the client to the store beside the key.
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Operation::Set { value, .. } | Operation::Ask { value, .. } => value,
            Operation::Get { .. } | Operation::About { .. } | Operation::Delete { .. } => &[],
        }
    }

    /// The header of its request, as far as the operation decides it.
    pub(crate) fn header(&self) -> Result<Header, Error> {
        let conditional = |op, condition: Condition, expiry_ms| {
            let (flags, version): (Flags, u64) = condition.in_header();
            Header { flags, version, expiry_ms, ..Header::new(op) }
        };
        Ok(match *self {
            Operation::Get { .. } | Operation::About { .. } => Header::new(Op::ReadRequest),
            Operation::Set { ttl, condition, .. } => {
                let expiry_ms = ttl.map(ttl_ms).transpose()?.unwrap_or(0);
                conditional(Op::WriteRequest, condition, expiry_ms)
            }
            Operation::Delete { condition, .. } => conditional(Op::DeleteRequest, condition, 0),
            Operation::Ask { number, .. } => {
                Header { version: number, ..Header::new(Op::DisciplineRequest) }
            }
        })
    }
}

/// The time to live as its field states it: whole milliseconds, rounded up so that it is
/// never "none".
fn ttl_ms(ttl: Duration) -> Result<u32, Error> {
    let ms = ttl.as_nanos().div_ceil(1_000_000);
    u32::try_from(ms).ok().filter(|ms| *ms > 0).ok_or(Error::TimeToLive)
}

/// Whether a key has a length that is possible.
///
/// # Errors
/// [`Error::KeyLength`]: it has not.
pub fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Error::KeyLength(key.len()));
    }
    Ok(())
}
