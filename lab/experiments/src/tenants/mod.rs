//! Tenants that share switches in a line: the set-up of experiments about them, and what each
//! notices of the others.

mod borrowing;
mod failover;
mod hostile;
mod isolation;
mod measure;
mod neighbour;
mod probe;

pub use borrowing::Borrowing;
pub use failover::Failover;
pub use hostile::Hostile;
pub use isolation::Isolation;
pub use measure::{ReadinessProbe, distribution, median, named, rates};
pub use neighbour::{
    Conduct, Neighbour, NeighbourLoad, NeighbourPhase, NeighbourResult, Neighbours, StartNeighbour,
};

use lab::{progress::Progress, steered::Seat};
use load::Phase;
use plan::{CLIENT_CPU, Line, client};

use crate::{
    Run,
    params::Tenancy,
    rig::{GeneratorSpec, Load, Rig, TIMEOUT_MS, TenantSpec, fill},
};

/// A line of switches, and tenants as the parameters have them.
pub struct Stage<'a> {
    /// The rig.
    pub rig: Rig,
    tenancy: Tenancy,
    discipline: &'a str,
    clients: usize,
    seed: u64,
    progress: &'a Progress,
}

impl<'a> Stage<'a> {
    /// A line of switches as the parameters have them, to be changed where an experiment needs it
    /// otherwise.
    pub fn line(run: &Run<'_>, tenancy: &Tenancy, switches: usize) -> Line {
        Line {
            window_ms: tenancy.window_ms,
            control_args: tenancy.control_args.clone(),
            switch_args: tenancy.switch_args.clone(),
            ..Line::of(switches, tenancy.pages, run.discipline)
        }
    }

    /// Builds and starts a line, under this name.
    ///
    /// # Errors
    /// As [`Rig::build`].
    pub fn start(
        run: &Run<'a>,
        tenancy: &Tenancy,
        line: &Line,
        name: Option<String>,
    ) -> anyhow::Result<Stage<'a>> {
        Ok(Stage {
            rig: Rig::build(line.plan(), name, run)?,
            tenancy: tenancy.clone(),
            discipline: run.discipline,
            clients: line.clients + line.far_clients,
            seed: run.options.seed,
            progress: run.progress,
        })
    }

    /// A tenant with the usual quota.
    pub fn tenant(&self, id: u32) -> TenantSpec {
        TenantSpec::new(id, self.tenancy.quota, self.discipline)
    }

    /// Creates tenants, with all client hosts as their clients.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn create(&mut self, tenants: &[TenantSpec]) -> anyhow::Result<()> {
        let clients: Vec<String> = (1..=self.clients).map(client).collect();
        self.rig.create_tenants(tenants, &clients)
    }

    /// Starts a generator for tenants with so many keys each.
    ///
    /// # Errors
    /// It does not start.
    pub fn generator(
        &mut self,
        seat: Seat,
        tenants: &[TenantSpec],
        keys: usize,
    ) -> anyhow::Result<Load> {
        self.rig.load(&self.spec(seat, tenants, keys))
    }

    /// A generator for tenants with so many keys each, to be changed where an experiment needs it
    /// otherwise.
    pub fn spec<'s>(
        &self,
        seat: Seat<'s>,
        tenants: &'s [TenantSpec],
        keys: usize,
    ) -> GeneratorSpec<'s> {
        GeneratorSpec {
            seat,
            tenants,
            keys,
            value_len: self.tenancy.value_len.into(),
            timeout_ms: TIMEOUT_MS,
            seed: self.seed,
            interval_ms: 100,
            again_ms: None,
            names_lives: false,
            number: 0,
            trace: None,
        }
    }

    /// Starts a generator of this name on the first client, alone on this CPU, and writes all keys.
    ///
    /// # Errors
    /// It does not start, or the writes are not acknowledged within a minute.
    pub fn load_on(
        &mut self,
        cpu: usize,
        name: &str,
        tenants: &[TenantSpec],
    ) -> anyhow::Result<Load> {
        let seat = Seat { host: &client(1), name, cpu: Some(cpu), nice: 0 };
        let mut load = self.generator(seat, tenants, self.tenancy.keys)?;
        fill(&mut load)?;
        Ok(load)
    }

    /// Creates tenants, starts a generator for them, and writes all of their keys.
    ///
    /// # Errors
    /// The controller refuses, or as [`Stage::load_on`].
    pub fn newcomers(&mut self, tenants: &[TenantSpec]) -> anyhow::Result<Load> {
        self.create(tenants)?;
        self.load_on(CLIENT_CPU, "load", tenants)
    }

    /// Offers load until every key of the tenants is cached, as the switches' memory has it, or the
    /// deadline is over.
    ///
    /// # Errors
    /// The generator died, or a switch does not say.
    pub fn settle(
        &self,
        load: &mut Load,
        tenants: &[TenantSpec],
        phase: &Phase,
        deadline_s: f64,
    ) -> anyhow::Result<ReadinessProbe> {
        let keys = self.tenancy.keys;
        measure::settle(&self.rig, load, tenants, keys, phase, deadline_s, self.progress)
    }
}
