//! The rig in the simulator: a [`sim::World`] made from the same plan, in virtual time.

mod generator;
mod spec;

use std::{cell::RefCell, collections::BTreeMap, net::Ipv4Addr, rc::Rc, time::Duration};

use anyhow::{Context, bail};
use lab::{interrupt, roles::Role, steered::Seat, topology::Topology};
use load::LoadConfig;
use serde_json::Value;
use sim::{ProcessId, State, World};
use wire::Tenant;

use super::{Load, Machines, PageRow, Plan, Policy, Seated, StoreStatus, SwitchPage, TenantSpec};
use crate::Run;
use generator::Steering;

/// Longest stretch of the world's time without a look at whether somebody interrupts, in nanoseconds.
const STRETCH_NS: u64 = 10_000_000;

/// Simulated machines.
pub(super) struct Sim {
    world: Rc<RefCell<World>>,
    /// Whose state lies in which directory.
    states: BTreeMap<String, String>,
    controllers: Vec<String>,
}

impl Sim {
    /// A world of the plan's machines, in which nothing runs yet.
    ///
    /// # Errors
    /// The plan has what only a kernel has.
    pub fn build(plan: &Plan, topology: &Topology, run: &Run<'_>) -> anyhow::Result<Sim> {
        let spec = spec::of(plan, topology, run.options.disciplines)?;
        let mut world = World::new(&spec, run.options.seed)?;
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
        Ok(Sim {
            world: Rc::new(RefCell::new(world)),
            states,
            controllers: plan.nodes_of("control"),
        })
    }

    fn process(&self, node: &str, role: &str) -> anyhow::Result<ProcessId> {
        let name = format!("{node}/{role}");
        let found = self.world.borrow().process(&name);
        found.with_context(|| format!("{name}: there is none in this plan"))
    }
}

impl Machines for Sim {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().now_ns())
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

    fn start(&mut self, node: &str, seated: &Seated) -> anyhow::Result<()> {
        let process = self.process(node, seated.role.name())?;
        self.world.borrow_mut().start(process)
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
        let Ok(process) = self.process(node, role) else {
            return;
        };
        let mut world = self.world.borrow_mut();
        match signal {
            libc::SIGSTOP => world.stop(process),
            libc::SIGCONT => world.cont(process),
            _ => world.kill(process),
        }
    }

    fn forget_tables(&self, _switch: &str) {}

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

    fn status(&self) -> anyhow::Result<Value> {
        bail!("not yet")
    }

    fn pages(&self) -> anyhow::Result<Vec<PageRow>> {
        bail!("not yet")
    }

    fn switch_pages(&self, _switch: &str) -> anyhow::Result<Vec<SwitchPage>> {
        bail!("not yet")
    }

    fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus> {
        let process = self.process(host, "store")?;
        let world = self.world.borrow();
        let store = world.get::<sim::StoreHost>(process);
        let store = store.with_context(|| format!("{host}: its store does not run"))?;
        let machine = world.machine(host).context("a machine")?;
        let status = store.status(world.clock(machine).monotonic_ns);
        Ok(serde_json::from_value(serde_json::to_value(status)?)?)
    }

    fn create_tenant(&self, _tenant: &TenantSpec, _: &[Ipv4Addr]) -> anyhow::Result<Tenant> {
        bail!("not yet")
    }

    fn change_tenant(&self, _id: u32, _quota: u32, _policy: Policy) -> anyhow::Result<()> {
        bail!("not yet")
    }

    fn remove_tenant(&self, _id: u32) -> anyhow::Result<()> {
        bail!("not yet")
    }

    fn load(&mut self, seat: &Seat, config: &LoadConfig) -> anyhow::Result<Load> {
        let machine = self.world.borrow().machine(seat.host);
        let machine = machine.with_context(|| format!("{}: no such host", seat.host))?;
        let name = format!("{}/{}", seat.host, seat.name);
        let world = self.world.clone();
        Ok(Box::new(Steering::start(world, machine, name, config)?))
    }
}
