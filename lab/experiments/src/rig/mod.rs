//! The rig: what every experiment runs on. A [`Plan`] of a rack goes in; a [`Rig`] gives load,
//! clients, what the controller says, and ways to break things. Experiments know nothing of how it
//! is made: of namespaces and processes (`kernel`), or simulated. Its time is the only one that
//! they go by.

mod clients;
mod kernel;
mod loads;
mod machines;
mod never;
mod ownership;
mod pages;
mod sim;
mod status;
mod tenants;

pub use self::sim::LoadProcess;
pub use clients::Clients;
pub use kernel::Console;
pub use loads::{BoxedDriver, ClientKind, STORES, SimulatedLoad};
pub use machines::{Driver, Load, LoadPhase, Loads, Machines};
pub use ownership::Ownership;
pub use pages::{PageRow, SwitchPage};
pub use status::{PartitionStatus, StoreStatus};
pub use tenants::{Policy, TenantChange, TenantSpec};

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use api::types::LinkView;
use lab::{interrupt, rack::Lab, steered::Seat};
use load::{LoadConfig, Phase, PhaseResult, TenantResult, TraceSpec};
use plan::{
    Plan, SeatedRole,
    roles::{Control, Role},
    topology::Topology,
};
use serde_json::Value;
use wire::{Cluster, Lengths, Tenant};

use crate::{Run, World, parts::Parts, run::NeverCounts};
use kernel::Kernel;
use never::CheckedLoad;
use sim::Sim;

/// How long load waits for an answer unless something else is said, in milliseconds.
pub const TIMEOUT_MS: u64 = 200;
/// Writes under way while keys are written for the first time.
const FILLING: usize = 64;
const FILL_S: f64 = 60.0;
/// Between two looks at what is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a plan says, running. Dropping it ends everything.
pub struct Rig {
    machines: Box<dyn Machines>,
    topology: Topology,
    plan: Plan,
    /// Entries of the tenants that were created, for cluster files.
    entries: BTreeMap<u32, Tenant>,
    seen: NeverCounts,
    parts: Parts,
    /// What stores and switches that ended have counted of loans and of copies in stores.
    counted: BTreeMap<String, u64>,
}

fn is_agent(seated: &SeatedRole) -> bool {
    matches!(seated.role, Role::Switch(_))
}

/// Says what a role is about to run, and has it run what runs in its place: controllers decide by
/// the discipline that they are given.
fn begin(seated: &mut SeatedRole, parts: &Parts) -> anyhow::Result<()> {
    if let Role::Control(Control { discipline: Some(name), .. }) = &mut seated.role {
        *name = parts.begin(name)?.to_owned();
    }
    Ok(())
}

impl Rig {
    /// Builds and starts all of it in the run's world, and waits until the stores take writes and,
    /// if controllers start with the rig, every switch is attached to one.
    ///
    /// # Errors
    /// It cannot be built, or something does not start; its log is part of the message.
    pub fn build(mut plan: Plan, name: Option<String>, run: &Run<'_>) -> anyhow::Result<Rig> {
        run.progress.say(format!(
            "building {} switches, {} hosts",
            plan.switches().count(),
            plan.sites.len() - plan.switches().count()
        ));
        for seated in plan.sites.iter_mut().flat_map(|site| &mut site.roles) {
            begin(seated, &run.parts)?;
        }
        let topology = plan.topology()?;
        let machines: Box<dyn Machines> = match run.options.world {
            World::Kernel => Box::new(Kernel::build(&plan, topology.clone(), name)?),
            World::Sim => Box::new(Sim::build(&plan, run)?),
        };
        let faults = plan.links.iter().filter_map(|link| link.fault.as_ref());
        faults.for_each(|fault| run.seen.borrow_mut().expect(fault));
        let mut rig = Rig {
            machines,
            topology,
            plan,
            entries: BTreeMap::new(),
            seen: run.seen.clone(),
            parts: run.parts.clone(),
            counted: BTreeMap::new(),
        };
        run.progress.say("starting controllers, stores and agents");
        let plan = rig.plan.clone();
        let starting = || plan.seats().filter(|(_, seated)| seated.autostart);
        for (node, seated) in starting() {
            rig.machines.start(node, seated)?;
        }
        rig.wait_for_stores()?;
        for (switch, _) in starting().filter(|(_, seated)| is_agent(seated)) {
            rig.wait_for_agent(switch)?;
        }
        if starting().any(|(_, seated)| matches!(seated.role, Role::Control(_))) {
            rig.wait_for_switches()?;
        }
        Ok(rig)
    }

