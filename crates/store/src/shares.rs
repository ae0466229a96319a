//! Who has how much of a table that tenants share: half of it is divided among them, an equal share
//! each; the rest is whoever's comes.
//!
//! So a tenant finds room for its share whatever the others do, and one that is alone has the
//! whole table.

use std::collections::BTreeMap;

/// The places of a table.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Places that each tenant has taken.
    taken: BTreeMap<u32, usize>,
    all: usize,
    limit: usize,
    /// Places that a tenant finds free at any time, until it has so many.
    share: usize,
    /// Of the shares of all tenants, what is not taken. Those that have gone count until they have
    /// given their places back; while they have more than others lack it is below 0.
    kept: isize,
}

impl Shares {
    /// Of a table of `limit` places, shared by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> Shares {
        let mut shares = Shares { taken: BTreeMap::new(), all: 0, limit, share: 0, kept: 0 };
        shares.share_among(tenants);
        shares
    }

    /// From now on so many tenants share the table. What is taken stays.
    pub fn share_among(&mut self, tenants: usize) {
        let share = self.limit / 2 / tenants.max(1);
        let within: usize = self.taken.values().map(|taken| *taken.min(&share)).sum();
        self.share = share;
        self.kept = (share * tenants) as isize - within as isize;
    }

    /// Places that are taken.
    pub fn all(&self) -> usize {
        self.all
    }

    fn of(&self, tenant: u32) -> usize {
        self.taken.get(&tenant).copied().unwrap_or(0)
    }

    /// Whether a tenant may take one more place.
    pub fn has_room(&self, tenant: u32) -> bool {
        self.has_room_for(tenant, 1)
    }

    /// Whether a tenant may take so many more places.
    pub fn has_room_for(&self, tenant: u32, places: usize) -> bool {
        let own = self.share.saturating_sub(self.of(tenant));
        let others = usize::try_from(self.kept).unwrap_or(0).saturating_sub(own);
        self.all + others + places <= self.limit
    }

    /// Who is to give places back if this tenant finds too few: itself, unless it has less than its
    /// share and somebody has more than one, who took what nobody kept for a tenant that
    /// came later.
    pub fn who_gives(&self, tenant: u32) -> u32 {
        let other = self.who_has_more(tenant).filter(|_| self.is_owed(tenant));
        other.unwrap_or(tenant)
    }

    /// Who of the others has most, and more than a share.
    pub fn who_has_more(&self, tenant: u32) -> Option<u32> {
        let is_other = |(other, taken): &(&u32, &usize)| **other != tenant && **taken > self.share;
        let most = self.taken.iter().filter(is_other).max_by_key(|(_, taken)| **taken);
        most.map(|(tenant, _)| *tenant)
    }

    /// Whether a tenant has less than its share. It finds room then, unless there were fewer
    /// tenants when others took theirs.
    pub fn is_owed(&self, tenant: u32) -> bool {
        self.of(tenant) < self.share
    }

    /// A tenant takes so many places.
    pub fn take(&mut self, tenant: u32, places: usize) {
        if places == 0 {
            return;
        }
        let taken = self.taken.entry(tenant).or_default();
        let own = self.share.saturating_sub(*taken);
        *taken += places;
        self.all += places;
        self.kept -= own.min(places) as isize;
    }

    /// A tenant gives so many places back.
    pub fn give_back(&mut self, tenant: u32, places: usize) {
        let Some(taken) = self.taken.get_mut(&tenant).filter(|_| places > 0) else { return };
        *taken -= places;
        self.all -= places;
        self.kept += self.share.saturating_sub(*taken).min(places) as isize;
        if *taken == 0 {
            self.taken.remove(&tenant);
        }
    }

    /// A tenant gives everything back.
    pub fn forget(&mut self, tenant: u32) {
        self.give_back(tenant, self.of(tenant));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes as much as there is for a tenant.
    fn fill(shares: &mut Shares, tenant: u32) -> usize {
        let mut taken = 0;
        while shares.has_room(tenant) {
            shares.take(tenant, 1);
            taken += 1;
        }
        taken
    }

    #[test]
    fn each_tenant_finds_its_share_whatever_the_others_take() {
        let mut shares = Shares::new(80, 4);
        assert_eq!(fill(&mut shares, 1), 50, "all but three shares of ten");
        assert_eq!(fill(&mut shares, 2), 10);
        assert_eq!(fill(&mut shares, 3), 10);
        shares.give_back(1, 45);
        assert_eq!(fill(&mut shares, 2), 40, "what nobody else uses");
        assert_eq!(fill(&mut shares, 1), 5, "its own, and no more");
        assert_eq!(fill(&mut shares, 4), 10);
        assert_eq!(shares.all(), 80);
    }

    #[test]
    fn who_is_alone_has_everything() {
        let mut shares = Shares::new(7, 1);
        assert_eq!(fill(&mut shares, 1), 7);
        shares.share_among(2);
        assert_eq!(fill(&mut shares, 2), 0, "until something is given back");
        assert_eq!((shares.who_gives(2), shares.who_gives(1)), (1, 1), "by whom");
        shares.give_back(1, 4);
        assert_eq!(fill(&mut shares, 2), 4);
    }

    #[test]
    fn who_needs_many_places_finds_them_in_its_share_and_in_what_nobody_has() {
        let mut shares = Shares::new(80, 4);
        assert!(shares.has_room_for(1, 50) && !shares.has_room_for(1, 51));
        shares.take(1, 45);
        assert!(shares.has_room_for(2, 15) && !shares.has_room_for(2, 16));
        shares.forget(1);
        assert_eq!((shares.all(), shares.has_room_for(2, 50)), (0, true));
    }

    #[test]
    fn who_is_left_alone_has_everything_once_the_others_places_are_given_back() {
        let mut shares = Shares::new(100, 2);
        shares.take(1, 50);
        shares.take(2, 50);
        shares.share_among(1);
        assert!(!shares.has_room(2));
        shares.forget(1);
        assert_eq!(fill(&mut shares, 2), 50);
    }

    proptest! {
        #[test]
        fn the_books_are_right(steps in prop::collection::vec((0..5u32, 1..9usize, 0..3u8), 1..200)) {
            let (mut shares, mut tenants) = (Shares::new(100, 5), 5);
            for (tenant, places, what) in steps {
                match what {
                    0 => shares.take(tenant, places),
                    1 => shares.give_back(tenant, places.min(shares.of(tenant))),
                    _ => {
                        // Some have gone, with what they have, or have come again.
                        tenants = places % 5 + 1;
                        shares.share_among(tenants);
                    }
                }
                let taken: Vec<usize> = (0..5).map(|t| shares.of(t)).collect();
                prop_assert_eq!(shares.all(), taken.iter().sum::<usize>());
                let within: usize = taken.iter().map(|taken| *taken.min(&shares.share)).sum();
                prop_assert_eq!(shares.kept, (shares.share * tenants) as isize - within as isize);
            }
        }

        /// Who is within its share never gives anything back for another.
        #[test]
        fn who_is_owed_places_that_it_does_not_find_has_them_of_whoever_has_most(
            steps in prop::collection::vec((0..5u32, 1..50usize, 0..3u8), 1..200),
        ) {
            let (mut shares, mut tenants) = (Shares::new(100, 1), 1);
            for (tenant, places, what) in steps {
                let tenant = tenant % tenants;
                match what {
                    0 => {
                        tenants = 5;
                        shares.share_among(5);
                    }
                    1 if shares.has_room_for(tenant, places) => shares.take(tenant, places),
                    1 => {
                        let most = shares.taken.iter().max_by_key(|(_, taken)| **taken);
                        let (most, taken) = most.expect("somebody has what there is");
                        let is_owed = shares.is_owed(tenant);
                        prop_assert!(!is_owed || *taken > shares.share);
                        let gives = if is_owed { *most } else { tenant };
                        prop_assert_eq!(shares.who_gives(tenant), gives);
                    }
                    _ => shares.give_back(tenant, places.min(shares.of(tenant))),
                }
            }
        }
    }
}
