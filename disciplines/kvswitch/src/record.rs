//! What stands behind a hot key in the switch: which stores have it, and whose turn it is
//! (`redirect.h`).

use std::net::IpAddr;

use bytes::Bytes;

use crate::servers::Server;

/// Most turns of a key. One store may have several.
pub const TURNS_MAX: usize = 64;
/// Bytes of a record before its turns.
pub const HEADER: usize = 20;
/// Bytes of a turn whose store has an IPv4 address.
pub const IPV4_TURN: usize = 8;
/// Bytes of a turn whose store has an IPv6 address.
pub const IPV6_TURN: usize = 20;

/// The stores that a key's reads go to. Each is named, counted and addressed as the record says,
/// whatever else the switch knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// The store that owns the key. Reads that no replica takes go there, whether or not it has
    /// turns.
    pub home: Server,
    /// It does not own the key, but is where another switch sends what it has for this one's rack:
    /// reads that name it take turns, and no others.
    pub is_entry: bool,
    /// The others that have it, each once, with addresses of the home's kind. Each has a turn, in
    /// this order.
    pub replicas: Vec<Server>,
    /// Whose turns come after those, by holder id: the home, and replicas that have more of the
    /// reads than others.
    pub again: Vec<u16>,
    /// Replicas whose copies may be read as far as is known; the others are read once they confirm
    /// it. A hint: a replica that is named here by mistake costs its readers a round trip.
    pub valid: Vec<u16>,
}

impl Replicas {
    /// The bytes of [`decide::Record::Given`], in the order of the switch's processor. `None`: no
    /// turn or more than [`TURNS_MAX`], a replica that is there twice, is the home, or has an
    /// address of another kind, or a turn of one that is neither.
    pub fn encode(&self) -> Option<Bytes> {
        let Replicas { home, replicas, .. } = self;
        let is_twice = |(at, store): (usize, &Server)| {
            let same = |other: &Server| other.holder == store.holder;
            same(home) || replicas[..at].iter().any(same)
        };
        let is_ipv6 = home.address.is_ipv6();
        let is_other_kind = |store: &Server| store.address.is_ipv6() != is_ipv6;
        if replicas.iter().enumerate().any(is_twice) || replicas.iter().any(is_other_kind) {
            return None;
        }
        let turns = self.turns()?;
        let bits = turns.iter().enumerate();
        let bits = bits.filter(|(_, store)| self.valid.contains(&store.holder));
        let bits = bits.fold(0u64, |bits, (turn, _)| bits | 1 << turn);
        let mut bytes = Vec::with_capacity(HEADER + IPV6_TURN * turns.len());
        // The scale of one turn is 0, which leads to that turn.
        let scale = (1u64 << 32).div_ceil(turns.len() as u64) as u32;
        bytes.extend(scale.to_ne_bytes());
        bytes.extend([turns.len() as u8, replicas.len() as u8]);
        bytes.extend(home.holder.to_ne_bytes());
        bytes.extend(bits.to_ne_bytes());
        bytes.extend(home.place.to_ne_bytes());
        bytes.extend([u8::from(is_ipv6), u8::from(self.is_entry)]);
        turns.iter().for_each(|store| extend(&mut bytes, store));
        Some(bytes.into())
    }

    /// Whose turn is when. `None`: nobody's, too many, or of one that has no copy.
    fn turns(&self) -> Option<Vec<&Server>> {
        let has_it = |holder: &u16| {
            let mut all = self.replicas.iter().chain([&self.home]);
            all.find(|store| store.holder == *holder)
        };
        let again: Option<Vec<&Server>> = self.again.iter().map(has_it).collect();
        let turns: Vec<&Server> = self.replicas.iter().chain(again?).collect();
        (1..=TURNS_MAX).contains(&turns.len()).then_some(turns)
    }
}

