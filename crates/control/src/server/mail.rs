//! Messages of disciplines to their halves in one store or switch: numbered, in order, kept until
//! they are acknowledged.

use std::collections::{BTreeSet, VecDeque};

use api::proto::HalfMessage;
use bytes::Bytes;
use decide::MESSAGE_MAX;

/// Messages that wait, and their bytes.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What was not acknowledged yet.
#[derive(Default)]
pub struct Mail {
    messages: VecDeque<HalfMessage>,
    bytes: usize,
}

impl Mail {
    /// Takes a message.
    ///
    /// # Errors
    /// One line: it is too long, or too many wait.
    pub fn tell(
        &mut self,
        discipline: &str,
        tenant: u32,
        message: Bytes,
        next_number: &mut u64,
    ) -> Result<(), String> {
        let length = message.len();
        if length > MESSAGE_MAX {
            return Err(format!("a message of {length} bytes, at most {MESSAGE_MAX} are taken"));
        }
        if !self.has_room_for(length) {
            return Err(format!("{} messages wait for it already", self.messages.len()));
        }
        self.bytes += length;
        self.messages.push_back(HalfMessage {
            seq: *next_number,
            discipline: discipline.into(),
            tenant,
            message,
        });
        *next_number += 1;
        Ok(())
    }

    /// Whether another message of so many bytes may wait.
    pub fn has_room_for(&self, length: usize) -> bool {
        self.messages.len() < WAITING_MAX && self.bytes + length <= WAITING_BYTES_MAX
    }

    /// Whether as many may come as wait at most.
    pub fn is_half_empty(&self) -> bool {
        self.messages.len() <= WAITING_MAX / 2 && self.bytes <= WAITING_BYTES_MAX / 2
    }

    /// The first message above this number.
    pub fn after(&self, seq: u64) -> Option<&HalfMessage> {
        let at = self.messages.partition_point(|m| m.seq <= seq);
        self.messages.get(at)
    }

    /// Every message up to this number was taken in. Of these tenants none is left.
    pub fn acknowledged(&mut self, seq: u64) -> BTreeSet<u32> {
        let mut tenants = BTreeSet::new();
        let taken = self.messages.partition_point(|m| m.seq <= seq);
        for message in self.messages.drain(..taken) {
            self.bytes -= message.message.len();
            tenants.insert(message.tenant);
        }
        for message in &self.messages {
            tenants.remove(&message.tenant);
        }
        tenants
    }
}
