//! Machines that stand still with all of their clocks, or go back to a snapshot: how many old
//! values are read of their copies, and for how long. What `docs/coherence.md` says of them is held
//! here, with what keeps it and without.

mod asker;

use plan::{
    Plan,
    roles::{Control, Role, Store, Switch, control_url},
    shapes,
};
use sim::{MachineId, ProcessId, World};
use store::mutants::{Mutant, choose};

use asker::{Asker, Read};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const LEASE: u64 = S;
/// A store offers a lease that often.
const OFFER: u64 = LEASE / 3;

/// A packet's way to the store and back takes less.
const WAY: u64 = MS;
/// The link of the switch to the router behind it, the first of the line.
const BETWEEN_SWITCHES: usize = 0;

/// A client that reads through a switch, and a friend of its that writes past it.
struct Rack {
    world: World,
    switch: MachineId,
    reader: ProcessId,
    writer: ProcessId,
    /// The number that was written last.
    newest: u64,
}

impl Rack {
    /// The switch has the key's value, which is 1.
    fn new(breaks: Option<Mutant>) -> Rack {
        choose(breaks);
        // The second switch is a router that knows of no cache.
        let mut plan = shapes::row(1, 2, 1);
        plan.add_hosts("switch2", ["friend".to_owned()]);
        let url = || control_url("control");
        plan.seat(|name| match name {
            "control" => Some(Role::Control(Control::of(name))),
            "switch1" => {
                let (pages, no_probes) = (Some(64), true);
                Some(Role::Switch(Switch { pages, no_probes, ..Switch::of(1, name, url()) }))
            }
            "server1" => Some(Role::Store(Store { control: Some(url()), ..Store::of(name) })),
            _ => None,
        });
        let plan = Plan {
            partitions: 8,
            is_open: true,
            is_signed: false,
            lease_ms: (LEASE / MS) as u32,
            lease_max_ms: (LEASE / MS) as u32,
            ..plan
        };
        let mut world = World::new(&plan, disciplines::all(), 1).unwrap();
        let store = world.cluster().stores[0].address;
        let mut place = |name: &str| {
            let machine = world.machine(name).unwrap();
            let make = Box::new(move |birth| Ok(Box::new(Asker::new(&birth, store)) as _));
            let process = world.place(machine, format!("{name}/asker"), make);
            world.start(process).unwrap();
            process
        };
        let [reader, writer] = ["client1", "friend"].map(&mut place);
        let mut rack =
            Rack { switch: world.machine("switch1").unwrap(), world, reader, writer, newest: 0 };
        rack.run(3 * S);
        rack.write();
        rack.read(true);
        rack.run(3 * S);
        let last = *rack.seen().last().unwrap();
        assert!(last.cached && last.number == 1, "{last:?}");
        rack
    }

    fn run(&mut self, for_ns: u64) {
        self.world.run_until(self.world.now_ns() + for_ns);
    }

    fn seen(&self) -> &[Read] {
        &self.world.get::<Asker>(self.reader).unwrap().seen
    }

    fn read(&mut self, reads: bool) {
        let reader = self.reader;
        let set = self.world.with(reader, |asker: &mut Asker, io| {
            asker.reads = reads;
            sim::Process::wake(asker, io);
        });
        set.unwrap();
    }

    /// Writes the next number, past the switch.
    fn write(&mut self) {
        let (writer, number) = (self.writer, self.newest + 1);
        let until_ns = self.world.now_ns() + 10 * S;
        let write = |asker: &mut Asker, io: &mut sim::Io<'_>| asker.write(number, io);
        self.world.with(writer, write).unwrap();
        self.world.run_while(MS, |world| {
            assert!(world.now_ns() < until_ns, "a write without an answer");
            !world.get::<Asker>(writer).unwrap().has_written()
        });
        self.newest = number;
    }

    /// The switch stands still for so long, and nobody asks it anything; after `quiet_ns` of that
    /// the next number is written. What stores sent meanwhile waits at the switch, or is lost.
    fn pause(&mut self, for_ns: u64, quiet_ns: u64, waits: bool) {
        let ends_ns = self.world.now_ns() + for_ns;
        self.world.silence(BETWEEN_SWITCHES, [!waits; 2]);
        self.world.halt(self.switch);
        self.read(false);
        self.run(quiet_ns);
        self.write();
        self.world.run_until(ends_ns);
        self.world.silence(BETWEEN_SWITCHES, [false; 2]);
        self.world.resume(self.switch);
        self.read(true);
    }

