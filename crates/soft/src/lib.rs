//! A switch in user space: the programs as native code (`dataplane::native`) on packet sockets of
//! the named interfaces, for kernels without the XDP that it takes, and for anyone without BPF.
//! CAP_NET_RAW and CAP_NET_ADMIN suffice.
//!
//! In: copies of what is ours of each interface's frames ([`ours`], [`tap`]); the kernel's own are
//! dropped ([`claim`]). Out: frames by the interfaces, by the kernel's routes and neighbours
//! ([`ways`], [`routes`]); what the programs pass goes back to the kernel ([`door`]). As many
//! threads as CPUs, each with its share of the flows ([`worker`]).
//!
//! Everything ends with the process, and the kernel then forwards by itself.
//!
//! Costs, for each packet: a socket buffer and a system call's part, on the way in and on the way
//! out, beside what the programs cost.

mod checksum;
mod claim;
mod door;
mod ours;
mod routes;
mod segments;
mod tap;
#[cfg(test)]
mod tests;
mod ways;
mod worker;

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use dataplane::{
    Object, RECIRCULATION, Sizes, Table,
    native::{Clock, Cpu, Switch},
};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::{LinkAttribute, LinkLayerType};

use self::{
    claim::Claim,
    door::Door,
    tap::{Sender, Tap},
    ways::{Lookup, Ways},
    worker::{Losses, Worker},
};

pub use worker::LossCounts;

/// The index of the recirculation port, which no interface has.
const RECIRCULATION_PORT: u32 = u32::MAX;
/// Threads of one switch at most.
const THREADS: u32 = 64;

/// Why a soft switch cannot be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The programs or an interface.
    #[error(transparent)]
    Dataplane(#[from] dataplane::Error),
    /// Missing privilege.
    #[error("a soft switch takes {0}: run it as root, or with CAP_NET_RAW and CAP_NET_ADMIN")]
    NotPermitted(&'static str),
    /// Another has the interface.
    #[error("interface {0}: another soft switch has it; leave it out")]
    Occupied(String),
    /// Frames have other headers there.
    #[error("interface {0}: it is no Ethernet, which a soft switch takes; leave it out")]
    NotEthernet(String),
    /// The kernel takes its frames as those of another interface.
    #[error(
        "interface {0}: it is part of a bridge, a bond or a VRF; a soft switch takes the bridge or the bond itself, and is not for VRFs"
    )]
    PartOfAnother(String),
    /// No way to keep packets from the kernel.
    #[error("nftables, which keep the kernel from handling what the switch takes: {0}")]
    Claim(io::Error),
    /// No way to give packets back.
    #[error(
        "a tun device, for what the switch leaves to the kernel: {0}; it needs /dev/net/tun, which this user must be allowed to read and write (mode 0666 is usual)"
    )]
    Door(io::Error),
    /// Any other system call.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What came of it.
        source: io::Error,
    },
}

impl Error {
    fn door(source: io::Error) -> Error {
        Error::Door(source)
    }

    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// A switch that forwards. Ends when it is dropped.
pub struct Soft {
    switch: Arc<Switch>,
    losses: Arc<Losses>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _alone: Vec<UnixListener>,
    _claim: Claim,
    _lookup: Lookup,
}

impl Soft {
    /// Starts the switch of that name on these interfaces. Needs a tokio runtime.
    ///
    /// # Errors
    /// See [`Error`]; each says what to do.
    pub async fn start(
        name: &str,
        interfaces: &[String],
        objects: &[Object],
        sizes: Sizes,
    ) -> Result<Soft, Error> {
        check_privilege()?;
        let ports = interfaces
            .iter()
            .map(|name| Ok((dataplane::check_interface(name)?, name.clone())))
            .collect::<Result<Vec<(u32, String)>, dataplane::Error>>()?;
        let alone = ports.iter().map(|(_, name)| alone(name)).collect::<Result<Vec<_>, _>>()?;
        let indexes: Vec<u32> = ports.iter().map(|(index, _)| *index).collect();
        let (ways, lookup) =
            Ways::open(ports.clone()).map_err(Error::system("a netlink socket"))?;
        let threads = dataplane::cpus().min(THREADS);
        let switch = Switch::new(name, objects, sizes, threads, Clock::Boot)?;
        let switch = switch.routed(Box::new(ways));
        let table = Table::open(&switch)?;
        table.scatter(rand::random());
        table.begin_life(rand::random());
        for (index, name) in &ports {
            switch.add_port(*index, name)?;
        }
        if switch.recirculates() {
            switch.add_port(RECIRCULATION_PORT, RECIRCULATION)?;
        }
        let door = open_door(&ports).await?;
        let claim = Claim::new(name, &indexes).map_err(Error::Claim)?;
        let mut soft = Soft {
            switch,
            losses: Arc::default(),
            stop: Arc::default(),
            threads: vec![],
            _alone: alone,
            _claim: claim,
            _lookup: lookup,
        };
        soft.start_threads(threads, &ports, &door)?;
        Ok(soft)
    }