    /// Time since the rig was begun.
    pub fn now(&self) -> Duration {
        self.machines.now()
    }

    /// The clock by which clients record, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.machines.clock_ns()
    }

    /// Lets this much time pass.
    ///
    /// # Errors
    /// An interruption.
    pub fn wait(&self, time: Duration) -> anyhow::Result<()> {
        self.machines.wait(time)
    }

    /// Waits until `ready` gives something, looking every few milliseconds.
    ///
    /// # Errors
    /// An interruption, an error of `ready`, or `what` not having happened in time.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        timeout: Duration,
        mut ready: impl FnMut(&mut Rig) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let begun = self.now();
        loop {
            interrupt::check()?;
            if let Some(value) = ready(self)? {
                return Ok(value);
            }
            let waited = self.now() - begun;
            ensure!(waited <= timeout, "{what}: not within {} s", timeout.as_secs_f64());
            self.wait(LOOK_EVERY)?;
        }
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
    pub fn start_as(&mut self, node: &str, seated: &SeatedRole) -> anyhow::Result<()> {
        let mut seated = seated.clone();
        begin(&mut seated, &self.parts)?;
        self.machines.start(node, &seated)?;
        if is_agent(&seated) {
            self.wait_for_agent(node)?;
        }
        Ok(())
    }

    /// Its memory is there sooner than its programs, so it answers its status before it does
    /// anything for packets.
    fn wait_for_agent(&mut self, switch: &str) -> anyhow::Result<()> {
        let what = format!("{switch}-agent to load its programs");
        self.wait_for(&what, Duration::from_secs(60), |rig| {
            let runs = rig.machines.is_running(switch, "agent");
            ensure!(runs, "{switch}-agent ended");
            Ok(rig.machines.has_loaded(switch).then_some(()))
        })
        .with_context(|| self.machines.log(switch, "agent"))
    }

    /// Ends what runs under this name on a node, by a signal.
    ///
    /// # Errors
    /// It was never started.
    pub fn stop(&mut self, node: &str, role: &str, signal: i32) -> anyhow::Result<()> {
        if role == "store" {
            self.look_at_store(node);
        }
        self.machines.stop(node, role, signal)
    }

    /// Kills what runs under this name on a node, and starts it again.
    ///
    /// # Errors
    /// As [`Rig::stop`] and [`Rig::start`].
    pub fn restart(&mut self, node: &str, role: &str) -> anyhow::Result<()> {
        self.stop(node, role, libc::SIGKILL)?;
        self.start(node, role)
    }

    /// Starts the agent of a switch whose tables were taken away: its disk is all that is left.
    ///
    /// # Errors
    /// As [`Rig::start`].
    pub fn boot(&mut self, switch: &str) -> anyhow::Result<()> {
        // The kernel lets go of an unpinned program a little later; until then the agent refuses
        // to start.
        let begun = self.now();
        while let Err(error) = self.start(switch, "agent") {
            ensure!(self.now() - begun < Duration::from_secs(5), error);
        }
        Ok(())
    }

    /// Takes programs and tables of a switch without an agent away.
    pub fn forget_tables(&mut self, switch: &str) {
        self.seen.borrow_mut().expect_absence();
        self.look_at_switch(switch);
        self.machines.forget_tables(switch);
    }

    /// Removes what a role keeps in this directory of the rig, `{dir}/NAME`.
    pub fn forget(&self, state: &str) {
        self.machines.forget(state);
    }

    /// Cuts or mends a link, by its place in the plan.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_link(&self, link: usize, is_up: bool) -> anyhow::Result<()> {
        self.seen.borrow_mut().expect_absence();
        self.machines.set_link(link, is_up)
    }

    /// Makes a link lose everything from its first end to its second, and back, or nothing more:
    /// its carrier stays. The plan has to give the link a fault.
    ///
    /// # Errors
    /// It has none.
    pub fn silence(&mut self, link: usize, ways: [bool; 2]) -> anyhow::Result<()> {
        self.seen.borrow_mut().expect_absence();
        self.machines.silence(link, ways)
    }

    /// Frames that a link swallowed while it was silent. Asked for at the end: it may end the link.
    ///
    /// # Errors
    /// Nobody counted.
    pub fn swallowed(&mut self, link: usize) -> anyhow::Result<u64> {
        self.machines.swallowed(link)
    }

    /// Has the controller forget a switch, as soon as it has noticed that its agent is gone.
    ///
    /// # Errors
    /// It refuses for too long.
    pub fn forget_switch(&mut self, id: u16) -> anyhow::Result<()> {
        let what = format!("switch {id} to be forgotten");
        let mut refused = String::new();
        self.wait_for(&what, Duration::from_secs(10), |rig| {
            let asked = rig.machines.forget_switch(id);
            refused = asked.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
            Ok(asked.ok())
        })
        .with_context(|| format!("last refused: {refused}"))
    }

    /// Has the controller keep the switches' routes.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn manage_routes(&self) -> anyhow::Result<()> {
        self.machines.manage_routes()
    }

    /// Whether a link between two switches carries packets, as far as the controller knows.
    ///
    /// # Errors
    /// No controller says, or it knows of no such link.
    pub fn carries(&self, [a, b]: [u16; 2]) -> anyhow::Result<bool> {
        let links = self.machines.links()?;
        let is_this = |link: &&LinkView| [[a, b], [b, a]].contains(&[link.a, link.b]);
        let link = links.iter().find(is_this);
        Ok(link.with_context(|| format!("no link between switches {a} and {b}"))?.up)
    }

    /// Sends a signal to what runs under this name on a node.
    pub fn signal(&self, node: &str, role: &str, signal: i32) {
        self.machines.signal(node, role, signal);
    }

    fn wait_for_stores(&mut self) -> anyhow::Result<()> {
        for host in self.stores() {
            let what = format!("{host}-store to take writes");
            self.wait_for(&what, Duration::from_secs(60), |rig| {
                let runs = rig.machines.is_running(&host, "store");
                ensure!(runs, "{host}-store ended");
                let status = rig.store_status(&host).ok();
                Ok(status.filter(|s| s.ready && s.takes_writes).map(|_| ()))
            })
            .with_context(|| self.machines.log(&host, "store"))?;
        }
        Ok(())
    }

    fn wait_for_switches(&mut self) -> anyhow::Result<()> {
        let what = "every switch to be attached to a controller";
        let mut heard = String::new();
        self.wait_for(what, Duration::from_secs(30), |rig| {
            let status = match rig.status() {
                Ok(status) => status,
                Err(error) => {
                    heard = format!("{error:#}");
                    return Ok(None);
                }
            };
            heard = status.to_string();
            let switches = status["switches"].as_array().map_or(&[][..], |s| s);
            let attached = switches.iter().filter(|s| s["attached"] == true).count();
            Ok((attached >= rig.plan.nodes_of("agent").len()).then_some(()))
        })
        .with_context(|| format!("last heard: {heard}"))
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Hosts with a store, in order.
    pub fn stores(&self) -> Vec<String> {
        self.plan.nodes_of("store")
    }

    /// The status of the store on a host.
    ///
    /// # Errors
    /// It does not say.
    pub fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        self.machines.store_status(host)
    }

    /// The status of the controller that leads: standbys have one too, which says nothing of
    /// switches.
    ///
    /// # Errors
    /// None leads, or it does not say.
    pub fn status(&self) -> anyhow::Result<Value> {
        self.machines.status()
    }

    /// Every page as the controller has it.
    ///
    /// # Errors
    /// No controller says.
    pub fn pages(&self) -> anyhow::Result<Vec<PageRow>> {
        self.machines.pages()
    }

    /// Every page of a switch as its memory has it.
    ///
    /// # Errors
    /// The switch does not say.
    pub fn switch_pages(&self, switch: &str) -> anyhow::Result<Vec<SwitchPage>> {
        self.machines.switch_pages(switch)
    }

    /// What a switch has counted since its tables were made: a JSON object of numbers.
    ///
    /// # Errors
    /// The switch does not say.
    pub fn switch_counters(&self, switch: &str) -> anyhow::Result<Value> {
        self.machines.switch_counters(switch)
    }

    /// What the port by which a switch sends packets round has carried; none: nobody counts that.
    pub fn rounds(&self, switch: &str) -> Option<::sim::RoundCounts> {
        self.machines.rounds(switch)
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
        let addresses: Vec<Ipv4Addr> =
            clients.iter().filter_map(|host| self.topology.address_of(host)).collect();
        for tenant in tenants {
            let discipline = self.parts.begin(&tenant.discipline)?.to_owned();
            let tenant = &TenantSpec { discipline, ..tenant.clone() };
            let entry = self.machines.create_tenant(tenant, &addresses)?;
            self.entries.insert(tenant.id, entry);
        }
        Ok(())
    }

    /// Changes the terms of a tenant.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn change_tenant(&self, id: u32, mut change: TenantChange) -> anyhow::Result<()> {
        if let Some(name) = &mut change.discipline {
            *name = self.parts.begin(name)?.to_owned();
        }
        self.machines.change_tenant(id, change)
    }

    /// Removes tenants and waits until their pages are free.
    ///
    /// # Errors
    /// The controller refuses, or a switch does not give the pages back within ten seconds.
    pub fn remove_tenants(&mut self, tenants: &[TenantSpec]) -> anyhow::Result<()> {
        for tenant in tenants {
            self.machines.remove_tenant(tenant.id)?;
        }
        let is_gone = |id: Option<u32>| id.is_none_or(|id| tenants.iter().all(|t| t.id != id));
        let what = "pages of removed tenants to be free";
        self.wait_for(what, Duration::from_secs(10), |rig| {
            let pages = rig.pages()?;
            let gone = pages.iter().all(|page| is_gone(page.tenant));
            Ok(gone.then_some(()))
        })
    }

    /// The cluster as clients of these tenants know it.
    ///
    /// # Errors
    /// A tenant that was never created.
    pub fn cluster(&self, tenants: &[u32]) -> anyhow::Result<Cluster> {
        let mut cluster = self.plan.cluster()?;
        for id in tenants.iter().filter(|id| **id != wire::TENANT_OPEN) {
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
    pub fn load(&mut self, what: &GeneratorSpec) -> anyhow::Result<Load> {
        let tenants: Vec<u32> = what.tenants.iter().map(|tenant| tenant.id).collect();
        let config = LoadConfig {
            cluster: self.cluster(&tenants)?,
            tenants,
            keys: what.keys,
            value_len: what.value_len.clone(),
            seed: what.seed,
            timeout_ms: what.timeout_ms,
            interval_ms: what.interval_ms,
            again_ms: what.again_ms,
            names_lives: what.names_lives,
            number: what.number,
            trace: what.trace.clone(),
            phases: vec![],
        };
        let load = self.start_load(&what.seat, &config)?;
        let seen = self.seen.clone();
        Ok(Box::new(CheckedLoad { load, seen }))
    }

    /// Items of each tenant in the switches' memory, as the memory itself has it; an item that is
    /// not in its owner's page does not count.
    ///
    /// # Errors
    /// A switch that does not say.
    pub fn items(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let mut items = BTreeMap::new();
        for switch in self.plan.switches() {
            for page in self.switch_pages(&switch.name)? {
                if let Some(tenant) = page.tenant {
                    *items.entry(tenant).or_default() +=
                        page.items.saturating_sub(page.foreign_items);
                }
            }
        }
        Ok(items)
    }
}

/// What only namespaces and processes of this machine have.
impl Rig {
    /// The lab.
    ///
    /// # Errors
    /// The rig is simulated.
    pub fn lab(&self) -> anyhow::Result<&Lab> {
        self.machines.lab().context(NO_LAB)
    }

    /// The world, if it is simulated: for what else is to run in it.
    pub fn world(&self) -> Option<std::rc::Rc<std::cell::RefCell<::sim::World>>> {
        self.machines.world()
    }

    fn lab_mut(&mut self) -> anyhow::Result<&mut Lab> {
        self.machines.lab_mut().context(NO_LAB)
    }

    /// The command line beside the controllers.
    ///
    /// # Errors
    /// As [`Rig::lab`].
    pub fn console(&self) -> anyhow::Result<Console<'_>> {
        Ok(Console::new(self.lab()?, self.plan.nodes_of("control")))
    }

    /// The namespace of a node, for those who have sockets of their own there.
    ///
    /// # Errors
    /// As [`Rig::lab`].
    pub fn namespace(&self, node: &str) -> anyhow::Result<String> {
        Ok(self.lab()?.namespace(node))
    }

    /// A file of the rig.
    ///
    /// # Errors
    /// As [`Rig::lab`].
    pub fn file(&self, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.lab()?.dir().join(name))
    }

    /// Ends the process of a faulty link; what it says in the end is in its log.
    ///
    /// # Errors
    /// The link has no fault, or as [`Rig::lab`].
    pub fn end_link(&mut self, link: usize) -> anyhow::Result<PathBuf> {
        let number = (link + 1).to_string();
        let lab = self.lab_mut()?;
        lab.stop("fault", &number, libc::SIGTERM)?;
        Ok(lab.dir().join(format!("fault-{number}.log")))
    }
}

