//! Labs with tenants: switches in a line, clients and servers beside them, one controller or several, all set up the same
//! way. [`Plan`] says which; [`Fabric`] runs it and talks to the controller through the command line.

mod console;
mod plan;
mod tenants;

pub use console::{Console, PageRow, SwitchPage};
pub use plan::{CONTROL_PORT, Plan, SERVER, client, control, switch};
pub use tenants::{Policy, TenantSpec};

use std::{
    collections::BTreeMap,
    io::Read,
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::{Context, ensure};
use serde_json::Value;
use wire::{Cluster, PORT, Store, Tenant};

use lab::{
    interrupt, namespace,
    progress::Progress,
    rack::{Lab, tail, unique_name},
};
use load::{LoadConfig, LoadDriver, Phase, PhaseResult, TenantResult};

/// CPU of the load generator that is measured. What it sends is handled by the switches on the same CPU.
pub const CLIENT_CPU: usize = 0;
/// CPU of the stores, the agents' and controllers' more frequent one, and of generators that disturb.
pub const OTHER_CPU: usize = 1;
/// The shortest lease that a store gives: the sooner it takes writes.
pub const LEASE_MS: u64 = 1000;
/// Writes under way while keys are written for the first time.
const FILLING: usize = 64;
const FILL_S: f64 = 60.0;

/// A running lab with tenants.
pub struct Fabric {
    lab: Lab,
    plan: Plan,
    /// Entries of the tenants that were created, for cluster files.
    entries: BTreeMap<u32, Tenant>,
}

impl Fabric {
    /// Builds and starts all of it, and waits until the store takes writes and every switch is attached to a controller.
    ///
    /// # Errors
    /// The lab cannot be built, or something does not start; its log is part of the message.
    pub fn start(plan: Plan, name: Option<String>, progress: &Progress) -> anyhow::Result<Fabric> {
        progress.say(format!(
            "building {} switches, {} clients",
            plan.switches, plan.clients
        ));
        let mut topology = plan.topology();
        let cluster = Self::cluster_of(&plan, &topology)?;
        topology
            .files
            .insert("cluster.toml".into(), cluster.to_toml());
        let name = name.unwrap_or_else(unique_name);
        let lab = Lab::create(&name, topology, false)?;
        let mut fabric = Fabric {
            lab,
            plan,
            entries: BTreeMap::new(),
        };
        progress.say("starting controllers, stores and agents");
        fabric.start_processes()?;
        fabric.wait_for_store()?;
        fabric.wait_for_switches()?;
        Ok(fabric)
    }

    fn cluster_of(plan: &Plan, topology: &lab::topology::Topology) -> anyhow::Result<Cluster> {
        let address = topology
            .address_of(SERVER)
            .context("a server without an address")?;
        let store = Store {
            address: SocketAddr::new(address.into(), PORT),
            first: 0,
            last: plan.partitions - 1,
        };
        Ok(Cluster {
            partitions: plan.partitions,
            stores: vec![store],
            tenants: vec![],
            // Everybody has to show who they are.
            open_tenant: false,
            system_secret: Some(format!("{:032x}", 0x5353)),
        })
    }

    fn start_processes(&mut self) -> anyhow::Result<()> {
        let nodes: Vec<_> = self.lab.topology().nodes().cloned().collect();
        for node in nodes {
            for spec in &node.processes {
                self.lab.start(&node.name, spec, false)?;
                let port = match spec.name.as_str() {
                    "etcd" => plan::ETCD_PORT,
                    "control" => CONTROL_PORT,
                    _ => continue,
                };
                self.wait_for_port(&node.name, &spec.name, port)?;
            }
        }
        Ok(())
    }

    /// Waits until a process on a node takes connections.
    ///
    /// # Errors
    /// It ends, or does not within 20 seconds; its log is part of the message.
    pub fn wait_for_port(&mut self, node: &str, process: &str, port: u16) -> anyhow::Result<()> {
        let address = self.lab.topology().address_of(node).context("no address")?;
        let to = SocketAddr::new(address.into(), port);
        let space = self.lab.namespace(node);
        let name = format!("{node}-{process}");
        let log = self.lab.dir().join(format!("{name}.log"));
        interrupt::wait_for(
            &format!("{name}: port {port}"),
            Duration::from_secs(20),
            || {
                ensure!(self.lab.is_running(&name), "{name} ended");
                let connect =
                    || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok());
                Ok(namespace::within(&space, connect)?.then_some(()))
            },
        )
        .with_context(|| format!("log {}:\n{}", log.display(), tail(&log)))
    }

    fn wait_for_store(&mut self) -> anyhow::Result<()> {
        let socket = self.lab.dir().join(format!("{SERVER}.sock"));
        interrupt::wait_for("the store to take writes", Duration::from_secs(30), || {
            ensure!(self.lab.is_running("server-store"), "the store ended");
            let Ok(mut stream) = UnixStream::connect(&socket) else {
                return Ok(None);
            };
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut text = String::new();
            if stream.read_to_string(&mut text).is_err() {
                return Ok(None);
            }
            let status: Value = serde_json::from_str(&text).unwrap_or_default();
            Ok((status["takes_writes"] == true).then_some(()))
        })
        .with_context(|| tail(&self.lab.dir().join("server-store.log")))
    }

    fn wait_for_switches(&self) -> anyhow::Result<()> {
        let what = "every switch to be attached to a controller";
        let mut heard = String::new();
        interrupt::wait_for(what, Duration::from_secs(30), || {
            let status = match self.console().status() {
                Ok(status) => status,
                Err(error) => {
                    heard = format!("{error:#}");
                    return Ok(None);
                }
            };
            heard = status.to_string();
            let switches = status["switches"].as_array().map_or(&[][..], |s| s);
            let attached = switches.iter().filter(|s| s["attached"] == true).count();
            Ok((attached >= self.plan.switches).then_some(()))
        })
        .with_context(|| format!("last heard: {heard}"))
    }

    /// The lab.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The lab, to start and stop processes.
    pub fn lab_mut(&mut self) -> &mut Lab {
        &mut self.lab
    }

    /// The command line beside the controllers.
    pub fn console(&self) -> Console<'_> {
        let hosts = (1..=self.plan.controllers).map(control);
        Console::new(&self.lab, hosts.collect())
    }

    /// A tenant of this lab's discipline.
    pub fn tenant(&self, id: u32, quota: u32) -> TenantSpec {
        TenantSpec::new(id, quota, &self.plan.discipline)
    }

    /// Creates tenants, with all clients of the lab as their clients.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn create_tenants(&mut self, tenants: &[TenantSpec]) -> anyhow::Result<()> {
        let clients: Vec<String> = (1..=self.plan.clients).map(client).collect();
        for tenant in tenants {
            let entry = self.console().create_tenant(tenant, &clients)?;
            self.entries.insert(tenant.id, entry);
        }
        Ok(())
    }

    /// Removes tenants and waits until their pages are free.
    ///
    /// # Errors
    /// As [`Console::remove_tenants`].
    pub fn remove_tenants(&self, tenants: &[TenantSpec]) -> anyhow::Result<()> {
        self.console().remove_tenants(tenants)
    }

    /// The cluster as clients of these tenants know it.
    ///
    /// # Errors
    /// A tenant that was never created.
    pub fn cluster(&self, tenants: &[TenantSpec]) -> anyhow::Result<Cluster> {
        let mut cluster = Self::cluster_of(&self.plan, self.lab.topology())?;
        for TenantSpec { id, .. } in tenants {
            let entry = self.entries.get(id).cloned();
            let entry = entry.with_context(|| format!("tenant {id} was never created"))?;
            cluster.tenants.push(entry);
        }
        Ok(cluster)
    }

    /// Starts a generator for these tenants on a client, pinned to a CPU.
    ///
    /// # Errors
    /// It does not start.
    pub fn generator(&mut self, what: &Generating) -> anyhow::Result<LoadDriver> {
        let config = LoadConfig {
            cluster: self.cluster(what.tenants)?,
            tenants: what.tenants.iter().map(|tenant| tenant.id).collect(),
            keys: what.keys,
            value_len: what.value_len,
            seed: what.seed,
            timeout_ms: 200,
            interval_ms: 100,
            cpu: Some(what.cpu),
            phases: vec![],
        };
        LoadDriver::start_as(&mut self.lab, what.host, what.name, &config, what.nice)
    }

    /// Items of each tenant in the switches' memory, as the memory itself has it; an item that is not in its owner's
    /// page does not count.
    ///
    /// # Errors
    /// A switch that does not say.
    pub fn items(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let mut items = BTreeMap::new();
        for number in 1..=self.plan.switches {
            for page in self.console().switch_pages(&switch(number))? {
                if let Some(tenant) = page.tenant {
                    *items.entry(tenant).or_default() +=
                        page.items.saturating_sub(page.foreign_items);
                }
            }
        }
        Ok(items)
    }
}

