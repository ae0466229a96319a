//! Which members do not answer: by what the programs have of them, so that a process that stands
//! still is not taken for a switch that does.

use crate::{
    state::State,
    view::{SLOTS, View},
};

/// Beats without an answer after which a member is silent: 200 ms.
const BEATS: u32 = 10;
/// Before its first answer under a view: it has to be told of that. Until then the control half
/// decides, which knows whether it lives.
const FIRST_BEATS: u32 = 50;

/// How long each of the others has not been heard, under one view.
#[derive(Debug, Default)]
pub struct Silence {
    heard_ns: [u64; SLOTS],
    beats: [u32; SLOTS],
}

impl Silence {
    /// A beat was sent to everybody.
    pub fn sent(&mut self) {
        self.beats.iter_mut().for_each(|beats| *beats += 1);
    }

    /// The slots of members that are silent, and of those that were not heard under this view yet
    /// though they should have been, as masks.
    pub fn look(&mut self, state: &State, view: &View, own: u8) -> (u16, u16) {
        let (mut silent, mut unheard) = (0, 0);
        for (slot, peer) in state.peers.iter().enumerate() {
            let is_new = peer.confirmed_ns > self.heard_ns[slot];
            if peer.confirmed_number == view.number && is_new {
                self.heard_ns[slot] = peer.confirmed_ns;
                self.beats[slot] = 0;
            }
            let is_other = view.members[slot].is_some() && slot != usize::from(own);
            if !is_other || self.beats[slot] <= BEATS {
                continue;
            }
            match self.heard_ns[slot] {
                0 if self.beats[slot] <= FIRST_BEATS => unheard |= 1 << slot,
                _ => silent |= 1 << slot,
            }
        }
        (silent, unheard)
    }
}
