//! A load generator of a simulated world: the same source of requests as a real one's, at its very times.

use std::{cell::RefCell, net::SocketAddr, rc::Rc};

use anyhow::Context;
use lab::interrupt;
use load::{LoadConfig, Phase, PhaseResult, Source};
use sim::{Io, MachineId, Process, ProcessId, ServiceSpec, World, packet::Datagram};

use crate::rig::Driver;

/// Between two looks at whether a phase is over, in nanoseconds of the world.
const LOOK_NS: u64 = 5_000_000;

/// The generator as a process.
struct Generator {
    source: Source,
    port: u16,
    stores: Vec<SocketAddr>,
    /// What came of the phase that is over.
    result: Option<anyhow::Result<PhaseResult>>,
}

impl Generator {
    fn go_on(&mut self, io: &mut Io<'_>) {
        let (port, stores) = (self.port, &self.stores);
        let now_ns = io.now_ns();
        let mut send = |store: usize, bytes: &[u8]| io.send(port, stores[store], bytes);
        self.source.due(now_ns, &mut send);
        self.source.expire(now_ns);
        if let Some(result) = self.source.finished(now_ns).transpose() {
            self.result = Some(result);
        }
    }
}

impl Process for Generator {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        self.source.take(datagram.payload, io.now_ns());
        if self.source.next_ns().is_some_and(|ns| ns <= io.now_ns()) {
            self.go_on(io);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.source.next_ns()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

/// Tells a generator what to do, and lets its world go on until it is done.
pub(super) struct Steering {
    world: Rc<RefCell<World>>,
    process: ProcessId,
}

impl Steering {
    /// Starts a generator of this name on a machine.
    ///
    /// # Errors
    /// As [`Source::new`].
    pub fn start(
        world: Rc<RefCell<World>>,
        machine: MachineId,
        name: String,
        config: &LoadConfig,
    ) -> anyhow::Result<Steering> {
        let config = config.clone();
        let make = Box::new(move |birth: sim::Birth| {
            let stores = config.cluster.stores.iter().map(|store| store.address);
            let generator = Generator {
                stores: stores.collect(),
                source: Source::new(config.clone(), birth.seed as u32)?,
                port: birth.port,
                result: None,
            };
            Ok(Box::new(generator) as Box<dyn Process>)
        });
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
        self.with(|generator, io| {
            generator.result = None;
            generator.source.begin(phase, io.now_ns())
        })?
    }

    fn poll(&mut self) -> anyhow::Result<Option<PhaseResult>> {
        self.with(|generator, _| generator.result.take())?
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
