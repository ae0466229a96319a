//! Blanks: cells that the agent gives to the programs, which make items of them by themselves for
//! keys that are read often. Agent and programs share a ring of them for each tenant.

use std::{
    collections::VecDeque,
    sync::atomic::Ordering::{Relaxed, SeqCst},
};

use super::{
    backing::Backing,
    cells::Place,
    mapped::SharedArray,
    table::{Table, reference},
};
use crate::{
    Error,
    layout::{BLANK_LEFT, BLANKS, Blanks, PROBATION_TENANTS},
};

/// The blanks that programs may turn into items of keys that are read often (`bpf/probation.h`).
/// One agent gives them, and learns what became of each; tenants go by their places
/// ([`crate::TenantEntry::place`]).
pub struct Probation {
    rings: SharedArray<Blanks>,
    /// By the tenant's place: what it was given, the oldest first, and has not been heard of since.
    given: Vec<VecDeque<Place>>,
}

/// What became of a blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlankOutcome {
    /// An item that is found in the slot.
    Item {
        /// Index over all slots.
        slot: u32,
        /// Where it lies.
        place: Place,
    },
    /// Nobody can have seen it: its cells are free at once.
    Not(Place),
}

impl Probation {
    /// Takes back what an earlier agent gave. Programs may still be turning some of it into items:
    /// they can be found when [`Table::quiesce`] has returned.
    ///
    /// # Errors
    /// If there are no such tables.
    pub fn open(at: impl Into<Backing>) -> Result<Probation, Error> {
        let mut probation = Probation {
            rings: at.into().mapped("probation")?,
            given: vec![VecDeque::new(); PROBATION_TENANTS],
        };
        for place in 0..PROBATION_TENANTS as u32 {
            probation.withdraw(place);
        }
        Ok(probation)
    }

    /// The tenants' places that may be given blanks are below this.
    pub fn places(&self) -> u32 {
        PROBATION_TENANTS as u32
    }

    /// From how many reads on that one CPU saw of a key within 67 ms it gets an item; 0: never.
    ///
    /// # Panics
    /// If there is no such place, here and below.
    pub fn set_threshold(&self, tenant: u32, reads: u32) {
        let threshold = &self.rings.at(tenant as usize).threshold;
        // Every read that misses looks at this line.
        if threshold.load(Relaxed) != reads {
            threshold.store(reads, Relaxed);
        }
    }

    /// With fewer blanks left than this, keys have to be read more than the threshold says: twice
    /// as much each time that they are halved.
    pub fn set_plenty(&self, tenant: u32, blanks: usize) {
        let plenty = &self.rings.at(tenant as usize).plenty;
        if plenty.load(Relaxed) != blanks as u32 {
            plenty.store(blanks as u32, Relaxed);
        }
    }

    /// How many blanks were given and have not been heard of since.
    pub fn given(&self, tenant: u32) -> usize {
        self.given[tenant as usize].len()
    }

    /// Of those the ones that no program has taken yet.
    pub fn left(&self, tenant: u32) -> usize {
        let ring = self.rings.at(tenant as usize);
        let next = ring.next.load(Relaxed);
        ring.end.load(Relaxed).wrapping_sub(next) as usize
    }

    /// Gives cells that nobody uses to the programs; false: there is no room for more.
    pub fn give(&mut self, tenant: u32, place: Place, table: &Table) -> bool {
        let given = &mut self.given[tenant as usize];
        if given.len() >= BLANKS {
            return false;
        }
        table.blank(place);
        let ring = self.rings.at(tenant as usize);
        let end = ring.end.load(Relaxed);
        let blank = &ring.blank[end as usize % BLANKS];
        blank.reference.store(reference(place), Relaxed);
        blank.slot.store(0, Relaxed);
        ring.end.store(end.wrapping_add(1), SeqCst);
        given.push_back(place);
        true
    }

    /// What became of the oldest blanks, up to one that a program is turning into an item just now.
    pub fn take_used(&mut self, tenant: u32) -> Vec<BlankOutcome> {
        let ring = self.rings.at(tenant as usize);
        let given = &mut self.given[tenant as usize];
        let end = ring.end.load(Relaxed);
        let mut used = vec![];
        while let Some(place) = given.front().copied() {
            let at = end.wrapping_sub(given.len() as u32);
            if at == ring.next.load(SeqCst) {
                break;
            }
            match ring.blank[at as usize % BLANKS].slot.load(SeqCst) {
                0 => break,
                BLANK_LEFT => used.push(BlankOutcome::Not(place)),
                slot => used.push(BlankOutcome::Item { slot: slot - 1, place }),
            }
            given.pop_front();
        }
        used
    }

    /// Takes back what no program has taken: no key gets an item by it any more. When
    /// [`Table::quiesce`] has returned, [`Probation::take_used`] leaves nothing.
    pub fn withdraw(&mut self, tenant: u32) {
        let ring = self.rings.at(tenant as usize);
        if ring.threshold.load(SeqCst) != 0 {
            ring.threshold.store(0, SeqCst);
        }
        let end = ring.end.load(Relaxed);
        let mut next = ring.next.load(SeqCst);
        while next != end
            && let Err(now) = ring.next.compare_exchange(next, end, SeqCst, SeqCst)
        {
            next = now;
        }
        while next != end {
            let blank = &ring.blank[next as usize % BLANKS];
            blank.slot.store(BLANK_LEFT, SeqCst);
            next = next.wrapping_add(1);
        }
    }
}
