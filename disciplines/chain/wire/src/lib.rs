//! What stands at the beginning of the values of chain operations, as far as clients write or read
//! it ([`wire::Op::ChainWrite`]).
//!
//! Bytes in, bytes out, as in `wire`. The client library and the discipline itself call it; the
//! same in C is `view.h` and `record.h`.

#![deny(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::OWN_KEYS;

/// Members that a chain can have.
pub const MEMBERS_MOST: usize = 8;
/// Chains that a tenant can have.
pub const CHAINS_MOST: u16 = 64;
/// Bytes that a request is padded to hold, so that it can be answered with any [`Route`].
pub const ROUTE_MOST: usize = Route::HEAD + MEMBERS_MOST * 16;
/// How many of a client's writes may be unanswered at once. A write's request is a multiple of this
/// plus a place below it that no other unanswered write of the client has.
pub const WRITES_MOST: u64 = 16;
/// The bit of a request's number that a read has and no write.
pub const READ_BIT: u64 = 1 << 63;

/// The key of the item that remembers a client's last writes.
pub fn session_key(client: u64) -> [u8; 10] {
    let mut key = [OWN_KEYS, b'S', 0, 0, 0, 0, 0, 0, 0, 0];
    key[2..].copy_from_slice(&client.to_be_bytes());
    key
}

/// What a write's value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The low half of the key hash of the client's [`session_key`].
    pub session: u64,
    /// With COMPARE: the version that the key must have, [`wire::VERSION_ABSENT`] or
    /// [`wire::VERSION_PRESENT`].
    pub condition: u64,
}

impl Ask {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Its bytes, in network order.
    pub fn encode(&self) -> [u8; Ask::LEN] {
        let mut bytes = [0; Ask::LEN];
        bytes[..8].copy_from_slice(&self.session.to_be_bytes());
        bytes[8..].copy_from_slice(&self.condition.to_be_bytes());
        bytes
    }

    /// Reads it from the beginning of a value, and what follows it. `None`: the value is shorter.
    pub fn decode(value: &[u8]) -> Option<(Ask, &[u8])> {
        let (session, rest) = value.split_first_chunk()?;
        let (condition, rest) = rest.split_first_chunk()?;
        let ask = Ask {
            session: u64::from_be_bytes(*session),
            condition: u64::from_be_bytes(*condition),
        };
        Some((ask, rest))
    }
}

/// Which switches keep a part of a tenant's keys, in their order: the head first, which takes
/// writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of the arrangement; goes into `epoch` of requests. Its high 16 bits are its generation:
    /// whatever was written under another one and is unanswered has an unknown outcome.
    pub number: u64,
    /// 1: any member answers reads; 2: the last.
    pub protocol: u8,
    /// Where in the chain the switch is that says so; `None`: it is no member.
    pub position: Option<u8>,
    /// Which of the tenant's chains it is.
    pub chain: u16,
    /// How many there are: the key's chain is `hash_high * chains >> 64`.
    pub chains: u16,
    /// Addresses of its members, 1 to [`MEMBERS_MOST`], all of one family.
    pub members: Vec<IpAddr>,
}

impl Route {
    /// Bytes before the addresses, which take 16 each.
    pub const HEAD: usize = 16;
    const NONE: u8 = 255;

