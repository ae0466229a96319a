//! Who is on the rack of an encounter: the well-behaved tenants, those who attack, and whoever asks
//! in their names.

use decide::Items;
use lab::steered::Seat;
use load::PhaseResult;
use plan::{CLIENT_CPU, Line, OTHER_CPU, client, roles::Data, server};
use serde_json::Value;

use super::Script;
use crate::{
    Run, World,
    params::Tenancy,
    rig::{GeneratorSpec, Load, TenantSpec, fill},
    tenants::{
        Stage,
        neighbour::{Neighbour, NeighbourLoad, NeighbourResult},
    },
};

const READER: u32 = 1;
const HOSTILE: u32 = 2;
/// Hostile too, and without a page on any switch.
const POOR: u32 = 3;
/// Whose keys are lent.
const WRITER: u32 = 4;
/// Hostile ones of other disciplines have the numbers from here on.
const OTHERS: u32 = 10;
/// Those whose keys are not at stores: the well-behaved, and each one's attacker behind it.
const OWN: u32 = 30;
pub(super) const SWITCHES: usize = 2;
/// More than one: stores ask one another.
const SERVERS: usize = 2;
/// How long a backend takes on average, in the simulator: there something waits for it, and values
/// are read from it in parts. In the kernel's world stores have their data themselves.
const BACKEND_NS: u64 = 200_000;
/// Keys of the writer. Each is written often enough to be lent.
const LENT: usize = 16;
/// Host of whoever is measured.
const FIRST: usize = 1;
/// Hosts of the attackers: at the victims' end of the line, and at the stores'.
const ATTACKERS: [usize; 2] = [2, 3];
const NICE: i32 = 19;

/// Everybody, ready to play.
pub(super) struct Cast<'a> {
    reader: Load,
    writer: Load,
    /// Of each discipline whose keys are not at stores.
    own: Vec<Box<dyn NeighbourLoad>>,
    attackers: Vec<Load>,
    own_attackers: Vec<Box<dyn NeighbourLoad>>,
    stage: Stage<'a>,
}

/// What everybody saw, and what the stores counted meanwhile.
pub(super) struct Encounter {
    pub reader: PhaseResult,
    pub writer: PhaseResult,
    /// In the order of the run's neighbours.
    pub own: Vec<NeighbourResult>,
    pub attackers: Vec<PhaseResult>,
    pub own_attackers: Vec<NeighbourResult>,
    /// The counters of each store then, and afterwards.
    before: Vec<Value>,
    after: Vec<Value>,
}

impl Encounter {
    /// What all stores together counted under this name.
    pub fn count(&self, name: &str) -> u64 {
        let count = |all: &[Value]| -> u64 {
            all.iter().map(|totals| totals[name].as_u64().unwrap_or(0)).sum()
        };
        count(&self.after) - count(&self.before)
    }

    /// Terms that began anew, and renewals that switches were refused for an invalidation that they
    /// left unanswered.
    pub fn leases_lost(&self) -> u64 {
        self.count("lease_terms") + self.count("leases_refused_mute")
    }

    /// Packets per second of all that harm or would.
    pub fn their_rate(&self) -> f64 {
        let own = self.own_attackers.iter().map(|result| result.sent_rate);
        self.attackers.iter().map(PhaseResult::sent_rate).chain(own).sum()
    }

    /// Packets of this kind of attack.
    pub fn attacks(&self, name: &str) -> u64 {
        let general = self.attackers.iter().map(|result| &result.attacks);
        let own = self.own_attackers.iter().map(|result| &result.attacks);
        general.chain(own).filter_map(|attacks| attacks.get(name)).sum()
    }

    /// Writes per second that switches answered for the stores.
    pub fn lent_rate(&self) -> f64 {
        self.writer.cached as f64 / self.writer.seconds
    }

    /// Values that nobody wrote, or of others, and of these others'.
    pub fn wrong(&self) -> [u64; 2] {
        let asked = || [&self.reader, &self.writer].into_iter().chain(&self.attackers);
        let own = self.own.iter().chain(&self.own_attackers);
        let wrong = asked().map(PhaseResult::wrong).chain(own.map(|result| result.wrong));
        [wrong.sum(), asked().map(|result| result.foreign_values).sum()]
    }
}

