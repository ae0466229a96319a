//! A store as a process: the engine, a backend, and the way to the controllers.

use std::{net::SocketAddr, sync::Arc};

use anyhow::ensure;
use api::proto::{
    FromStore, HalfAck, HalfMessage, HalfReport, StoreHello, ToStore, from_store, to_store,
};
use emulated::{Pace, Rate, RateChange};
use plan::roles::{self, Data};
use store::{
    Half,
    backend::{Backend, embedded::EmbeddedBackend},
    engine::Engine,
    net::{Outbox, Peer},
};

use crate::{
    follow::{FollowEvent, Follower},
    ids::{ProcessId, StreamId},
    journal::KeptJournal,
    kept::{KeptBackend, KeptData, Way},
    network::Network,
    packet::Datagram,
    populated::PopulatedBackend,
    port::{Port, Surroundings},
    process::{Birth, Io, Maker, Process, Remains},
    rack::Rack,
    streams::{Message, StreamEvent},
};

/// Bytes that a store's data may take.
const MEMORY: u64 = 1 << 30;

/// What makes the store of a machine, each time that it starts.
///
/// # Errors
/// The store has what only a process has.
pub(crate) fn maker(
    rack: &Rack,
    network: &Network,
    machine: u32,
    store: &roles::Store,
) -> anyhow::Result<Maker> {
    ensure!(store.backend.is_none(), "a simulated store has no other server behind it");
    let mut addresses = rack.cluster.stores.iter().map(|store| store.address);
    let is_own = |address: &SocketAddr| network.is_own(machine, address.ip());
    let listen = addresses.find(is_own).expect("the cluster has all stores");
    let mut config = store::Config::new(listen);
    config.cluster = rack.cluster.clone();
    config.identity = Some(listen);
    config.memory_limit = MEMORY;
    config.lend_from = store.lend_from;
    config.cluster.lease_ms = store.lease_ms.unwrap_or(config.cluster.lease_ms);
    if let Some(room) = store.room {
        config.client_limit = room.clients;
        config.directory_limit = room.copies;
        config.key_queue_limit = room.queue;
        config.parts_limit = room.parts;
    }
    let half = |known: &decide::Registration| {
        let (name, maker) = (known.name, known.store?);
        Some(Half { name, maker })
    };
    config.halves = rack.disciplines.iter().filter_map(half).collect();
    let config = Arc::new(config);
    let (store, controllers) = (store.clone(), rack.controllers(store.control.is_some()));
    Ok(Box::new(move |birth| {
        config.check()?;
        let host = StoreHost::new(&config, &store, controllers.clone(), birth);
        Ok(Box::new(host))
    }))
}

/// The data of a store that was killed, and its journal, where they outlive it.
struct StoreRemains(KeptData, KeptJournal);

/// A store that runs.
pub struct StoreHost {
    engine: Engine,
    outbox: Outbox,
    config: Arc<store::Config>,
    /// The machine's CLOCK_BOOTTIME at the start; the engine's begins at 0, as a process's does.
    started_ns: u64,
    /// For how long the machine was suspended before, as far as this process has noticed: its
    /// timers go by the monotonic clock.
    slept_ns: u64,
    following: Follower,
    /// To the data that outlives it.
    way: Option<Way>,
    /// There if the data is elsewhere.
    journal: Option<KeptJournal>,
    port: Port,
    controllers: Vec<ProcessId>,
}

