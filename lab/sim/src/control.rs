//! A controller as a process: the core that leads, its state, and its peers' streams.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use api::proto::{from_store, from_switch};
use control::{
    core::{
        Core, CoreConfig, Disciplines, ITEMS_EVERY, PUMP_EVERY, RequestOrigin, StoreStreamId,
        StreamId as Lane, TICK_EVERY,
    },
    state::{Batch, InMemory},
};
use decide::{Limits, Registration};
use plan::roles;

use crate::{
    ids::StreamId,
    packet::Datagram,
    process::{Birth, Io, Maker, Process, Remains},
    rack::{Rack, no_options},
    streams::{Message, StreamEvent},
};

/// What writing its state takes, in nanoseconds.
const WRITE_NS: u64 = 2_000_000;

/// What makes the controller of a machine, each time that it starts. What its role does not say is
/// as `shortstop control` has it.
///
/// # Errors
/// The controller has options of a command line.
pub(crate) fn maker(rack: &Rack, control: &roles::Control, seed: u64) -> anyhow::Result<Maker> {
    no_options("control", &control.options)?;
    let (cluster, disciplines) = (rack.cluster.clone(), rack.disciplines);
    let control = control.clone();
    Ok(Box::new(move |birth| {
        let config = CoreConfig {
            cluster: cluster.clone(),
            limits: Limits {
                max_items: control.max_items.unwrap_or(10_000),
                reports_per_window: 5_000,
                window_ms: control.window_ms.unwrap_or(1_000),
                seed,
                ..Limits::default()
            },
            settings: control.settings.clone(),
            updates_per_s: 20_000,
            sample_shift: 0,
            term: 0,
        };
        let default = control.discipline.as_deref();
        Ok(Box::new(ControlHost::new(config, disciplines, default, birth)?))
    }))
}

/// What is on its disk.
#[derive(Clone, Default)]
struct Disk(Rc<RefCell<InMemory>>);

/// Whose stream it is.
enum Peer {
    /// It has not said yet.
    New,
    Switch(Lane),
    Store(StoreStreamId),
}

/// A batch that is being written.
struct BatchWrite {
    batch: Batch,
    position: u64,
    done_ns: u64,
}

/// A controller that runs, and leads.
pub struct ControlHost {
    core: Core,
    term: u64,
    disk: Disk,
    writing: Option<BatchWrite>,
    /// Whether its disk refuses what is written.
    disk_fails: Arc<AtomicBool>,
    peers: BTreeMap<StreamId, Peer>,
    started_ns: u64,
    pump_ns: u64,
    tick_ns: u64,
    items_ns: u64,
}

impl ControlHost {
    fn new(
        config: CoreConfig,
        registered: &'static [Registration],
        default: Option<&str>,
        birth: Birth,
    ) -> anyhow::Result<ControlHost> {
        let disk = birth.remains.and_then(|left| left.downcast::<Disk>().ok());
        let disk = disk.map_or_else(Disk::default, |disk| *disk);
        let term = disk.0.borrow_mut().next_term();
        let config = CoreConfig { term, ..config };
        let default = default.unwrap_or(registered.first().map_or("none", |r| r.name));
        let known = registered.iter().any(|r| r.name == default) || default == decide::NONE.name;
        anyhow::ensure!(known, "discipline {default:?} is not known");
        let disciplines = Disciplines::start(registered, default, &config);
        let loaded = disk.0.borrow().load();
        // Microseconds since 1970: above every number of an earlier lead, which used at most one
        // per microsecond.
        let first_number = birth.clock.wall_ns / 1_000_000 * 1000;
        let core = Core::new(config, disciplines, loaded, first_number).context("controller")?;
        let now_ns = birth.clock.monotonic_ns;
        Ok(ControlHost {
            core,
            term,
            disk,
            writing: None,
            disk_fails: birth.disk_fails,
            peers: BTreeMap::new(),
            started_ns: now_ns,
            pump_ns: now_ns,
            tick_ns: now_ns,
            items_ns: now_ns,
        })
    }

