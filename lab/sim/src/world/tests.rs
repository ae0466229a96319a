//! Small worlds, a client and a store: what links, machines and their clocks do to what runs on
//! them, when something goes wrong on purpose and when nothing does.

use std::net::SocketAddr;

use plan::{
    Hardware,
    roles::{Control, Data, Store},
    shapes,
    topology::{Fault, Link},
};
use wire::{Header, Op, Packet, Secret, Status};

use super::*;
use crate::packet::Datagram;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Writes its keys one after another, each until it is acknowledged, and then reads each back.
struct Client {
    port: u16,
    store: SocketAddr,
    id: u32,
    /// Requests that were answered.
    done: u32,
    of: u32,
    sent_ns: u64,
    times: u32,
}

impl Client {
    fn key(&self) -> String {
        format!("key {}", self.done % self.of)
    }

    fn is_writing(&self) -> bool {
        self.done < self.of
    }

    fn send(&mut self, io: &mut Io<'_>) {
        let key = self.key();
        let op = match self.is_writing() {
            true => Op::WriteRequest,
            false => Op::ReadRequest,
        };
        let header = Header {
            client: self.id.into(),
            request: u64::from(self.done) + 1,
            key_hash: Secret::NONE.key_hash(0, key.as_bytes()),
            ..Header::new(op)
        };
        let value = if self.is_writing() { key.as_bytes() } else { b"" };
        let mut bytes = vec![];
        Packet::new(header, key.as_bytes(), value).encode(&Secret::NONE, &mut bytes).unwrap();
        bytes.resize(200, 0);
        io.send(self.port, self.store, &bytes);
        self.sent_ns = io.now_ns();
        self.times += 1;
    }
}

