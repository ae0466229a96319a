//! The rig in the simulator: a [`sim::World`] made from the same plan, in virtual time.

mod clients;
mod load;
mod steering;

pub(super) use clients::Group;
pub use steering::LoadProcess;
pub(super) use steering::Steering;

use std::{cell::RefCell, collections::BTreeMap, net::Ipv4Addr, rc::Rc, time::Duration};

use anyhow::Context;
use api::types;
use control::{
    admin::{PageFilter, Refusal},
    core::{Core, RequestOrigin},
};
use dataplane::{PageItems, Table};
use lab::interrupt;
use plan::{Plan, SeatedRole, roles::Role};
use rand::RngExt;
use seed::{SeededRng, rng};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sim::{AgentHost, ControlHost, MachineId, ProcessId, RoundCounts, State, StoreHost, World};
use wire::{Secret, Tenant};

use super::{Machines, PageRow, StoreStatus, SwitchPage, TenantSpec, tenants::entry_of};
use crate::Run;

/// Longest stretch of the world's time without a look at whether somebody interrupts, in
/// nanoseconds.
const STRETCH_NS: u64 = 10_000_000;

/// Simulated machines.
pub(super) struct Sim {
    world: Rc<RefCell<World>>,
    /// Whose state lies in which directory.
    states: BTreeMap<String, String>,
    controllers: Vec<ProcessId>,
    /// The controllers' source of secrets.
    secrets: RefCell<SeededRng>,
}

impl Sim {
    /// A world of the plan's machines, in which nothing runs yet.
    ///
    /// # Errors
    /// The plan has what only a kernel has.
    pub fn build(plan: &Plan, run: &Run<'_>) -> anyhow::Result<Sim> {
        let mut world = World::at_rest(plan, run.options.disciplines, run.options.seed)?;
        let clock = run.progress.clock();
        world.on_progress(move |progress| clock.show(Duration::from_nanos(progress.now_ns)));
        let mut states = BTreeMap::new();
        for (node, seated) in plan.seats() {
            let state = match &seated.role {
                Role::Control(control) => &control.state,
                Role::Switch(switch) => &switch.state,
                _ => continue,
            };
            states.insert(state.clone(), format!("{node}/{}", seated.role.name()));
        }
        let controllers = plan.nodes_of("control").into_iter();
        Ok(Sim {
            controllers: controllers
                .filter_map(|node| world.process(&format!("{node}/control")))
                .collect(),
            world: Rc::new(RefCell::new(world)),
            states,
            secrets: RefCell::new(rng(run.options.seed, "secrets of tenants")),
        })
    }

    fn machine(&self, node: &str) -> anyhow::Result<MachineId> {
        steering::machine(&self.world.borrow(), node)
    }

    fn process(&self, node: &str, role: &str) -> anyhow::Result<ProcessId> {
        let name = format!("{node}/{role}");
        let found = self.world.borrow().process(&name);
        found.with_context(|| format!("{name}: there is none in this plan"))
    }
}

impl Sim {
    /// The controller that runs.
    fn controller(&self) -> anyhow::Result<ProcessId> {
        let world = self.world.borrow();
        let mut all = self.controllers.iter();
        let running = all.find(|process| world.state(**process) == State::Running);
        running.copied().context("no controller runs")
    }

    /// Looks at a controller's core.
    fn look<R>(&self, look: impl FnOnce(&Core) -> R) -> anyhow::Result<R> {
        let process = self.controller()?;
        let world = self.world.borrow();
        let host = world.get::<ControlHost>(process);
        Ok(look(host.context("no controller runs")?.core()))
    }