impl StoreHost {
    fn new(
        config: &Arc<store::Config>,
        store: &roles::Store,
        controllers: Vec<ProcessId>,
        birth: Birth,
    ) -> StoreHost {
        let wall_s = (birth.clock.wall_ns / 1_000_000_000) as u32;
        let ticks = ((birth.clock.wall_ns % 1_000_000_000) << 16) / 1_000_000_000;
        let incarnation = store::Incarnation::new(wall_s, birth.seed).later(ticks as u16);
        let started_ns = birth.clock.boottime_ns;
        let slept_ns = started_ns - birth.clock.monotonic_ns;
        let new = || -> Box<dyn Backend> {
            match &store.populate {
                None => Box::new(EmbeddedBackend::new(MEMORY)),
                Some((count, len)) => {
                    let version = incarnation.first_version();
                    let tenant = wire::TENANT_OPEN;
                    Box::new(PopulatedBackend::new(tenant, *count, len.clone(), version, MEMORY))
                }
            }
        };
        let kept = |delay_ns| {
            let left = birth.remains.and_then(|left| left.downcast::<StoreRemains>().ok());
            let (data, journal) = match left {
                Some(left) => (left.0, left.1),
                None => {
                    let data = match store.data {
                        Data::Shard(_) => KeptData::of_shard(new(), delay_ns, birth.seed),
                        _ => KeptData::new(new(), delay_ns, birth.seed),
                    };
                    (data, KeptJournal::new(delay_ns, birth.seed, birth.disk_fails))
                }
            };
            (Way::new(data, birth.world_ns), journal)
        };
        let (way, journal) = match store.data {
            Data::Own => None,
            Data::Kept => Some(kept(0)),
            Data::Remote(delay_ns) | Data::Shard(delay_ns) => Some(kept(delay_ns)),
        }
        .unzip();
        let backend = match &way {
            None => new(),
            Some(way) => Box::new(KeptBackend::new(way.clone())),
        };
        let rate = store.rate_limit.map(|requests_per_s| Rate {
            requests_per_s,
            queue: store.queue_limit.unwrap_or(Rate::QUEUE),
        });
        let mut pace = Pace::new(rate);
        if let Some((after_s, requests_per_s)) = store.rate_later {
            pace.change_later(RateChange { after_s, requests_per_s });
        }
        let mut engine = Engine::new(config.clone(), backend, 0, incarnation);
        engine.admit_by(pace.admission());
        let mut outbox = Outbox::default();
        if let Some(journal) = &journal {
            engine.keep_journal(Box::new(journal.clone()), 0, &mut outbox);
        }
        let lease_ns = u64::from(config.cluster.lease_ms) * 1_000_000;
        StoreHost {
            engine,
            outbox,
            config: config.clone(),
            started_ns,
            slept_ns,
            port: Port::new(birth.seed, lease_ns),
            following: Follower::new(controllers.clone()),
            controllers,
            way,
            journal,
        }
    }

    /// What it tells about itself.
    pub fn status(&self, now_ns: u64) -> store::Status {
        let now_ns = (now_ns + self.slept_ns).saturating_sub(self.started_ns);
        let mut status = self.engine.status(now_ns);
        status.listen = self.config.listen.to_string();
        status
    }

    /// What holds its data dies, and runs again after so long with all of it. What the store asked
    /// meanwhile fails; of what it had asked before, some was carried out.
    pub fn restart_data(&mut self, for_ns: u64, io: &Io<'_>) {
        let now_ns = self.now_ns(io);
        self.way.iter().for_each(|way| way.restart(now_ns, for_ns));
    }

    /// Its data, where that outlives it.
    pub fn data(&self) -> Option<KeptData> {
        self.way.clone().map(Way::into_data)
    }

    /// What it has counted in this life.
    pub fn counters(&self) -> store::Counters {
        self.engine.counters()
    }

    /// The engine's clock.
    fn now_ns(&mut self, io: &Io<'_>) -> u64 {
        self.slept_ns = io.clock.boottime_ns - io.clock.monotonic_ns;
        io.clock.boottime_ns - self.started_ns
    }

    /// What its RESP port has to do, with what is around that.
    fn at_port(
        &mut self,
        io: &mut Io<'_>,
        act: impl FnOnce(&mut Port, Surroundings<'_>, &mut Io<'_>),
    ) {
        let now_ns = self.now_ns(io);
        let StoreHost { engine, outbox, way, port, .. } = self;
        if let Some(way) = way {
            act(port, Surroundings { engine, out: outbox, way, now_ns }, io);
        }
    }

    fn send(&mut self, io: &mut Io<'_>) {
        self.at_port(io, |port, mut at, io| port.send_held(&mut at, io));
        for (bytes, peer) in self.outbox.messages() {
            io.send(wire::PORT, peer.address, bytes);
        }
        self.outbox.clear();
    }

    fn report(&mut self, io: &mut Io<'_>) {
        let Some(stream) = self.following.stream() else { return };
        for report in self.engine.take_reports() {
            let body = from_store::Body::Report(HalfReport {
                discipline: report.half.into(),
                tenant: report.tenant,
                report: report.report,
            });
            io.say(stream, Message::FromStore(FromStore { body: Some(body) }));
        }
    }

