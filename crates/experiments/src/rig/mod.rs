//! The rig: what every experiment runs on. A [`Plan`] goes in; a [`Rig`] gives load, clients, what the controller says,
//! and ways to break things. Experiments know nothing of how it is made.

mod clients;
mod console;
mod line;
mod ownership;
mod plan;
mod status;
mod tenants;

pub use clients::Clients;
pub use console::{Console, PageRow, SwitchPage};
pub use line::{Line, client, control, switch};
pub use ownership::Ownership;
pub use plan::{Plan, Seated, Site};
pub use status::{PartitionStatus, StoreStatus};
pub use tenants::{Policy, TenantSpec};

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use history::ClientsConfig;
use lab::{
    interrupt, namespace,
    progress::Progress,
    rack::{Lab, tail, unique_name},
    roles::Role,
    steered::Seat,
    topology::Topology,
};
use load::{LoadConfig, LoadDriver, Phase, PhaseResult, TenantResult};
use wire::{Cluster, Tenant};

/// CPU of the load generator that is measured. What it sends is handled by the switches on the same CPU.
pub const CLIENT_CPU: usize = 0;
/// CPU of the stores, the agents' and controllers' more frequent one, and of generators that disturb.
pub const OTHER_CPU: usize = 1;
/// The shortest lease that a store gives: the sooner it takes writes.
pub const LEASE_MS: u64 = 1000;
/// Writes under way while keys are written for the first time.
const FILLING: usize = 64;
const FILL_S: f64 = 60.0;

/// What a plan says, running. Dropping it ends everything.
pub struct Rig {
    lab: Lab,
    plan: Plan,
    /// Entries of the tenants that were created, for cluster files.
    entries: BTreeMap<u32, Tenant>,
}

impl Rig {
    /// Builds and starts all of it, and waits until the stores take writes and, if controllers start with the rig, every
    /// switch is attached to one.
    ///
    /// # Errors
    /// It cannot be built, or something does not start; its log is part of the message.
    pub fn build(plan: Plan, name: Option<String>, progress: &Progress) -> anyhow::Result<Rig> {
        progress.say(format!(
            "building {} switches, {} hosts",
            plan.switches.len(),
            plan.hosts.len()
        ));
        let topology = plan.topology()?;
        let name = name.unwrap_or_else(unique_name);
        let mut rig = Rig {
            lab: Lab::create(&name, topology, false)?,
            plan,
            entries: BTreeMap::new(),
        };
        progress.say("starting controllers, stores and agents");
        let seats: Vec<(String, Seated)> = rig.plan.seats().collect();
        for (node, seated) in seats.iter().filter(|(_, seated)| seated.autostart) {
            rig.start_as(node, seated)?;
        }
        rig.wait_for_stores()?;
        let is_control = |seated: &Seated| matches!(seated.role, Role::Control(_));
        if seats.iter().any(|(_, s)| s.autostart && is_control(s)) {
            rig.wait_for_switches()?;
        }
        Ok(rig)
    }

    /// Starts what the plan has under this name on a node, and waits until it is ready.
    ///
    /// # Errors
    /// There is no such thing, or it does not start; its log is part of the message.
    pub fn start(&mut self, node: &str, role: &str) -> anyhow::Result<()> {
        let seated = self.plan.seated(node, role)?.clone();
        self.start_as(node, &seated)
    }

    /// As [`Rig::start`], in another way than the plan says.
    ///
    /// # Errors
    /// It does not start; its log is part of the message.
    pub fn start_as(&mut self, node: &str, seated: &Seated) -> anyhow::Result<()> {
        self.lab.start(node, &seated.process(), false)?;
        match seated.role.port() {
            Some(port) => self.wait_for_port(node, seated.role.name(), port),
            None => Ok(()),
        }
    }

    /// Ends what runs under this name on a node, by a signal.
    ///
    /// # Errors
    /// It was never started.
    pub fn stop(&mut self, node: &str, role: &str, signal: i32) -> anyhow::Result<()> {
        self.lab.stop(node, role, signal)
    }

    /// Kills what runs under this name on a node, and starts it again.
    ///
    /// # Errors
    /// As [`Rig::stop`] and [`Rig::start`].
    pub fn restart(&mut self, node: &str, role: &str) -> anyhow::Result<()> {
        self.stop(node, role, libc::SIGKILL)?;
        self.start(node, role)
    }

    /// Kills a switch's agent, takes its tables away, and starts it again: its disk is all that is left.
    ///
    /// # Errors
    /// As [`Rig::stop`] and [`Rig::start`].
    pub fn reboot(&mut self, switch: &str) -> anyhow::Result<()> {
        self.stop(switch, "agent", libc::SIGKILL)?;
        self.forget_tables(switch);
        // The kernel lets go of an unpinned program a little later; until then the agent refuses to start.
        let begun = Instant::now();
        while let Err(error) = self.start(switch, "agent") {
            ensure!(begun.elapsed() < Duration::from_secs(5), error);
        }
        Ok(())
    }

