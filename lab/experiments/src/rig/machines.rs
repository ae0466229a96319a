//! What a rig is made of, in one world.

use std::{cell::RefCell, net::Ipv4Addr, rc::Rc, time::Duration};

use api::types::{LinkView, TenantChange};
use history::ClientRecord;
use lab::rack::Lab;
use load::{LoadConfig, Phase, PhaseResult};
use plan::SeatedRole;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use sim::{RoundCounts, World};
use wire::Tenant;

use super::{PageRow, StoreStatus, SwitchPage, TenantSpec};

/// What a rig is made of, in one world: its nodes with what runs there, the network between them,
/// and its time. Nodes and roles are named as in the plan.
pub trait Machines {
    /// Time since the rig was begun.
    fn now(&self) -> Duration;

    /// The clock by which clients record, in nanoseconds.
    fn clock_ns(&self) -> u64;

    /// Lets this much time pass.
    ///
    /// # Errors
    /// An interruption.
    fn wait(&self, time: Duration) -> anyhow::Result<()>;

    /// Starts a role on a node, and waits until it can be asked.
    ///
    /// # Errors
    /// It does not start; its log is part of the message.
    fn start(&mut self, node: &str, seated: &SeatedRole) -> anyhow::Result<()>;

    /// Whether an agent that was started has loaded its programs, which takes the kernel
    /// some seconds.
    fn has_loaded(&self, switch: &str) -> bool;

    /// Whether a role that was started runs still.
    fn is_running(&mut self, node: &str, role: &str) -> bool;

    /// The last lines that a role logged.
    fn log(&self, node: &str, role: &str) -> String;

    /// Ends a role by a signal.
    ///
    /// # Errors
    /// It was never started.
    fn stop(&mut self, node: &str, role: &str, signal: i32) -> anyhow::Result<()>;

    /// Sends a signal to a role, if it runs.
    fn signal(&self, node: &str, role: &str, signal: i32);

    /// Takes programs and tables of a switch without an agent away.
    fn forget_tables(&self, switch: &str);

    /// Removes what a role keeps in this directory of the rig, `{dir}/NAME`.
    fn forget(&self, state: &str);

    /// Cuts or mends a link, by its place in the plan.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_link(&self, link: usize, is_up: bool) -> anyhow::Result<()>;

    /// Makes a link lose everything from its first end to its second, and back, or nothing more:
    /// its carrier stays. Only links with a fault can.
    ///
    /// # Errors
    /// It cannot.
    fn silence(&mut self, link: usize, ways: [bool; 2]) -> anyhow::Result<()>;

    /// Frames that were swallowed by a link that was silent; may end the link.
    ///
    /// # Errors
    /// Nobody counted.
    fn swallowed(&mut self, link: usize) -> anyhow::Result<u64>;

    /// Has the controller forget a switch that is not attached.
    ///
    /// # Errors
    /// The controller refuses.
    fn forget_switch(&self, id: u16) -> anyhow::Result<()>;

    /// Has the controller keep the switches' routes.
    ///
    /// # Errors
    /// The controller refuses.
    fn manage_routes(&self) -> anyhow::Result<()>;

    /// The links between switches as the controller has them.
    ///
    /// # Errors
    /// No controller says.
    fn links(&self) -> anyhow::Result<Vec<LinkView>>;

    /// The status of the controller that leads.
    ///
    /// # Errors
    /// None leads, or it does not say.
    fn status(&self) -> anyhow::Result<Value>;

    /// Every page as the controller has it.
    ///
    /// # Errors
    /// No controller says.
    fn pages(&self) -> anyhow::Result<Vec<PageRow>>;

    /// Every page of a switch as its memory has it.
    ///
    /// # Errors
    /// The switch does not say.
    fn switch_pages(&self, switch: &str) -> anyhow::Result<Vec<SwitchPage>>;

