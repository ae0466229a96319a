//! The world: what happens, one event after another.

mod faults;
pub(crate) mod forward;
mod hosts;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    any::Any,
    sync::{Arc, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use anyhow::{Context, bail};
use dataplane::{Counters, native::Frame};
use decide::Registration;
use plan::{Plan, Site, network::PortId, roles::Role};
use rand::RngExt;
use seed::{SeededRng, rng};
use wire::Cluster;

use crate::{
    agent::SwitchSlot,
    clock::{Clock, Reading},
    frames::{FrameId, Frames},
    ids::{MachineId, ProcessId, StreamId},
    link::{Counts, Direction},
    network::Network,
    process::{Birth, Effects, Io, Maker, Process, Remains},
    queue::Queue,
    rack::Rack,
    service::Service,
    streams::Streams,
    trace::Trace,
};
pub use faults::Snapshot;
use forward::Forwarding;
pub use forward::{ForwardCounts, Programs};

/// Events between two looks at how far the world has come.
const PROGRESS_EVERY: u64 = 1 << 20;
/// Frames that wait at the ports of a machine that is halted.
const WAITING: usize = 1000;
/// The first port that is given out.
const FIRST_PORT: u16 = 32_768;
/// What a datagram takes a store, in nanoseconds. Other processes have time for everything.
const STORE_NS: f64 = 1500.0;
/// Datagrams that may wait at a process; what comes on top is dropped.
const INBOX: u32 = 16_384;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A frame is at a port.
    Arrive(PortId, FrameId),
    /// A process of this life wanted to be woken.
    Wake(ProcessId, u32),
    /// Something may be at the end of a stream, the second one or not.
    Deliver(StreamId, bool),
    /// A stream's end is known to a process.
    Ended(StreamId, ProcessId),
    /// A frame comes back to a switch that sent it round.
    Round(MachineId, FrameId),
    /// Routing daemons have agreed on other ways.
    Reroute,
}

/// A machine as it stands.
struct Machine {
    clock: Clock,
    suspended: bool,
    /// What has come to a machine that is halted.
    waiting: Option<Vec<(PortId, FrameId)>>,
    forwarding: Option<Forwarding>,
    listeners: Vec<(u16, ProcessId)>,
    refused: RefusedFrames,
}

/// Frames that a machine did not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedFrames {
    /// For other hardware addresses, or not UDP.
    pub not_mine: u64,
    /// With lengths or checksums that are wrong.
    pub broken: u64,
    /// For ports that nobody listens at.
    pub no_process: u64,
    /// Because too many waited.
    pub queue_full: u64,
    /// That had no way to go, or no hops left.
    pub unreachable: u64,
    /// While the machine was suspended.
    pub asleep: u64,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was killed, or never started.
    Dead,
    /// It runs.
    Running,
    /// It stands still; what comes waits.
    Stopped,
}

/// A place where a process runs, life after life.
struct Slot {
    name: String,
    machine: MachineId,
    make: Maker,
    body: Option<Box<dyn Process>>,
    state: State,
    life: u32,
    /// The earliest time at which it is going to be woken.
    wake_ns: u64,
    service: Service,
    remains: Remains,
    disk_fails: Arc<AtomicBool>,
    /// What waits while it is stopped.
    inbox: Vec<FrameId>,
}

/// How far a world has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The world's time in nanoseconds.
    pub now_ns: u64,
    /// The time that it has taken here, in seconds.
    pub seconds: f64,
    /// Events so far.
    pub events: u64,
    /// Packets that arrived somewhere so far.
    pub packets: u64,
}

impl Progress {
    /// Packets per second of real time.
    pub fn packets_per_s(&self) -> f64 {
        self.packets as f64 / self.seconds.max(1e-9)
    }
}

/// Somebody who is told how far a world has come.
type ProgressObserver = Box<dyn FnMut(&Progress)>;

