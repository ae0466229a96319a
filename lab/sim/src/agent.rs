//! A switch's agent as a process: its tables, and what it does about the network.

use std::{
    cell::RefCell,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use agent::{
    Courier, Greeting, HANDS_ON_WITHIN, Introduction, LISTEN, Reservation, SwitchDeparture, TICK,
    Tables,
    network::{Interface, Probes, check, is_old, told},
};
use anyhow::Context;
use api::proto::{FromSwitch, Routes, RoutesApplied, ToSwitch, from_switch::Body, to_switch};
use dataplane::{
    Object, RECIRCULATION, Sizes, Table,
    native::{Clock, Switch},
};
use decide::Registration;
use plan::roles;
use tokio::sync::mpsc::{Receiver, channel};

use crate::{
    follow::{FollowEvent, Follower},
    ids::{ProcessId, StreamId},
    network::{Network, link_of},
    packet::Datagram,
    process::{Birth, Io, Maker, Process, Remains},
    rack::{Rack, no_options},
    streams::{Message, StreamEvent},
    world::forward::{ROUND, Routes as KernelRoutes},
};

/// Messages that wait for the stream, as in the agent's own queue.
const QUEUE: usize = 256;

/// Datagrams that wait for the tables, as many as a socket's buffer takes.
const CAME_MAX: usize = 256;

/// The tables of a machine: made by its first agent, gone when the machine starts anew.
pub type SwitchSlot = Arc<Mutex<Option<Arc<Switch>>>>;

/// Pages of a switch unless something else is said: as `shortstop switch` has it.
const PAGES: u32 = 96;

/// What makes the agent of a switch, each time that it starts.
///
/// # Errors
/// The agent has options of a command line.
pub(crate) fn maker(
    rack: &Rack,
    network: &Network,
    machine: u32,
    agent: &roles::Switch,
    loaded: SwitchSlot,
) -> anyhow::Result<Maker> {
    no_options("agent", &agent.options)?;
    let (disciplines, site) = (rack.disciplines, &rack.plan.sites[machine as usize]);
    let cores = rack.plan.hardware.cores.filter(|_| site.forwards);
    let (name, cpus) = (site.name.clone(), cores.unwrap_or(1));
    let ports = network.ports_of(machine).len() as u32;
    let around = KernelRoutes::of(network, machine, network.ways(machine).clone());
    let (agent, controllers) = (agent.clone(), rack.controllers(true));
    // The disk of one that ended while it began.
    let mut left = None;
    Ok(Box::new(move |mut birth| {
        let mut there = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let switch = match &*there {
            Some(switch) => switch.clone(),
            None => {
                let pages = agent.pages.unwrap_or(PAGES);
                let made = load(&name, disciplines, pages, around.clone(), ports, cpus)?;
                Table::open(&made)?.begin_life(birth.seed);
                there.insert(made).clone()
            }
        };
        let former = birth.remains.take().and_then(|left| left.downcast::<Disk>().ok());
        let disk = former.map(|disk| *disk).or(left.take());
        let disk = disk.unwrap_or_else(|| Disk::new(birth.disk_fails.clone()));
        left = Some(disk.clone());
        let controllers = controllers.clone();
        let host = AgentHost::new(&name, disciplines, &agent, switch, controllers, disk, birth)?;
        left = None;
        Ok(Box::new(host))
    }))
}

/// Loads the programs, attached to all ports.
fn load(
    name: &str,
    disciplines: &'static [Registration],
    pages: u32,
    routes: KernelRoutes,
    ports: u32,
    cpus: u32,
) -> anyhow::Result<Arc<Switch>> {
    let sizes = Sizes { pages };
    let with_programs = disciplines.iter().filter(|r| !r.object.is_empty());
    let objects: Vec<Object> = with_programs.map(|r| Object::of(r, sizes)).collect();
    let clock = Clock::Set(Arc::default());
    let routes = Box::new(routes);
    let switch = Switch::new(name, &objects, sizes, cpus, clock)?.routed(routes);
    for port in 0..ports {
        switch.add_port(port + 1, &format!("eth{port}"))?;
    }
    if switch.recirculates() {
        switch.add_port(ROUND, RECIRCULATION)?;
    }
    Ok(switch)
}

/// A datagram, and where it goes or came from.
type Letter = (SocketAddr, Vec<u8>);

/// Packets that the tables sent, until the process sends them; and what came, until the tables
/// take it.
#[derive(Clone, Default)]
struct Post {
    sent: Rc<RefCell<Vec<Letter>>>,
    came: Rc<RefCell<Vec<Letter>>>,
}

impl Courier for Post {
    fn send(&mut self, store: SocketAddr, datagram: &[u8]) {
        self.sent.borrow_mut().push((store, datagram.into()));
    }

    fn receive(&mut self, take: &mut dyn FnMut(SocketAddr, &[u8])) {
        for (from, datagram) in self.came.borrow_mut().drain(..) {
            take(from, &datagram);
        }
    }
}

/// What is on its disk: up to where epochs are reserved. And whether the disk takes nothing.
#[derive(Clone)]
struct Disk {
    reserved: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
}

impl Disk {
    fn new(fails: Arc<AtomicBool>) -> Disk {
        Disk { reserved: Arc::default(), fails }
    }
}

/// An agent that runs.
pub struct AgentHost {
    name: String,
    role: roles::Switch,
    disciplines: &'static [Registration],
    switch: Arc<Switch>,
    tables: Tables,
    post: Post,
    to_session: Receiver<FromSwitch>,
    /// The monotonic clock's zero, for those who reckon in instants.
    zero: Instant,
    tick_ns: u64,
    /// When packets are looked for before that.
    listen_ns: u64,
    following: Follower,
    greeting: Greeting,
    probes: Probes,
    port: u16,
    disk: Disk,
    /// The network's changes that the controller was told of.
    told: Option<u64>,
    wanted: Option<Routes>,
    applied: Option<RoutesApplied>,
    /// It is to leave: what others rely on is handed on until then, by the monotonic clock.
    hands_on_until_ns: Option<u64>,
    /// It leaves, and serves its tables no longer; and whether it has left.
    leaving: Option<SwitchDeparture>,
    has_left: bool,
    /// Why it cannot go on.
    failed: Option<String>,
}

/// From one look of an agent that leaves at what it heard to the next.
const LEAVES_NS: u64 = 1_000_000;

impl AgentHost {
    fn new(
        name: &str,
        disciplines: &'static [Registration],
        role: &roles::Switch,
        switch: Arc<Switch>,
        controllers: Vec<ProcessId>,
        disk: Disk,
        birth: Birth,
    ) -> anyhow::Result<AgentHost> {
        let wall = Duration::from_nanos(birth.clock.wall_ns);
        let epochs = Reservation::in_memory(disk.reserved.clone(), disk.fails.clone(), wall);
        let (out, to_session) = channel(QUEUE);
        let post = Post::default();
        let zero = Instant::now();
        set_clock(&switch, birth.clock.boottime_ns);
        let now = zero + Duration::from_nanos(birth.clock.monotonic_ns);
        let courier = Box::new(post.clone());
        let programs = switch.clone().into();
        let tables = Tables::open(programs, role.id, disciplines, epochs, courier, out, now)
            .with_context(|| format!("{name}: agent"))?;
        Ok(AgentHost {
            name: name.into(),
            role: role.clone(),
            disciplines,
            switch,
            tables,
            post,
            to_session,
            zero,
            tick_ns: birth.clock.monotonic_ns,
            listen_ns: u64::MAX,
            following: Follower::new(controllers),
            greeting: Greeting::default(),
            probes: Probes::default(),
            port: birth.port,
            disk,
            told: None,
            wanted: None,
            applied: None,
            hands_on_until_ns: None,
            leaving: None,
            has_left: false,
            failed: None,
        })
    }

    /// The switch that it serves: its tables can be looked into.
    pub fn switch(&self) -> &Arc<Switch> {
        &self.switch
    }

    /// Why it could not go on, if it could not.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// The switch is detached in order: it hands on what others rely on, and then gives its leases
    /// back.
    pub fn leave(&mut self, io: &mut Io<'_>) {
        self.now(io);
        self.tables.leave();
        self.hands_on_until_ns = Some(io.now_ns() + HANDS_ON_WITHIN.as_nanos() as u64);
        self.pass_on(io);
        self.go_on_handing_on(io);
    }

    fn go_on_handing_on(&mut self, io: &mut Io<'_>) {
        let Some(until_ns) = self.hands_on_until_ns else { return };
        if self.tables.is_needed() && io.now_ns() < until_ns {
            return;
        }
        self.hands_on_until_ns = None;
        let now = self.now(io);
        match SwitchDeparture::begin(&self.switch, Box::new(self.post.clone()), now) {
            Ok(leaving) => self.leaving = Some(leaving),
            Err(error) => self.failed = Some(error.to_string()),
        }
        self.go_on_leaving(io);
    }

    /// Whether it is to leave, and has not begun anew since.
    pub fn is_leaving(&self) -> bool {
        self.hands_on_until_ns.is_some() || self.leaving.is_some()
    }

    /// Whether every store has its lease back, or is not waited for.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    fn go_on_leaving(&mut self, io: &mut Io<'_>) {
        let now = self.now(io);
        let Some(leaving) = &mut self.leaving else { return };
        match leaving.tick(now) {
            Ok(has_left) => self.has_left = has_left,
            Err(error) => self.failed = Some(error.to_string()),
        }
        self.tick_ns = io.now_ns() + LEAVES_NS;
        for (store, datagram) in self.post.sent.borrow_mut().drain(..) {
            io.send(self.port, store, &datagram);
        }
    }

    fn now(&self, io: &Io<'_>) -> Instant {
        set_clock(&self.switch, io.clock.boottime_ns);
        self.zero + Duration::from_nanos(io.now_ns())
    }

    fn listen_again(&mut self, io: &Io<'_>, came: bool) {
        self.listen_ns = match came {
            true => io.now_ns() + LISTEN.as_nanos() as u64,
            false => u64::MAX,
        };
    }

    fn noted(&mut self, result: Result<(), agent::AgentError>) {
        if let Err(error) = result {
            self.failed = Some(error.to_string());
        }
    }

    /// Sends what the tables sent, and says what they said.
    fn pass_on(&mut self, io: &mut Io<'_>) {
        for (store, datagram) in self.post.sent.borrow_mut().drain(..) {
            io.send(self.port, store, &datagram);
        }
        let Some(stream) = self.following.stream() else { return };
        while io.has_room(stream)
            && let Ok(message) = self.to_session.try_recv()
        {
            if self.greeting.lets_pass(&message) {
                io.say(stream, Message::FromSwitch(message));
            }
        }
        if self.greeting.is_over() {
            self.tell_network(stream, io);
        }
    }

    /// Its address is that of its first link.
    fn hello(&self, io: &Io<'_>) -> FromSwitch {
        let life = Table::open(&self.switch).map_or(0, |table| table.life());
        let address = io.network.address(io.machine);
        agent::hello(&Introduction {
            id: self.role.id,
            name: &self.name,
            pages: self.role.pages.unwrap_or(PAGES),
            disciplines: self.disciplines,
            refused: &[],
            life,
            address: address.map(IpAddr::from),
            term: self.tables.term(),
        })
    }

    fn probe(&mut self, io: &mut Io<'_>) {
        let before = self.probes.silent();
        let (now, port) = (self.now(io), self.port);
        self.probes.due(now, |to, datagram| {
            io.send(port, to, datagram);
            true
        });
        if self.probes.silent() != before {
            self.told = None;
        }
    }

    /// The greeting comes first; the network keeps what it has to say until then.
    fn tell_network(&mut self, stream: StreamId, io: &mut Io<'_>) {
        let changes = io.network.changes();
        if self.told == Some(changes) {
            return;
        }
        self.told = Some(changes);
        let interfaces = interfaces(io);
        let say = |io: &mut Io<'_>, body| {
            io.say(stream, Message::FromSwitch(FromSwitch { body: Some(body) }));
        };
        say(io, told(&interfaces, &self.probes.silent()));
        self.install(&interfaces, io);
        if let Some(applied) = &self.applied {
            say(io, Body::Routes(applied.clone()));
        }
    }

    fn install(&mut self, interfaces: &[Interface], io: &mut Io<'_>) {
        let Some(wanted) = &self.wanted else { return };
        let mut failed = vec![];
        let routes = check(&wanted.routes, interfaces, &mut failed);
        let index = |hop: &str| interfaces.iter().position(|i| i.name == hop);
        let ways = routes.iter().filter_map(|(prefix, hop)| {
            let index = index(hop.interface)? as u16;
            Some((link_of(prefix.network()), index))
        });
        io.done.routes = Some(ways.collect());
        self.applied = Some(RoutesApplied { term: wanted.term, version: wanted.version, failed });
    }

    fn take(&mut self, message: ToSwitch, io: &mut Io<'_>) {
        match message.body {
            Some(to_switch::Body::Routes(routes)) => {
                let last = self.wanted.as_ref();
                if last.is_none_or(|last| !is_old(&routes, last)) {
                    self.wanted = Some(routes);
                    self.told = None;
                }
            }
            body => {
                if let Some(to_switch::Body::Setup(setup)) = &body
                    && !self.role.no_probes
                {
                    self.probes.set_up(setup);
                }
                let message = ToSwitch { body };
                let now = self.now(io);
                let taken = self.tables.take(message, now);
                self.noted(taken);
            }
        }
    }
}