    /// What a switch has counted since its tables were made: a JSON object of numbers.
    ///
    /// # Errors
    /// The switch does not say.
    fn switch_counters(&self, switch: &str) -> anyhow::Result<Value>;

    /// What the port by which a switch sends packets round has carried; none: nobody counts that.
    fn rounds(&self, _: &str) -> Option<RoundCounts> {
        None
    }

    /// The status of the store on a host.
    ///
    /// # Errors
    /// It does not say.
    fn store_status(&self, host: &str) -> anyhow::Result<StoreStatus>;

    /// Creates a tenant with clients at these addresses; returns its entry in a cluster file, with
    /// the secret that the controller chose.
    ///
    /// # Errors
    /// The controller refuses.
    fn create_tenant(&self, tenant: &TenantSpec, clients: &[Ipv4Addr]) -> anyhow::Result<Tenant>;

    /// Changes the terms of a tenant.
    ///
    /// # Errors
    /// The controller refuses.
    fn change_tenant(&self, id: u32, change: TenantChange) -> anyhow::Result<()>;

    /// Removes a tenant; its pages are free a little later.
    ///
    /// # Errors
    /// The controller refuses.
    fn remove_tenant(&self, id: u32) -> anyhow::Result<()>;

    /// The lab, if these are namespaces of this machine.
    fn lab(&self) -> Option<&Lab> {
        None
    }

    /// The world, if it is simulated.
    fn world(&self) -> Option<Rc<RefCell<World>>> {
        None
    }

    /// As [`Machines::lab`].
    fn lab_mut(&mut self) -> Option<&mut Lab> {
        None
    }
}

/// What a phase of a load is told by.
pub trait LoadPhase: Serialize {
    /// How long it takes, in seconds.
    fn seconds(&self) -> f64;
}

impl LoadPhase for Phase {
    fn seconds(&self) -> f64 {
        self.warmup_s + self.seconds
    }
}

/// What a generator is started with.
pub trait Loads: Serialize {
    /// The command of `shortstop-lab` that it runs as.
    const COMMAND: &str;
    /// What it is told.
    type Phase: LoadPhase;
    /// What it measures.
    type Result: DeserializeOwned;
}

impl Loads for LoadConfig {
    const COMMAND: &str = "load";
    type Phase = Phase;
    type Result = PhaseResult;
}

/// A load generator.
pub type Load = Box<dyn Driver>;

/// Tells a load generator phase by phase what to do.
pub trait Driver<P = Phase, R = PhaseResult> {
    /// Begins a phase; [`Driver::finish`] has its result. Several generators can so run at the
    /// same time.
    ///
    /// # Errors
    /// The generator's death; its log is part of the message.
    fn begin(&mut self, phase: &P) -> anyhow::Result<()>;

    /// The result of the phase that was begun, if it is there already.
    ///
    /// # Errors
    /// As [`Driver::finish`].
    fn poll(&mut self) -> anyhow::Result<Option<R>>;

    /// Waits for the result of the phase that was begun.
    ///
    /// # Errors
    /// An interruption, the generator's death (its log is part of the message), or a phase that
    /// does not end.
    fn finish(&mut self) -> anyhow::Result<R>;

    /// Runs one phase.
    ///
    /// # Errors
    /// As [`Driver::finish`].
    fn run(&mut self, phase: &P) -> anyhow::Result<R> {
        self.begin(phase)?;
        self.finish()
    }
}

/// Clients of one host that record what they see.
pub type Recording = Box<dyn Records>;

/// Asks, and records what it was told.
pub trait Records {
    /// Operations so far.
    ///
    /// # Errors
    /// They ended by themselves.
    fn operations(&mut self) -> anyhow::Result<u64>;

    /// Begins nothing new from now on.
    fn stop(&mut self);

    /// What was recorded, after [`Records::stop`].
    ///
    /// # Errors
    /// A record that cannot be read.
    fn finish(&mut self) -> anyhow::Result<ClientRecord>;
}
