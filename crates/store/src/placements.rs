//! Where the controller has placed tenants: only switches with memory of a tenant may have copies
//! of its items.

use wire::maps::HashSet;

/// Pairs of a tenant and a switch, as they were told last. By default nobody has told any: every
/// switch may have copies of every tenant's items.
#[derive(Clone, Debug, Default)]
pub struct Placements(Option<HashSet<(u32, u16)>>);

impl Placements {
    /// Whether a switch may be granted copies of a tenant's items. One look-up.
    pub fn allows(&self, switch: u16, tenant: u32) -> bool {
        let told = self.0.as_ref();
        told.is_none_or(|told| told.contains(&(tenant, switch)))
    }

    /// The tenants that have any; `None`: nobody has told.
    pub fn tenants(&self) -> Option<HashSet<u32>> {
        let told = self.0.as_ref()?;
        Some(told.iter().map(|(tenant, _)| *tenant).collect())
    }

    /// All pairs of a tenant and a switch, in place of those told before.
    pub fn set(&mut self, all: impl IntoIterator<Item = (u32, u16)>) {
        self.0 = Some(all.into_iter().collect());
    }

    /// How many pairs were told; `None`: nobody has told any.
    pub fn told(&self) -> Option<usize> {
        self.0.as_ref().map(HashSet::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_allowed_until_placements_are_told() {
        let mut placements = Placements::default();
        assert!(placements.allows(1, 7));
        placements.set([(7, 1), (7, 2), (8, 2)]);
        assert!(placements.allows(1, 7) && placements.allows(2, 8));
        assert!(!placements.allows(1, 8) && !placements.allows(3, 7));
        placements.set([]);
        assert!(!placements.allows(1, 7));
    }
}
