use std::net::SocketAddr;

use bytes::Bytes;
use wire::{Flags, HEADER_LEN, Header, KeyHash, MAX_KEY, MAX_PAYLOAD, Op, Packet, Secrets};

use crate::Error;

/// What one call asks for, before it has an id.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub op: Op,
    pub flags: Flags,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub expiry_ms: u32,
    pub version: u64,
}

impl<'a> Request<'a> {
    pub const fn new(op: Op, key: &'a [u8]) -> Request<'a> {
        Request {
            op,
            flags: Flags::NONE,
            key,
            value: &[],
            expiry_ms: 0,
            version: 0,
        }
    }

    /// Checks that one packet to `store` can carry the value and `seal_bytes` more, which its seal will take.
    pub fn check(&self, store: SocketAddr, seal_bytes: usize) -> Result<(), Error> {
        let len = self.value.len();
        let max = max_payload(store) - HEADER_LEN - self.key.len() - seal_bytes;
        if len > max {
            let sealed = seal_bytes > 0;
            return Err(Error::ValueLength { len, max, sealed });
        }
        Ok(())
    }

    /// The datagram, padded with zeros to `pad_to` bytes where it is shorter.
    pub fn encode(&self, sender: &Sender, id: Id, hash: KeyHash, pad_to: usize) -> Bytes {
        let header = Header {
            flags: self.flags,
            tenant: sender.tenant,
            expiry_ms: self.expiry_ms,
            client: id.client,
            request: id.request,
            key_hash: hash,
            version: self.version,
            ..Header::new(self.op)
        };
        let len = HEADER_LEN + self.key.len() + self.value.len();
        let mut datagram = Vec::with_capacity(len.max(pad_to));
        Packet::new(header, self.key, self.value)
            .encode(&sender.secrets.tag, &mut datagram)
            .expect("lengths were checked before");
        datagram.resize(len.max(pad_to), 0);
        datagram.into()
    }
}

/// Whether a key has a length that is possible.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Error::KeyLength(key.len()));
    }
    Ok(())
}

/// In whose name requests are signed.
pub(crate) struct Sender {
    pub tenant: u32,
    pub secrets: Secrets,
}

/// What ties an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub client: u32,
    pub request: u32,
}

/// Longest UDP payload in bytes to this store that fits an Ethernet frame of 1500 bytes.
pub(crate) const fn max_payload(store: SocketAddr) -> usize {
    const IPV6_HEADER_EXCESS: usize = 20;
    if store.is_ipv6() {
        MAX_PAYLOAD - IPV6_HEADER_EXCESS
    } else {
        MAX_PAYLOAD
    }
}