    fn told(&mut self, stream: StreamId, message: ToStore, io: &mut Io<'_>) {
        let now_ns = self.now_ns(io);
        match message.body {
            Some(to_store::Body::Cluster(message)) => {
                if let Ok(cluster) = api::convert::cluster(&message) {
                    // Refused: the tenants stay as they are.
                    let _ = self.engine.update(cluster, now_ns, &mut self.outbox);
                }
            }
            Some(to_store::Body::Placements(message)) => {
                self.engine.place(api::convert::placements(&message));
            }
            Some(to_store::Body::Message(HalfMessage { seq, discipline, tenant, message })) => {
                let out = &mut self.outbox;
                // Dropped: the same would be said of it each time.
                let _ = self.engine.tell(&discipline, tenant, &message, now_ns, out);
                let body = Some(from_store::Body::Ack(HalfAck { seq }));
                io.say(stream, Message::FromStore(FromStore { body }));
            }
            None => {}
        }
    }
}

impl Process for StoreHost {
    #[inline]
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let now_ns = self.now_ns(io);
        let peer = Peer { address: datagram.from, local: Some(datagram.to.ip()) };
        self.journal.iter().for_each(|journal| journal.tick(now_ns));
        let out = &mut self.outbox;
        self.engine.receive(datagram.payload, peer, now_ns, out);
        self.send(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let now_ns = self.now_ns(io);
        if let Some(way) = &self.way {
            while let Some(completion) = way.next_completion(now_ns) {
                self.engine.complete(completion, now_ns, &mut self.outbox);
            }
        }
        if let Some(journal) = &self.journal {
            journal.tick(now_ns);
            while let Some(completion) = journal.next_completion(now_ns) {
                self.engine.complete(completion, now_ns, &mut self.outbox);
            }
        }
        self.at_port(io, |port, mut at, io| port.wake(&mut at, io));
        self.engine.tick(now_ns, &mut self.outbox);
        self.send(io);
        self.following.wake(io);
        self.report(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let data = self.way.as_ref().and_then(Way::next_ns);
        let journal = self.journal.as_ref().and_then(KeptJournal::next_ns);
        let own = [self.engine.next_deadline_ns(), data, journal, self.port.next_ns()];
        let own = own.into_iter().flatten();
        let monotonic = |ns: u64| (ns + self.started_ns).saturating_sub(self.slept_ns);
        let own = own.min().map(monotonic);
        [own, self.following.next_wake_ns()].into_iter().flatten().min()
    }

    fn stream(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) {
        match &event {
            StreamEvent::Opened(by) if !self.controllers.contains(by) => {
                return self.at_port(io, |port, at, io| port.opened(stream, &at, io));
            }
            StreamEvent::Message(Message::Resp(bytes)) => {
                self.at_port(io, |port, at, io| port.said(stream, bytes, at, io));
                return self.send(io);
            }
            StreamEvent::Closed => {
                self.at_port(io, |port, mut at, _| port.closed(stream, &mut at));
            }
            _ => {}
        }
        match self.following.take(stream, event, io) {
            FollowEvent::Began(stream) => {
                self.engine.report_again();
                let name = self.config.listen.to_string();
                let hello = StoreHello { address: name.clone(), name };
                let body = Some(from_store::Body::Hello(hello));
                io.say(stream, Message::FromStore(FromStore { body }));
            }
            FollowEvent::Message(Message::ToStore(message)) => self.told(stream, message, io),
            FollowEvent::Message(_) | FollowEvent::Nothing => {}
        }
        self.send(io);
    }

    fn ports(&self) -> Vec<u16> {
        vec![wire::PORT]
    }

    fn backup(&self) -> Remains {
        let (way, journal) = (self.way.as_ref()?, self.journal.as_ref()?);
        Some(Box::new(StoreRemains(way.clone().into_data(), journal.backup())))
    }

    fn remains(self: Box<Self>) -> Remains {
        let StoreHost { way, journal, .. } = *self;
        let left = way.zip(journal);
        left.map(|(way, journal)| {
            journal.crash();
            Box::new(StoreRemains(way.into_data(), journal)) as _
        })
    }
}
