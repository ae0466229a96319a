//! The simulated world of a plan, as one that deeds are done to.

use anyhow::{Context, ensure};
use api::types::TenantSpec;
use control::{
    admin::Refusal,
    core::{Core, RequestOrigin},
};
use sim::{AgentHost, ControlHost, Io, State, StoreHost};
use wire::Secret;

use super::{MS, PlanRun, spec_of};
use crate::{Act, Deed, Ground, Store, layout::number_of};

/// A switch that can go on takes no longer to leave.
const LEAVES_WITHIN_MS: u64 = 12_000;
/// How long who makes a tenant anew waits for the switches, as an operator would for a moment.
const CLEAR_WITHIN_MS: u64 = 500;

impl Ground for PlanRun<'_> {
    fn run_until_ms(&mut self, at_ms: u64) -> anyhow::Result<()> {
        let until_ns = self.begun_ns + at_ms * MS;
        if until_ns > self.world.now_ns() {
            self.world.run_until(until_ns);
        }
        Ok(())
    }

    fn carry_out(&mut self, deed: &Deed) -> anyhow::Result<bool> {
        match &deed.act {
            Act::Suspend { .. }
            | Act::Halt { .. }
            | Act::Reboot { .. }
            | Act::Replace { .. }
            | Act::Cut { .. } => self.never.expect_absence(),
            Act::Leave { .. } => self.never.expect_departure(),
            // To a store that stood still it was the switches that were silent; and one that holds
            // copies of others' keys is silent itself.
            Act::Stop { process } | Act::Kill { process } | Act::PutBack { process }
                if process.ends_with("/store") =>
            {
                self.never.expect_absence();
            }
            _ => {}
        }
        match &deed.act {
            Act::Kill { process } => {
                let process = self.process(process)?;
                self.look_at_store(process)?;
                self.world.kill(process);
            }
            Act::Stop { process } => self.world.stop(self.process(process)?),
            Act::Suspend { machine } => self.world.suspend(self.machine(machine)?),
            Act::Halt { machine } => self.world.halt(self.machine(machine)?),
            Act::Reboot { machine } => drop(self.reboot(machine)?),
            Act::Leave { machine } => {
                let agent = self.process(&format!("{machine}/agent"))?;
                let runs = self.world.state(agent) == State::Running;
                let leaves = |host: &mut AgentHost, io: &mut Io<'_>| host.leave(io);
                return Ok(runs && self.world.with(agent, leaves).is_some());
            }
            Act::Replace { machine } => {
                let agent = self.reboot(machine)?;
                self.world.forget(agent);
            }
            Act::Relend { store, lease_ms } => {
                let host = format!("store{}", store + 1);
                let process = self.process(&format!("{host}/store"))?;
                self.look_at_store(process)?;
                self.world.kill(process);
                let again = Store { lease_ms: *lease_ms, ..self.plan.stores[*store] };
                self.world.reseat(process, &self.plan.store(&host, again))?;
            }
            Act::Data { store } => {
                let process = self.process(&format!("store{}/store", store + 1))?;
                let for_ns = deed.for_ms * MS;
                self.world.with(process, |store: &mut StoreHost, io| {
                    store.restart_data(for_ns, io);
                });
            }
            Act::FailDisk { process } => {
                self.world.fail_disk(self.process(process)?, true);
                self.disks_fail.insert(process.clone());
            }
            Act::PutBack { process } => {
                let backup = self.world.backup(self.process(process)?);
                self.backups.insert(process.clone(), backup);
            }
            Act::Rotate { tenant } => {
                let fresh = Secret([*tenant as u8 + 1; 16]);
                return self.ask(|core, asked| core.rotate_secret(asked, *tenant, fresh));
            }
            Act::Cut { link } => {
                let links = self.world.plan().links.len();
                ensure!(*link < links, "link {link} of {links}");
                let routing_ms = self.world.plan().routing_ns.unwrap_or(0) / MS;
                let moves = self.plan.has_another(*link) && deed.for_ms > routing_ms;
                self.add("addresses_moved", moves.into());
                self.world.set_link(*link, false);
            }
            Act::Remake { tenant } => {
                return self.ask(|core, asked| core.remove_tenant(asked, *tenant));
            }
            Act::Move { .. } | Act::Terms { .. } | Act::WriteBack { .. } => {
                let (tenant, change) = deed.change().context("a tenant's change")?;
                return self.ask(|core, asked| core.change_tenant(asked, tenant, change));
            }
            Act::MoveSlot { store, slot, takes_ms } => {
                let now_ns = self.world.now_ns();
                let Some(Some(data)) = self.shards.get(*store) else { return Ok(false) };
                data.move_slot(*slot, now_ns, takes_ms * MS);
            }
            Act::AskPast { store } => {
                let (now_ns, quiet_ms) = (self.world.now_ns(), self.plan.copies_gone_ms());
                let (Some(Some(data)), Some(outsider)) =
                    (self.shards.get(*store), &mut self.outsider)
                else {
                    return Ok(false);
                };
                return Ok(outsider.ask(*store, data, now_ns, quiet_ms * MS));
            }
            Act::SetWall { machine, by_ms } => {
                self.world.step_wall(self.machine(machine)?, by_ms * MS as i64);
            }
        }
        Ok(true)
    }

    fn undo(&mut self, deed: &Deed) -> anyhow::Result<()> {
        match &deed.act {
            Act::Kill { process } => self.start(process)?,
            Act::Reboot { machine } => self.start(&format!("{machine}/agent"))?,
            Act::Leave { machine } => self.come_back(machine)?,
            Act::Replace { machine } => {
                let (agent, id) = (format!("{machine}/agent"), number_of(machine) as u16);
                if self.world.state(self.process(&agent)?) == State::Dead {
                    let is_forgotten = self.ask(|core, asked| core.forget_switch(asked, id))?;
                    self.add("switches_forgotten", is_forgotten.into());
                    self.start(&agent)?;
                }
            }
            Act::FailDisk { process } => {
                self.world.fail_disk(self.process(process)?, false);
                if self.disks_fail.remove(process) && process.ends_with("/agent") {
                    self.start(process)?;
                }
            }
            Act::Relend { store, .. } => self.start(&format!("store{}/store", store + 1))?,
            Act::Stop { process } => self.world.cont(self.process(process)?),
            Act::Suspend { machine } | Act::Halt { machine } => {
                self.world.resume(self.machine(machine)?);
            }
            Act::Cut { link } => self.world.set_link(*link, true),
            Act::PutBack { process } => self.put_back(process)?,
            Act::Remake { tenant } => self.make_anew(*tenant)?,
            Act::MoveSlot { store, slot, .. } => {
                let now_ns = self.world.now_ns();
                if let Some(Some(data)) = self.shards.get(*store) {
                    data.bring_slot_back(*slot, now_ns);
                }
            }
            Act::Data { .. }
            | Act::AskPast { .. }
            | Act::Rotate { .. }
            | Act::Move { .. }
            | Act::Terms { .. }
            | Act::WriteBack { .. }
            | Act::SetWall { .. } => {}
        }
        Ok(())
    }
}