/// A world in virtual time. Everything in it follows from its [`Plan`], its seed, and what is done
/// to it. It stays on the thread that made it: hash maps take their order from the seed there
/// ([`wire::maps::seed_for_simulation`]).
pub struct World {
    rack: Rack,
    seed: u64,
    now_ns: u64,
    queue: Queue<Event>,
    frames: Frames,
    /// In the place of a frame that is being read.
    spare: Option<Frame>,
    network: Network,
    /// By the port that sends.
    directions: Vec<Direction>,
    /// Of switches that have none of their own.
    shared_cores: Service,
    machines: Vec<Machine>,
    /// By machine: what its switch is made of, once it is.
    loaded: Vec<SwitchSlot>,
    slots: Vec<Slot>,
    streams: Streams,
    /// Decides which segments of streams are lost.
    stream_rng: SeededRng,
    done: Effects,
    trace: Trace,
    events: u64,
    packets: u64,
    programs: Programs,
    began: Instant,
    on_progress: Option<ProgressObserver>,
}

impl World {
    /// A world at its beginning: links are up, and what starts with it starts.
    ///
    /// # Errors
    /// What is wrong with the plan, or only a kernel has.
    pub fn new(
        plan: &Plan,
        disciplines: &'static [Registration],
        seed: u64,
    ) -> anyhow::Result<World> {
        let mut world = World::at_rest(plan, disciplines, seed)?;
        for (process, (_, seated)) in (0..).map(ProcessId).zip(plan.seats()) {
            if seated.autostart {
                world.start(process)?;
            }
        }
        Ok(world)
    }

