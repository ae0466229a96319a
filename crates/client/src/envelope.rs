//! How keys and values travel: as they are, or sealed.

use std::{borrow::Cow, net::SocketAddr};

use bytes::Bytes;
use wire::Flags;

use crate::{Error, HiddenKey, Seal, TenantSeal};

/// What keys and values travel in: nothing, or a seal.
pub struct Envelope(Option<TenantSeal>);

/// A key as it stands in packets.
pub enum Name<'a> {
    /// As the caller has it.
    Open(&'a [u8]),
    /// The hidden one of a seal.
    Hidden(HiddenKey),
}

impl AsRef<[u8]> for Name<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Name::Open(key) => key,
            Name::Hidden(key) => key.as_ref(),
        }
    }
}

impl Envelope {
    /// That of a tenant, with its seal if there is one.
    pub fn new(seal: Option<&Seal>, tenant: u32) -> Envelope {
        Envelope(seal.map(|seal| seal.of_tenant(tenant)))
    }

    /// Bytes that it adds to each value.
    pub fn overhead(&self) -> usize {
        self.0.as_ref().map_or(0, |_| Seal::OVERHEAD)
    }

    /// What to ask for.
    pub fn name<'a>(&self, key: &'a [u8]) -> Name<'a> {
        match &self.0 {
            Some(seal) => Name::Hidden(seal.hide(key)),
            None => Name::Open(key),
        }
    }

    /// What to write.
    pub fn close<'a>(&self, name: &Name<'_>, value: &'a [u8]) -> Cow<'a, [u8]> {
        match (&self.0, name) {
            (Some(seal), Name::Hidden(key)) => seal.seal(key, value).into(),
            _ => value.into(),
        }
    }

    /// What was read from `store`, or from a switch before it as `flags` say. `name` is the key as
    /// it travelled.
    ///
    /// # Errors
    /// [`Error::NotOpened`]: the value was sealed with another key, for another name, or not
    /// at all.
    pub fn open(
        &self,
        name: &[u8],
        value: Bytes,
        store: SocketAddr,
        flags: Flags,
    ) -> Result<Bytes, Error> {
        let Some(seal) = &self.0 else { return Ok(value) };
        let key = HiddenKey(name.try_into().expect("hidden keys have one length"));
        seal.open(&key, &value).map(Bytes::from).map_err(|why| Error::NotOpened {
            store,
            from_switch: flags.has(Flags::CACHED),
            why,
        })
    }
}