    fn start_threads(
        &mut self,
        threads: u32,
        ports: &[(u32, String)],
        door: &Arc<Door>,
    ) -> Result<(), Error> {
        let mut taps: Vec<Vec<Tap>> = (0..threads).map(|_| vec![]).collect();
        for (index, name) in ports {
            let of_port = Tap::open(*index, threads);
            let of_port = of_port.map_err(Error::system(format!("a packet socket on {name}")))?;
            of_port.into_iter().zip(&mut taps).for_each(|(tap, of_thread)| of_thread.push(tap));
        }
        for (number, taps) in taps.into_iter().enumerate() {
            let worker = Worker::new(
                Cpu::of(&self.switch, number as u32),
                self.switch.clone(),
                taps,
                Sender::open().map_err(Error::system("a packet socket"))?,
                door.clone(),
                self.losses.clone(),
                self.stop.clone(),
            );
            let thread = std::thread::Builder::new().name(format!("packets-{number}"));
            let thread = thread.spawn(move || worker.run()).map_err(Error::system("a thread"))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// The programs and their tables.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// What was lost so far.
    pub fn losses(&self) -> Arc<Losses> {
        self.losses.clone()
    }
}

impl Drop for Soft {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Makes the way back into the kernel, once it is clear that the interfaces are of the kind that
/// frames are read from.
async fn open_door(ports: &[(u32, String)]) -> Result<Arc<Door>, Error> {
    let (connection, netlink, _) =
        rtnetlink::new_connection().map_err(Error::system("a netlink socket"))?;
    let connection = tokio::spawn(connection);
    for (index, name) in ports {
        let mut link = netlink.link().get().match_index(*index).execute();
        let link = link.try_next().await;
        let link = link.map_err(|e| Error::system(name.clone())(io::Error::other(e)))?;
        let Some(link) = link.filter(|link| link.header.link_layer_type == LinkLayerType::Ether)
        else {
            return Err(Error::NotEthernet(name.clone()));
        };
        // What the kernel's copies are told by is where they came in, and routes are looked up for.
        let is_part = |of: &LinkAttribute| matches!(of, LinkAttribute::Controller(1..));
        if link.attributes.iter().any(is_part) {
            return Err(Error::PartOfAnother(name.clone()));
        }
    }
    let door = Door::open(&netlink).await.map(Arc::new);
    connection.abort();
    door
}

/// Keeps other soft switches away from an interface: a name that belongs to this network namespace,
/// and goes with the process.
fn alone(interface: &str) -> Result<UnixListener, Error> {
    let name = format!("shortstop-soft-{interface}");
    let address = SocketAddr::from_abstract_name(name);
    let bound = address.and_then(|address| UnixListener::bind_addr(&address));
    bound.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => Error::Occupied(interface.into()),
        _ => Error::system("a name for an interface")(e),
    })
}

/// Names what is missing before anything is tried.
fn check_privilege() -> Result<(), Error> {
    const NET_ADMIN: u32 = 12;
    const NET_RAW: u32 = 13;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(all) = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) else {
        return Ok(());
    };
    let lacks = |capability: u32| all & 1 << capability == 0;
    match (lacks(NET_RAW), lacks(NET_ADMIN)) {
        (true, true) => Err(Error::NotPermitted("CAP_NET_RAW and CAP_NET_ADMIN, and has neither")),
        (true, false) => Err(Error::NotPermitted("CAP_NET_RAW, which it has not")),
        (false, true) => Err(Error::NotPermitted("CAP_NET_ADMIN, which it has not")),
        (false, false) => Ok(()),
    }
}