    /// The core, to be looked at.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Asks the core for something, as somebody would over HTTP; what follows from it goes its way.
    pub fn ask<R>(
        &mut self,
        io: &Io<'_>,
        ask: impl FnOnce(&mut Core, RequestOrigin<'_>) -> R,
    ) -> R {
        let at_ms = io.clock.wall_ns / 1_000_000;
        let asked = RequestOrigin { who: "lab", at_ms };
        ask(&mut self.core, asked)
    }

    /// Since its start.
    pub fn now(&self, io: &Io<'_>) -> Duration {
        Duration::from_nanos(io.now_ns() - self.started_ns)
    }

    /// Whether everything that was changed is safe.
    pub fn is_written(&self) -> bool {
        self.writing.is_none() && !self.core.journal().is_pending()
    }

    /// Writes what changed, one batch at a time.
    fn write(&mut self, io: &mut Io<'_>) {
        let now_ns = io.now_ns();
        if let Some(writing) = self.writing.take_if(|writing| writing.done_ns <= now_ns) {
            let mut disk = self.disk.0.borrow_mut();
            let takes_it = !self.disk_fails.load(Relaxed);
            if takes_it && disk.write(self.term, &writing.batch).is_ok() {
                self.core.written(writing.position);
            } else {
                self.core.put_back(writing.batch);
            }
        }
        let with_items = now_ns >= self.items_ns;
        if self.writing.is_some() || !(with_items || self.core.journal().is_pending()) {
            return;
        }
        if with_items {
            self.items_ns = now_ns + ITEMS_EVERY.as_nanos() as u64;
        }
        let (batch, position) = self.core.take_batch(with_items);
        if batch.is_empty() {
            return;
        }
        io.note(&(batch.rows(), &batch.items));
        self.writing = Some(BatchWrite { batch, position, done_ns: now_ns + WRITE_NS });
    }

    /// Hands every switch and store what there is for it, as far as its stream takes it.
    fn pump(&mut self, io: &mut Io<'_>) {
        let now = self.now(io);
        // Stores first: one is to know where a tenant is before the switch there asks for copies.
        let is_store = |peer: &Peer| matches!(peer, Peer::Store(_));
        let (stores, others): (Vec<_>, Vec<_>) =
            self.peers.iter().partition(|(_, peer)| is_store(peer));
        for (stream, peer) in stores.into_iter().chain(others) {
            while io.has_room(*stream) {
                let message = match peer {
                    Peer::New => None,
                    Peer::Switch(lane) => {
                        let message = self.core.next_message(now, *lane);
                        message.map(Message::ToSwitch)
                    }
                    Peer::Store(lane) => self.core.next_for_store(*lane).map(Message::ToStore),
                };
                let Some(message) = message else { break };
                io.say(*stream, message);
            }
        }
    }

    /// False: the stream must be closed.
    fn take(&mut self, stream: StreamId, message: Message, now: Duration) -> bool {
        let Some(peer) = self.peers.get_mut(&stream) else { return false };
        match (&*peer, message) {
            (Peer::New, Message::FromSwitch(message)) => {
                let Some(from_switch::Body::Hello(hello)) = message.body else { return false };
                let Ok(lane) = self.core.attach(now, &hello) else { return false };
                *peer = Peer::Switch(lane);
            }
            (Peer::New, Message::FromStore(message)) => {
                let Some(from_store::Body::Hello(hello)) = message.body else { return false };
                *peer = Peer::Store(self.core.store_came(&hello));
            }
            (Peer::Switch(lane), Message::FromSwitch(message)) => {
                return self.core.message(now, *lane, message).is_ok();
            }
            (Peer::Store(lane), Message::FromStore(message)) => {
                self.core.store_said(now, *lane, message);
            }
            _ => return false,
        }
        true
    }

    fn went(&mut self, stream: StreamId, now: Duration) {
        match self.peers.remove(&stream) {
            Some(Peer::Switch(lane)) => self.core.detach(now, lane),
            Some(Peer::Store(lane)) => self.core.store_went(lane),
            Some(Peer::New) | None => {}
        }
    }
}

impl Process for ControlHost {
    fn receive(&mut self, _: &Datagram<'_>, _: &mut Io<'_>) {}

    fn wake(&mut self, io: &mut Io<'_>) {
        let now_ns = io.now_ns();
        if now_ns >= self.tick_ns {
            self.tick_ns = now_ns + TICK_EVERY.as_nanos() as u64;
            self.core.tick(self.now(io), io.clock.wall_ns / 1_000_000);
        }
        self.write(io);
        if now_ns >= self.pump_ns {
            self.pump_ns = now_ns + PUMP_EVERY.as_nanos() as u64;
            self.pump(io);
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let written = self.writing.as_ref().map_or(u64::MAX, |w| w.done_ns);
        Some(self.pump_ns.min(self.tick_ns).min(written))
    }

    fn stream(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) {
        let now = self.now(io);
        match event {
            StreamEvent::Opened(_) => drop(self.peers.insert(stream, Peer::New)),
            StreamEvent::Message(message) => {
                if !self.take(stream, message, now) {
                    self.went(stream, now);
                    io.close(stream);
                }
            }
            StreamEvent::Closed => self.went(stream, now),
        }
        self.write(io);
    }

    fn ports(&self) -> Vec<u16> {
        vec![]
    }

    fn backup(&self) -> Remains {
        let disk = self.disk.0.borrow().clone();
        Some(Box::new(Disk(Rc::new(RefCell::new(disk)))))
    }

    fn remains(self: Box<Self>) -> Remains {
        Some(Box::new(self.disk))
    }
}
