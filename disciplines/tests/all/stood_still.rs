//! Machines that stand still with all of their clocks, or go back to a snapshot: how many old
//! values are read of their copies, and for how long. What `docs/coherence.md` says of them is held
//! here, with what keeps it and without.

use plan::{Plan, shapes};
use scenario::{Deed, Read, Scenario, seat};
use sim::MachineId;
use store::mutants::{Mutant, choose};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const LEASE: u64 = S;
/// A store offers a lease that often.
const OFFER: u64 = LEASE / 3;

/// A packet's way to the store and back takes less.
const WAY: u64 = MS;
/// The link of the switch to the router behind it, the first of the line.
const BETWEEN_SWITCHES: usize = 0;

/// From one read to the next.
const READ: u64 = 2 * MS;
const KEY: &str = "the only key";
/// The one reads through the switch, the other writes past it.
const READER: &str = "client1";
const WRITER: &str = "friend";

/// A client that reads through a switch, and a friend of its that writes past it.
struct Rack {
    scenario: Scenario,
    switch: MachineId,
    /// The number that was written last.
    newest: u64,
}

impl Rack {
    /// The switch has the key's value.
    fn new(breaks: Option<Mutant>) -> Rack {
        choose(breaks);
        // The second switch is a router that knows of no cache.
        let mut plan = shapes::row(1, 2, 1);
        plan.add_hosts("switch2", [WRITER.to_owned()]);
        seat(&mut plan, |_| ());
        let router = plan.sites.iter_mut().find(|site| site.name == "switch2");
        router.expect("the second of the row").roles.clear();
        let lease_ms = (LEASE / MS) as u32;
        let plan = Plan {
            partitions: 8,
            is_open: true,
            is_signed: false,
            lease_ms,
            lease_max_ms: lease_ms,
            ..plan
        };
        let scenario = Scenario::of(&plan, disciplines::all());
        let switch = scenario.machine("switch1");
        let mut rack = Rack { scenario, switch, newest: 0 };
        rack.write();
        rack.read_for(3 * S);
        rack.has_newest();
        rack
    }

    fn now_ns(&self) -> u64 {
        self.scenario.world.now_ns()
    }

    fn run(&mut self, for_ns: u64) {
        self.scenario.world.run_until(self.now_ns() + for_ns);
    }

    /// Reads again and again.
    fn read_for(&mut self, for_ns: u64) {
        let ends_ns = self.now_ns() + for_ns;
        while self.now_ns() < ends_ns {
            self.scenario.begin(READER, Deed::Read, KEY);
            self.run(READ);
        }
    }

    /// The switch answers what was written last.
    fn has_newest(&self) {
        let last = *self.scenario.reads(READER).last().unwrap();
        assert!(last.cached && last.number == Some(self.newest), "{last:?}");
    }

    /// Writes the next number, past the switch; one that waits for a lease in vain is written again
    /// as another.
    fn write(&mut self) {
        let written = std::iter::repeat_with(|| self.scenario.ask(WRITER, Deed::Write(8), KEY));
        let mut written = written.take(5).filter_map(Result::ok);
        self.newest = written.next().flatten().expect("leases run out");
    }

    /// The switch stands still for so long, and nobody asks it anything; after `quiet_ns` of that
    /// the next number is written. What stores sent meanwhile waits at the switch, or is lost.
    fn pause(&mut self, for_ns: u64, quiet_ns: u64, waits: bool) {
        let ends_ns = self.now_ns() + for_ns;
        self.scenario.world.silence(BETWEEN_SWITCHES, [!waits; 2]);
        self.scenario.world.halt(self.switch);
        self.run(quiet_ns);
        self.write();
        self.scenario.world.run_until(ends_ns);
        self.scenario.world.silence(BETWEEN_SWITCHES, [false; 2]);
        self.scenario.world.resume(self.switch);
    }

    /// Reads from now on for some leases; what was read that was old already when it was asked for.
    fn old_reads(mut self) -> OldReads {
        let (from_ns, newest) = (self.now_ns(), Some(self.newest));
        self.read_for(5 * LEASE);
        let since = |read: &&Read| read.asked_ns >= from_ns;
        let all: Vec<Read> = self.scenario.reads(READER).iter().filter(since).copied().collect();
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
    rack.old_reads()
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
    assert_eq!(rack.old_reads().reads, 0);
}

#[test]
fn a_pause_that_is_shorter_than_a_lease_makes_nothing_old() {
    for quiet_ns in [0, LEASE / 8] {
        let mut rack = Rack::new(None);
        rack.pause(LEASE / 4, quiet_ns, true);
        assert_eq!(rack.old_reads().reads, 0);
    }
}

#[test]
fn a_paused_store_makes_nothing_old() {
    for for_ns in [LEASE / 4, LEASE, 5 * LEASE] {
        let mut rack = Rack::new(None);
        let server = rack.scenario.machine("server1");
        rack.scenario.world.halt(server);
        rack.run(for_ns);
        rack.scenario.world.resume(server);
        rack.write();
        assert_eq!(rack.old_reads().reads, 0);
    }
}

/// A switch with a copy goes back to a snapshot while it has a copy of a newer value, without an
/// agent: what becomes of leases is the programs' affair.
fn after_a_restore(age_ns: u64, breaks: Option<Mutant>) -> OldReads {
    let mut rack = Rack::new(breaks);
    let agent = rack.scenario.process("switch1/agent");
    rack.scenario.world.kill(agent);
    let snapshot = rack.scenario.world.snapshot(rack.switch).unwrap();
    rack.run(age_ns);
    rack.write();
    rack.read_for(LEASE / 2);
    rack.has_newest();
    rack.scenario.world.restore(rack.switch, &snapshot);
    rack.old_reads()
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
