//! Tenants with valid secrets that do to everything that tenants share whatever their secrets
//! allow, beside well-behaved ones. `docs/security.md` lists what is shared; its table says of each
//! row by which attacks it is filled, and a test compares the two.
//!
//! - What any tenant can send comes from the load generator ([`load::PhaseKind::Hostile`]), in the
//!   name of a tenant of the run's discipline that has pages and whose keys are lent, of one that
//!   has no pages anywhere, of one of each other discipline whose items are copies, and of the open
//!   tenant. So a table that only one discipline has is attacked by that discipline's own tenant,
//!   and nothing here has to know which.
//! - What only a discipline's own clients can send comes from its folder ([`super::Neighbour`]).
//!
//! They ask from both ends of the line. Of the well-behaved tenants one reads, writes, and changes
//! which of its keys are hot, so that it needs what is attacked: leases, copies, reports of hot
//! keys. One has its keys lent to switches. And of each discipline whose keys are not at stores
//! there is one.
//!
//! What they get is compared with what they get in a second run beside *harmless* neighbours: the
//! same tenants on the same hosts, which send as many packets, all of them honest, and have hot
//! keys as the well-behaved have: what everybody has an equal share of, everybody uses. Until
//! caches are warm both runs are the same. So what packets cost whoever shares a machine's cores
//! with them is no effect of the attack. In the simulator every node has its own cores, and the
//! answer is the attack's alone.

mod cast;
mod tell;

use std::marker::PhantomData;

use anyhow::ensure;
use load::{
    Attack, ChurnSchedule, Phase, PhaseKind,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};

use super::neighbour::{Conduct, Neighbour, NeighbourPhase, Neighbours};
use crate::{
    Measure, Report, Run,
    params::{Tenancy, exponent, part, positive},
};
use cast::{Cast, Encounter, SWITCHES};

/// Keys of the reader that become hot, and how often.
const NEWLY_HOT: usize = 20;
const NEWLY_HOT_EVERY_S: f64 = 0.5;
/// Load before each measured part, in seconds.
const WARMUP_S: f64 = 0.5;
/// How much longer neighbours go on than whoever is measured, in seconds.
const LONGER_S: f64 = 0.2;
/// Share of writes in a harmless neighbour's load: about that of the attacks.
const HARMLESS_WRITES: f64 = 0.3;
/// What an attacker of a discipline's own begins, as part of what others send: each operation is
/// several packets.
const OWN_PART: f64 = 0.25;

/// Hostile tenants, beside whatever neighbours a build has.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Hostile<N> {
    parameters: Parameters,
    #[serde(skip)]
    of: PhantomData<N>,
}

/// Parameters of hostile tenants.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    tenancy: Tenancy,
    /// Zipf's exponent.
    theta: f64,
    /// Requests per second of the well-behaved tenant that reads.
    rate: f64,
    /// Part of them that write.
    write_ratio: f64,
    /// Writes per second of the one whose keys are lent.
    lent_rate: f64,
    /// Its bound, in milliseconds, and that of the attackers.
    write_back_ms: u32,
    /// Operations per second of each one whose keys are not at stores.
    own_rate: f64,
    /// Packets per second of each of two attackers.
    attack_rate: f64,
    /// One kind of attack alone, to see what it does; all of them without.
    #[serde(default)]
    only: Option<Attack>,
    /// Load before anything is measured, in seconds.
    settle_s: f64,
    /// Length of each measurement, in seconds.
    seconds: f64,
}