    /// A world in which nothing starts by itself.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn at_rest(
        plan: &Plan,
        disciplines: &'static [Registration],
        seed: u64,
    ) -> anyhow::Result<World> {
        let rack = Rack::new(plan, disciplines)?;
        let mut network = Network::new(plan.ports()?);
        network.find_ways();
        wire::maps::seed_for_simulation(seed);
        let hardware = &plan.hardware;
        let mut directions = vec![];
        for (i, link) in plan.links.iter().enumerate() {
            for way in ["a to b", "b to a"] {
                let (fault, name) = (link.fault.unwrap_or_default(), format!("link {i} {way}"));
                directions.push(Direction::new(hardware, fault, seed, &name));
            }
        }
        let ports = |machine| network.ports_of(machine).len();
        let machine = |(i, site): (u32, &Site)| Machine {
            clock: Clock::new(site.clocks),
            suspended: false,
            waiting: None,
            forwarding: site.forwards.then(|| Forwarding::new(hardware, ports(i))),
            listeners: vec![],
            refused: RefusedFrames::default(),
        };
        let machines = (0..).zip(&plan.sites).map(machine).collect();
        let mut world = World {
            seed,
            now_ns: 0,
            queue: Queue::default(),
            frames: Frames::default(),
            spare: None,
            network,
            directions,
            shared_cores: forward::shared_cores(hardware),
            loaded: plan.sites.iter().map(|_| SwitchSlot::default()).collect(),
            machines,
            slots: vec![],
            streams: Streams::default(),
            stream_rng: rng(seed, "streams"),
            done: Effects::default(),
            trace: Trace::default(),
            events: 0,
            packets: 0,
            programs: Programs::default(),
            began: Instant::now(),
            on_progress: None,
            rack,
        };
        for (machine, site) in (0..).map(MachineId).zip(&plan.sites) {
            for seated in &site.roles {
                let name = format!("{}/{}", site.name, seated.role.name());
                let process = world.place(machine, name, Box::new(|_| bail!("it has no role")));
                world.reseat(process, &seated.role).with_context(|| site.name.clone())?;
                if let Role::Store(_) = seated.role {
                    world.slots[process.0 as usize].service = Service::new(STORE_NS, 1, INBOX);
                }
            }
        }
        Ok(world)
    }

    /// Puts a role in a process's place, or the same with other options: counts from its next start
    /// on.
    ///
    /// # Errors
    /// The role has what only a kernel has.
    pub fn reseat(&mut self, process: ProcessId, role: &Role) -> anyhow::Result<()> {
        let slot = &mut self.slots[process.0 as usize];
        let machine = slot.machine.0;
        let (rack, network) = (&self.rack, &self.network);
        slot.make = match role {
            Role::Store(store) => crate::store::maker(rack, network, machine, store)?,
            Role::Switch(switch) => {
                let loaded = self.loaded[machine as usize].clone();
                crate::agent::maker(rack, network, machine, switch, loaded)?
            }
            Role::Control(control) => crate::control::maker(rack, control, self.seed)?,
            Role::Redis(_) | Role::Memcached(_) | Role::Etcd(_) => {
                bail!("{} runs in the kernel's world only", role.name())
            }
        };
        Ok(())
    }

    /// A place for a process on a machine, not started yet.
    pub fn place(&mut self, machine: MachineId, name: String, make: Maker) -> ProcessId {
        let id = ProcessId(self.slots.len() as u32);
        self.slots.push(Slot {
            name,
            machine,
            make,
            body: None,
            state: State::Dead,
            life: 0,
            wake_ns: u64::MAX,
            service: Service::new(0.0, 1, INBOX),
            remains: None,
            disk_fails: Arc::default(),
            inbox: vec![],
        });
        id
    }

    // ---- time

    /// The world's time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Lets everything happen that happens up to and at this time.
    pub fn run_until(&mut self, until_ns: u64) {
        wire::maps::seed_for_simulation(self.seed);
        while let Some((at_ns, event)) = self.queue.take(until_ns) {
            self.happens(at_ns, event);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Lets things happen for as long as `goes_on` says so, which is asked every `every_ns`.
    pub fn run_while(&mut self, every_ns: u64, mut goes_on: impl FnMut(&mut World) -> bool) {
        while goes_on(self) {
            self.run_until(self.now_ns + every_ns);
        }
    }

    /// Has somebody told now and then how far the world has come.
    pub fn on_progress(&mut self, told: impl FnMut(&Progress) + 'static) {
        self.on_progress = Some(Box::new(told));
    }

    /// How far the world has come.
    pub fn progress(&self) -> Progress {
        Progress {
            now_ns: self.now_ns,
            seconds: self.began.elapsed().as_secs_f64(),
            events: self.events,
            packets: self.packets,
        }
    }

    /// A hash of everything that happened: the same for the same plan, the same seed and the same
    /// things done at the same times.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    fn happens(&mut self, at_ns: u64, event: Event) {
        self.now_ns = at_ns;
        self.events += 1;
        match event {
            Event::Arrive(port, frame) => self.arrive(port, frame),
            Event::Wake(process, life) => self.wake(process, life),
            Event::Deliver(stream, to_second) => self.deliver(stream, to_second),
            Event::Ended(stream, process) => self.ended(stream, process),
            Event::Round(machine, frame) => self.round(machine, frame),
            Event::Reroute => self.network.find_ways(),
        }
        if self.events.is_multiple_of(PROGRESS_EVERY)
            && let Some(mut told) = self.on_progress.take()
        {
            told(&self.progress());
            self.on_progress = Some(told);
        }
    }

    // ---- who is there

    /// How often the switches' programs ran.
    pub fn programs(&self) -> Programs {
        self.programs
    }

    /// Takes the time of the switches' programs from now on, which takes time itself.
    pub fn time_programs(&mut self) {
        self.programs.time();
    }

    /// What the world was made from.
    pub fn plan(&self) -> &Plan {
        &self.rack.plan
    }

    /// The cluster file.
    pub fn cluster(&self) -> &Cluster {
        &self.rack.cluster
    }

    /// The network as it stands.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> Option<MachineId> {
        let found = self.rack.plan.sites.iter().position(|site| site.name == name)?;
        Some(MachineId(found as u32))
    }

    /// The process of this name, `MACHINE/ROLE`.
    pub fn process(&self, name: &str) -> Option<ProcessId> {
        let found = self.slots.iter().position(|slot| slot.name == name)?;
        Some(ProcessId(found as u32))
    }

    /// All processes, with their names.
    pub fn processes(&self) -> impl Iterator<Item = (ProcessId, &str)> {
        (0..).map(ProcessId).zip(self.slots.iter().map(|s| &*s.name))
    }

    /// What a process is doing.
    pub fn state(&self, process: ProcessId) -> State {
        self.slots[process.0 as usize].state
    }

    /// What a machine's clocks show.
    pub fn clock(&self, machine: MachineId) -> Reading {
        self.machines[machine.0 as usize].clock.at(self.now_ns)
    }

    /// What a switch has counted since its tables were made, by name; nothing if it has none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn counters(
        &self,
        machine: MachineId,
    ) -> Result<Vec<(&'static str, u64)>, dataplane::Error> {
        let loaded = &self.loaded[machine.0 as usize];
        let loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(switch) = loaded.clone() else { return Ok(vec![]) };
        let own = self.rack.disciplines.iter().map(|discipline| discipline.counters);
        let counters = Counters::open(&switch, own)?.read()?;
        let named = counters.into_iter().map(|(counter, count)| (counter.name, count));
        Ok(named.collect())
    }

    /// What a machine did not take.
    pub fn refused(&self, machine: MachineId) -> RefusedFrames {
        self.machines[machine.0 as usize].refused
    }

    /// What happened to the frames of a link, each way.
    pub fn link_counts(&self, link: usize) -> [Counts; 2] {
        [0, 1].map(|side| self.directions[link * 2 + side].counts)
    }

    /// A process, if it lives and is of this kind.
    pub fn get<P: Process>(&self, process: ProcessId) -> Option<&P> {
        let body: &dyn Any = &**self.slots[process.0 as usize].body.as_ref()?;
        body.downcast_ref()
    }

    /// Does something with a process, if it lives and is of this kind; what it sends and asks for
    /// is done.
    pub fn with<P: Process, R>(
        &mut self,
        process: ProcessId,
        work: impl FnOnce(&mut P, &mut Io<'_>) -> R,
    ) -> Option<R> {
        wire::maps::seed_for_simulation(self.seed);
        let mut result = None;
        self.tell(process, self.now_ns, |body, io| {
            let body: &mut dyn Any = body;
            result = body.downcast_mut().map(|body| work(body, io));
        });
        result
    }

    // ---- processes

    /// Starts a process that does not live.
    ///
    /// # Errors
    /// It lives, or cannot be made.
    pub fn start(&mut self, process: ProcessId) -> anyhow::Result<()> {
        wire::maps::seed_for_simulation(self.seed);
        let slot = &mut self.slots[process.0 as usize];
        anyhow::ensure!(slot.state == State::Dead, "{}: it runs already", slot.name);
        let machine = &mut self.machines[slot.machine.0 as usize];
        slot.life += 1;
        let purpose = format!("process {} {}", process.0, slot.life);
        let birth = Birth {
            clock: machine.clock.at(self.now_ns),
            world_ns: self.now_ns,
            remains: slot.remains.take(),
            disk_fails: slot.disk_fails.clone(),
            seed: rng(self.seed, &purpose).random(),
            // A life's late answers must not reach the next one.
            port: FIRST_PORT + (process.0 + 4099 * (slot.life - 1)) as u16 % FIRST_PORT,
            process,
        };
        let body = match (slot.make)(birth) {
            Ok(body) => body,
            // Programs that an agent has loaded run although it ends at once.
            Err(error) => {
                let (name, at) = (slot.name.clone(), slot.machine);
                self.attach(at);
                return Err(error.context(name));
            }
        };
        let ports = body.ports().into_iter().map(|port| (port, process));
        machine.listeners.extend(ports);
        slot.body = Some(body);
        slot.state = State::Running;
        let machine = slot.machine;
        self.wake_at(process, self.now_ns);
        self.attach(machine);
        Ok(())
    }

    /// Tells a process something, and does what it asks for; what it sends leaves at `leaves_ns`.
    fn tell(
        &mut self,
        process: ProcessId,
        leaves_ns: u64,
        what: impl FnOnce(&mut dyn Process, &mut Io<'_>),
    ) {
        let slot = &mut self.slots[process.0 as usize];
        let Some(body) = &mut slot.body else { return };
        let machine = &mut self.machines[slot.machine.0 as usize];
        let mut io = Io {
            clock: machine.clock.at(self.now_ns),
            world_ns: self.now_ns,
            process,
            machine: slot.machine.0,
            streams: &self.streams,
            network: &self.network,
            frames: &mut self.frames,
            done: &mut self.done,
        };
        what(&mut **body, &mut io);
        if let Some(next_ns) = body.next_wake_ns()
            && slot.state == State::Running
            && let Some(at_ns) = machine.clock.when_monotonic(next_ns)
            && at_ns < slot.wake_ns
        {
            slot.wake_ns = at_ns.max(self.now_ns);
            let wake = Event::Wake(process, slot.life);
            self.queue.put(slot.wake_ns, wake);
        }
        machine.refused.unreachable += std::mem::take(&mut self.done.unreachable);
        if self.done.noted != 0 {
            self.trace.note(self.now_ns, std::mem::take(&mut self.done.noted));
        }
        self.send_all(leaves_ns);
        if !self.done.asked.is_empty() {
            self.do_asked(process);
        }
        if let Some(routes) = self.done.routes.take() {
            let machine = self.slots[process.0 as usize].machine;
            self.network.set_routes(machine.0, routes);
        }
    }

    /// Sends what the process that was just told something has sent.
    fn send_all(&mut self, leaves_ns: u64) {
        let mut sent = std::mem::take(&mut self.done.sent);
        for one in sent.drain(..) {
            if one.to_itself {
                self.queue.put(leaves_ns, Event::Arrive(one.port, one.frame));
            } else {
                self.transmit(one.port, one.frame, leaves_ns);
            }
        }
        self.done.sent = sent;
    }

    /// Sends a frame out of a port.
    fn transmit(&mut self, port: PortId, frame: FrameId, leaves_ns: u64) {
        let len = self.frames.bytes(frame).len();
        let fate = self.directions[port as usize].send(leaves_ns, len);
        if fate.copies == 0 {
            return self.frames.give(frame);
        }
        if fate.copies == 2 {
            let copy = self.frames.copy(frame);
            self.queue.put(fate.at_ns, Event::Arrive(port ^ 1, copy));
        }
        if let Some(bit) = fate.flipped {
            let bit = bit as usize % (len * 8);
            self.frames.at(frame).bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        self.queue.put(fate.at_ns, Event::Arrive(port ^ 1, frame));
    }

    /// A frame is at a port.
    fn arrive(&mut self, port: PortId, frame: FrameId) {
        self.packets += 1;
        let bytes = self.frames.bytes(frame);
        let what = crate::packet::digest(bytes) ^ u64::from(port) << 48;
        self.trace.note(self.now_ns, what);
        let machine = MachineId(self.network.port(port).machine);
        let at = &mut self.machines[machine.0 as usize];
        if at.suspended {
            match &mut at.waiting {
                Some(waiting) if waiting.len() < WAITING => return waiting.push((port, frame)),
                _ => at.refused.asleep += 1,
            }
            return self.frames.give(frame);
        }
        if at.forwarding.is_some() {
            self.forward(machine, port, frame);
        } else {
            self.take_in(machine, port, frame);
        }
    }

    fn wake_at(&mut self, process: ProcessId, at_ns: u64) {
        let slot = &mut self.slots[process.0 as usize];
        slot.wake_ns = at_ns;
        let wake = Event::Wake(process, slot.life);
        self.queue.put(at_ns, wake);
    }

    fn wake(&mut self, process: ProcessId, life: u32) {
        let slot = &mut self.slots[process.0 as usize];
        if slot.life != life || slot.wake_ns != self.now_ns {
            return; // Of a former life, or there was an earlier one.
        }
        slot.wake_ns = u64::MAX;
        if slot.state != State::Running || self.machines[slot.machine.0 as usize].suspended {
            return;
        }
        self.trace.note(self.now_ns, u64::from(process.0) << 32 | 1);
        self.tell(process, self.now_ns, |body, io| body.wake(io));
    }
}
