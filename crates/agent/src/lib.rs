//! The switch's agent: owns the data plane of one switch and does what the controller says. The
//! `shortstop` binary runs it.
//!
//! Two halves with a queue between them: the table thread ([`thread`]) alone writes the shared
//! tables and never waits for the network; the session ([`session`]) keeps the stream to the
//! controller. In: setups, commands and configurations. Out: hot keys, counters, acknowledgements,
//! and packets that fetch values and ask for leases.
//!
//! The table thread's work ([`Tables`]) reads no clock and opens no socket, so that a simulator can
//! drive it too. It has parts that hand values to one another: [`memory`] has the items,
//! [`filling`] fetches the values of those that are copies, [`reporting`] tells what was seen,
//! [`configurations`] keeps what disciplines have besides, [`halves`] runs what they do here
//! themselves. Items that are the data themselves need the memory only.
//!
//! Beside the two halves the network half ([`network`]) tells of interfaces and installs the
//! controller's routes. When the agent dies the programs go on serving: tables, links and leases do
//! not need it. Those of a soft switch are a part of it ([`ProgramPlace::Soft`]) and end with it.
//! What a switch tells about itself is the same for both ([`status`]).

#![deny(unsafe_code)]

mod configurations;
mod courier;
mod epoch;
mod fetches;
mod filling;
mod halves;
mod hot;
mod leaving;
mod list;
mod memory;
pub mod network;
mod registry;
mod reporting;
mod served;
mod session;
mod sockets;
pub mod status;
mod tables;
mod tell;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    io::ErrorKind,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use api::ControlEndpoint;
use dataplane::{
    Attachment, Backing, Dataplane, Home, KeptPorts, Loops, Mode, Object, Programs, Refusal, Sizes,
    SourceCheck, Table,
};
use decide::Registration;
use soft::Soft;
use tokio::sync::{mpsc as async_mpsc, oneshot};

pub use self::{
    courier::Courier,
    epoch::{Reservation, UnservedSwitch, keep_away, stop, told_to_leave},
    leaving::SwitchDeparture,
    registry::objects,
    session::{Greeting, Introduction, hello},
    tables::Tables,
};
use self::{epoch::Lock, session::ToTables, sockets::Sockets};

/// What an agent is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The switch's name: its pins and state are found under it.
    pub name: String,
    /// The switch's id, 1 to [`wire::SWITCH_MOST`], unique among the switches of a cluster.
    pub id: u16,
    /// Interfaces to attach to.
    pub interfaces: Vec<String>,
    /// Where the programs run.
    pub at: ProgramPlace,
    /// What packets' source addresses must be.
    pub source_check: SourceCheck,
    /// Pages of cache memory.
    pub pages: u32,
    /// The controllers; the one that leads is looked for among them.
    pub control: ControlEndpoint,
    /// Directory for what must outlive a reboot.
    pub state_dir: PathBuf,
    /// The disciplines that tenants may choose.
    pub disciplines: &'static [Registration],
    /// Whether neighbouring switches are probed.
    pub probes: bool,
    /// The ports by which packets are sent round, where programs run in the kernel.
    pub loops: Loops,
    /// Where packets for the switch itself go: an address of one of its interfaces, by which other
    /// switches and clients reach its programs. None: it has none.
    pub address: Option<IpAddr>,
}

/// Where a switch's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramPlace {
    /// In the kernel, from where they outlive the agent.
    Kernel(Mode),
    /// In this process, on packet sockets.
    Soft,
}

