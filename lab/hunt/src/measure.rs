//! How long the switches' own programs take for a packet, on the packets that a hunt really sends:
//! the experiment `coherence` shows it beside its rate, for what the rest of the simulator costs is
//! then seen.

use crate::{Disciplines, HuntPlan, Limits, run::run_with};

/// Plans that are measured.
const PLANS: u64 = 8;

/// What switches' programs alone take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramCost {
    /// Packets that were measured.
    pub packets: u64,
    /// Nanoseconds for one, on one core.
    pub program_ns: f64,
}

/// Measures the programs on the packets of some plans, from this seed on.
///
/// # Errors
/// As [`run`](crate::run).
pub fn measure(seed: u64, disciplines: Disciplines) -> anyhow::Result<ProgramCost> {
    let (mut packets, mut ns) = (0, 0.0);
    for seed in (0..PLANS).map(|n| seed.wrapping_add(n)) {
        let plan = HuntPlan::draw(seed, disciplines, Limits::default());
        let over = |world: &sim::World| {
            let programs = world.programs();
            packets += programs.runs;
            ns += programs.ns;
        };
        run_with(&plan, disciplines, sim::World::time_programs, over)?;
    }
    Ok(ProgramCost { packets, program_ns: ns / (packets as f64).max(1.0) })
}
