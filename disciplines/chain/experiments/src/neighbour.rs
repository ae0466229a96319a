//! A tenant whose keys chains keep, beside tenants of other disciplines on the same switches.

use std::net::IpAddr;

use anyhow::Context;
use chain_loads::{ATTACKS, Activity, CLIENTS, Config, CoordLoad, Phase};
use experiments::{
    rig::Rig,
    tenants::{Conduct, Neighbour, NeighbourLoad, NeighbourPhase, NeighbourResult},
};
use lab::steered::Seat;
use wire::{Cluster, SwitchPlace};

use crate::protocol::Protocol;

/// Its chain has two members, and what it asks for is committed.
pub const NEIGHBOUR: Neighbour = Neighbour {
    discipline: Protocol::Netcraq.name(),
    operations: "commits",
    attacks: ATTACKS,
    options: &[("length", 2), ("chains", 1)],
    start,
    clients: &CLIENTS,
    cluster,
};

/// Clients that make its load.
const ASKING: usize = 8;
const KEYS: usize = 100;
const VALUE_LEN: usize = 64;
/// How long an operation may take, in milliseconds.
const DEADLINE_MS: u64 = 1_000;

struct Load {
    load: CoordLoad,
    /// Of the phase that was begun.
    all_s: f64,
}

fn start(
    rig: &mut Rig,
    seat: &Seat<'_>,
    tenant: u32,
    seed: u64,
) -> anyhow::Result<Box<dyn NeighbourLoad>> {
    let config = Config {
        cluster: cluster(rig, tenant)?,
        tenant,
        clients: ASKING,
        keys: KEYS,
        first_key: 0,
        value_len: VALUE_LEN,
        // Others than another tenant's.
        seed: seed.wrapping_add(tenant.into()),
        deadline_ms: DEADLINE_MS,
    };
    let mut load = rig.start_load(seat, &config)?;
    // Until the chain is there nothing is written, and each key is tried again.
    load.run(&Phase::fill())?;
    Ok(Box::new(Load { load, all_s: 0.0 }))
}

/// The cluster as the tenant's clients know it, with its switches.
fn cluster(rig: &Rig, tenant: u32) -> anyhow::Result<Cluster> {
    let mut cluster = rig.cluster(&[tenant])?;
    let topology = rig.topology();
    for switch in &topology.switches {
        let address = topology.address_of(&switch.name).with_context(|| switch.name.clone())?;
        let place = SwitchPlace { name: switch.name.clone(), address: IpAddr::from(address) };
        cluster.switches.push(place);
    }
    Ok(cluster)
}

impl NeighbourLoad for Load {
    fn begin(&mut self, phase: &NeighbourPhase) -> anyhow::Result<()> {
        self.all_s = phase.warmup_s + phase.seconds;
        self.load.begin(&Phase {
            doing: match phase.conduct {
                Conduct::Honest => Activity::Load,
                Conduct::Hostile => Activity::Attack,
            },
            rate: Some(phase.rate),
            warmup_s: phase.warmup_s,
            ..Phase::load(1.0, phase.seconds)
        })
    }

    fn finish(&mut self) -> anyhow::Result<NeighbourResult> {
        let result = self.load.finish()?;
        Ok(NeighbourResult {
            throughput: result.write_rate(),
            sent_rate: result.sent as f64 / self.all_s,
            wrong: result.wrong,
            attacks: result.attacks,
        })
    }
}
