//! An item is a key's or a client's session's: what it is called, and what it begins with.

use bytes::Bytes;
use chain_wire::session_key;
use decide::Record;

use crate::record::{SessionRecord, new_key};

/// How much of an untouched record is compared before it goes: its last version, the committed one,
/// and its base.
const UNTOUCHED: usize = 24;

/// Whether it is a session's key.
pub(super) fn is_session(key: &[u8]) -> bool {
    session_of(key).is_some()
}

fn session_of(key: &[u8]) -> Option<u64> {
    let client = u64::from_be_bytes(*key.get(2..)?.first_chunk()?);
    (key == session_key(client)).then_some(client)
}

/// What a new item begins with. `numbers`: of the view, and what it is filled under.
pub(super) fn record(key: &[u8], base: u64, numbers: (u64, u64), shift: u8) -> Record {
    let (number, filled) = numbers;
    let bytes = match session_of(key) {
        Some(client) => Some(SessionRecord::new(client, number, filled).encode()),
        None => new_key(base, filled, shift),
    };
    Record::Given(bytes.unwrap_or_default())
}

/// How such a record begins for as long as nobody has used the item.
pub(super) fn beginning(key: &[u8], record: &Record) -> Bytes {
    let Record::Given(record) = record else { return Bytes::new() };
    match is_session(key) {
        true => record.clone(),
        false => record.slice(..UNTOUCHED.min(record.len())),
    }
}
