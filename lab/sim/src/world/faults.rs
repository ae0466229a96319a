//! What can be done to a world: processes are killed and stopped, machines suspended, links cut.

use std::{
    collections::BTreeMap,
    sync::{PoisonError, atomic::Ordering::Relaxed},
};

use dataplane::native::Image;
use plan::topology::Fault;

use super::{Event, State, World};
use crate::{
    clock::Reading,
    ids::{MachineId, ProcessId},
    process::Remains,
};

/// A switch as it was at one moment.
pub struct Snapshot {
    clock: Reading,
    tables: Image,
}

impl World {
    /// Kills a process. What it had in memory is gone, and its streams end.
    pub fn kill(&mut self, process: ProcessId) {
        let slot = &mut self.slots[process.0 as usize];
        let Some(body) = slot.body.take() else { return };
        slot.state = State::Dead;
        slot.wake_ns = u64::MAX;
        slot.remains = body.remains();
        for frame in std::mem::take(&mut slot.inbox) {
            self.frames.give(frame);
        }
        let machine = &mut self.machines[slot.machine.0 as usize];
        machine.listeners.retain(|(_, other)| *other != process);
        self.end_streams_of(process);
    }

    /// Takes away what a dead process left behind, as if its files were removed.
    pub fn forget(&mut self, process: ProcessId) {
        self.slots[process.0 as usize].remains = None;
    }

    /// From now on the disk that a process's files are on refuses what is written, or takes it
    /// again: in this life and in later ones.
    pub fn fail_disk(&mut self, process: ProcessId, fails: bool) {
        self.slots[process.0 as usize].disk_fails.store(fails, Relaxed);
    }

    /// A copy of a process's files as they are now; none: it does not live, or has no files.
    pub fn backup(&self, process: ProcessId) -> Remains {
        self.slots[process.0 as usize].body.as_ref()?.backup()
    }

    /// Puts a copy of its files, from [`World::backup`], in the place of what a dead process left
    /// behind.
    pub fn put_back(&mut self, process: ProcessId, backup: Remains) {
        self.slots[process.0 as usize].remains = backup;
    }

    /// Stops a process (SIGSTOP): what comes waits, as far as there is room.
    pub fn stop(&mut self, process: ProcessId) {
        let slot = &mut self.slots[process.0 as usize];
        if slot.state == State::Running {
            slot.state = State::Stopped;
        }
    }

    /// Lets a stopped process go on: what waited reaches it at once, and timers that are late
    /// go off.
    pub fn cont(&mut self, process: ProcessId) {
        let slot = &mut self.slots[process.0 as usize];
        if slot.state == State::Stopped {
            slot.state = State::Running;
            self.catch_up(process);
        }
    }

    /// Suspends a machine: nothing on it goes on, its ports take nothing, and its monotonic
    /// clock stands.
    pub fn suspend(&mut self, machine: MachineId) {
        let at = &mut self.machines[machine.0 as usize];
        if !at.suspended {
            at.suspended = true;
            at.clock.suspend(self.now_ns, true);
        }
    }

    /// Halts a machine with all of its clocks, as when the virtual machine that it is is paused.
    /// What comes waits at its ports, as far as there is room.
    pub fn halt(&mut self, machine: MachineId) {
        self.suspend(machine);
        let at = &mut self.machines[machine.0 as usize];
        at.clock.halt(self.now_ns, true);
        at.waiting.get_or_insert_default();
    }

    /// Lets a suspended or halted machine go on.
    pub fn resume(&mut self, machine: MachineId) {
        let at = &mut self.machines[machine.0 as usize];
        if !at.suspended {
            return;
        }
        at.suspended = false;
        at.clock.halt(self.now_ns, false);
        at.clock.suspend(self.now_ns, false);
        for (port, frame) in at.waiting.take().into_iter().flatten() {
            self.queue.put(self.now_ns, Event::Arrive(port, frame));
        }
        for process in self.processes_of(machine) {
            if self.state(process) == State::Running {
                self.catch_up(process);
            }
        }
    }

