//! What the control half tells the store halves. Numbers are big-endian:
//!
//! ```text
//! version u8 | instruction u8 | for each key: length u8, key
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use decide::{Key, MESSAGE_MAX};

/// The version of the layout; a message of another one is passed over.
const VERSION: u8 = 1;

/// What a store is to do with the keys of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Hold them from now on.
    Hold,
    /// Hold them no longer.
    Release,
    /// Without keys: what is held from before goes with the next [`Instruction::End`] unless it is
    /// named until then.
    Begin,
    /// Without keys: all that is to be held has been named.
    End,
    /// Without keys: switches are to be told again of each valid copy.
    Confirm,
}

impl Instruction {
    const ALL: [Instruction; 5] = [
        Instruction::Hold,
        Instruction::Release,
        Instruction::Begin,
        Instruction::End,
        Instruction::Confirm,
    ];
}

/// A message about one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMessage {
    /// What is to be done with the keys.
    pub instruction: Instruction,
    /// The keys.
    pub keys: Vec<Key>,
}

impl StoreMessage {
    /// Encodes a message without keys.
    pub fn word(instruction: Instruction) -> Bytes {
        Bytes::copy_from_slice(&[VERSION, instruction as u8])
    }

    /// Encodes keys as as many messages as they need.
    pub fn messages(instruction: Instruction, keys: &[Key]) -> Vec<Bytes> {
        let mut messages = vec![];
        let mut bytes = BytesMut::new();
        for key in keys {
            if bytes.len() + 1 + key.len() > MESSAGE_MAX {
                messages.push(bytes.split().freeze());
            }
            if bytes.is_empty() {
                bytes.put_slice(&[VERSION, instruction as u8]);
            }
            bytes.put_u8(key.len() as u8);
            bytes.put_slice(key);
        }
        if !bytes.is_empty() {
            messages.push(bytes.freeze());
        }
        messages
    }

    /// Decodes a message; `None` if it is none, or of another version. Each key is copied, so that
    /// one does not keep the whole message in memory.
    pub fn decode(mut bytes: &[u8]) -> Option<StoreMessage> {
        let version = bytes.try_get_u8().ok()?;
        let instruction = bytes.try_get_u8().ok()?;
        let instruction =
            *Instruction::ALL.get(usize::from(instruction)).filter(|_| version == VERSION)?;
        let mut keys = vec![];
        while bytes.has_remaining() {
            let len = usize::from(bytes.get_u8());
            let key = bytes.split_off(..len).filter(|key| !key.is_empty())?;
            keys.push(Key::copy_from_slice(key));
        }
        Some(StoreMessage { instruction, keys })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn another_version_is_passed_over() {
        assert_eq!(StoreMessage::decode(&[VERSION + 1, 0]), None);
        assert_eq!(StoreMessage::decode(&[VERSION, Instruction::ALL.len() as u8]), None);
        assert_eq!(StoreMessage::decode(&[VERSION, 0, 3, 1, 2]), None, "a key is cut off");
        assert_eq!(StoreMessage::decode(&[VERSION, 0, 0]), None, "a key without bytes");
        assert!(StoreMessage::messages(Instruction::Hold, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(keys in prop::collection::vec(prop::collection::vec(0u8.., 1..=255), 0..600)) {
            let keys: Vec<Key> = keys.into_iter().map(Key::from).collect();
            let messages = StoreMessage::messages(Instruction::Release, &keys);
            prop_assert!(messages.iter().all(|message| message.len() <= MESSAGE_MAX));
            let read = messages.iter().map(|message| StoreMessage::decode(message).unwrap());
            let read: Vec<Key> = read.flat_map(|told| { assert_eq!(told.instruction, Instruction::Release); told.keys }).collect();
            prop_assert_eq!(read, keys);
        }

        #[test]
        fn words_are_read(at in 0..Instruction::ALL.len()) {
            let instruction = Instruction::ALL[at];
            prop_assert_eq!(StoreMessage::decode(&StoreMessage::word(instruction)), Some(StoreMessage { instruction, keys: vec![] }));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(0u8.., 0..100)) {
            let _ = StoreMessage::decode(&bytes);
        }
    }
}
