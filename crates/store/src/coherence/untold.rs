//! Stores that hold copies and hear of a write only if its home asks them, whatever the write says
//! (docs/coherence.md, "Replicas"): what saves time, and nothing that a rule rests on.

use super::SwitchId;

/// Pairs that are remembered of one key; what comes on top waits each time.
const MOST: usize = 128;

/// A key's: pairs of the switch that a write passed (0: none) and a store that heard nothing of it
/// until it was asked. A key without any takes no memory beside the pointer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UntoldStores(Option<Box<[(SwitchId, SwitchId)]>>);

impl UntoldStores {
    fn pairs(&self) -> &[(SwitchId, SwitchId)] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether this is one of them.
    pub fn has(&self, pair: (SwitchId, SwitchId)) -> bool {
        self.pairs().contains(&pair)
    }

    /// The store had to be asked.
    pub fn note(&mut self, pair: (SwitchId, SwitchId)) {
        if self.pairs().len() < MOST && !self.has(pair) {
            let more = self.pairs().iter().copied().chain([pair]);
            self.0 = Some(more.collect());
        }
    }

    /// It had not.
    pub fn forget(&mut self, pair: (SwitchId, SwitchId)) {
        if self.has(pair) {
            let others = self.pairs().iter().copied().filter(|other| *other != pair);
            let others: Box<[_]> = others.collect();
            self.0 = Some(others).filter(|others| !others.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_known_until_it_is_forgotten_and_there_is_a_most() {
        let mut untold = UntoldStores::default();
        (0..2).for_each(|_| untold.note((1, 2)));
        untold.note((1, 3));
        assert!(untold.has((1, 2)) && untold.has((1, 3)) && !untold.has((2, 3)));
        untold.forget((1, 2));
        assert!(!untold.has((1, 2)) && untold.has((1, 3)));
        untold.forget((1, 3));
        assert_eq!(untold, UntoldStores::default());
        (0..200).for_each(|store| untold.note((7, store)));
        assert_eq!(untold.pairs().len(), MOST);
    }
}
