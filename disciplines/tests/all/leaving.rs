//! A switch that is detached in order, in the whole system: no write waits for it.

use plan::{Plan, shapes};
use scenario::{Deed, Scenario, seat};

pub const KEY: &str = "hot";
pub const READER: &str = "client1";
pub const WRITER: &str = "friend";
/// Longer than a packet's way to the store and back, and far below a lease.
const ROUND_TRIP_MS: u64 = 5;

/// A client that reads through a switch, which has its key by now, and a friend of its that writes
/// past it.
pub fn with_a_copy() -> Scenario {
    // The second switch is a router that knows of no cache.
    let mut plan = shapes::row(1, 2, 1);
    plan.add_hosts("switch2", [WRITER.to_owned()]);
    seat(&mut plan, |_| ());
    let router = plan.sites.iter_mut().find(|site| site.name == "switch2");
    router.expect("the second of the row").roles.clear();
    let plan = Plan { partitions: 8, is_open: true, is_signed: false, ..plan };
    let mut scenario = Scenario::of(&plan, disciplines::all());
    scenario.write(WRITER, KEY);
    for _ in 0..1_500 {
        scenario.read(READER, KEY);
        scenario.pass(1);
    }
    assert!(scenario.switch("switch1", "hit") > 0);
    assert!(scenario.status("server1").copies > 0);
    scenario
}

/// How many milliseconds a write takes.
fn write_ms(scenario: &mut Scenario) -> u64 {
    let begun_ns = scenario.world.now_ns();
    scenario.write(WRITER, KEY);
    (scenario.world.now_ns() - begun_ns) / 1_000_000
}

#[test]
fn no_write_waits_for_a_switch_that_was_detached() {
    let mut scenario = with_a_copy();
    scenario.detach("switch1");
    let took_ms = write_ms(&mut scenario);
    assert!(took_ms <= ROUND_TRIP_MS, "{took_ms} ms");
    assert_eq!(scenario.store("server1").leases.leases_given_back, 1);
    assert!(scenario.read(READER, KEY).is_some());
    // And it comes back.
    let agent = scenario.process("switch1/agent");
    scenario.world.start(agent).expect("it left");
    for _ in 0..4_000 {
        scenario.read(READER, KEY);
        scenario.pass(1);
    }
    assert!(scenario.switch("switch1", "hit") > 0, "it serves again");
    assert!(scenario.write(WRITER, KEY) > 0);
    scenario.judge();
}

/// What it is good for: one that is gone without a word is waited for.
#[test]
fn a_write_waits_for_a_switch_that_went_without_a_word() {
    let mut scenario = with_a_copy();
    scenario.lose_tables("switch1");
    let call = scenario.begin(WRITER, Deed::Write(0), KEY);
    scenario.pass(10 * ROUND_TRIP_MS);
    assert!(scenario.outcome(WRITER, call).is_none());
}
