//! In whose name a client asks, and how keys and values travel.

use chain_wire::session_key;
use client::{
    Error,
    kit::{Envelope, Name, check_key},
};
use wire::{KeyHash, OWN_KEYS, Secrets};

/// A tenant, and one client of it.
pub(super) struct Names {
    pub tenant: u32,
    pub secrets: Secrets,
    pub envelope: Envelope,
    /// The client's id; another one when its writes of before are given up.
    pub client: u64,
    /// Low half of the hash of this client's session, the item in which the switches remember its
    /// writes.
    pub session: u64,
}

impl Names {
    pub fn new(tenant: u32, secrets: Secrets, envelope: Envelope, client: u64) -> Names {
        let mut names = Names { tenant, secrets, envelope, client: 0, session: 0 };
        names.become_another(client);
        names
    }

    /// From now on it is this client.
    pub fn become_another(&mut self, client: u64) {
        self.client = client;
        self.session = self.hash(&session_key(client)).low();
    }

    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.secrets.hash.key_hash(self.tenant, key)
    }

    /// The key as it travels.
    pub fn name<'a>(&self, key: &'a [u8]) -> Result<Name<'a>, Error> {
        check_key(key)?;
        if key[0] == OWN_KEYS {
            return Err(Error::ReservedKey);
        }
        Ok(match self.envelope.name(key) {
            // One key in 256 would be hidden behind one of the switches' own.
            Name::Hidden(hidden) => Name::Hidden(hidden.not_beginning_with(OWN_KEYS)),
            open => open,
        })
    }
}