fn set_clock(switch: &Switch, now_ns: u64) {
    if let Clock::Set(shown) = switch.clock() {
        shown.store(now_ns, Relaxed);
    }
}

/// The machine's interfaces as its kernel has them.
fn interfaces(io: &Io<'_>) -> Vec<Interface> {
    let ports = io.network.ports_of(io.machine);
    let interface = |id: &u32| {
        let (port, far) = (io.network.port(*id), io.network.across(*id));
        let up = io.network.is_up((id / 2) as usize);
        let net =
            |address, len| ipnet::IpNet::new(address, len).expect("a length that is possible");
        let neighbours = vec![far.v4.into(), far.v6.into()];
        Interface {
            name: format!("eth{}", port.index),
            up,
            addresses: vec![net(port.v4.into(), 24), net(port.v6.into(), 64)],
            neighbours: if up { neighbours } else { vec![] },
        }
    };
    ports.iter().map(interface).collect()
}

impl Process for AgentHost {
    /// The programs take what stores answer, or it went around them; the rest is for
    /// disciplines' halves.
    fn receive(&mut self, datagram: &Datagram<'_>, _: &mut Io<'_>) {
        self.probes.take(datagram.from, datagram.payload);
        let mut came = self.post.came.borrow_mut();
        if came.len() < CAME_MAX {
            came.push((datagram.from, datagram.payload.into()));
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if self.leaving.is_some() {
            return self.go_on_leaving(io);
        }
        self.following.wake(io);
        if self.failed.is_none() && io.now_ns() >= self.tick_ns {
            self.tick_ns = io.now_ns() + TICK.as_nanos() as u64;
            let now = self.now(io);
            let ticked = self.tables.tick(now);
            self.listen_again(io, *ticked.as_ref().unwrap_or(&false));
            self.noted(ticked.map(drop));
        } else if self.failed.is_none() && io.now_ns() >= self.listen_ns {
            self.now(io);
            let came = self.tables.listen();
            self.listen_again(io, came);
        }
        self.probe(io);
        self.pass_on(io);
        self.go_on_handing_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        if self.leaving.is_some() {
            return (!self.has_left).then_some(self.tick_ns);
        }
        let follow = self.following.next_wake_ns().unwrap_or(u64::MAX);
        let probe = self.probes.next().map(|next| (next - self.zero).as_nanos() as u64);
        Some(self.tick_ns.min(self.listen_ns).min(follow).min(probe.unwrap_or(u64::MAX)))
    }

    fn stream(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) {
        match self.following.take(stream, event, io) {
            FollowEvent::Began(stream) => {
                let hello = self.hello(io);
                io.say(stream, Message::FromSwitch(hello));
                // What the tables reported in the meantime is worthless to this stream.
                while self.to_session.try_recv().is_ok() {}
                self.greeting = Greeting::default();
                self.told = None;
                self.now(io);
                self.tables.attached();
            }
            FollowEvent::Message(Message::ToSwitch(message)) => self.take(message, io),
            FollowEvent::Message(_) | FollowEvent::Nothing => {}
        }
        self.pass_on(io);
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn backup(&self) -> Remains {
        let reserved = self.disk.reserved.load(Relaxed);
        let fails = self.disk.fails.clone();
        Some(Box::new(Disk { reserved: Arc::new(reserved.into()), fails }))
    }

    fn remains(self: Box<Self>) -> Remains {
        Some(Box::new(self.disk))
    }
}