/// A generator to be started.
pub struct Generating<'a> {
    /// The client host.
    pub host: &'a str,
    /// The process's name.
    pub name: &'a str,
    /// Who asks.
    pub tenants: &'a [TenantSpec],
    /// Keys of each.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Decides everything random.
    pub seed: u64,
    /// The CPU to run on.
    pub cpu: usize,
    /// Niceness.
    pub nice: i32,
}

/// Reads every key of every tenant of a generator once; returns, per tenant, the part of them that a switch answered, and
/// what was seen.
///
/// # Errors
/// They are not answered within a minute.
pub fn sweep(load: &mut LoadDriver) -> anyhow::Result<(Vec<f64>, PhaseResult)> {
    let result = load.run(&Phase::sweep(FILLING, FILL_S))?;
    let share = |tenant: &TenantResult| tenant.cached as f64 / (tenant.answered as f64).max(1.0);
    Ok((result.tenants.iter().map(share).collect(), result))
}

/// Writes every key of every tenant of a generator, and waits until all are acknowledged. The first writes are refused
/// until the store has heard of the tenants.
///
/// # Errors
/// They are not acknowledged within a minute.
pub fn fill(load: &mut LoadDriver) -> anyhow::Result<()> {
    load.run(&Phase::fill(FILLING, FILL_S)).map(drop)
}
