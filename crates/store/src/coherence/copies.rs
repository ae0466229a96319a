//! Rules 3 and 5: the copies of one key that there may be, at whom, and up to which epoch they were
//! granted.

use std::ops::Range;

use wire::Epoch;

use super::SwitchId;
use holder::mutants::{Mutant, mutant};

/// A switch that may hold a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The switch, X.
    pub switch: SwitchId,
    /// granted(X): the highest epoch number ever granted to it.
    pub granted: u64,
    /// The term of X's lease at that time; in any other term the copy is dead.
    pub term: u64,
}

/// The copies of one key, at most one for each switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Copies {
    /// In the order of their switches' numbers: thousands may hold one key, and each is heard of by
    /// itself.
    copies: Vec<Copy>,
}

impl Copies {
    /// In the order of their switches' numbers.
    pub fn all(&self) -> &[Copy] {
        &self.copies
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    fn find(&self, switch: SwitchId) -> Result<usize, usize> {
        self.copies.binary_search_by_key(&switch, |copy| copy.switch)
    }

    /// That of a switch.
    pub fn of(&self, switch: SwitchId) -> Option<&Copy> {
        self.find(switch).ok().map(|at| &self.copies[at])
    }

    /// How many there are at switches of these numbers.
    pub fn among(&self, numbers: Range<SwitchId>) -> usize {
        let before = |number| self.copies.partition_point(|copy| copy.switch < number);
        before(numbers.end) - before(numbers.start)
    }

    /// Forgets that of a switch, if it is such a one. Returns whether it was.
    pub fn end(&mut self, switch: SwitchId, is_over: impl Fn(&Copy) -> bool) -> bool {
        let at = self.find(switch).ok().filter(|at| is_over(&self.copies[*at]));
        at.map(|at| self.copies.remove(at)).is_some()
    }

    /// Keeps those that are alive.
    pub fn retain(&mut self, alive: impl Fn(&Copy) -> bool) {
        self.copies.retain(alive);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.copies.clear();
    }

    /// Rule 5: X is granted (X, e) in this term of its lease. granted(X) never falls. `room`:
    /// whether there may be one more. False: there may not, and it would have been one more.
    pub fn raise(&mut self, epoch: Epoch, term: u64, room: bool) -> bool {
        let (switch, granted) = (epoch.switch(), epoch.number());
        match self.find(switch) {
            Ok(at) => {
                let copy = &mut self.copies[at];
                if granted > copy.granted || mutant(Mutant::GrantedFalls) {
                    copy.granted = granted;
                }
                copy.term = term;
                true
            }
            Err(_) if !room => false,
            Err(at) => {
                self.copies.insert(at, Copy { switch, granted, term });
                true
            }
        }
    }
}