/// Why something of [`Rig::lab`] is not there.
const NO_LAB: &str = "a simulated rig has no namespaces and no processes";

/// A generator to be started.
pub struct GeneratorSpec<'a> {
    /// Where it runs.
    pub seat: Seat<'a>,
    /// Who asks; nobody: the open tenant.
    pub tenants: &'a [TenantSpec],
    /// Keys of each.
    pub keys: usize,
    /// Lengths of values.
    pub value_len: Lengths,
    /// A request unanswered for so long is lost.
    pub timeout_ms: u64,
    /// One unanswered for so long is sent again; none: nothing is.
    pub again_ms: Option<u64>,
    /// Decides everything random.
    pub seed: u64,
    /// Length of one interval of the counts over time.
    pub interval_ms: u64,
    /// Whether its writes name the lives of stores and keys.
    pub names_lives: bool,
    /// Which of several that find the same keys hot.
    pub number: u64,
    /// What phases of a trace play.
    pub trace: Option<TraceSpec>,
}

/// Reads every key of every tenant of a generator once; returns, per tenant, the part of them that
/// a switch answered, and what was seen.
///
/// # Errors
/// They are not answered within a minute.
pub fn census(load: &mut Load) -> anyhow::Result<(Vec<f64>, PhaseResult)> {
    let result = load.run(&Phase::census(FILLING, FILL_S))?;
    let share = |tenant: &TenantResult| tenant.cached as f64 / (tenant.answered as f64).max(1.0);
    Ok((result.tenants.iter().map(share).collect(), result))
}

/// Writes every key of every tenant of a generator, and waits until all are acknowledged. The first
/// writes are refused until the store has heard of the tenants.
///
/// # Errors
/// They are not acknowledged within a minute.
pub fn fill(load: &mut Load) -> anyhow::Result<()> {
    load.run(&Phase::fill(FILLING, FILL_S)).map(drop)
}
