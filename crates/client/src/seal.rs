//! Sealed values: what leaves this process tells nobody without the key what is asked for and what
//! is stored.
//!
//! In go a tenant's key and value; out come a hidden key of 32 bytes and a sealed value, which
//! switches cache and stores keep like any other. The client seals before it hashes, routes and
//! signs, and opens after it has matched an answer to its request, so nothing between here and the
//! data knows of it. `docs/security.md` says what this hides and what it does not. What it costs:
//! one BLAKE3 of the key, one XChaCha20-Poly1305 over the value, one copy of it.
//!
//! | what | how |
//! | --- | --- |
//! | two sub-keys per tenant | BLAKE3 `derive_key`, one context each, of the seal key and the tenant's number |
//! | hidden key | BLAKE3 keyed hash of the key: equal keys of two tenants differ, and nothing of it can be guessed without the seal key |
//! | sealed value | format byte, 24-byte random nonce, ciphertext, 16-byte tag |
//! | bound to the value | format byte, tenant, hidden key: a value that is moved to another key does not open |

mod file;

use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce, aead::AeadInOut};
use zeroize::Zeroizing;

pub use file::SealKeyError;

/// First byte of a sealed value: the only format so far. Another cipher or layout takes
/// another number.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const VALUE_AT: usize = 1 + NONCE_BYTES;

/// Names of the sub-keys. Changing one makes every sealed value unreadable.
const HIDE_CONTEXT: &str = "shortstop 2026 sealed values: key that hides a tenant's keys";
const VALUE_CONTEXT: &str = "shortstop 2026 sealed values: key that seals a tenant's values";

/// The key that seals values, 32 bytes, for any number of tenants. Wiped from memory when dropped.
#[derive(Clone)]
pub struct Seal {
    key: Zeroizing<[u8; Seal::KEY_BYTES]>,
}

impl Seal {
    /// Bytes of a seal key.
    pub const KEY_BYTES: usize = 32;
    /// Bytes of every hidden key, whatever the length of the key.
    pub const HIDDEN_KEY_BYTES: usize = 32;
    /// Bytes by which a sealed value is longer than the value.
    pub const OVERHEAD: usize = VALUE_AT + TAG_BYTES;

    /// A seal under this key, which must come from a random source: it is not stretched as a
    /// password would have to be.
    pub fn new(key: [u8; Seal::KEY_BYTES]) -> Seal {
        Seal { key: Zeroizing::new(key) }
    }

    /// What seals one tenant's keys and values.
    pub fn of_tenant(&self, tenant: u32) -> TenantSeal {
        let mut material = Zeroizing::new([0; Seal::KEY_BYTES + 4]);
        material[..Seal::KEY_BYTES].copy_from_slice(&*self.key);
        material[Seal::KEY_BYTES..].copy_from_slice(&tenant.to_be_bytes());
        let value_key = Zeroizing::new(blake3::derive_key(VALUE_CONTEXT, &*material));
        TenantSeal {
            tenant,
            hide: Zeroizing::new(blake3::derive_key(HIDE_CONTEXT, &*material)),
            cipher: XChaCha20Poly1305::new((&*value_key).into()),
        }
    }
}

impl std::fmt::Debug for Seal {
    /// Never prints the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(hidden)")
    }
}

/// Seals one tenant's keys and values. Its keys are wiped from memory when it is dropped.
#[derive(Clone)]
pub struct TenantSeal {
    tenant: u32,
    hide: Zeroizing<[u8; 32]>,
    cipher: XChaCha20Poly1305,
}

impl TenantSeal {
    /// The key as the network sees it. The same key always gives the same, or it could not be
    /// found again.
    pub fn hide(&self, key: &[u8]) -> HiddenKey {
        HiddenKey(*blake3::keyed_hash(&self.hide, key).as_bytes())
    }

    /// The value as the network sees it, [`Seal::OVERHEAD`] bytes longer. No two calls give the
    /// same bytes.
    pub fn seal(&self, key: &HiddenKey, value: &[u8]) -> Vec<u8> {
        // 192 random bits do not repeat, however many clients share the key without knowing of
        // one another.
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let mut sealed = Vec::with_capacity(value.len() + Seal::OVERHEAD);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value);
        let tag = self
            .cipher
            .encrypt_inout_detached(
                &XNonce::from(nonce),
                &self.bound_to(FORMAT, key),
                (&mut sealed[VALUE_AT..]).into(),
            )
            .expect("the cipher takes 256 GiB at once");
        sealed.extend_from_slice(&tag);
        sealed
    }

    /// The value that was sealed for this key of this tenant.
    ///
    /// # Errors
    /// Why it does not open; nothing of its contents is given away then.
    pub fn open(&self, key: &HiddenKey, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (nonce, rest) = match sealed.split_first() {
            Some((&FORMAT, rest)) => rest.split_first_chunk().ok_or(OpenError::NotSealed)?,
            _ => return Err(OpenError::NotSealed),
        };
        let (ciphertext, tag) = rest.split_last_chunk().ok_or(OpenError::NotSealed)?;
        let mut value = ciphertext.to_vec();
        self.cipher
            .decrypt_inout_detached(
                &XNonce::from(*nonce),
                &self.bound_to(FORMAT, key),
                value.as_mut_slice().into(),
                &Tag::from(*tag as [u8; TAG_BYTES]),
            )
            .map_err(|_| OpenError::Refused)?;
        Ok(value)
    }

    /// What a sealed value cannot be separated from.
    fn bound_to(&self, format: u8, key: &HiddenKey) -> [u8; 37] {
        let mut bound = [format; 37];
        bound[1..5].copy_from_slice(&self.tenant.to_be_bytes());
        bound[5..].copy_from_slice(&key.0);
        bound
    }
}

impl std::fmt::Debug for TenantSeal {
    /// Never prints a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TenantSeal(tenant {}, hidden)", self.tenant)
    }
}

/// A key as the network sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HiddenKey(pub(crate) [u8; Seal::HIDDEN_KEY_BYTES]);

impl HiddenKey {
    /// The same name, unless it begins with this byte: then its first byte is the complement of
    /// that. It stays a name of its own, since the other 31 bytes tell it from all others.
    pub fn not_beginning_with(mut self, byte: u8) -> HiddenKey {
        if self.0[0] == byte {
            self.0[0] = !byte;
        }
        self
    }
}

impl AsRef<[u8]> for HiddenKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Why a value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Too short for a sealed value, or of a format that is not known here.
    #[error(
        "it is no sealed value of format {FORMAT}: it was written by something that does not seal, or by a newer version"
    )]
    NotSealed,
    /// Sealed, but not with this key for this key of this tenant; or altered since.
    #[error(
        "it was sealed with another seal key or for another key or tenant, or it was altered on its way or where it is kept"
    )]
    Refused,
}

#[cfg(test)]
mod tests;
