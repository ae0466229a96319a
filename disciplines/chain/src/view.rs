//! What a switch knows of a tenant's chains: one row of its map, as `view.h` reads it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use chain_wire::MEMBERS_MOST;
use decide::Row;
use wire::KeyHash;

/// The map: from a tenant's number to its view.
pub const MAP: &str = "chain_views";
/// The map of what there is no room for ([`no_room_row`]).
pub const FULL: &str = "chain_full";
/// Rows of [`FULL`] that a tenant has at most.
pub const FULL_ROWS: u32 = 16;
/// Bytes of a view.
pub const LEN: usize = 2120;
/// Slots of switches that a tenant has.
pub const SLOTS: usize = 16;
/// Chains that a tenant can have.
pub const CHAINS: usize = chain_wire::CHAINS_MOST as usize;

const MEMBERS_AT: usize = 64;
const MEMBER: usize = 32;
const CHAINS_AT: usize = MEMBERS_AT + SLOTS * MEMBER;
const CHAIN: usize = 24;
const AGAIN_AT: usize = CHAINS_AT + CHAINS * CHAIN;
const NO_SLOT: u8 = 255;
const IPV6: u8 = 1;
const RELAXED: u8 = 2;

/// The row that says that a tenant has no room for the key or session with this hash; `None`: for
/// none at all.
pub fn no_room_row(tenant: u32, hash: Option<KeyHash>) -> Row {
    let mark = hash.map_or(0, |hash| ((hash.low() ^ hash.low() >> 32) as u32).max(1));
    Row {
        map: FULL.into(),
        key: [tenant.to_ne_bytes(), mark.to_ne_bytes()].concat().into(),
        value: Bytes::copy_from_slice(&1u32.to_ne_bytes()),
    }
}

/// The protocol, which says who answers reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Any member, while it knows that what it has is committed.
    NetCraq = 1,
    /// The last member.
    NetChain = 2,
}

/// A switch that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Where packets for it are sent; of one family in all of a view.
    pub address: IpAddr,
    /// The switch's number.
    pub switch: u16,
    /// The life of its tables.
    pub life: u64,
}

/// The switches that keep a part of the keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Their slots, the head first: 1 to [`MEMBERS_MOST`].
    pub slots: Vec<u8>,
    /// The last one takes part in every write, and has not all of the rest yet.
    pub filling: bool,
    /// If it is filling: what a key is to be marked with that it has in full. 0 if not.
    pub fill_number: u64,
}

/// A view: all that a switch knows of a tenant's chains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Used once: a generation in the high 16 bits, a counter below.
    pub number: u64,
    /// The tenant.
    pub tenant: u32,
    /// The slot of the switch that has this row; `None`: it has none any more.
    pub slot: Option<u8>,
    /// The protocol, which says who answers reads.
    pub protocol: Protocol,
    /// Whether clients that ask for it may read what is not known to be committed.
    pub is_relaxed: bool,
    /// The life of the tables that the row is for.
    pub life: u64,
    /// Sessions that were last used under a lower number may be removed.
    pub purge_below: u64,
    /// How long a member may rely on what another one confirmed. The same for as long as the tenant
    /// lives.
    pub lease_ms: u32,
    /// The member in each slot.
    pub members: [Option<Member>; SLOTS],
    /// 1 to [`CHAINS`]; a key's is [`chain_wire::chain_of`].
    pub chains: Vec<Chain>,
}

impl View {
    /// Whether some chain has this slot.
    pub fn is_in_chain(&self, slot: u8) -> bool {
        self.chains.iter().any(|chain| chain.slots.contains(&slot))
    }

    /// The row of a configuration. `None` for what cannot be: see the fields.
    pub fn row(&self) -> Option<Row> {
        Some(Row {
            map: MAP.into(),
            key: self.tenant.to_ne_bytes().to_vec().into(),
            value: self.encode()?,
        })
    }

    /// The row's value, in the order of the switch's processor; addresses and nothing else in
    /// network order.
    pub fn encode(&self) -> Option<Bytes> {
        let there = || self.members.iter().flatten();
        let is_ipv6 = there().next()?.address.is_ipv6();
        if there().any(|member| member.address.is_ipv6() != is_ipv6) || !self.is_possible() {
            return None;
        }
        let mut row = vec![0; LEN];
        let mut put = |at: usize, bytes: &[u8]| row[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.number.to_ne_bytes());
        put(8, &self.tenant.to_ne_bytes());
        put(12, &[self.slot.unwrap_or(NO_SLOT), self.protocol as u8]);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        put(14, &[flag(is_ipv6, IPV6) | flag(self.is_relaxed, RELAXED)]);
        put(16, &self.life.to_ne_bytes());
        put(24, &self.purge_below.to_ne_bytes());
        put(32, &self.lease_ms.to_ne_bytes());
        put(36, &(self.chains.len() as u32).to_ne_bytes());
        for (slot, member) in self.members.iter().enumerate() {
            let Some(member) = member else { continue };
            let at = MEMBERS_AT + slot * MEMBER;
            match member.address {
                IpAddr::V4(v4) => put(at, &v4.octets()),
                IpAddr::V6(v6) => put(at, &v6.octets()),
            }
            put(at + 16, &member.switch.to_ne_bytes());
            put(at + 18, &1u16.to_ne_bytes());
            put(at + 24, &member.life.to_ne_bytes());
        }
        for (number, chain) in self.chains.iter().enumerate() {
            let at = CHAINS_AT + number * CHAIN;
            put(at, &chain.slots);
            put(at + 8, &[chain.slots.len() as u8, chain.filling.into()]);
            put(at + 16, &chain.fill_number.to_ne_bytes());
        }
        put(AGAIN_AT, &self.number.to_ne_bytes());
        Some(row.into())
    }