    /// Goes on for some leases, with a write in the end; what was read since `from_ns` that was old
    /// already when it was asked for.
    fn old_reads(mut self, from_ns: u64) -> OldReads {
        let newest = self.newest;
        self.run(5 * LEASE);
        let since = |read: &&Read| read.asked_ns >= from_ns;
        let all: Vec<Read> = self.seen().iter().filter(since).copied().collect();
        let old = all.iter().filter(|read| read.number < newest);
        let for_ns = old.clone().map(|read| read.told_ns - from_ns).max();
        let old = OldReads { reads: old.count(), of: all.len(), for_ns: for_ns.unwrap_or(0) };
        let last = all.last().unwrap();
        println!("{old:?}, then {last:?}");
        assert!(last.cached, "the switch has copies again");
        choose(None);
        old
    }
}

/// What was read that was old.
#[derive(Debug)]
struct OldReads {
    reads: usize,
    of: usize,
    /// How long after the switch went on the last of it came.
    for_ns: u64,
}

impl OldReads {
    /// Whether old values were read, and for this long at the most.
    fn ends_within(&self, most_ns: u64) -> bool {
        assert!(self.reads > 0, "nothing old was read: the test shows nothing");
        self.for_ns <= most_ns
    }
}

/// Old values that a switch serves after it stood still for so long, longer than a lease.
fn after_a_pause(for_ns: u64, waits: bool, breaks: Option<Mutant>) -> OldReads {
    let mut rack = Rack::new(breaks);
    // Not within a lease: the store would ask for the copy, and the question would wait at
    // the switch.
    rack.pause(for_ns, 2 * LEASE, waits);
    let from_ns = rack.world.now_ns();
    rack.old_reads(from_ns)
}

#[test]
fn a_paused_switch_serves_old_values_until_it_is_renewed() {
    assert!(after_a_pause(5 * LEASE / 2, true, None).ends_within(WAY));
    assert!(after_a_pause(5 * LEASE / 2, false, None).ends_within(OFFER + WAY));
    // The store offers leases for 30 of them, or for two if nobody signs; after that the
    // agent asks.
    assert!(after_a_pause(100 * LEASE, false, None).ends_within(LEASE));
}

#[test]
fn without_a_new_term_a_paused_switch_serves_old_values_for_ever() {
    let old = after_a_pause(5 * LEASE / 2, true, Some(Mutant::TermNotRaised));
    assert!(!old.ends_within(2 * LEASE));
    assert_eq!(old.reads, old.of);
}

#[test]
fn a_paused_switch_hears_what_waited_before_it_serves() {
    let mut rack = Rack::new(None);
    rack.pause(3 * LEASE, 0, true);
    let from_ns = rack.world.now_ns();
    assert_eq!(rack.old_reads(from_ns).reads, 0);
}

#[test]
fn a_pause_that_is_shorter_than_a_lease_makes_nothing_old() {
    for quiet_ns in [0, LEASE / 8] {
        let mut rack = Rack::new(None);
        rack.pause(LEASE / 4, quiet_ns, true);
        let from_ns = rack.world.now_ns();
        assert_eq!(rack.old_reads(from_ns).reads, 0);
    }
}

#[test]
fn a_paused_store_makes_nothing_old() {
    for for_ns in [LEASE / 4, LEASE, 5 * LEASE] {
        let mut rack = Rack::new(None);
        let server = rack.world.machine("server1").unwrap();
        rack.world.halt(server);
        rack.run(for_ns);
        rack.world.resume(server);
        rack.write();
        let from_ns = rack.world.now_ns();
        assert_eq!(rack.old_reads(from_ns).reads, 0);
    }
}

/// A switch with a copy of 1 goes back to a snapshot while it has a copy of 2, without an agent:
/// what becomes of leases is the programs' affair.
fn after_a_restore(age_ns: u64, breaks: Option<Mutant>) -> OldReads {
    let mut rack = Rack::new(breaks);
    let agent = rack.world.process("switch1/agent").unwrap();
    rack.world.kill(agent);
    let snapshot = rack.world.snapshot(rack.switch).unwrap();
    rack.read(false);
    rack.run(age_ns);
    rack.write();
    rack.read(true);
    rack.run(LEASE / 2);
    let last = *rack.seen().last().unwrap();
    assert!(last.cached && last.number == 2, "{last:?}");
    rack.world.restore(rack.switch, &snapshot);
    let from_ns = rack.world.now_ns();
    rack.old_reads(from_ns)
}

#[test]
fn a_switch_that_went_back_serves_old_values_for_one_lease() {
    for age_ns in [0, 5 * S, 60 * S] {
        assert!(after_a_restore(age_ns, None).ends_within(LEASE));
    }
}

#[test]
fn if_a_clock_that_went_back_were_renewed_old_values_would_be_served_for_ever() {
    let old = after_a_restore(5 * S, Some(Mutant::AnyClockRenewed));
    assert!(!old.ends_within(2 * LEASE));
    assert_eq!(old.reads, old.of);
}