impl<'a> Cast<'a> {
    /// Builds the rack, creates all tenants, and has everybody's keys written.
    ///
    /// # Errors
    /// It cannot be built, a tenant is refused, or keys are not acknowledged in time.
    pub fn assemble(
        run: &Run<'a>,
        tenancy: &Tenancy,
        write_back_ms: u32,
        neighbours: &[&Neighbour],
    ) -> anyhow::Result<Cast<'a>> {
        let line = Line {
            clients: 2,
            far_clients: 1,
            servers: SERVERS,
            data: match run.options.world {
                World::Kernel => Data::Own,
                World::Sim => Data::Remote(BACKEND_NS),
            },
            is_open: true,
            says_addresses: true,
            ..Stage::line(run, tenancy, SWITCHES)
        };
        let mut stage = Stage::start(run, tenancy, &line, run.options.name.clone())?;
        let lent = |tenant| TenantSpec { write_back_ms, ..tenant };
        let reader = stage.tenant(READER);
        let writer = lent(TenantSpec { quota: 0, borrows: false, ..stage.tenant(WRITER) });
        let mut hostile = vec![
            lent(stage.tenant(HOSTILE)),
            lent(TenantSpec { quota: 0, borrows: false, ..stage.tenant(POOR) }),
        ];
        hostile.extend(of_others(run, tenancy.quota));
        stage.create(&[reader.clone(), writer.clone()])?;
        stage.create(&hostile)?;
        hostile.push(stage.tenant(wire::TENANT_OPEN));
        run.progress.say("writing everybody's keys");
        let reader = stage.load_on(CLIENT_CPU, "load", &[reader])?;
        let mut writer = start(&mut stage, measured(&client(FIRST), "lent"), &[writer], LENT)?;
        fill(&mut writer)?;
        let mut attackers = vec![];
        for number in ATTACKERS {
            let host = client(number);
            let seat = aside(&host, "neighbour");
            attackers.push(start(&mut stage, seat, &hostile, tenancy.keys)?);
        }
        // The other's keys are the same.
        attackers.first_mut().map_or(Ok(()), fill)?;
        let mut cast =
            Cast { stage, reader, writer, own: vec![], attackers, own_attackers: vec![] };
        let ids = (OWN..).step_by(2);
        for (neighbour, id) in neighbours.iter().zip(ids) {
            cast.invite(run, neighbour, tenancy.quota, id)?;
        }
        Ok(cast)
    }

    /// A well-behaved tenant whose keys are not at stores, and one that attacks as only such a one
    /// can.
    fn invite(
        &mut self,
        run: &Run<'_>,
        neighbour: &Neighbour,
        quota: u32,
        id: u32,
    ) -> anyhow::Result<()> {
        let all = SWITCHES as u32 * quota;
        let tenants = [id, id + 1].map(|id| neighbour.tenant(id, all));
        self.stage.create(&tenants)?;
        let (rig, seed) = (&mut self.stage.rig, run.options.seed);
        let (host, name) = (client(FIRST), format!("own-{id}"));
        self.own.push((neighbour.start)(rig, &measured(&host, &name), id, seed)?);
        let (host, name) = (client(ATTACKERS[0]), format!("own-{}", id + 1));
        self.own_attackers.push((neighbour.start)(rig, &aside(&host, &name), id + 1, seed)?);
        Ok(())
    }

    /// Everybody does what the script says, the neighbours a little longer at both ends.
    ///
    /// # Errors
    /// Somebody died, or an interruption.
    pub fn play(&mut self, script: &Script) -> anyhow::Result<Encounter> {
        let before = self.counted()?;
        for load in &mut self.attackers {
            load.begin(&script.attackers)?;
        }
        for load in &mut self.own_attackers {
            load.begin(&script.own_attackers)?;
        }
        for load in &mut self.own {
            load.begin(&script.own)?;
        }
        self.writer.begin(&script.writer)?;
        let reader = self.reader.run(&script.reader)?;
        let writer = self.writer.finish()?;
        let own = finish_own(&mut self.own)?;
        let attackers = self.attackers.iter_mut().map(|load| load.finish());
        let attackers = attackers.collect::<anyhow::Result<_>>()?;
        let own_attackers = finish_own(&mut self.own_attackers)?;
        let after = self.counted()?;
        Ok(Encounter { reader, writer, own, attackers, own_attackers, before, after })
    }

    fn counted(&self) -> anyhow::Result<Vec<Value>> {
        let stores = (1..=SERVERS).map(server);
        stores.map(|store| Ok(self.stage.rig.store_status(&store)?.totals)).collect()
    }
}

fn finish_own(all: &mut [Box<dyn NeighbourLoad>]) -> anyhow::Result<Vec<NeighbourResult>> {
    all.iter_mut().map(|load| load.finish()).collect()
}

/// A hostile tenant of each other discipline that caches what stores have.
fn of_others(run: &Run<'_>, quota: u32) -> Vec<TenantSpec> {
    let copies = run.options.disciplines.iter().filter(|d| d.items == Items::Copies);
    let others = copies.map(|discipline| discipline.name).filter(|name| *name != run.discipline);
    (OTHERS..).zip(others).map(|(id, name)| TenantSpec::new(id, quota, name)).collect()
}

/// Where whoever is measured asks.
fn measured<'s>(host: &'s str, name: &'s str) -> Seat<'s> {
    Seat { host, name, cpu: Some(CLIENT_CPU), nice: 0 }
}

/// Where attackers ask.
fn aside<'s>(host: &'s str, name: &'s str) -> Seat<'s> {
    Seat { host, name, cpu: Some(OTHER_CPU), nice: NICE }
}

/// Starts a generator whose writes name lives, as clients' do.
fn start(
    stage: &mut Stage<'_>,
    seat: Seat<'_>,
    tenants: &[TenantSpec],
    keys: usize,
) -> anyhow::Result<Load> {
    let spec = GeneratorSpec { names_lives: true, ..stage.spec(seat, tenants, keys) };
    stage.rig.load(&spec)
}
