//! The rig in the kernel: namespaces of this machine ([`lab`]), real processes in them, asked
//! through their command lines.

mod clients;
mod console;
mod load;

pub(super) use self::load::LoadDriver;
pub(super) use clients::Group;
pub use console::Console;

use std::{
    collections::BTreeMap,
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use api::types::{LinkView, TenantChange};
use lab::{
    interrupt,
    link::SILENCERS,
    namespace,
    rack::{Lab, tail, unique_name},
};
use plan::{
    Clocks, Plan, SeatedRole,
    roles::{Data, Role},
    topology::Topology,
};
use serde_json::Value;
use wire::Tenant;

use super::{Machines, PageRow, StoreStatus, SwitchPage, TenantSpec, tenants::entry_of};

/// Namespaces and processes.
pub struct Kernel {
    lab: Lab,
    /// Hosts with a controller.
    controllers: Vec<String>,
    /// Links that are or were silent, and which ways.
    silent: BTreeMap<usize, [bool; 2]>,
    /// Where in its log begins what an agent says that was started last.
    said_from: BTreeMap<String, usize>,
    begun: Instant,
}

impl Kernel {
    /// Makes the namespaces and links of a plan, of which this is the topology, under this name or
    /// a unique one.
    ///
    /// # Errors
    /// The plan has what is simulated only, or as [`Lab::create`].
    pub(super) fn build(
        plan: &Plan,
        topology: Topology,
        name: Option<String>,
    ) -> anyhow::Result<Kernel> {
        check(plan)?;
        let name = name.unwrap_or_else(unique_name);
        Ok(Kernel {
            lab: Lab::create(&name, topology, false)?,
            controllers: plan.nodes_of("control"),
            silent: BTreeMap::new(),
            said_from: BTreeMap::new(),
            begun: Instant::now(),
        })
    }

    fn console(&self) -> Console<'_> {
        Console::new(&self.lab, self.controllers.clone())
    }

    /// All that a role has logged.
    fn said(&self, node: &str, role: &str) -> String {
        let log = self.lab.dir().join(format!("{node}-{role}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    fn wait_for_port(&mut self, node: &str, process: &str, port: u16) -> anyhow::Result<()> {
        let address = self.lab.topology().address_of(node).context("no address")?;
        let to = SocketAddr::new(address.into(), port);
        let space = self.lab.namespace(node);
        let name = format!("{node}-{process}");
        let log = self.lab.dir().join(format!("{name}.log"));
        interrupt::wait_for(&format!("{name}: port {port}"), Duration::from_secs(20), || {
            ensure!(self.lab.is_running(&name), "{name} ended");
            let connect = || Ok(TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok());
            Ok(namespace::within(&space, connect)?.then_some(()))
        })
        .with_context(|| format!("log {}:\n{}", log.display(), tail(&log)))
    }
}

/// Refuses what only the simulator has.
///
/// # Errors
/// The plan has some of it.
fn check(plan: &Plan) -> anyhow::Result<()> {
    for site in &plan.sites {
        let name = &site.name;
        ensure!(site.clocks == Clocks::default(), "{name}: namespaces have this machine's clocks");
    }
    for (name, seated) in plan.seats() {
        if let Role::Store(store) = &seated.role {
            let is_usual =
                store.data == Data::Own && store.lease_ms.is_none() && store.room.is_none();
            ensure!(
                is_usual,
                "{name}: a store's own leases, less room than usual, and data that outlives it without a backend are simulated only"
            );
        }
    }
    Ok(())
}

impl Machines for Kernel {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn clock_ns(&self) -> u64 {
        history::now_ns()
    }

    fn wait(&self, time: Duration) -> anyhow::Result<()> {
        interrupt::check()?;
        std::thread::sleep(time);
        Ok(())
    }

    fn start(&mut self, node: &str, seated: &SeatedRole) -> anyhow::Result<()> {
        if let Role::Switch(_) = seated.role {
            let said = self.said(node, "agent").len();
            self.said_from.insert(node.into(), said);
        }
        self.lab.start(node, &seated.process(node), false)?;
        match seated.role.port() {
            Some(port) => self.wait_for_port(node, seated.role.name(), port),
            None => Ok(()),
        }
    }

    fn has_loaded(&self, switch: &str) -> bool {
        let said = self.said(switch, "agent");
        let from = self.said_from.get(switch).copied().unwrap_or(0);
        said.get(from..).is_some_and(|said| said.contains("serving;"))
    }

    fn is_running(&mut self, node: &str, role: &str) -> bool {
        self.lab.is_running(&format!("{node}-{role}"))
    }

    fn log(&self, node: &str, role: &str) -> String {
        tail(&self.lab.dir().join(format!("{node}-{role}.log")))
    }

    fn stop(&mut self, node: &str, role: &str, signal: i32) -> anyhow::Result<()> {
        self.lab.stop(node, role, signal)
    }

    fn signal(&self, node: &str, role: &str, signal: i32) {
        if let Some(process) = self.lab.process(&format!("{node}-{role}")) {
            process.signal(signal);
        }
    }

    fn forget_tables(&self, switch: &str) {
        self.lab.forget_switch(switch);
    }

    fn forget(&self, state: &str) {
        let name = state.trim_start_matches("{dir}/");
        let _ = std::fs::remove_dir_all(self.lab.dir().join(name));
    }

    fn set_link(&self, link: usize, is_up: bool) -> anyhow::Result<()> {
        let state = if is_up { "up" } else { "down" };
        for end in &self.lab.topology().interfaces()[link] {
            let space = self.lab.namespace(&end.node);
            namespace::ip(&["-n", &space, "link", "set", "dev", &end.name, state])?;
        }
        Ok(())
    }

    fn silence(&mut self, link: usize, ways: [bool; 2]) -> anyhow::Result<()> {
        let name = format!("fault-{}", link + 1);
        let process = self.lab.process(&name);
        let process = process.with_context(|| format!("{name}: the link has no fault"))?;
        let now = self.silent.entry(link).or_default();
        for (way, signal) in SILENCERS.into_iter().enumerate() {
            if now[way] != ways[way] {
                process.signal(signal);
            }
        }
        *now = ways;
        Ok(())
    }

    fn swallowed(&mut self, link: usize) -> anyhow::Result<u64> {
        let number = (link + 1).to_string();
        self.lab.stop("fault", &number, libc::SIGTERM)?;
        let log = std::fs::read_to_string(self.lab.dir().join(format!("fault-{number}.log")))?;
        let last = log.lines().last().unwrap_or_default();
        let counts: [Value; 2] = serde_json::from_str(last)
            .with_context(|| format!("what became of link {number}'s frames: {log:?}"))?;
        Ok(counts.iter().filter_map(|way| way["swallowed"].as_u64()).sum())
    }

    fn forget_switch(&self, id: u16) -> anyhow::Result<()> {
        self.console().ask(&["topology", "forget", &id.to_string()]).map(drop)
    }

    fn manage_routes(&self) -> anyhow::Result<()> {
        self.console().ask(&["route", "on"]).map(drop)
    }

    fn links(&self) -> anyhow::Result<Vec<LinkView>> {
        let said = self.console().ask(&["topology", "show"])?;
        serde_json::from_value(said["links"].clone()).context("the controller's links")
    }

    fn status(&self) -> anyhow::Result<Value> {
        self.console().status()
    }

    fn pages(&self) -> anyhow::Result<Vec<PageRow>> {
        self.console().pages()
    }

    fn switch_pages(&self, switch: &str) -> anyhow::Result<Vec<SwitchPage>> {
        self.console().switch_pages(switch)
    }

    fn switch_counters(&self, switch: &str) -> anyhow::Result<Value> {
        self.console().switch_counters(switch)
    }

    fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        let socket = self.lab.dir().join(format!("{host}.sock"));
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        serde_json::from_str(&text).context("a store's status")
    }

    fn create_tenant(&self, tenant: &TenantSpec, clients: &[Ipv4Addr]) -> anyhow::Result<Tenant> {
        let id = tenant.id.to_string();
        let said =
            self.console().tenant(&["create", "--reuse", "--id", &id], &tenant.terms(clients))?;
        entry_of(tenant.id, &said)
    }

    fn change_tenant(&self, id: u32, change: TenantChange) -> anyhow::Result<()> {
        self.console().tenant(&["change", &id.to_string()], &change).map(drop)
    }

    fn remove_tenant(&self, id: u32) -> anyhow::Result<()> {
        let id = id.to_string();
        self.console().ask(&["tenant", "remove", &id]).map(drop)
    }

    fn lab(&self) -> Option<&Lab> {
        Some(&self.lab)
    }

    fn lab_mut(&mut self) -> Option<&mut Lab> {
        Some(&mut self.lab)
    }
}