    /// A switch's memory and clocks as they are now; `None` if it has no tables.
    pub fn snapshot(&self, machine: MachineId) -> Option<Snapshot> {
        let switch = self.loaded[machine.0 as usize].lock();
        let switch = switch.unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Snapshot { clock: self.clock(machine), tables: switch.image() })
    }

    /// Puts a switch back to a snapshot of it: tables and clocks. Its processes would go back with
    /// it and cannot: they are killed before the snapshot, or the switch has an agent that
    /// remembers what its tables do not.
    ///
    /// # Panics
    /// If its tables are others now.
    pub fn restore(&mut self, machine: MachineId, snapshot: &Snapshot) {
        let at = &mut self.machines[machine.0 as usize];
        at.clock.put_back(self.now_ns, snapshot.clock);
        let switch = self.loaded[machine.0 as usize].lock();
        let switch = switch.unwrap_or_else(PoisonError::into_inner).clone();
        let switch = switch.expect("a snapshot is of a switch with tables");
        switch.put_back(&snapshot.tables);
    }

    /// Takes a switch's programs and tables away; its kernel forwards on.
    pub fn forget_tables(&mut self, machine: MachineId) {
        let loaded = &self.loaded[machine.0 as usize];
        *loaded.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.attach(machine);
    }

    /// Switches a machine off: what runs there is killed, tables are gone, and its ports
    /// take nothing.
    pub fn power_off(&mut self, machine: MachineId) {
        for process in self.processes_of(machine) {
            self.kill(process);
        }
        self.forget_tables(machine);
        self.network.set_routes(machine.0, BTreeMap::new());
        self.suspend(machine);
    }

    /// Switches it on again: its clocks begin, but for the wall clock. Its processes are started by
    /// whoever wants them.
    pub fn power_on(&mut self, machine: MachineId) {
        let at = &mut self.machines[machine.0 as usize];
        at.clock.restart(self.now_ns);
        at.suspended = false;
        for (_, frame) in at.waiting.take().into_iter().flatten() {
            self.frames.give(frame);
        }
    }

    /// Sets a machine's wall clock by so many nanoseconds.
    pub fn step_wall(&mut self, machine: MachineId, by_ns: i64) {
        let at = &mut self.machines[machine.0 as usize];
        at.clock.step_wall(self.now_ns, by_ns);
    }

    /// The processes of a machine.
    pub fn processes_of(&self, machine: MachineId) -> Vec<ProcessId> {
        let slots = (0..).map(ProcessId).zip(&self.slots);
        let of = slots.filter(|(_, slot)| slot.machine == machine);
        of.map(|(id, _)| id).collect()
    }

    /// Cuts or mends a link, both ways. Routes follow later, where there are routing daemons.
    pub fn set_link(&mut self, link: usize, is_up: bool) {
        for side in 0..2 {
            self.directions[link * 2 + side].is_up = is_up;
        }
        self.network.set_up(link, is_up);
        if let Some(after_ns) = self.rack.plan.routing_ns {
            self.queue.put(self.now_ns + after_ns, Event::Reroute);
        }
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: usize) -> bool {
        self.network.is_up(link)
    }

    /// Makes a link lose everything that goes from its first end to its second, and back, or no
    /// more of it than its plan says. Its carrier stays, so no kernel and no routing
    /// daemon notices.
    pub fn silence(&mut self, link: usize, ways: [bool; 2]) {
        let fault = self.rack.plan.links[link].fault.unwrap_or_default();
        for (side, silent) in ways.into_iter().enumerate() {
            let loss = if silent { 1.0 } else { fault.loss };
            let fault = Fault { loss, ..fault };
            self.directions[link * 2 + side].set_fault(fault);
        }
    }

    /// Changes what goes wrong on a link, both ways.
    pub fn set_fault(&mut self, link: usize, fault: Fault) {
        for side in 0..2 {
            self.directions[link * 2 + side].set_fault(fault);
        }
    }
}