fn extend(bytes: &mut Vec<u8>, store: &Server) {
    bytes.extend(store.holder.to_ne_bytes());
    bytes.extend(store.place.to_ne_bytes());
    match store.address {
        IpAddr::V4(v4) => bytes.extend(v4.octets()),
        IpAddr::V6(v6) => bytes.extend(v6.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: u16 = 0x8002;

    fn server(holder: u16) -> Server {
        Server {
            holder,
            address: IpAddr::from([10, 0, 0, holder as u8]),
            place: 100 + (holder & 0xff),
        }
    }

    /// The same with an IPv6 address.
    fn server6(holder: u16) -> Server {
        Server { address: IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, holder]), ..server(holder) }
    }

    fn encoded(replicas: &[u16], again: &[u16]) -> Option<Bytes> {
        of(&server, replicas, again)
    }

    fn of(server: &dyn Fn(u16) -> Server, replicas: &[u16], again: &[u16]) -> Option<Bytes> {
        let record = Replicas {
            home: server(HOME),
            is_entry: false,
            replicas: replicas.iter().copied().map(server).collect(),
            again: again.to_vec(),
            valid: vec![0x8001],
        };
        record.encode()
    }

    #[test]
    fn its_bytes_are_what_the_c_reads() {
        let bytes = encoded(&[0x8000, 0x8001], &[HOME, 0x8001]).expect("a record");
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(bytes.len(), HEADER + 4 * IPV4_TURN);
        assert_eq!(bytes[..4], (1u32 << 30).to_ne_bytes(), "2^32 over the turns");
        assert_eq!(bytes[4..6], [4, 2], "turns, replicas");
        assert_eq!(half(6), HOME);
        assert_eq!(bytes[8..16], 0b1010u64.to_ne_bytes(), "valid");
        assert_eq!((half(16), bytes[18]), (102, 0), "the home's place, IPv4");
        let turns = [20, 28, 36, 44];
        assert_eq!(turns.map(half), [0x8000, 0x8001, HOME, 0x8001]);
        assert_eq!(turns.map(|at| half(at + 2)), [100, 101, 102, 101]);
        assert_eq!(bytes[32..36], [10, 0, 0, 1]);
    }

    #[test]
    fn ipv6_addresses_take_four_words() {
        let bytes = of(&server6, &[0x8000, 0x8001], &[]).expect("a record");
        assert_eq!((bytes.len(), bytes[18]), (HEADER + 2 * IPV6_TURN, 1));
        assert_eq!(bytes[40..44], [0x8001u16, 101].map(u16::to_ne_bytes).concat());
        assert_eq!(bytes[44..46], [0xfd, 0]);
        assert_eq!(bytes[58..60], [0x80, 1]);
    }

    /// As `turn_of` in the C.
    #[test]
    fn every_number_of_turns_comes_round() {
        let all: Vec<u16> = (16..16 + TURNS_MAX as u16).map(|n| 0x8000 | n).collect();
        for turns in 1..=TURNS_MAX as u32 {
            let bytes = encoded(&all[..turns as usize], &[]).expect("a record");
            let scale = u32::from_ne_bytes(*bytes.first_chunk().expect("four bytes"));
            for counted in 0..=0xffff {
                let part = u64::from(scale.wrapping_mul(counted));
                assert_eq!((part * u64::from(turns)) >> 32, u64::from(counted % turns));
            }
        }
    }

    #[test]
    fn what_the_switch_could_not_read_is_refused() {
        assert_eq!(encoded(&[], &[]), None, "no turns");
        assert_eq!(encoded(&[0x8001, 0x8001], &[]), None);
        assert_eq!(encoded(&[0x8001, HOME], &[]), None);
        assert_eq!(encoded(&[0x8001], &[0x8003]), None);
        let mixed = |holder: u16| {
            if holder == HOME { server(holder) } else { server6(holder) }
        };
        assert_eq!(of(&mixed, &[0x8001], &[HOME]), None, "two kinds of addresses");
        let many: Vec<u16> = (16..=16 + TURNS_MAX as u16).map(|n| 0x8000 | n).collect();
        assert_eq!(encoded(&many, &[]), None);
        assert!(encoded(&many[1..], &[]).is_some());
    }
}
