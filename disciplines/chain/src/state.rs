//! What the programs of a switch know of the other members of a tenant (`struct state` in
//! `view.h`), in the order of its processor.

use crate::view::SLOTS;

/// The map: from a tenant's place to its state.
pub const MAP: &str = "chain_states";
/// Bytes of a state.
pub const LEN: usize = PEERS_AT + SLOTS * PEER;
/// Where the first peer stands; the others follow by slot.
pub const PEERS_AT: usize = 64;
/// Bytes of a peer.
pub const PEER: usize = 40;
/// Where it stands what was granted to those who had slots before.
pub const FORMER_AT: usize = 32;
/// How far clocks of one machine may be apart (`CLOCK_MARGIN_NS` in `bpf/coherence.h`).
const CLOCK_MARGIN_NS: u64 = 10_000_000;

/// What this switch and another one confirmed to each other, in times of this switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The number of the view that the other one confirmed to this one ...
    pub confirmed_number: u64,
    /// ... no earlier than this.
    pub confirmed_ns: u64,
    /// The number of the view that this one confirmed to the other ...
    pub granted_number: u64,
    /// ... no later than this.
    pub granted_ns: u64,
}

/// The state of a tenant at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The number of the newest view that a packet met.
    pub number: u64,
    /// When the first packet met it.
    pub adopted_ns: u64,
    /// The tenant.
    pub tenant: u32,
    /// When this one last confirmed a view to a switch whose slot another one has by now, no later
    /// than this; 0: never.
    pub former_granted_ns: u64,
    /// The other members, by slot.
    pub peers: [Peer; SLOTS],
}

impl State {
    /// The state of a tenant of which no packet came.
    pub fn nothing() -> State {
        State {
            number: 0,
            adopted_ns: 0,
            tenant: 0,
            former_granted_ns: 0,
            peers: [Peer::default(); SLOTS],
        }
    }

    /// Reads a state. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<State> {
        let bytes = bytes.first_chunk::<LEN>()?;
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let peer = |slot: usize| {
            let at = PEERS_AT + slot * PEER;
            Some(Peer {
                confirmed_number: word(at)?,
                confirmed_ns: word(at + 8)?,
                granted_number: word(at + 16)?,
                granted_ns: word(at + 24)?,
            })
        };
        let mut peers = [Peer::default(); SLOTS];
        for (slot, to) in peers.iter_mut().enumerate() {
            *to = peer(slot)?;
        }
        Some(State {
            number: word(0)?,
            adopted_ns: word(8)?,
            tenant: u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?),
            former_granted_ns: word(FORMER_AT)?,
            peers,
        })
    }

    /// Whether another switch may still answer under an earlier view than that of this number,
    /// because this one confirmed that to it; as `is_held` in `view.h`. Once it is false it stays
    /// so for that number.
    pub fn is_held(&self, now_ns: u64, number: u64, lease_ms: u32) -> bool {
        let lease_ns = u64::from(lease_ms) * 1_000_000;
        let lasts_ns = lease_ns + lease_ns / 64 + CLOCK_MARGIN_NS;
        let lasts = |granted_ns: u64| granted_ns != 0 && now_ns < granted_ns + lasts_ns;
        let holds = |peer: &Peer| peer.granted_number != number && lasts(peer.granted_ns);
        self.number != number
            || now_ns < self.adopted_ns + CLOCK_MARGIN_NS
            || self.peers.iter().any(holds)
            || lasts(self.former_granted_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(words: &[(usize, u64)]) -> State {
        let mut bytes = [0; LEN];
        for (at, word) in words {
            bytes[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        State::decode(&bytes).expect("a state")
    }

    #[test]
    fn a_view_is_held_until_what_was_granted_under_another_is_over() {
        const MS: u64 = 1_000_000;
        // Adopted at 100 ms; slot 2 was granted the view before at 90 ms, slot 3 the present one.
        let [second, third] = [2, 3].map(|slot| PEERS_AT + slot * PEER);
        let mut words = vec![
            (0, 5),
            (8, 100 * MS),
            (second + 16, 4),
            (second + 24, 90 * MS),
            (third + 16, 5),
            (third + 24, 300 * MS),
        ];
        let held = |words: &[_], now_ms, number| state(words).is_held(now_ms * MS, number, 250);
        assert!(held(&words, 105, 5) && held(&words, 353, 5));
        assert!(!held(&words, 354, 5));
        assert!(held(&words, 1000, 6), "it is not in force");
        // Whoever had slot 3 before was granted something at 95 ms.
        words.push((FORMER_AT, 95 * MS));
        assert!(held(&words, 358, 5) && !held(&words, 359, 5));
        assert_eq!(State::decode(&[0; LEN - 1]), None);
    }
}