    /// Takes programs and tables of a switch without an agent away.
    pub fn forget_tables(&self, switch: &str) {
        self.lab.forget_switch(switch);
    }

    /// Removes what a role keeps in this directory of the rig, `{dir}/NAME`.
    pub fn forget(&self, state: &str) {
        let name = state.trim_start_matches("{dir}/");
        let _ = std::fs::remove_dir_all(self.lab.dir().join(name));
    }

    /// Cuts or mends a link, by its place in the plan.
    ///
    /// # Errors
    /// `ip` failed.
    pub fn set_link(&self, link: usize, is_up: bool) -> anyhow::Result<()> {
        let state = if is_up { "up" } else { "down" };
        for end in &self.lab.topology().interfaces()[link] {
            let space = self.lab.namespace(&end.node);
            namespace::ip(&["-n", &space, "link", "set", "dev", &end.name, state])?;
        }
        Ok(())
    }

    /// Ends the process of a faulty link; what it says in the end is in its log.
    ///
    /// # Errors
    /// The link has no fault.
    pub fn end_link(&mut self, link: usize) -> anyhow::Result<PathBuf> {
        let number = (link + 1).to_string();
        self.lab.stop("fault", &number, libc::SIGTERM)?;
        Ok(self.lab.dir().join(format!("fault-{number}.log")))
    }

    fn wait_for_port(&mut self, node: &str, process: &str, port: u16) -> anyhow::Result<()> {
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
            Ok((attached >= self.plan.switches.len()).then_some(()))
        })
        .with_context(|| format!("last heard: {heard}"))
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        self.lab.topology()
    }

    /// The namespace of a node, for those who have sockets of their own there.
    pub fn namespace(&self, node: &str) -> String {
        self.lab.namespace(node)
    }

    /// A file of the rig.
    pub fn file(&self, name: &str) -> PathBuf {
        self.lab.dir().join(name)
    }

    /// Sends a signal to what runs under this name on a node.
    pub fn signal(&self, node: &str, role: &str, signal: i32) {
        if let Some(process) = self.lab.process(&format!("{node}-{role}")) {
            process.signal(signal);
        }
    }

    /// The command line beside the controllers.
    pub fn console(&self) -> Console<'_> {
        Console::new(&self.lab, self.plan.nodes_of("control"))
    }

    /// Creates tenants, with these hosts as their clients.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn create_tenants(
        &mut self,
        tenants: &[TenantSpec],
        clients: &[String],
    ) -> anyhow::Result<()> {
        for tenant in tenants {
            let entry = self.console().create_tenant(tenant, clients)?;
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
    pub fn cluster(&self, tenants: &[u32]) -> anyhow::Result<Cluster> {
        let mut cluster = self.plan.cluster(self.topology())?;
        for id in tenants {
            let entry = self.entries.get(id).cloned();
            let entry = entry.with_context(|| format!("tenant {id} was never created"))?;
            cluster.tenants.push(entry);
        }
        Ok(cluster)
    }

    /// Starts a generator.
    ///
    /// # Errors
    /// It does not start.
    pub fn load(&mut self, what: &Generating) -> anyhow::Result<LoadDriver> {
        let tenants: Vec<u32> = what.tenants.iter().map(|tenant| tenant.id).collect();
        let config = LoadConfig {
            cluster: self.cluster(&tenants)?,
            tenants,
            keys: what.keys,
            value_len: what.value_len,
            seed: what.seed,
            timeout_ms: 200,
            interval_ms: what.interval_ms,
            cpu: what.seat.cpu,
            phases: vec![],
        };
        LoadDriver::start(&mut self.lab, &what.seat, &config)
    }

    /// Starts a process of clients that record what they see, under a name that is unique on its host.
    ///
    /// # Errors
    /// It does not start.
    pub fn clients(
        &mut self,
        all: &mut Clients,
        host: &str,
        name: &str,
        config: &ClientsConfig,
    ) -> anyhow::Result<()> {
        let seat = Seat {
            host,
            name,
            cpu: None,
            nice: 0,
        };
        all.start(&mut self.lab, &seat, config)
    }

    /// Items of each tenant in the switches' memory, as the memory itself has it; an item that is not in its owner's
    /// page does not count.
    ///
    /// # Errors
    /// A switch that does not say.
    pub fn items(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let mut items = BTreeMap::new();
        for switch in &self.plan.switches {
            for page in self.console().switch_pages(&switch.name)? {
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
    /// Where it runs.
    pub seat: Seat<'a>,
    /// Who asks; nobody: the open tenant.
    pub tenants: &'a [TenantSpec],
    /// Keys of each.
    pub keys: usize,
    /// Length of values in bytes.
    pub value_len: usize,
    /// Decides everything random.
    pub seed: u64,
    /// Length of one interval of the counts over time.
    pub interval_ms: u64,
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
