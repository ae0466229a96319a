//! Which members do not answer: by what the programs have of them, so that a process that stands still is not taken for a switch that
//! does.

use crate::{
    state::State,
    view::{SLOTS, View},
};

/// Beats without an answer after which a member is silent: 200 ms.
const BEATS: u32 = 10;
/// Before its first answer under a view: it has to be told of that.
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

    /// The slots of members that are silent, as a mask.
    pub fn look(&mut self, state: &State, view: &View, own: u8) -> u16 {
        let mut silent = 0;
        for (slot, peer) in state.peers.iter().enumerate() {
            let is_new = peer.confirmed_ns > self.heard_ns[slot];
            if peer.confirmed_number == view.number && is_new {
                self.heard_ns[slot] = peer.confirmed_ns;
                self.beats[slot] = 0;
            }
            let most = match self.heard_ns[slot] {
                0 => FIRST_BEATS,
                _ => BEATS,
            };
            let is_other = view.members[slot].is_some() && slot != usize::from(own);
            if is_other && self.beats[slot] > most {
                silent |= 1 << slot;
            }
        }
        silent
    }
}