/// Why an agent could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The data plane refused.
    #[error(transparent)]
    Dataplane(#[from] dataplane::Error),
    /// The soft switch cannot be.
    #[error(transparent)]
    Soft(#[from] soft::Error),
    /// Programs of this name are attached.
    #[error(
        "switch {0} runs in the kernel; `shortstop switch detach --name {0}` first, or choose another --name"
    )]
    InKernel(String),
    /// It cannot be asked for its status.
    #[error("status of switch {name}: {source}")]
    Status {
        /// The switch.
        name: String,
        /// What came of it.
        source: std::io::Error,
    },
    /// The state file cannot be used.
    #[error("switch state {path}: {source}; give a directory that can be written with --state-dir")]
    State {
        /// The file.
        path: PathBuf,
        /// What came of it.
        source: std::io::Error,
    },
    /// It cannot keep others from serving the same switch.
    #[error("lock of a switch {path}: {source}; {}", lock_advice(.source))]
    Lock {
        /// The lock.
        path: PathBuf,
        /// What came of it.
        source: std::io::Error,
    },
    /// An agent does not end.
    #[error("the agent of switch {name}, process {pid}, does not end: {reason}")]
    Lives {
        /// The switch.
        name: String,
        /// Its process.
        pid: i32,
        /// What came of it.
        reason: String,
    },
    /// Another agent serves this switch.
    #[error(
        "switch {0} is served by another agent that still runs; stop it first, or choose another --name"
    )]
    Running(String),
    /// The table thread ended.
    #[error("the table thread ended: {0}")]
    Tables(String),
}

/// What helps against this error of a lock.
fn lock_advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "run this as root, or with --soft set XDG_RUNTIME_DIR to a directory of your own"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "mount it so that it can be written, or with --soft set XDG_RUNTIME_DIR to a directory that can be"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there",
        _ => "locks are to be there: see that a file can be made and written",
    }
}

/// Directory of locks: one per name of a switch, as there is one set of pins per name on a machine.
const LOCKS: &str = "/run/shortstop";

/// Where locks and sockets of switches may be: the machine's directory, and the user's own, for
/// whoever may not write to the first and runs a soft switch, which pins nothing.
fn lock_directories() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|own| Path::new(&own).join("shortstop"));
    [Some(LOCKS.into()), own].into_iter().flatten().collect()
}
/// How often rings and clocks are looked at ([`Tables::tick`]).
pub const TICK: Duration = Duration::from_millis(20);
/// As often while nothing is asked here ([`Tables::is_at_rest`]): a process that is woken fifty
/// times a second keeps a processor from its rest.
pub const REST_TICK: Duration = Duration::from_millis(300);
/// A switch that is to leave waits so long for what others rely on to be handed on
/// ([`Tables::leave`]).
pub const HANDS_ON_WITHIN: Duration = Duration::from_secs(4);
/// While packets come for disciplines' halves, they are looked for this often ([`Tables::listen`]):
/// sockets hold few.
pub const LISTEN: Duration = Duration::from_millis(2);
/// Batches of commands and reports that may wait between the two halves.
const QUEUE: usize = 256;

/// A switch that is attached and ready to be served.
pub struct Agent {
    options: Options,
    plane: Plane,
    /// The number of its tables.
    life: u64,
    refused: Vec<(&'static str, Refusal)>,
    lock: Lock,
    epochs: Reservation,
}

/// What forwards packets.
enum Plane {
    /// With where its programs run, and the interfaces that are not there now.
    Kernel(Dataplane, Vec<Attachment>, Vec<String>),
    Soft(Soft),
}

impl Agent {
    /// Loads the programs and attaches them to every interface, taking over what an earlier agent
    /// left in the kernel; what that one alone was attached to is detached. Interfaces that are not
    /// there now are attached later, if others of a switch that was running are. If one cannot be,
    /// those newly attached before it are left attached only if the switch had been running
    /// already; otherwise everything is undone. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`AgentError`]; each says what to do.
    pub async fn start(options: Options) -> Result<Agent, AgentError> {
        let home = Home::new(&options.name)?;
        let directory = options.state_dir.join(format!("switch-{}", options.name));
        let mut directories = lock_directories();
        directories.truncate(if options.at == ProgramPlace::Soft { 2 } else { 1 });
        let lock = Lock::take_first(&directories, &options.name)?;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let epochs = Reservation::open(&directory, clock.unwrap_or_default())?;
        let sizes = Sizes { pages: options.pages };
        let objects = objects(options.disciplines, sizes);
        let plane = match options.at {
            ProgramPlace::Kernel(mode) => {
                attach(&home, &options.interfaces, mode, &objects, sizes, &options.loops)?
            }
            ProgramPlace::Soft if home.exists() => return Err(AgentError::InKernel(options.name)),
            ProgramPlace::Soft => {
                let (name, interfaces) = (&options.name, &options.interfaces);
                Plane::Soft(Soft::start(name, interfaces, &objects, sizes).await?)
            }
        };
        let at: Backing = match &plane {
            Plane::Kernel(..) => (&home).into(),
            Plane::Soft(soft) => soft.switch().into(),
        };
        let table = Table::open(at)?;
        table.check_sources(options.source_check);
        if let Plane::Soft(_) = plane {
            table.limit_frames(dataplane::longest_frame(&options.interfaces));
        }
        let refused = match &plane {
            Plane::Kernel(dataplane, ..) => dataplane.refused().to_vec(),
            Plane::Soft(_) => vec![],
        };
        status::note_refused(&options.name, &refused);
        Ok(Agent { options, refused, plane, life: table.life(), lock, epochs })
    }