    /// Reads a row's value. `None` for what [`View::encode`] does not give.
    pub fn decode(row: &[u8]) -> Option<View> {
        if row.len() != LEN || row[..8] != row[AGAIN_AT..] {
            return None;
        }
        let is_ipv6 = row[14] & IPV6 != 0;
        let member = |at: usize| -> Option<Member> {
            (half(row, at + 18)? == 1).then_some(())?;
            let all: [u8; 16] = row.get(at..at + 16)?.try_into().ok()?;
            let address = match is_ipv6 {
                false => Ipv4Addr::new(all[0], all[1], all[2], all[3]).into(),
                true => Ipv6Addr::from(all).into(),
            };
            Some(Member { address, switch: half(row, at + 16)?, life: word(row, at + 24)? })
        };
        let chain = |at: usize| -> Option<Chain> {
            let len = usize::from(row[at + 8]);
            Some(Chain {
                slots: row.get(at..at + 8)?.get(..len)?.to_vec(),
                filling: row[at + 9] == 1,
                fill_number: word(row, at + 16)?,
            })
        };
        let number_of_chains = u32::from_ne_bytes(*row[36..].first_chunk()?) as usize;
        if number_of_chains > CHAINS {
            return None;
        }
        let view = View {
            number: word(row, 0)?,
            tenant: u32::from_ne_bytes(*row[8..].first_chunk()?),
            slot: (row[12] != NO_SLOT).then_some(row[12]),
            protocol: match row[13] {
                1 => Protocol::NetCraq,
                2 => Protocol::NetChain,
                _ => return None,
            },
            is_relaxed: row[14] & RELAXED != 0,
            life: word(row, 16)?,
            purge_below: word(row, 24)?,
            lease_ms: u32::from_ne_bytes(*row[32..].first_chunk()?),
            members: std::array::from_fn(|slot| member(MEMBERS_AT + slot * MEMBER)),
            chains: (0..number_of_chains)
                .map(|number| chain(CHAINS_AT + number * CHAIN))
                .collect::<Option<_>>()?,
        };
        view.is_possible().then_some(view)
    }

    fn is_possible(&self) -> bool {
        let is_there =
            |slot: &u8| self.members.get(usize::from(*slot)).is_some_and(Option::is_some);
        let is_chain = |chain: &Chain| {
            let slots = &chain.slots;
            let mut again = (1..slots.len()).map(|at| slots[..at].contains(&slots[at]));
            (1..=MEMBERS_MOST).contains(&slots.len())
                && slots.iter().all(is_there)
                && !again.any(|again| again)
                && chain.filling == (chain.fill_number != 0)
        };
        self.number != 0
            && (1..=CHAINS).contains(&self.chains.len())
            && self.chains.iter().all(is_chain)
            && self.slot.is_none_or(|slot| usize::from(slot) < SLOTS)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let mut members = [None; SLOTS];
        for slot in 0..3u8 {
            members[usize::from(slot)] = Some(Member {
                address: IpAddr::from([10, 0, 0, 2 + slot]),
                switch: 10 + u16::from(slot),
                life: 100 + u64::from(slot),
            });
        }
        let chain = |slots: &[u8], fill_number| Chain {
            slots: slots.into(),
            filling: fill_number != 0,
            fill_number,
        };
        View {
            number: 1 << 48 | 9,
            tenant: 7,
            slot: Some(1),
            protocol: Protocol::NetCraq,
            is_relaxed: false,
            life: 101,
            purge_below: 5,
            lease_ms: 250,
            members,
            chains: vec![chain(&[0, 1, 2], 0), chain(&[2, 0], 1 << 48 | 9)],
        }
    }

    #[test]
    fn its_bytes_are_what_the_c_reads() {
        let row = view().encode().expect("possible");
        let word = |at| word(&row, at).expect("there");
        assert_eq!((word(0), word(2112)), (1 << 48 | 9, 1 << 48 | 9));
        assert_eq!((word(16), word(24)), (101, 5));
        assert_eq!(row[12..15], [1, 1, 0], "slot, protocol, IPv4");
        assert_eq!(row[64..68], [10, 0, 0, 2]);
        assert_eq!((half(&row, 112), half(&row, 114)), (Some(11), Some(1)));
        assert_eq!(word(120), 101);
        assert_eq!(row[576..579], [0, 1, 2]);
        assert_eq!(row[600..602], [2, 0]);
        assert_eq!(row[608..610], [2, 1], "length, filling");
        assert_eq!(word(616), 1 << 48 | 9);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut gone = view();
        gone.slot = None;
        let mut six = view();
        for member in six.members.iter_mut().flatten() {
            member.address = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, member.switch]);
        }
        let relaxed = View { is_relaxed: true, ..six.clone() };
        for view in [view(), gone, six, relaxed] {
            let row = view.encode().expect("possible");
            assert_eq!((row.len(), View::decode(&row)), (LEN, Some(view)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong: [fn(&mut View); 8] = [
            |v| v.number = 0,
            |v| v.chains.clear(),
            |v| v.chains = vec![v.chains[0].clone(); 65],
            |v| v.chains[0].slots.clear(),
            |v| v.chains[0].slots = vec![0, 3],
            |v| v.chains[0].slots = vec![0, 1, 0],
            |v| v.chains[0].filling = true,
            |v| v.members[0].as_mut().expect("there").address = IpAddr::from([0u16; 8]),
        ];
        for (at, change) in wrong.iter().enumerate() {
            let mut view = view();
            change(&mut view);
            assert_eq!(view.encode(), None, "change {at}");
        }
        let mut torn = view().encode().expect("possible").to_vec();
        torn[2112] ^= 1;
        assert_eq!(View::decode(&torn), None);
    }
}
