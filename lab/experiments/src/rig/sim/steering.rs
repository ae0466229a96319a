//! Steers processes of a simulated world.

use std::{cell::RefCell, marker::PhantomData, rc::Rc};

use anyhow::Context;
use lab::{interrupt, steered::Seat};
use sim::{Io, MachineId, Maker, Process, ProcessId, World};

use crate::rig::Driver;

/// Between two looks at whether a phase is over, in nanoseconds of the world.
const LOOK_NS: u64 = 5_000_000;

/// The machine of this name.
///
/// # Errors
/// There is none.
pub(super) fn machine(world: &World, node: &str) -> anyhow::Result<MachineId> {
    let found = world.machine(node);
    found.with_context(|| format!("{node}: there is no such machine"))
}

/// Puts a process on a machine, and starts it.
///
/// # Errors
/// What is wrong with its configuration.
pub(super) fn start(world: &RefCell<World>, seat: &Seat, make: Maker) -> anyhow::Result<ProcessId> {
    let mut world = world.borrow_mut();
    let machine = machine(&world, seat.host)?;
    let name = format!("{}/{}", seat.host, seat.name);
    let process = world.place(machine, name, make);
    world.start(process)?;
    Ok(process)
}

/// A process that generates load phase by phase.
pub trait LoadProcess: Process + 'static {
    /// What it is told.
    type Phase;
    /// What it measures.
    type Result;

    /// Begins a phase.
    ///
    /// # Errors
    /// What is wrong with it.
    fn begin(&mut self, phase: &Self::Phase, io: &Io<'_>) -> anyhow::Result<()>;

    /// The result of the phase that was begun, once it is over.
    fn take_result(&mut self) -> Option<anyhow::Result<Self::Result>>;
}

/// Tells a generator what to do, and lets its world go on until it is done.
pub struct Steering<G> {
    world: Rc<RefCell<World>>,
    process: ProcessId,
    of: PhantomData<fn(G)>,
}

impl<G: LoadProcess> Steering<G> {
    /// Starts a generator; `make` makes one.
    ///
    /// # Errors
    /// What is wrong with its configuration.
    pub fn start(
        world: Rc<RefCell<World>>,
        seat: &Seat,
        make: Maker,
    ) -> anyhow::Result<Steering<G>> {
        Ok(Steering { process: start(&world, seat, make)?, world, of: PhantomData })
    }

    fn with<R>(&self, work: impl FnOnce(&mut G, &mut Io<'_>) -> R) -> anyhow::Result<R> {
        let done = self.world.borrow_mut().with(self.process, work);
        done.context("the generator is gone")
    }
}

impl<G: LoadProcess> Driver<G::Phase, G::Result> for Steering<G> {
    fn begin(&mut self, phase: &G::Phase) -> anyhow::Result<()> {
        self.with(|generator, io| generator.begin(phase, io))?
    }

    fn poll(&mut self) -> anyhow::Result<Option<G::Result>> {
        self.with(|generator, _| generator.take_result())?.transpose()
    }

    fn finish(&mut self) -> anyhow::Result<G::Result> {
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

impl<G> Drop for Steering<G> {
    fn drop(&mut self) {
        self.world.borrow_mut().kill(self.process);
    }
}