impl PlanRun<'_> {
    /// Makes a tenant anew that was removed, as it was at first, when the switches are clear of it.
    fn make_anew(&mut self, id: u32) -> anyhow::Result<()> {
        let control = self.process("control/control")?;
        let until_ns = self.world.now_ns() + CLEAR_WITHIN_MS * MS;
        self.world.run_while(MS, |world| {
            let host = world.get::<ControlHost>(control);
            let leaves = host.is_some_and(|host| !host.core().is_clear_of(id));
            leaves && world.now_ns() < until_ns
        });
        let tenant = self.plan.tenants.iter().find(|tenant| tenant.id == id);
        let spec = TenantSpec { reuse: true, ..spec_of(tenant.context("a tenant")?) };
        // It is there still, where no controller ran that could have removed it.
        self.ask(|core, asked| core.create_tenant(asked, spec, Secret::NONE)).map(drop)
    }

    /// Takes a switch's tables away with its agent, which is returned.
    fn reboot(&mut self, switch: &str) -> anyhow::Result<sim::ProcessId> {
        let agent = self.process(&format!("{switch}/agent"))?;
        self.world.kill(agent);
        let machine = self.machine(switch)?;
        self.look_at_switch(machine)?;
        self.world.forget_tables(machine);
        Ok(agent)
    }

    /// A switch that leaves has done so, or cannot, and starts again. An agent that was killed
    /// meanwhile leaves no more.
    fn come_back(&mut self, switch: &str) -> anyhow::Result<()> {
        let name = format!("{switch}/agent");
        let agent = self.process(&name)?;
        let until_ns = self.world.now_ns() + LEAVES_WITHIN_MS * MS;
        self.world.run_while(MS, |world| {
            let host = world.get::<AgentHost>(agent);
            let leaves = host.is_some_and(|host| host.is_leaving() && !host.has_left());
            leaves && world.now_ns() < until_ns
        });
        let host = self.world.get::<AgentHost>(agent);
        let (leaves, has_left) =
            host.map_or((false, false), |host| (host.is_leaving(), host.has_left()));
        if has_left {
            self.reboot(switch)?;
        } else if leaves {
            self.world.kill(agent);
        }
        self.start(&name)
    }

    /// Kills a process and starts it with the copy of its files, once.
    fn put_back(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(backup) = self.backups.remove(name).flatten() else { return Ok(()) };
        let process = self.process(name)?;
        self.look_at_store(process)?;
        self.world.kill(process);
        self.world.put_back(process, Some(backup));
        self.start(name)
    }

    /// Starts what was killed; another deed may have done it already. An agent that finds its disk
    /// failing ends, and is started when that works again.
    fn start(&mut self, name: &str) -> anyhow::Result<()> {
        let process = self.process(name)?;
        if self.world.state(process) != State::Dead {
            return Ok(());
        }
        match self.world.start(process) {
            Err(_) if self.disks_fail.contains(name) => self.add("agents_without_disk", 1),
            started => started?,
        }
        Ok(())
    }

    /// Asks the controller. What one refuses that does not run, that has no room, or that is doing
    /// just that, is left; whether it did it.
    fn ask<R>(
        &mut self,
        ask: impl FnOnce(&mut Core, RequestOrigin<'_>) -> Result<R, Refusal>,
    ) -> anyhow::Result<bool> {
        let control = self.process("control/control")?;
        let asked = self.world.with(control, |host: &mut ControlHost, io| host.ask(io, ask));
        Ok(asked.is_some_and(|answer| answer.is_ok()))
    }
}
