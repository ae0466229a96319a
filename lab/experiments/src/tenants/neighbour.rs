//! Tenants whose keys are not at stores, beside others: a discipline whose clients ask by packets
//! of their own says here how one of its tenants is put on a rack that others share, as the one
//! that is harmed or as one that harms. Its folder's [`Paper`](crate::Paper) names it.

use std::collections::BTreeMap;

use lab::steered::Seat;
use wire::Cluster;

use crate::rig::{ClientKind, Policy, Rig, TenantSpec};

/// All that a build has: whatever runs an experiment with neighbours is made with this.
pub trait Neighbours {
    /// One for each discipline that has it.
    fn all() -> Vec<&'static Neighbour>;
}

/// What a discipline has for it.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The discipline.
    pub discipline: &'static str,
    /// What its tenants ask for, as figures are named by it.
    pub operations: &'static str,
    /// What a hostile one does, by the names that results and `docs/security.md` have.
    pub attacks: &'static [&'static str],
    /// Options of its tenants.
    pub options: &'static [(&'static str, u32)],
    /// Starts load for one of them, and has all its keys written.
    pub start: StartNeighbour,
    /// Clients of one of them that record what they see.
    pub clients: &'static ClientKind,
    /// The cluster as these know it.
    pub cluster: fn(&Rig, u32) -> anyhow::Result<Cluster>,
}

/// Starts the load of a tenant that was created, of this number, on a seat; all that is random
/// follows from the seed.
pub type StartNeighbour =
    fn(&mut Rig, &Seat<'_>, u32, u64) -> anyhow::Result<Box<dyn NeighbourLoad>>;

impl Neighbour {
    /// One of its tenants, with so many pages, which are not lent.
    pub fn tenant(&self, id: u32, quota: u32) -> TenantSpec {
        let options = self.options.iter().map(|(name, n)| ((*name).to_string(), *n));
        TenantSpec {
            policy: Policy::EvenSplit,
            borrows: false,
            options: options.collect(),
            ..TenantSpec::new(id, quota, self.discipline)
        }
    }
}

/// How a tenant behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// It reads and writes its keys.
    Honest,
    /// It does what it is allowed to and no honest tenant would.
    Hostile,
}

/// What such a tenant is to do for a while.
#[derive(Clone, Copy, Debug)]
pub struct NeighbourPhase {
    /// How it behaves.
    pub conduct: Conduct,
    /// Operations that it begins per second.
    pub rate: f64,
    /// Seconds before anything is measured.
    pub warmup_s: f64,
    /// Seconds that are measured.
    pub seconds: f64,
}

/// The load of such a tenant.
pub trait NeighbourLoad {
    /// Begins a phase; [`NeighbourLoad::finish`] has its result.
    ///
    /// # Errors
    /// The generator's death.
    fn begin(&mut self, phase: &NeighbourPhase) -> anyhow::Result<()>;

    /// Waits for the result of the phase that was begun.
    ///
    /// # Errors
    /// An interruption, or the generator's death.
    fn finish(&mut self) -> anyhow::Result<NeighbourResult>;
}

/// What such a tenant got.
#[derive(Clone, Debug, Default)]
pub struct NeighbourResult {
    /// Operations per second that were done.
    pub throughput: f64,
    /// Packets sent per second.
    pub sent_rate: f64,
    /// Values that nobody wrote.
    pub wrong: u64,
    /// How often it did what no honest tenant would, by kind.
    pub attacks: BTreeMap<String, u64>,
}
