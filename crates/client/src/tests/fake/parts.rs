//! What a store knows of parts of values, for tests.

use std::collections::{BTreeMap, HashMap};

use wire::{Header, PART, PART_BYTES, Packet, Status};

/// Writes of which not all parts are here, by (client, request).
#[derive(Default)]
pub struct Joins(HashMap<(u64, u64), BTreeMap<u16, Vec<u8>>>);

impl Joins {
    /// The whole value, or the first part that is missing.
    pub fn take(&mut self, packet: &Packet<'_>) -> Result<Vec<u8>, u16> {
        let h = packet.header;
        if !h.is_part() {
            return Ok(packet.value.to_vec());
        }
        let parts = self.0.entry((h.client, h.request)).or_default();
        parts.insert(h.part, packet.value.to_vec());
        let steps = (0..h.total as usize).step_by(PART_BYTES);
        let mut numbers = steps.map(|from| (from / PART) as u16);
        if let Some(missing) = numbers.find(|number| !parts.contains_key(number)) {
            return Err(missing);
        }
        let parts = self.0.remove(&(h.client, h.request)).expect("all are here");
        Ok(parts.into_values().flatten().collect())
    }
}

/// What a read is answered with, by a key that has this value and version. `room`: payload that the
/// answer may have in bytes.
pub fn read(
    packet: &Packet<'_>,
    reply: Header,
    value: &[u8],
    version: u64,
    room: usize,
) -> (Header, Vec<u8>) {
    let h = packet.header;
    let total = value.len() as u32;
    let asked = h.is_part() && (h.version, h.total) == (version, total);
    let from = if asked { usize::from(h.part) * PART } else { 0 };
    let short = h.is_part() && value.len() > PART_BYTES;
    let (value, total) = if short || value.len() > wire::max_value(packet.key.len()) {
        (&value[from..value.len().min(from + PART_BYTES)], total)
    } else {
        (value, 0)
    };
    let part = (from / PART) as u16;
    if wire::HEADER_LEN + packet.key.len() + value.len() > room {
        let total = total.max(value.len() as u32);
        return (Header { status: Status::NeedPadding, part: 0, total, ..reply }, vec![]);
    }
    (Header { version, part, total, ..reply }, value.to_vec())
}