impl Process for Client {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let packet = Packet::decode(datagram.payload).unwrap();
        if packet.header.request != u64::from(self.done) + 1
            || packet.header.status == Status::TryAgain
        {
            return;
        }
        assert_eq!(packet.header.status, Status::Ok);
        if !self.is_writing() {
            assert_eq!(packet.value, self.key().as_bytes());
        }
        self.done += 1;
        if self.done < 2 * self.of {
            self.send(io);
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if self.times == 0 || io.now_ns() >= self.sent_ns + 20 * MS {
            self.send(io);
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        (self.done < 2 * self.of).then_some(self.sent_ns + 20 * MS)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

/// A client, these switches and a store, linked so.
fn plan(switches: &[&str], store: Store, links: Vec<Link>) -> Plan {
    let mut sites = vec![Site::host("client", vec![])];
    sites.extend(switches.iter().map(|name| Site::switch(*name, vec![])));
    sites.push(Site::host("server", vec![Role::Store(store).into()]));
    Plan {
        sites,
        links,
        partitions: 8,
        is_open: true,
        is_signed: false,
        lease_ms: 2000,
        lease_max_ms: 2000,
        ..Plan::default()
    }
}

/// client - switch - store, every link with this fault.
fn line(fault: Fault, store: Store) -> Plan {
    let mut plan = plan(&["switch"], store, shapes::line(&["client", "switch", "server"]));
    plan.links.iter_mut().for_each(|link| link.fault = Some(fault));
    plan
}

fn with_client(plan: &Plan, seed: u64) -> (World, ProcessId) {
    let mut world = World::new(plan, &[], seed).unwrap();
    let store = world.cluster().stores[0].address;
    let machine = world.machine("client").unwrap();
    let make: Maker = Box::new(move |birth| {
        Ok(Box::new(Client {
            port: birth.port,
            store,
            id: birth.seed as u32,
            done: 0,
            of: 100,
            sent_ns: 0,
            times: 0,
        }))
    });
    let client = world.place(machine, "client/client".into(), make);
    world.start(client).unwrap();
    (world, client)
}

fn faulty() -> Fault {
    Fault {
        loss: 0.05,
        duplicate: 0.03,
        reorder: 0.05,
        reorder_ms: 3.0,
        delay_ms: 0.1,
        flip: 0.01,
        seed: 7,
    }
}

fn done(world: &World, client: ProcessId) -> u32 {
    world.get::<Client>(client).unwrap().done
}

#[test]
fn a_store_answers_over_links_that_lose_duplicate_reorder_and_flip() {
    let (mut world, client) = with_client(&line(faulty(), Store::default()), 1);
    world.run_until(60 * S);
    assert_eq!(done(&world, client), 200);
    let asked = world.get::<Client>(client).unwrap().times;
    assert!(asked > 220, "{asked}: nothing was lost");
    let counts = world.link_counts(0);
    assert!(counts[0].lost > 0 && counts[1].lost > 0);
    let all = ["client", "switch", "server"].map(|name| {
        let machine = world.machine(name).unwrap();
        world.refused(machine)
    });
    assert!(all.iter().any(|refused| refused.broken > 0), "{all:?}");
    assert_eq!(world.frames.in_use(), 0);
}

#[test]
fn a_world_is_the_same_again_with_the_same_seed_and_another_with_another() {
    let run = |seed| {
        wire::maps::seed_for_simulation(seed);
        let store = Store { data: Data::Kept, ..Store::default() };
        let (mut world, client) = with_client(&line(faulty(), store), seed);
        world.run_until(3 * S);
        let server = world.process("server/store").unwrap();
        world.kill(server);
        world.set_link(0, false);
        world.run_until(4 * S);
        world.start(server).unwrap();
        world.set_link(0, true);
        world.run_until(8 * S);
        (world.trace_hash(), world.progress().events, done(&world, client))
    };
    let first = run(5);
    assert_eq!(first, run(5));
    assert_ne!(first.0, run(6).0);
}

#[test]
fn a_stopped_store_answers_what_waited_when_it_goes_on() {
    let (mut world, client) = with_client(&line(Fault::default(), Store::default()), 1);
    let store = world.process("server/store").unwrap();
    world.run_until(2 * S + 5 * MS);
    let before = done(&world, client);
    world.stop(store);
    world.run_until(3 * S);
    assert!(done(&world, client) <= before + 1);
    assert_eq!(world.state(store), State::Stopped);
    world.cont(store);
    world.run_until(4 * S);
    assert_eq!(done(&world, client), 200);
}

#[test]
fn a_killed_store_has_lost_its_data_unless_that_is_kept() {
    for data in [Data::Own, Data::Kept, Data::Remote(200_000)] {
        let store = Store { data, ..Store::default() };
        let (mut world, client) = with_client(&line(Fault::default(), store), 1);
        world.run_until(5 * S);
        assert_eq!(done(&world, client), 200);
        let server = world.process("server/store").unwrap();
        let items = |world: &World| {
            let store: &crate::StoreHost = world.get(server).unwrap();
            store.status(world.now_ns()).items
        };
        assert_eq!(items(&world), Some(100));
        world.kill(server);
        assert_eq!(world.state(server), State::Dead);
        world.run_until(6 * S);
        world.start(server).unwrap();
        world.run_until(7 * S);
        let left = if data == Data::Own { 0 } else { 100 };
        assert_eq!(items(&world), Some(left));
    }
}

#[test]
fn a_suspended_machine_takes_nothing_and_goes_on_later() {
    let (mut world, client) = with_client(&line(Fault::default(), Store::default()), 1);
    let server = world.machine("server").unwrap();
    world.run_until(2 * S + 5 * MS);
    world.suspend(server);
    world.run_until(5 * S);
    let shown = world.clock(server);
    assert_eq!(shown.monotonic_ns, 2 * S + 5 * MS);
    assert_eq!(shown.boottime_ns, 5 * S);
    assert!(world.refused(server).asleep > 0);
    world.resume(server);
    world.run_until(7 * S);
    assert_eq!(done(&world, client), 200);
}

#[test]
fn a_halted_machine_finds_what_waited_at_the_time_at_which_it_stopped() {
    let (mut world, client) = with_client(&line(Fault::default(), Store::default()), 1);
    let server = world.machine("server").unwrap();
    world.run_until(2 * S + 5 * MS);
    // Of the second link, from the server on.
    let answers = |world: &World| world.link_counts(1)[1].sent;
    let before = answers(&world);
    world.halt(server);
    world.run_until(5 * S);
    assert_eq!(answers(&world), before);
    assert_eq!(world.clock(server).boottime_ns, 2 * S + 5 * MS);
    assert_eq!(world.refused(server).asleep, 0);
    world.resume(server);
    world.run_until(5 * S + MS);
    assert!(answers(&world) > before + 100, "one each 20 ms waited");
    assert_eq!(world.clock(server).boottime_ns, 2 * S + 6 * MS);
    world.run_until(7 * S);
    assert_eq!(done(&world, client), 200);
    assert_eq!(world.frames.in_use(), 0);
}

#[test]
fn routes_go_around_a_cut_link_after_a_while() {
    let around = shapes::line(&["switch1", "switch3", "switch2"]);
    let links = [shapes::line(&["client", "switch1", "switch2", "server"]), around].concat();
    let plan = plan(&["switch1", "switch2", "switch3"], Store::default(), links);
    let (mut world, client) = with_client(&plan, 1);
    world.set_link(1, false);
    world.run_until(200 * MS);
    assert!(world.link_counts(1)[0].cut > 0);
    assert_eq!(world.link_counts(3)[0].sent, 0);
    world.run_until(10 * S);
    assert!(world.link_counts(3)[0].sent > 0);
    assert_eq!(done(&world, client), 200);
}

#[test]
fn what_does_not_start_with_the_world_is_started_later() {
    let mut plan = line(Fault::default(), Store::default());
    plan.sites[2].roles[0].autostart = false;
    let mut world = World::new(&plan, &[], 1).unwrap();
    let store = world.process("server/store").unwrap();
    assert_eq!(world.state(store), State::Dead);
    world.start(store).unwrap();
    assert!(world.start(store).is_err(), "it runs already");
}

#[test]
fn a_machine_that_was_switched_off_begins_anew() {
    let store = Store { data: Data::Kept, ..Store::default() };
    let (mut world, client) = with_client(&line(Fault::default(), store), 1);
    world.run_until(2 * S + 5 * MS);
    let before = done(&world, client);
    let machine = world.machine("server").unwrap();
    world.power_off(machine);
    world.run_until(3 * S);
    assert_eq!(done(&world, client), before);
    world.power_on(machine);
    let store = world.process("server/store").unwrap();
    world.start(store).unwrap();
    world.run_until(7 * S);
    let shown = world.clock(machine);
    assert_eq!((shown.monotonic_ns, shown.boottime_ns), (4 * S, 4 * S));
    assert_eq!(done(&world, client), 200);
}

/// What each datagram of a [`Burst`] says.
const BURST: &[u8] = b"something";

/// Sends all that it has to send at once.
struct Burst {
    port: u16,
    to: SocketAddr,
    left: u32,
}

impl Process for Burst {
    fn receive(&mut self, _: &Datagram<'_>, _: &mut Io<'_>) {}

    fn wake(&mut self, io: &mut Io<'_>) {
        for _ in 0..std::mem::take(&mut self.left) {
            io.send(self.port, self.to, BURST);
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        None
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

/// How long a hundred frames take over two switches, in microseconds from the first switch on,
/// where a core takes a frame in one.
fn burst_us(is_shared: bool, cores: u32) -> u64 {
    burst_with(Hardware { is_shared, cores: Some(cores), ..Hardware::default() })
}

/// The same by this hardware, each core of which takes a frame without bytes in one.
fn burst_with(hardware: Hardware) -> u64 {
    let links = shapes::line(&["client", "switch1", "switch2", "server"]);
    let mut plan = plan(&["switch1", "switch2"], Store::default(), links);
    plan.hardware = Hardware { switch_rate: 1e6, ..hardware };
    let mut world = World::new(&plan, &[], 1).unwrap();
    let mut to = world.cluster().stores[0].address;
    to.set_port(9);
    let (from, server) = (0, world.machine("server").unwrap());
    let make: Maker = Box::new(move |birth| {
        let (port, left) = (birth.port, 100);
        Ok(Box::new(Burst { port, to, left }))
    });
    let burst = world.place(MachineId(from), "client/burst".into(), make);
    world.start(burst).unwrap();
    world.run_while(1000, |world| world.refused(server).no_process < 100 && world.now_ns() < S);
    (world.now_ns() - 20_000) / 1000
}

#[test]
fn switches_of_one_machine_have_the_time_of_one() {
    // Where each has its own the last frame passes the first one, 10 us of a link, and then the
    // second one.
    assert_eq!(burst_us(false, 1), 111);
    assert_eq!(burst_us(true, 1), 200);
    assert_eq!(burst_us(true, 2), 100);
}

#[test]
fn long_frames_take_a_core_longer() {
    let long = Hardware { byte_ns: 20.0, ..Hardware::default() };
    let short = burst_with(Hardware::default());
    // Each of a hundred frames, and the last one at the second switch as well.
    let bytes = (burst_with(long) - short) as f64 * 1e3 / (20.0 * 101.0);
    let frame = 14 + 20 + 8 + BURST.len();
    assert!((bytes - frame as f64).abs() < 1.0, "{bytes} bytes");
}

#[test]
fn what_only_a_kernel_has_is_refused() {
    let backend = Some("redis://server:6379".into());
    let behind = line(Fault::default(), Store { backend, ..Store::default() });
    let mut beside = line(Fault::default(), Store::default());
    beside.sites[2].roles.push(Role::Memcached("file".into()).into());
    let mut fast = line(Fault::default(), Store::default());
    let options = vec!["--fast".into()];
    fast.sites[1].roles.push(Role::Control(Control { options, ..Control::default() }).into());
    for (plan, expected) in [
        (behind, "server: a simulated store has no other server behind it"),
        (beside, "server: memcached runs in the kernel's world only"),
        (fast, "switch: control: a simulated one has no command line (--fast)"),
    ] {
        let refused = World::new(&plan, &[], 1).err().unwrap();
        assert_eq!(format!("{refused:#}"), expected);
    }
}