    /// The interfaces of a switch in the kernel, with the mode chosen for each and why.
    pub fn attached(&self) -> &[Attachment] {
        match &self.plane {
            Plane::Kernel(_, attached, _) => attached,
            Plane::Soft(_) => &[],
        }
    }

    /// What this kernel refuses: disciplines by name, and write-back. Their packets are forwarded.
    pub fn refused(&self) -> &[(&'static str, Refusal)] {
        &self.refused
    }

    /// Serves until `stop` resolves, and says how it ends. Programs in the kernel stay attached
    /// afterwards.
    ///
    /// # Errors
    /// If the tables can no longer be served.
    pub async fn run(self, stop: impl Future<Output = Ending>) -> Result<(), AgentError> {
        let (to_tables, from_session) = mpsc::sync_channel(QUEUE);
        let (to_session, from_tables) = async_mpsc::channel(QUEUE);
        let (id, disciplines) = (self.options.id, self.options.disciplines);
        let introduction = Introduction {
            id,
            name: &self.options.name,
            pages: self.options.pages,
            disciplines,
            refused: &self.refused,
            life: self.life,
            address: self.options.address,
            term: 0,
        };
        let epochs = self.epochs;
        let mut ports = None;
        let (programs, soft): (Programs, _) = match self.plane {
            Plane::Kernel(dataplane, attached, missing) => {
                ports = Some(KeptPorts::new(&attached, &missing, self.options.loops));
                (dataplane.into(), None)
            }
            Plane::Soft(soft) => {
                let told = status::StatusServer::open(
                    self.lock.directory(),
                    &soft,
                    disciplines,
                    &self.options.interfaces,
                )?;
                (soft.switch().clone().into(), Some((soft, told)))
            }
        };
        let (ended_tx, mut ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tables".into()).spawn(move || {
            let courier = Box::<Sockets>::default();
            let now = Instant::now();
            let tables = Tables::open(programs, id, disciplines, epochs, courier, to_session, now);
            let result = tables.and_then(|mut tables| {
                ports.into_iter().for_each(|ports| tables.keep_attached(ports));
                thread::serve(tables, &from_session)
            });
            let _ = ended_tx.send(result);
        });
        let thread = thread.map_err(|e| AgentError::Tables(e.to_string()))?;
        {
            let to_leave = to_tables.clone();
            let session = session::run(&self.options, &introduction, to_tables, from_tables);
            let leaves = async {
                let ending = stop.await;
                // A soft switch ends with this process, so it leaves.
                if soft.is_none() && ending == Ending::Agent {
                    return;
                }
                if session::pass_on(&to_leave, ToTables::Leave).await.is_ok() {
                    // The thread ends when it may.
                    std::future::pending().await
                }
            };
            tokio::select! {
                () = leaves => {}
                // It ends when the thread does, which says why a little later.
                () = session => end_of_thread(ended.await)?,
                result = &mut ended => end_of_thread(result)?,
            }
        }
        // The session's end of the queue is gone; the thread sees that and ends.
        let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        if let Some((soft, _)) = &soft {
            let at: Backing = soft.switch().into();
            let left = tokio::task::spawn_blocking(move || leave(at)).await;
            for store in left.map_err(|e| AgentError::Tables(e.to_string()))??.mute {
                warn_of_mute(store);
            }
        }
        Ok(())
    }
}

/// What the table thread ended with: one that panicked says nothing.
fn end_of_thread(
    said: Result<Result<(), AgentError>, oneshot::error::RecvError>,
) -> Result<(), AgentError> {
    said.unwrap_or_else(|_| Err(AgentError::Tables("it panicked".into())))
}

/// How an agent that is stopped ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Alone: programs in the kernel go on serving.
    Agent,
    /// With its switch, which is detached next: what others rely on there is handed on before.
    Switch,
}

