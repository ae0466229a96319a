//! Steers a load generator of a simulated world.

use std::{cell::RefCell, rc::Rc};

use anyhow::Context;
use lab::interrupt;
use load::{LoadConfig, Phase, PhaseResult};
use sim::{Generator, Io, MachineId, ProcessId, ServiceSpec, World};

use crate::rig::Driver;

/// Between two looks at whether a phase is over, in nanoseconds of the world.
const LOOK_NS: u64 = 5_000_000;

/// Tells a generator what to do, and lets its world go on until it is done.
pub(super) struct Steering {
    world: Rc<RefCell<World>>,
    process: ProcessId,
}

impl Steering {
    /// Starts a generator of this name on a machine.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn start(
        world: Rc<RefCell<World>>,
        machine: MachineId,
        name: String,
        config: &LoadConfig,
    ) -> anyhow::Result<Steering> {
        let make = sim::generator(config.clone());
        let process = {
            let mut world = world.borrow_mut();
            let process = world.place(machine, name, ServiceSpec::default(), make);
            world.start(process)?;
            process
        };
        Ok(Steering { world, process })
    }

    fn with<R>(&self, work: impl FnOnce(&mut Generator, &mut Io<'_>) -> R) -> anyhow::Result<R> {
        let done = self.world.borrow_mut().with(self.process, work);
        done.context("the generator is gone")
    }
}

impl Driver for Steering {
    fn begin(&mut self, phase: &Phase) -> anyhow::Result<()> {
        self.with(|generator, io| generator.begin(phase, io))?
    }

    fn poll(&mut self) -> anyhow::Result<Option<PhaseResult>> {
        self.with(|generator, _| generator.take_result())?
            .transpose()
    }

    fn finish(&mut self) -> anyhow::Result<PhaseResult> {
        loop {
            interrupt::check()?;
            if let Some(result) = self.poll()? {
                return Ok(result);
            }
            let mut world = self.world.borrow_mut();
            let until_ns = world.now_ns() + LOOK_NS;
            world.run_until(until_ns);
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.world.borrow_mut().kill(self.process);
    }
}