impl<N: Neighbours> Measure for Hostile<N> {
    fn check(&self) -> anyhow::Result<()> {
        self.parameters.check()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        // Refused to the attackers. Grants, since a key of theirs whose second read they send to a
        // store that is not its own has an item of that store's in a switch.
        for tried in ["denied_key_hash", "dropped_lease_auth", "dropped_op", "grant_refused"] {
            run.seen.borrow_mut().leave(tried);
        }
        let neighbours = N::all();
        let beside = |conduct| self.parameters.beside(run, &neighbours, conduct);
        let harmless = beside(Conduct::Honest)?;
        ensure!(
            harmless.reader.cached > 0 && harmless.writer.cached > 0,
            "beside harmless neighbours no switch answered a read or a write for tenants of {}, so there is nothing that \
             others could take from them: choose a discipline whose switches keep values",
            run.discipline
        );
        let hostile = beside(Conduct::Hostile)?;
        tell::tell(report, &neighbours, &harmless, &hostile);
        Ok(())
    }
}

impl Parameters {
    fn check(&self) -> anyhow::Result<()> {
        self.tenancy.check()?;
        exponent(self.theta)?;
        part([("write_ratio", self.write_ratio)])?;
        ensure!(
            self.tenancy.keys > NEWLY_HOT,
            "keys = {}: more than {NEWLY_HOT} are needed",
            self.tenancy.keys
        );
        ensure!(
            (10..=60_000).contains(&self.write_back_ms),
            "write_back_ms = {}: 10 to 60000 are possible",
            self.write_back_ms
        );
        positive([
            ("rate", self.rate),
            ("lent_rate", self.lent_rate),
            ("own_rate", self.own_rate),
            ("attack_rate", self.attack_rate),
            ("settle_s", self.settle_s),
            ("seconds", self.seconds),
        ])
    }

    /// What well-behaved tenants see on a rack of their own beside such neighbours, which are
    /// harmless until caches are warm.
    fn beside(
        &self,
        run: &Run<'_>,
        neighbours: &[&Neighbour],
        conduct: Conduct,
    ) -> anyhow::Result<Encounter> {
        let mut cast = Cast::assemble(run, &self.tenancy, self.write_back_ms, neighbours)?;
        run.progress.say("beside harmless neighbours, until caches are warm");
        cast.play(&self.script(Conduct::Honest, self.settle_s))?;
        let name = if conduct == Conduct::Hostile { "hostile" } else { "harmless" };
        run.progress.say(format!("beside {name} neighbours"));
        cast.play(&self.script(conduct, self.seconds))
    }

    fn script(&self, neighbours: Conduct, seconds: f64) -> Script {
        let own =
            |conduct, rate, warmup_s, seconds| NeighbourPhase { conduct, rate, warmup_s, seconds };
        let all_s = WARMUP_S + seconds + LONGER_S;
        Script {
            reader: Phase {
                write_ratio: self.write_ratio,
                churn: Some(ChurnSchedule {
                    change: Churn { kind: ChurnKind::HotIn, count: NEWLY_HOT, among: 0 },
                    every_s: NEWLY_HOT_EVERY_S,
                }),
                ..Phase::reads(Popularity::Zipf(self.theta), self.rate, WARMUP_S, seconds)
            },
            writer: Phase {
                write_ratio: 1.0,
                ..Phase::reads(Popularity::Uniform, self.lent_rate, WARMUP_S, seconds)
            },
            own: own(Conduct::Honest, self.own_rate, WARMUP_S, seconds),
            attackers: Phase {
                kind: match neighbours {
                    Conduct::Hostile => {
                        PhaseKind::Hostile { switches: SWITCHES as u16, only: self.only }
                    }
                    Conduct::Honest => PhaseKind::Load,
                },
                write_ratio: HARMLESS_WRITES,
                ..Phase::reads(Popularity::Zipf(self.theta), self.attack_rate, 0.0, all_s)
            },
            own_attackers: own(neighbours, OWN_PART * self.attack_rate, 0.0, all_s),
        }
    }
}

/// What everybody does for a while.
struct Script {
    reader: Phase,
    writer: Phase,
    /// Of those whose keys are not at stores.
    own: NeighbourPhase,
    attackers: Phase,
    own_attackers: NeighbourPhase,
}
