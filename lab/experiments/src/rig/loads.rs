//! Load generators and recording clients on a rig: what runs in a namespace or in the simulator,
//! told by one and the same driver. A discipline whose clients are not those of stores brings both
//! kinds of its own.

use history::{ClientsConfig, CommandClientsConfig};
use hunt::Connect;
use lab::steered::Seat;
use load::LoadConfig;
use sim::Maker;

use super::{
    Clients, Driver, Rig, kernel,
    machines::{Loads, Recording},
    sim::{Group, LoadProcess, Steering},
};

/// A load generator that both worlds have.
pub trait SimulatedLoad: Loads + 'static {
    /// What it is in a simulated world.
    type Process: LoadProcess<Phase = Self::Phase, Result = Self::Result>;

    /// What makes one there.
    fn maker(&self) -> Maker;
}

impl SimulatedLoad for LoadConfig {
    type Process = sim::Generator;

    fn maker(&self) -> Maker {
        sim::generator(self.clone())
    }
}

/// A load generator that is started with `C`.
pub type BoxedDriver<C> = Box<dyn Driver<<C as Loads>::Phase, <C as Loads>::Result>>;

/// Whom recording clients ask, in either world.
#[derive(Debug)]
pub struct ClientKind {
    /// The command of `shortstop-lab` that they run as.
    pub command: &'static str,
    /// What makes a tenant's client in a simulated world.
    pub connect: Connect,
}

/// Clients that ask stores.
pub const STORES: ClientKind = ClientKind { command: "clients", connect: hunt::stores };

impl Rig {
    /// Starts a load generator.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_load<C: SimulatedLoad>(
        &mut self,
        seat: &Seat,
        config: &C,
    ) -> anyhow::Result<BoxedDriver<C>> {
        match self.world() {
            Some(world) => {
                let steering: Steering<C::Process> = Steering::start(world, seat, config.maker())?;
                Ok(Box::new(steering))
            }
            None => self.start_kernel_load(seat, config),
        }
    }

    /// Starts a load generator that only the kernel's world has.
    ///
    /// # Errors
    /// It does not start, or the rig is simulated.
    pub fn start_kernel_load<C: Loads + 'static>(
        &mut self,
        seat: &Seat,
        config: &C,
    ) -> anyhow::Result<BoxedDriver<C>> {
        Ok(Box::new(kernel::LoadDriver::start(self.lab_mut()?, seat, config)?))
    }

    /// Starts clients of stores that record what they see, under a name that is unique on its host.
    ///
    /// # Errors
    /// They do not start.
    pub fn clients(
        &mut self,
        all: &mut Clients,
        host: &str,
        name: &str,
        config: &ClientsConfig,
    ) -> anyhow::Result<()> {
        self.clients_of(&STORES, all, host, name, config)
    }

    /// Starts clients that send commands of Redis and record what they see, in namespaces.
    ///
    /// # Errors
    /// They do not start, or the world is simulated.
    pub fn command_clients(
        &mut self,
        all: &mut Clients,
        host: &str,
        name: &str,
        config: &CommandClientsConfig,
    ) -> anyhow::Result<()> {
        let seat = Seat { host, name, cpu: None, nice: 0 };
        let group = kernel::Group::start(self.lab_mut()?, &seat, "commands", config)?;
        all.add(Box::new(group));
        Ok(())
    }

    /// As [`Rig::clients`], of this kind.
    ///
    /// # Errors
    /// They do not start.
    pub fn clients_of(
        &mut self,
        kind: &ClientKind,
        all: &mut Clients,
        host: &str,
        name: &str,
        config: &ClientsConfig,
    ) -> anyhow::Result<()> {
        let seat = Seat { host, name, cpu: None, nice: 0 };
        let group: Recording = match self.world() {
            Some(world) => Box::new(Group::start(world, &seat, kind.connect, config)?),
            None => {
                let lab = self.lab_mut()?;
                Box::new(kernel::Group::start(lab, &seat, kind.command, config)?)
            }
        };
        all.add(group);
        Ok(())
    }
}
