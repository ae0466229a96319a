//! From messages to what the controller works with, checked.

use api::proto::{self, HotKey, Key};
use bytes::Bytes;

use crate::{ItemKey, Outcome};

/// The key, copied out of its message, so that one key does not keep the whole message in memory; `None`
/// if its length is not 1 to [`wire::MAX_KEY`].
pub fn item_key(tenant: u32, key: &[u8]) -> Option<ItemKey> {
    (1..=wire::MAX_KEY).contains(&key.len()).then(|| ItemKey {
        tenant,
        key: Bytes::copy_from_slice(key),
    })
}

/// The well-formed ones of these keys.
pub fn keys(keys: &[Key]) -> impl Iterator<Item = ItemKey> + '_ {
    keys.iter().filter_map(|k| item_key(k.tenant, &k.key))
}

/// The well-formed ones of these keys, with their counts.
pub fn counted(keys: &[HotKey]) -> Vec<(ItemKey, u64)> {
    keys.iter()
        .filter_map(|k| Some((item_key(k.tenant, &k.key)?, k.count)))
        .collect()
}

/// An outcome; one that we do not know counts as a refusal.
pub fn outcome(outcome: i32) -> Outcome {
    match proto::Outcome::try_from(outcome) {
        Ok(proto::Outcome::Done) => Outcome::Done,
        Ok(proto::Outcome::NoRoom) => Outcome::NoRoom,
        Ok(proto::Outcome::BucketFull) => Outcome::BucketFull,
        Ok(proto::Outcome::Refused) | Err(_) => Outcome::Refused,
    }
}

/// The key as a message has it.
pub fn to_proto(key: &ItemKey) -> Key {
    Key {
        tenant: key.tenant,
        key: key.key.clone(),
    }
}
