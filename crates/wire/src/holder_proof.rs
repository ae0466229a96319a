//! What a holder shows the store that lends to it, in the place of the hash of a key: messages
//! about leases have no key.

use crate::KeyHash;

/// What a store has given a holder: in the request with which it begins, to show that it hears what
/// is sent to its address; from then on, to show that it is the one that was lent the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HolderProof {
    /// The first 8 bytes, network order: a number that nobody can guess who has not been sent it;
    /// 0: none was given yet.
    pub token: u64,
    /// The last 8 bytes, network order: the term of the lease; 0 in what is shown to begin.
    pub term: u64,
}

impl HolderProof {
    /// As it stands in [`crate::Header::key_hash`].
    pub fn to_hash(self) -> KeyHash {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[8..].copy_from_slice(&self.term.to_be_bytes());
        KeyHash(bytes)
    }

    /// What stands there.
    pub fn from_hash(hash: KeyHash) -> HolderProof {
        HolderProof { token: hash.high(), term: hash.low() }
    }
}
