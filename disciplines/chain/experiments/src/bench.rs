//! A chain that runs: built, its tenant created, its keys there.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::Context;
use chain_loads::{Config, CoordLoad, Phase};
use experiments::{
    Run,
    rig::{Policy, Rig, TenantChange, TenantSpec},
};
use lab::steered::Seat;
use plan::{roles::ETCD_PORT, switch};
use wire::{Cluster, SwitchPlace};

use crate::{
    layout::{Layout, QUOTA, TENANT},
    protocol::Protocol,
};

/// How long a question for the members may take.
const LOOK_S: f64 = 0.02;
/// How long it may take until a chain has another length. Who has left it often may not come back
/// for a minute.
const LENGTH_WITHIN: Duration = Duration::from_secs(80);
/// How long an operation may take, in milliseconds.
const DEADLINE_MS: u64 = 5_000;

/// A chain that runs.
pub struct Bench {
    pub rig: Rig,
    pub layout: Layout,
    /// Switches by their addresses.
    ids: BTreeMap<IpAddr, u16>,
    /// Who asks for the members.
    asker: CoordLoad,
    seed: u64,
    loads: u64,
}

impl Bench {
    /// One chain of `length` of the layout's switches.
    ///
    /// # Errors
    /// It cannot be built, or is not there within some seconds.
    pub fn new(
        run: &Run<'_>,
        layout: Layout,
        protocol: Protocol,
        length: u16,
    ) -> anyhow::Result<Bench> {
        let mut rig = Rig::build(layout.plan(), run.options.name.clone(), run)?;
        let options = [
            ("length", length.into()),
            ("chains", 1),
            ("versions", layout.versions),
            ("relaxed", layout.is_relaxed.into()),
        ];
        let tenant = TenantSpec {
            policy: Policy::EvenSplit,
            borrows: false,
            options: options.map(|(name, n)| (name.to_string(), n)).into(),
            ..TenantSpec::new(TENANT, QUOTA * u32::from(layout.switches), protocol.name())
        };
        rig.create_tenants(&[tenant], &[])?;
        let address = |id: u16| {
            let name = switch(id.into());
            let address = rig.topology().address_of(&name);
            Ok((IpAddr::from(address.context(name)?), id))
        };
        let ids = (1..=layout.switches).map(address);
        let ids: BTreeMap<IpAddr, u16> = ids.collect::<anyhow::Result<_>>()?;
        let seed = run.options.seed;
        let config = config(cluster(&rig, &ids)?, [1, 1], 24, seed);
        let asker = rig.start_load(&seat("members"), &config)?;
        let mut bench = Bench { rig, layout, ids, asker, seed, loads: 0 };
        bench.wait_for_members(length.into(), Duration::from_secs(20))?;
        Ok(bench)
    }

