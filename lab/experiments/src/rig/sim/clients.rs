//! Simulated clients that record what they see.

use std::{cell::RefCell, rc::Rc};

use anyhow::Context;
use history::{ClientRecord, ClientsConfig};
use hunt::{ClientsHost, Connect, Habits};
use lab::steered::Seat;
use sim::{ProcessId, World};

use super::steering::start;
use crate::rig::machines::Records;

/// Longest pause of a client between two operations, in microseconds.
const PAUSE_US: u64 = 2_000;
/// Between two looks at whether all is over, in nanoseconds of the world.
const LOOK_NS: u64 = 20_000_000;
/// How long what is under way may take after the clients have stopped.
const END_NS: u64 = 12_000_000_000;

/// Clients of one machine.
pub struct Group {
    world: Rc<RefCell<World>>,
    process: ProcessId,
}

impl Group {
    /// Starts them; `connect` makes a tenant's client.
    ///
    /// # Errors
    /// What is wrong with their configuration.
    pub fn start(
        world: Rc<RefCell<World>>,
        seat: &Seat,
        connect: Connect,
        config: &ClientsConfig,
    ) -> anyhow::Result<Group> {
        let make = hunt::clients(
            config.clone(),
            connect,
            Habits { pause_us: PAUSE_US, ..Habits::default() },
        );
        let process = start(&world, seat, make)?;
        Ok(Group { world, process })
    }

    fn with<R>(&self, work: impl FnOnce(&mut ClientsHost) -> R) -> anyhow::Result<R> {
        let mut world = self.world.borrow_mut();
        let done = world.with(self.process, |clients: &mut ClientsHost, _| work(clients));
        done.context("the clients are gone")
    }
}

impl Records for Group {
    fn operations(&mut self) -> anyhow::Result<u64> {
        self.with(|clients| clients.operations())
    }

    fn stop(&mut self) {
        let _ = self.with(ClientsHost::stop);
    }

    fn finish(&mut self) -> anyhow::Result<ClientRecord> {
        let process = self.process;
        {
            let mut world = self.world.borrow_mut();
            let deadline_ns = world.now_ns() + END_NS;
            world.run_while(LOOK_NS, |world| {
                let is_over = world.get::<ClientsHost>(process).is_none_or(ClientsHost::is_over);
                world.now_ns() < deadline_ns && !is_over
            });
        }
        self.with(ClientsHost::take_recorded)
    }
}