    /// Asks a controller for a change, and lets time pass until that is durable.
    fn ask<R>(
        &self,
        ask: impl FnOnce(&mut Core, RequestOrigin<'_>) -> Result<R, Refusal>,
    ) -> anyhow::Result<R> {
        let process = self.controller()?;
        let asked =
            self.world.borrow_mut().with(process, |host: &mut ControlHost, io| host.ask(io, ask));
        let answer = asked.context("no controller runs")??;
        let is_written = || {
            let world = self.world.borrow();
            let host = world.get::<ControlHost>(process);
            host.is_none_or(ControlHost::is_written)
        };
        while !is_written() {
            self.wait(Duration::from_millis(1))?;
        }
        Ok(answer)
    }
}

/// The same value in another type, as JSON would carry it.
fn carried<T: DeserializeOwned>(value: impl Serialize) -> anyhow::Result<T> {
    Ok(serde_json::from_value(serde_json::to_value(value)?)?)
}

impl Machines for Sim {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().now_ns())
    }

    fn clock_ns(&self) -> u64 {
        self.world.borrow().now_ns()
    }

    fn wait(&self, time: Duration) -> anyhow::Result<()> {
        let mut world = self.world.borrow_mut();
        let until_ns = world.now_ns() + time.as_nanos() as u64;
        while world.now_ns() < until_ns {
            interrupt::check()?;
            let next_ns = until_ns.min(world.now_ns() + STRETCH_NS);
            world.run_until(next_ns);
        }
        Ok(())
    }

    fn start(&mut self, node: &str, seated: &SeatedRole) -> anyhow::Result<()> {
        let process = self.process(node, seated.role.name())?;
        let mut world = self.world.borrow_mut();
        world.reseat(process, &seated.role)?;
        world.start(process)
    }

    fn has_loaded(&self, _switch: &str) -> bool {
        true
    }

    fn is_running(&mut self, node: &str, role: &str) -> bool {
        let process = self.process(node, role);
        process.is_ok_and(|process| self.world.borrow().state(process) != State::Dead)
    }

    fn log(&self, node: &str, role: &str) -> String {
        format!("{node}/{role}: what is simulated writes no log")
    }

    fn stop(&mut self, node: &str, role: &str, _: i32) -> anyhow::Result<()> {
        let process = self.process(node, role)?;
        self.world.borrow_mut().kill(process);
        Ok(())
    }

    fn signal(&self, node: &str, role: &str, signal: i32) {
        let Ok(process) = self.process(node, role) else { return };
        let mut world = self.world.borrow_mut();
        match signal {
            libc::SIGSTOP => world.stop(process),
            libc::SIGCONT => world.cont(process),
            _ => world.kill(process),
        }
    }

    fn forget_tables(&self, switch: &str) {
        if let Ok(machine) = self.machine(switch) {
            self.world.borrow_mut().forget_tables(machine);
        }
    }

    fn forget(&self, state: &str) {
        let of = self.states.get(state);
        let process = of.and_then(|name| self.world.borrow().process(name));
        if let Some(process) = process {
            self.world.borrow_mut().forget(process);
        }
    }

    fn set_link(&self, link: usize, is_up: bool) -> anyhow::Result<()> {
        self.world.borrow_mut().set_link(link, is_up);
        Ok(())
    }

    fn silence(&mut self, link: usize, ways: [bool; 2]) -> anyhow::Result<()> {
        self.world.borrow_mut().silence(link, ways);
        Ok(())
    }

    fn swallowed(&mut self, link: usize) -> anyhow::Result<u64> {
        let counts = self.world.borrow().link_counts(link);
        Ok(counts.iter().map(|way| way.lost).sum())
    }

    fn forget_switch(&self, id: u16) -> anyhow::Result<()> {
        self.ask(|core, asked| core.forget_switch(asked, id)).map(drop)
    }

    fn manage_routes(&self) -> anyhow::Result<()> {
        self.ask(|core, asked| Ok(core.manage_routes(asked, true))).map(drop)
    }

    fn links(&self) -> anyhow::Result<Vec<types::LinkView>> {
        self.look(|core| core.view().topology().links)
    }

    fn status(&self) -> anyhow::Result<Value> {
        let (switches, counters) = self.look(|core| {
            let view = core.view();
            (view.switches(), view.counters(Duration::ZERO))
        })?;
        Ok(json!({ "leading": true, "switches": switches, "counters": counters }))
    }

    fn pages(&self) -> anyhow::Result<Vec<PageRow>> {
        let all = PageFilter { limit: usize::MAX, ..PageFilter::default() };
        carried(self.look(|core| core.view().pages(all))??)
    }

    fn switch_pages(&self, switch: &str) -> anyhow::Result<Vec<SwitchPage>> {
        let process = self.process(switch, "agent")?;
        let world = self.world.borrow();
        let agent = world.get::<AgentHost>(process);
        let agent = agent.with_context(|| format!("{switch}: its agent does not run"))?;
        let table = Table::open(agent.switch())?;
        carried(PageItems::of(&table.scan()))
    }

    fn switch_counters(&self, switch: &str) -> anyhow::Result<Value> {
        let named = self.world.borrow().counters(self.machine(switch)?)?;
        Ok(named.into_iter().map(|(name, count)| (name.to_owned(), Value::from(count))).collect())
    }

    fn rounds(&self, switch: &str) -> Option<RoundCounts> {
        let machine = self.machine(switch).ok()?;
        Some(self.world.borrow().forward_counts(machine).round)
    }

    fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        let process = self.process(host, "store")?;
        let now_ns = {
            let machine = self.machine(host)?;
            self.world.borrow().clock(machine).monotonic_ns
        };
        let world = self.world.borrow();
        let store = world.get::<StoreHost>(process);
        let store = store.with_context(|| format!("{host}: its store does not run"))?;
        carried(store.status(now_ns))
    }

    fn create_tenant(&self, tenant: &TenantSpec, clients: &[Ipv4Addr]) -> anyhow::Result<Tenant> {
        let terms = types::Terms::default().changed_by(tenant.terms(clients));
        let spec = types::TenantSpec { id: Some(tenant.id), reuse: true, ..terms.into() };
        let fresh = Secret(self.secrets.borrow_mut().random());
        while !self.look(|core| core.is_clear_of(tenant.id))? {
            self.wait(Duration::from_millis(1))?;
        }
        let said = self.ask(|core, asked| core.create_tenant(asked, spec, fresh))?;
        entry_of(tenant.id, &serde_json::to_value(said)?)
    }

    fn change_tenant(&self, id: u32, change: types::TenantChange) -> anyhow::Result<()> {
        self.ask(|core, asked| core.change_tenant(asked, id, change)).map(drop)
    }

    fn remove_tenant(&self, id: u32) -> anyhow::Result<()> {
        self.ask(|core, asked| core.remove_tenant(asked, id))
    }

    fn world(&self) -> Option<Rc<RefCell<World>>> {
        Some(self.world.clone())
    }
}