    /// The cluster as clients know it, with its switches.
    ///
    /// # Errors
    /// None.
    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        cluster(&self.rig, &self.ids)
    }

    /// A generator of load at the first client host, whose keys are there.
    ///
    /// # Errors
    /// It does not start, or its keys are not written.
    pub fn load(
        &mut self,
        clients: usize,
        keys: usize,
        value_len: usize,
    ) -> anyhow::Result<CoordLoad> {
        self.load_above(0, clients, keys, value_len)
    }

    /// Likewise, and its keys have these numbers from the first on: others have those below.
    ///
    /// # Errors
    /// As [`Bench::load`].
    pub fn load_above(
        &mut self,
        first_key: usize,
        clients: usize,
        keys: usize,
        value_len: usize,
    ) -> anyhow::Result<CoordLoad> {
        let config = Config { first_key, ..self.config(clients, keys, value_len)? };
        let mut load = self.start(FIRST_CLIENT, &config)?;
        load.run(&Phase::fill())?;
        Ok(load)
    }

    /// A generator of load at a client host, whose keys somebody else writes.
    ///
    /// # Errors
    /// It does not start.
    pub fn load_at(
        &mut self,
        host: &str,
        clients: usize,
        keys: usize,
        value_len: usize,
    ) -> anyhow::Result<CoordLoad> {
        let config = self.config(clients, keys, value_len)?;
        self.start(host, &config)
    }

    /// What the next generator is told.
    fn config(&mut self, clients: usize, keys: usize, value_len: usize) -> anyhow::Result<Config> {
        self.loads += 1;
        let seed = self.seed.wrapping_add(self.loads);
        Ok(config(self.cluster()?, [clients, keys], value_len, seed))
    }

    fn start(&mut self, host: &str, config: &Config) -> anyhow::Result<CoordLoad> {
        let name = format!("load{}", self.loads);
        self.rig.start_load(&Seat { host, ..seat(&name) }, config)
    }

    /// A generator of as much load at the etcd, whose keys are not there yet.
    ///
    /// # Errors
    /// It does not start, or there is no etcd.
    pub fn etcd_load(
        &mut self,
        clients: usize,
        keys: usize,
        value_len: usize,
    ) -> anyhow::Result<CoordLoad> {
        let url = |host: String| {
            let address = self.rig.topology().address_of(&host);
            Ok(format!("http://{}:{ETCD_PORT}", address.context(host)?))
        };
        let members = self.layout.etcds().into_iter().map(url);
        let config = chain_loads::etcd::Config {
            members: members.collect::<anyhow::Result<_>>()?,
            clients,
            keys,
            value_len,
            seed: self.seed,
        };
        self.loads += 1;
        let name = format!("load{}", self.loads);
        self.rig.start_kernel_load(&seat(&name), &config)
    }

    /// The ids of the chain's members from its head, as a client is told now.
    ///
    /// # Errors
    /// Whoever asks is gone.
    pub fn members(&mut self) -> anyhow::Result<Vec<u16>> {
        let result = self.asker.run(&Phase::load(0.0, LOOK_S))?;
        let ids = result.members.iter();
        Ok(ids.filter_map(|at| self.ids.get(&at.ip()).copied()).collect())
    }

    /// Waits until the chain has so many members; how long that took.
    ///
    /// # Errors
    /// It has not, in time.
    pub fn wait_for_members(&mut self, count: usize, within: Duration) -> anyhow::Result<Duration> {
        let begun = self.rig.now();
        loop {
            let members = self.members()?;
            let waited = self.rig.now() - begun;
            if members.len() == count {
                return Ok(waited);
            }
            anyhow::ensure!(waited < within, "members {members:?}: {count} were expected");
        }
    }

    /// How often the switches that run have counted something, since their tables were made.
    ///
    /// # Errors
    /// A switch does not say, or counts no such thing.
    pub fn count(&self, counter: &str) -> anyhow::Result<u64> {
        let counts = self.layout.order().into_iter().map(|id| self.count_at(id, counter));
        counts.sum()
    }

    /// How often a switch has.
    ///
    /// # Errors
    /// It does not say, or counts no such thing.
    pub fn count_at(&self, id: u16, counter: &str) -> anyhow::Result<u64> {
        let all = self.rig.switch_counters(&switch(id.into()))?;
        all[counter].as_u64().with_context(|| format!("{counter}: nobody counts it"))
    }

    /// Has each key at so many switches from now on, by an option of the tenant, and waits until it
    /// is so.
    ///
    /// # Errors
    /// The controller refuses, or the chain has not so many members in time.
    pub fn set_length(&mut self, length: u16) -> anyhow::Result<()> {
        let options = [("length".to_owned(), length.into())].into();
        let change = TenantChange { options: Some(options), ..TenantChange::default() };
        self.rig.change_tenant(TENANT, change)?;
        self.wait_for_members(length.into(), LENGTH_WITHIN).map(drop)
    }

    /// Where a switch is asked.
    pub fn address(&self, id: u16) -> Option<SocketAddr> {
        let mut all = self.ids.iter();
        let found = all.find(|(_, its)| **its == id);
        found.map(|(address, _)| SocketAddr::new(*address, wire::PORT))
    }
}

/// The place of a generator of this name.
pub fn seat(name: &str) -> Seat<'_> {
    Seat { host: FIRST_CLIENT, name, cpu: None, nice: 0 }
}

/// The first client host, as the layout names it.
const FIRST_CLIENT: &str = "client1";

fn config(cluster: Cluster, [clients, keys]: [usize; 2], value_len: usize, seed: u64) -> Config {
    let (tenant, deadline_ms) = (TENANT, DEADLINE_MS);
    Config { cluster, tenant, clients, keys, first_key: 0, value_len, seed, deadline_ms }
}

fn cluster(rig: &Rig, ids: &BTreeMap<IpAddr, u16>) -> anyhow::Result<Cluster> {
    let mut cluster = rig.cluster(&[TENANT])?;
    let place = |(address, id): (&IpAddr, &u16)| SwitchPlace {
        name: switch((*id).into()),
        address: *address,
    };
    cluster.switches = ids.iter().map(place).collect();
    Ok(cluster)
}

#[cfg(test)]
mod tests {
    use plan::client;

    use super::*;

    #[test]
    fn the_first_client_is_where_the_plan_has_it() {
        assert_eq!(FIRST_CLIENT, client(1));
    }
}