    /// Its bytes, in network order; an IPv4 address is the first four of its bytes. `None` for what
    /// cannot be: see the fields.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let family = match self.members.first()? {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 6,
        };
        let mixed = |address: &IpAddr| address.is_ipv4() != (family == 4);
        if self.members.len() > MEMBERS_MOST
            || self.members.iter().any(mixed)
            || !self.is_possible()
        {
            return None;
        }
        let position = self.position.unwrap_or(Route::NONE);
        let mut bytes = self.number.to_be_bytes().to_vec();
        bytes.extend([self.protocol, self.members.len() as u8, position, family]);
        bytes.extend(self.chain.to_be_bytes());
        bytes.extend(self.chains.to_be_bytes());
        for address in &self.members {
            match address {
                IpAddr::V4(v4) => bytes.extend([&v4.octets()[..], &[0; 12]].concat()),
                IpAddr::V6(v6) => bytes.extend(v6.octets()),
            }
        }
        Some(bytes)
    }

    /// Reads one; bytes behind it are not looked at. `None`: too short, or nothing that
    /// [`Route::encode`] gives.
    pub fn decode(bytes: &[u8]) -> Option<Route> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (&[protocol, len, position, family], rest) = rest.split_first_chunk()?;
        let (chain, rest) = rest.split_first_chunk()?;
        let (chains, rest) = rest.split_first_chunk()?;
        let len = usize::from(len);
        if !(1..=MEMBERS_MOST).contains(&len) {
            return None;
        }
        let addresses = rest.get(..16 * len)?.chunks_exact(16);
        let address = |bytes: &[u8]| -> Option<IpAddr> {
            let all: [u8; 16] = bytes.try_into().ok()?;
            match family {
                4 => Some(Ipv4Addr::new(all[0], all[1], all[2], all[3]).into()),
                6 => Some(Ipv6Addr::from(all).into()),
                _ => None,
            }
        };
        let route = Route {
            number: u64::from_be_bytes(*number),
            protocol,
            position: (position != Route::NONE).then_some(position),
            chain: u16::from_be_bytes(*chain),
            chains: u16::from_be_bytes(*chains),
            members: addresses.map(address).collect::<Option<_>>()?,
        };
        route.is_possible().then_some(route)
    }

    fn is_possible(&self) -> bool {
        let is_member = self.position.is_none_or(|at| usize::from(at) < self.members.len());
        is_member && self.chain < self.chains && self.chains <= CHAINS_MOST
    }
}

/// Which of `chains` chains keeps the key with this hash.
pub fn chain_of(hash: wire::KeyHash, chains: u16) -> u16 {
    wire::partition_of(hash, chains.into()) as u16
}

/// The addresses that a request carries, before a write's value: those of the members behind the
/// one that it goes to. Their number stands in `expiry_ms`.
pub fn encode_list(members: &[IpAddr]) -> Vec<u8> {
    let mut bytes = vec![];
    for address in members {
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(members: &[[u8; 4]]) -> Route {
        Route {
            number: 1 << 48 | 7,
            protocol: 1,
            position: Some(0),
            chain: 2,
            chains: 3,
            members: members.iter().map(|octets| IpAddr::from(*octets)).collect(),
        }
    }

    #[test]
    fn an_ask_is_read_as_it_was_written() {
        let ask = Ask { session: 0x0102_0304_0506_0708, condition: u64::MAX };
        let bytes = [&ask.encode()[..], b"value"].concat();
        assert_eq!(bytes[..2], [1, 2], "network order");
        assert_eq!(Ask::decode(&bytes), Some((ask, &b"value"[..])));
        assert_eq!(Ask::decode(&bytes[..15]), None);
    }

    #[test]
    fn a_route_is_read_as_it_was_written() {
        // The packets that every implementation is held against have room for so much.
        assert_eq!(ROUTE_MOST, 144);
        let six = Route {
            position: None,
            members: vec![IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 9]); 8],
            ..route(&[])
        };
        for route in [route(&[[10, 0, 0, 2], [10, 0, 0, 3]]), six] {
            let bytes = route.encode().expect("possible");
            assert!(bytes.len() <= ROUTE_MOST);
            assert_eq!(Route::decode(&bytes), Some(route));
            for len in 0..bytes.len() {
                assert_eq!(Route::decode(&bytes[..len]), None);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = route(&[[10, 0, 0, 2]]);
        let bytes = good.encode().expect("possible");
        assert_eq!(route(&[]).encode(), None, "no member");
        assert_eq!(route(&[[1; 4]; 9]).encode(), None);
        let mixed = IpAddr::from([0u16; 8]);
        let members = vec![good.members[0], mixed];
        assert_eq!(Route { members, ..good }.encode(), None);
        for (at, byte) in [(9, 0), (9, 9), (10, 1), (11, 5), (13, 3), (14, 1)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert_eq!(Route::decode(&wrong), None, "byte {at}");
        }
    }
}