/// What came of a switch's leaving.
#[derive(Clone, Debug, Default)]
pub struct DepartureReport {
    /// Stores that had lent it a lease.
    pub stores: usize,
    /// Those that did not answer: the leases that they lent lapse by themselves.
    pub mute: Vec<IpAddr>,
}

/// Gives the leases of a switch back that no agent serves any more, so that no write waits for it:
/// from here on it serves nothing, and only forwards. Returns when every store has heard of it, or
/// does not answer.
///
/// # Errors
/// If its tables cannot be reached.
pub fn leave(at: impl Into<Backing>) -> Result<DepartureReport, AgentError> {
    let mut leaving = SwitchDeparture::begin(at, Box::<Sockets>::default(), Instant::now())?;
    while !leaving.tick(Instant::now())? {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(DepartureReport { stores: leaving.stores(), mute: leaving.mute().collect() })
}

fn warn_of_mute(store: IpAddr) {
    tracing::warn!(
        "store {store} did not answer: its writes of keys that were cached here wait for up to a lease"
    );
}

/// Loads the programs into the kernel and attaches them.
fn attach(
    home: &Home,
    interfaces: &[String],
    mode: Mode,
    objects: &[Object],
    sizes: Sizes,
    loops: &Loops,
) -> Result<Plane, AgentError> {
    let was_running = home.exists();
    // Before anything is loaded: whoever is started again every second would leave much.
    let (there, missing) = look_for(interfaces, was_running)?;
    let dataplane = Dataplane::load_used(home.clone(), objects, sizes)?;
    let attached = dataplane.attach_all(&there, mode);
    let attached = attached.inspect_err(|_| {
        if !was_running {
            let _ = dataplane::detach(home);
        }
    })?;
    for interface in dataplane.keep_only(&attached)? {
        tracing::warn!("{interface}: detached, for --interface does not name it any more");
    }
    // A switch does without: then values are answered from where they lie.
    if let Err(error) = dataplane.recirculate(&attached, loops) {
        tracing::warn!("no value goes round, for there is no recirculation port: {error}");
    }
    Ok(Plane::Kernel(dataplane, attached, missing))
}

/// Those of these interfaces that can be attached, and those that there are none of. A switch that
/// was running goes on without some, as that of a guest that is off, until they are there: its
/// earlier agent did so too. One that begins has a wrong name, as has one that has none of them.
fn look_for(
    interfaces: &[String],
    was_running: bool,
) -> Result<(Vec<String>, Vec<String>), dataplane::Error> {
    let (mut there, mut missing) = (vec![], vec![]);
    for interface in interfaces {
        match dataplane::check_interface(interface) {
            Ok(_) => there.push(interface.clone()),
            Err(dataplane::Error::NoInterface(_)) if was_running => missing.push(interface.clone()),
            Err(error) => return Err(error),
        }
    }
    match missing.first() {
        Some(name) if there.is_empty() => Err(dataplane::Error::NoInterface(name.clone())),
        _ => {
            for name in &missing {
                tracing::warn!("interface {name} is not there: attached as soon as it is");
            }
            Ok((there, missing))
        }
    }
}
