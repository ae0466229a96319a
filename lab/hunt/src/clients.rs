//! The clients of one host: each asks one thing after the other, with pauses, and records what it
//! is told.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
};

use client::Error;
use history::{ClientRecord, ClientsConfig, Recorder};
use rand::RngExt;
use seed::SeededRng;
use sim::{Birth, Io, Maker, Process, Remains, packet::Datagram};
use wire::Packet;

use crate::{
    caching::CachingConnection,
    connection::{Connect, Connection},
};

/// How the clients of a host ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Longest pause between two operations of a client, in microseconds.
    pub pause_us: u64,
    /// Whether they have one number in the names of all tenants.
    pub same_ids: bool,
    /// Whether the host keeps copies of what they read.
    pub caches: bool,
}

/// What makes the clients of a host, each time that they start: with the records of their
/// earlier lives.
pub fn maker(config: ClientsConfig, connect: Connect, habits: Habits) -> Maker {
    Box::new(move |birth| Ok(Box::new(ClientsHost::new(&config, connect, habits, birth)?)))
}

/// Clients that run. All of a tenant's share a connection.
pub struct ClientsHost {
    tenants: Vec<u32>,
    /// One per tenant.
    connections: Vec<Box<dyn Connection>>,
    recorders: Vec<Recorder>,
    /// Who waits for which operation of which connection.
    waiting: BTreeMap<(usize, u64), usize>,
    /// When who asks next.
    pausing: BTreeSet<(u64, usize)>,
    pause_us: u64,
    rng: SeededRng,
    stopped: bool,
    operations: u64,
    port: u16,
}

/// What is left of killed clients: their records.
struct Recorders(Vec<Recorder>);

impl ClientsHost {
    fn new(
        config: &ClientsConfig,
        connect: Connect,
        habits: Habits,
        birth: Birth,
    ) -> anyhow::Result<ClientsHost> {
        let apart = u64::from(!habits.same_ids);
        let connection = |(i, id): (u64, &u32)| {
            let seed = birth.seed.wrapping_add(i * apart);
            let made = connect(config, *id, seed)?;
            Ok::<_, Error>(match habits.caches {
                true => CachingConnection::around(made, &config.cluster, *id, (&birth, seed)),
                false => made,
            })
        };
        let connections = (0..).zip(&config.tenants).map(connection);
        let numbers = config.first..config.first + config.clients;
        let connections = connections.collect::<Result<_, _>>()?;
        let earlier = birth.remains.and_then(|left| left.downcast::<Recorders>().ok());
        let recorders = match earlier {
            Some(left) => left.0,
            None => numbers.map(|n| Recorder::new(config, n)).collect(),
        };
        let now_ns = birth.clock.boottime_ns;
        Ok(ClientsHost {
            tenants: config.tenants.clone(),
            connections,
            waiting: BTreeMap::new(),
            pausing: (0..recorders.len()).map(|client| (now_ns, client)).collect(),
            recorders,
            pause_us: habits.pause_us,
            rng: seed::rng(birth.seed, "pauses"),
            stopped: false,
            operations: 0,
            port: birth.port,
        })
    }

    /// Begins nothing new from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.pausing.clear();
    }

    /// Operations so far, of this life.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Reads that copies on this host have answered, of this life.
    pub fn hits(&self) -> u64 {
        self.connections.iter().map(|one| one.hits()).sum()
    }

    /// Whether nothing is under way any more, after [`ClientsHost::stop`].
    pub fn is_over(&self) -> bool {
        self.stopped && self.waiting.is_empty()
    }

    /// What all of them have recorded. What is under way may take effect at any time.
    pub fn take_recorded(&mut self) -> ClientRecord {
        self.give_up();
        let mut all = ClientRecord::default();
        for recorder in self.recorders.drain(..) {
            all.add(recorder.into_recorded());
        }
        all
    }

    /// Nobody will hear what becomes of what is under way.
    fn give_up(&mut self) {
        for client in std::mem::take(&mut self.waiting).into_values() {
            let unknown = Error::OutcomeUnknown {
                store: ([0, 0, 0, 0], 0).into(),
                after_ms: 0,
                tries: 1,
                no_room: false,
                try_again: false,
                each_put_off: false,
                denied: None,
                short_path: false,
            };
            self.recorders[client].told(Err(unknown), 0);
        }
    }

    fn go_on(&mut self, io: &mut Io<'_>) {
        let now_ns = io.clock.boottime_ns;
        loop {
            for connection in 0..self.connections.len() {
                while let Some((to, datagram)) = self.connections[connection].next_datagram() {
                    io.send(self.port, to, &datagram);
                }
                while let Some((number, result)) = self.connections[connection].next_finished() {
                    let waiting = self.waiting.remove(&(connection, number));
                    let client = waiting.expect("somebody asked for it");
                    let says_something = self.recorders[client].told(result, io.world_ns);
                    self.operations += u64::from(says_something);
                    let pause_ns = self.rng.random_range(0..=self.pause_us) * 1_000;
                    if !self.stopped {
                        self.pausing.insert((now_ns + pause_ns, client));
                    }
                }
            }
            let due = self.pausing.first().copied().filter(|(at, _)| *at <= now_ns);
            let Some((at, client)) = due else { return };
            self.pausing.remove(&(at, client));
            let asked = self.recorders[client].next(io.world_ns);
            let number = self.connections[asked.tenant].begin(&asked.operation(), now_ns);
            self.waiting.insert((asked.tenant, number), client);
        }
    }
}

impl Process for ClientsHost {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let tenant = Packet::decode(datagram.payload).map(|packet| packet.header.tenant);
        let asked = |tenant| self.tenants.iter().position(|id| *id == tenant);
        if let Some(connection) = tenant.ok().and_then(asked) {
            let now_ns = io.clock.boottime_ns;
            self.connections[connection].take(datagram.payload, datagram.from, now_ns);
            self.go_on(io);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        let now_ns = io.clock.boottime_ns;
        for connection in &mut self.connections {
            if connection.next_ns().is_some_and(|ns| ns <= now_ns) {
                connection.timer(now_ns);
            }
        }
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let pausing = self.pausing.first().map(|(at, _)| *at);
        let next = self.connections.iter().filter_map(|one| one.next_ns());
        next.chain(pausing).min()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }

    fn remains(mut self: Box<Self>) -> Remains {
        self.give_up();
        let left: Box<dyn Any + Send> = Box::new(Recorders(self.recorders));
        Some(left)
    }
}
