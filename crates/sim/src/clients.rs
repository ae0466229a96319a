//! Clients that record what they ask and what they are told, as a process ([`history`]).

use std::collections::BTreeMap;

use client::Machine;
use history::{ClientsConfig, Recorded, Recorder};
use wire::Packet;

use crate::{
    clock::Reading,
    packet::Datagram,
    process::{Birth, Io, Maker, Process},
};

/// What makes a process of clients.
pub fn clients(config: ClientsConfig) -> Maker {
    Box::new(move |birth| Ok(Box::new(Clients::new(&config, birth)?)))
}

/// Clients that run. Each has one operation under way; all of a tenant's share a connection.
pub struct Clients {
    tenants: Vec<u32>,
    /// One per tenant.
    connections: Vec<Machine>,
    recorders: Vec<Recorder>,
    /// Who waits for which operation of which connection.
    waiting: BTreeMap<(usize, u64), usize>,
    /// Clients that ask nothing at the moment.
    idle: Vec<usize>,
    stopped: bool,
    operations: u64,
    port: u16,
    /// How long the machine was suspended: clients go by the clock that knows.
    suspended_ns: u64,
}

impl Clients {
    fn new(config: &ClientsConfig, birth: Birth) -> anyhow::Result<Clients> {
        let tenants = match config.tenants.as_slice() {
            [] => vec![wire::TENANT_OPEN],
            some => some.to_vec(),
        };
        let connect = |(i, id): (u64, &u32)| {
            let seed = birth.seed.wrapping_add(i);
            Machine::new(&config.cluster, *id, config.options(), seed)
        };
        let connections = (0..).zip(&tenants).map(connect);
        let numbers = config.first..config.first + config.clients;
        Ok(Clients {
            connections: connections.collect::<Result<_, _>>()?,
            tenants,
            recorders: numbers.map(|n| Recorder::new(config, n)).collect(),
            waiting: BTreeMap::new(),
            idle: (0..config.clients as usize).rev().collect(),
            stopped: false,
            operations: 0,
            port: birth.port,
            suspended_ns: suspended_ns(birth.clock),
        })
    }

    /// Operations so far that say anything.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Begins nothing new from now on.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether nothing is under way any more, after [`Clients::stop`].
    pub fn is_over(&self) -> bool {
        self.stopped && self.waiting.is_empty()
    }

    /// What all of them have recorded; once it is over.
    pub fn take_recorded(&mut self) -> Recorded {
        let mut all = Recorded::default();
        for recorder in self.recorders.drain(..) {
            all.add(recorder.into_recorded());
        }
        all
    }

    /// Sends, hears what has ended, and begins what comes next, until there is nothing to do.
    fn go_on(&mut self, io: &mut Io<'_>) {
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
                    self.idle.push(client);
                }
            }
            if self.stopped || self.idle.is_empty() {
                return;
            }
            while let Some(client) = self.idle.pop() {
                let asked = self.recorders[client].next(io.world_ns);
                let connection = &mut self.connections[asked.tenant];
                let number = connection.begin(&asked.operation(), io.clock.boottime_ns);
                self.waiting.insert((asked.tenant, number), client);
            }
        }
    }
}

fn suspended_ns(clock: Reading) -> u64 {
    clock.boottime_ns - clock.monotonic_ns
}

impl Process for Clients {
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
        self.suspended_ns = suspended_ns(io.clock);
        for connection in &mut self.connections {
            if connection.next_ns().is_some_and(|ns| ns <= now_ns) {
                connection.timer(now_ns);
            }
        }
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let next = self.connections.iter().filter_map(Machine::next_ns);
        Some(next.min()?.saturating_sub(self.suspended_ns))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}
