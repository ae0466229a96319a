//! What the simulator itself costs: datagrams that go back and forth through switches without
//! programs, between hosts that do nothing with them. Prints nanoseconds per packet that arrives
//! somewhere.
//!
//! cargo run --release -p sim --example cost

use std::{net::SocketAddr, time::Instant};

use plan::{
    Hardware, Plan,
    roles::{Role, Store},
    shapes,
    topology::Fault,
};
use sim::{Birth, Io, Process, ProcessId, World, packet::Datagram};

/// Sends every datagram back.
struct Echo;

const PORT: u16 = 7;

impl Process for Echo {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        io.send(PORT, datagram.from, datagram.payload);
    }

    fn wake(&mut self, _: &mut Io<'_>) {}

    fn next_wake_ns(&self) -> Option<u64> {
        None
    }

    fn ports(&self) -> Vec<u16> {
        vec![PORT]
    }
}

/// Sends a datagram every so often, to one server after another.
struct Sender {
    port: u16,
    servers: Vec<SocketAddr>,
    next_ns: u64,
    every_ns: u64,
    turn: usize,
    payload: Vec<u8>,
}

impl Process for Sender {
    fn receive(&mut self, _: &Datagram<'_>, _: &mut Io<'_>) {}

    fn wake(&mut self, io: &mut Io<'_>) {
        self.next_ns += self.every_ns;
        self.turn += 1;
        let server = self.servers[self.turn % self.servers.len()];
        io.send(self.port, server, &self.payload);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        Some(self.next_ns)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

fn place(world: &mut World, machine: &str, make: sim::Maker) -> ProcessId {
    let at = world.machine(machine).expect("it is in the shape");
    let process = world.place(at, format!("{machine}/it"), make);
    world.start(process).expect("it can be made");
    process
}

fn measure(name: &str, mut plan: Plan, fault: Fault, len: usize) {
    plan.links.iter_mut().for_each(|link| link.fault = Some(fault));
    // So fast that nothing is dropped.
    let link_gbit = Some(100.0);
    plan.hardware = Hardware { switch_rate: 2e8, link_gbit, ..Hardware::default() };
    // A cluster has a store; nobody asks it.
    let is_first = |name: &str| ["server1", "server1-1"].contains(&name);
    plan.seat(|name| is_first(name).then(|| Role::Store(Store::of(name))));
    let mut world = World::at_rest(&plan, &[], 1).expect("a world");
    let called = |prefix: &str| {
        let machines = (0..).zip(&plan.sites);
        let found = machines.filter(|(_, site)| site.name.starts_with(prefix));
        found.map(|(at, site)| (at, site.name.clone())).collect::<Vec<_>>()
    };
    let mut servers = vec![];
    for (at, name) in called("server") {
        let address = world.network().address(at).expect("it has a link");
        servers.push(SocketAddr::new(address.into(), PORT));
        place(&mut world, &name, Box::new(|_| Ok(Box::new(Echo))));
    }
    for (_, name) in called("client") {
        let servers = servers.clone();
        let make = move |birth: Birth| {
            let sender = Sender {
                port: birth.port,
                servers: servers.clone(),
                next_ns: 0,
                every_ns: 700,
                turn: 0,
                payload: vec![7; len],
            };
            Ok(Box::new(sender) as Box<dyn Process>)
        };
        place(&mut world, &name, Box::new(make));
    }
    world.run_until(1_000_000);
    let (begun, before) = (Instant::now(), world.progress());
    while begun.elapsed().as_secs_f64() < 2.0 {
        world.run_until(world.now_ns() + 1_000_000);
    }
    let (elapsed, after) = (begun.elapsed(), world.progress());
    let packets = after.packets - before.packets;
    println!(
        "{name:<34} {len:>5} bytes: {:>5.0} ns per packet, {:.2} events per packet",
        elapsed.as_nanos() as f64 / packets as f64,
        (after.events - before.events) as f64 / packets as f64,
    );
}

fn main() {
    let faulty =
        Fault { loss: 0.01, duplicate: 0.01, reorder: 0.01, reorder_ms: 1.0, ..Fault::default() };
    let none = Fault::default();
    measure("a rack of 4", shapes::row(1, 1, 4), none, 128);
    measure("a rack of 128", shapes::row(4, 1, 128), none, 128);
    measure("a rack of 128", shapes::row(4, 1, 128), none, 1400);
    measure("a rack of 128, faulty links", shapes::row(4, 1, 128), faulty, 128);
    measure("32 racks of 32 under a spine", shapes::racks(32, 1, 32), none, 128);
}
