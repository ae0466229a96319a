//! What switches have.

use chain::{
    record::{KeyRecord, SessionRecord},
    state::{PEER, PEERS_AT},
};
use chain_wire::session_key;

use super::{CLIENT, KEY, Net, PLACE};

impl Net {
    /// The lease that one has of the other passes.
    pub fn outlive(&self, slot: usize, of: usize) {
        let mut state = self.state(slot);
        state[PEERS_AT + PEER * of + 8..][..8].copy_from_slice(&1u64.to_ne_bytes());
        self.set_state(slot, &state);
    }

    pub fn state(&self, slot: usize) -> Vec<u8> {
        let at = self.switches[slot].switch.backing();
        at.element("chain_states", PLACE).expect("an element")
    }

    pub fn set_state(&self, slot: usize, state: &[u8]) {
        let at = self.switches[slot].switch.backing();
        at.set_element("chain_states", PLACE, state).expect("writable");
    }

    /// What a switch has of the key.
    pub fn record(&self, slot: usize) -> KeyRecord {
        KeyRecord::decode(&self.bytes(slot, KEY)).expect("a record")
    }

    pub fn session(&self, slot: usize) -> SessionRecord {
        let bytes = self.bytes(slot, &session_key(CLIENT));
        SessionRecord::decode(&bytes).expect("a record")
    }

    fn bytes(&self, slot: usize, key: &[u8]) -> Vec<u8> {
        let table = &self.switches[slot].switch.table;
        let held = table.scan().into_iter().find(|held| held.key == key);
        table.given(held.expect("an item").place).expect("quiet")
    }

    /// Last and clean version at each switch.
    pub fn versions(&self) -> Vec<(u64, u64)> {
        let all: Vec<usize> = (0..self.switches.len()).collect();
        self.versions_of(&all)
    }

    pub fn versions_of(&self, slots: &[usize]) -> Vec<(u64, u64)> {
        let of = |slot: &usize| {
            let record = self.record(*slot);
            (record.last, record.clean)
        };
        slots.iter().map(of).collect()
    }
}
