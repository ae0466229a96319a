//! A few operations of a history, by index: sets that the checker copies and compares millions of
//! times, and that have a handful of members each. In order in one piece of memory both is several
//! times as fast as in a tree.

/// Indices in ascending order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Indices(Vec<usize>);

impl Indices {
    /// Whether it is one of them.
    pub fn contains(&self, index: usize) -> bool {
        self.0.contains(&index)
    }

    /// From now on it is.
    pub fn insert(&mut self, index: usize) {
        if let Err(place) = self.0.binary_search(&index) {
            self.0.insert(place, index);
        }
    }

    /// From now on it is not.
    pub fn remove(&mut self, index: usize) {
        if let Ok(place) = self.0.binary_search(&index) {
            self.0.remove(place);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Whether each of these is one of the others, too.
    pub fn is_subset(&self, others: &Indices) -> bool {
        let mut rest = others.iter();
        self.0.len() <= others.0.len() && self.iter().all(|one| rest.any(|other| other == one))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn indices(all: &BTreeSet<usize>) -> Indices {
        // Backwards, so that places are looked for.
        let mut indices = Indices::default();
        all.iter().rev().for_each(|one| indices.insert(*one));
        indices
    }

    proptest! {
        #[test]
        fn they_are_a_set(
            some in prop::collection::btree_set(0..12usize, 0..6),
            others in prop::collection::btree_set(0..12usize, 0..6),
            one in 0..12usize,
        ) {
            let (mut a, b) = (indices(&some), indices(&others));
            prop_assert!(a.iter().eq(some.iter().copied()));
            prop_assert_eq!(a.contains(one), some.contains(&one));
            prop_assert_eq!(a.is_subset(&b), some.is_subset(&others));
            let with_one: BTreeSet<usize> = some.iter().copied().chain([one]).collect();
            a.insert(one);
            prop_assert_eq!(&a, &indices(&with_one));
            a.remove(one);
            let without: BTreeSet<usize> = some.into_iter().filter(|other| *other != one).collect();
            prop_assert_eq!(&a, &indices(&without));
        }
    }
}
