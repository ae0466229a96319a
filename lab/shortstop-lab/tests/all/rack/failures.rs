//! Processes that die at once, by SIGKILL, and come back.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use serde_json::Value;

use super::{
    echo::{Caller, Echo},
    support::{Kind, Rack, Reader, SERVER, needs_root, patient, unforgiving, until},
};

lab::on_both!(
    reads_go_on_without_the_controller_and_its_successor_continues,
    a_store_that_restarts_takes_writes_again_and_nothing_stale_is_served
);

const KEY: &str = "key0000000000003";

/// The leases that switches hold of the store.
fn leases(rack: &Rack) -> Vec<Value> {
    let socket = rack.lab.dir().join("store.sock");
    let socket = socket.to_string_lossy();
    let words = ["shortstop", "store", "status", "--json", "--socket", &socket];
    let status: Value = serde_json::from_str(&rack.done("server", &words)).expect("JSON");
    status["leases"].as_array().expect("a list").clone()
}

/// Waits until the switch has renewed its lease so often that one it held before has run out.
fn wait_longer_than_a_lease(rack: &Rack) {
    // Renewed three times per lease.
    let goal = rack.count("lease_renewed") + 6;
    until("renewed leases", || (rack.count("lease_renewed") >= goal).then_some(()));
}

#[test]
fn reads_go_on_without_the_agent_and_under_its_successor() {
    needs_root();
    let mut rack = Rack::up(Kind::Kernel);
    // Read all along, so that they stay hot on however slow a machine.
    let keys: Vec<String> = (10..13).map(|i| format!("key{i:013}")).collect();
    let keep = |key: &String| rack.keep_reading("client2", key, patient());
    let others: Vec<Reader> = keys.iter().map(keep).collect();
    others.iter().for_each(|other| other.wait_for_hits(5));
    let reader = rack.keep_reading("client1", KEY, unforgiving());
    reader.wait_for_hits(100);

    rack.kill("switch", "agent");
    let items = rack.count("items");
    assert!(items > keys.len() as u64, "{items}");
    let hits = rack.count("hit");
    wait_longer_than_a_lease(&rack);
    reader.wait_for_hits(100);
    assert!(rack.count("hit") >= hits + 100);

    // A write while nobody looks after the switch.
    let version = rack.set("client2", KEY, "written without an agent");
    reader.expect_version(version);
    let got = rack.get("client1", KEY);
    assert_eq!(got.value.as_deref(), Some("written without an agent"));
    reader.wait_for_hits(20);

    // A new agent takes over while other traffic crosses.
    let (client, server) = (rack.lab.namespace("client2"), rack.lab.namespace("server"));
    let address = format!("{SERVER}:9").parse().unwrap();
    let _echo = Echo::start(&server, address);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut caller = Caller::new(&client, address);
            while !stop.load(SeqCst) {
                caller.round_trip(200);
            }
        });
        rack.start_again("switch", "agent");
        let log = rack.lab.dir().join("switch-agent.log");
        let taken_over = until("the successor at work", || {
            assert!(rack.count("items") >= items, "items were lost");
            let text = std::fs::read_to_string(&log).unwrap();
            let attached = rack.control_status()?["attached"].as_bool()?;
            let at_work = attached && text.matches("serving;").count() == 2;
            at_work.then(|| text.matches("taken over").count())
        });
        stop.store(true, SeqCst);
        assert_eq!(taken_over, 3, "one for each interface");
    });
    let hits = rack.count("hit");
    reader.wait_for_hits(50);
    assert!(rack.count("items") >= items && rack.count("hit") >= hits + 50);
    for (key, other) in keys.iter().zip(others) {
        rack.until_cached("client2", key);
        let _sent_again = other.finish();
    }
    // It does its work: learns, and hears of writes.
    rack.until_cached("client2", "key0000000000099");
    reader.expect_version(rack.set("client2", KEY, "written under the new agent"));
    reader.wait_for_hits(20);
    assert_eq!(reader.finish(), 0, "requests were lost on the way");
}

/// The interfaces of the switch as `ip` shows them.
fn links(rack: &Rack) -> String {
    rack.done("switch", &["ip", "-d", "link"])
}

#[test]
fn detach_removes_everything_and_traffic_flows_on() {
    needs_root();
    let mut rack = Rack::up(Kind::Kernel);
    rack.until_cached("client1", KEY);
    let pins = Path::new("/sys/fs/bpf/shortstop").join(rack.switch());
    assert!(pins.exists() && links(&rack).contains("xdp"));
    let reader = rack.keep_reading("client1", KEY, patient());
    reader.wait_for_hits(20);
    rack.kill("switch", "agent");
    assert!(pins.exists() && links(&rack).contains("xdp"), "it goes on by itself");

    let said = rack.done("switch", &["shortstop", "switch", "detach", "--name", &rack.switch()]);
    for interface in ["eth0", "eth1", "eth2"] {
        assert!(said.contains(interface), "{said}");
    }
    assert!(!pins.exists());
    assert!(!links(&rack).contains("xdp"), "{}", links(&rack));
    assert!(said.contains("1 of 1 stores have their leases back"), "{said}");
    // So no write waits for one.
    assert_eq!(leases(&rack), [] as [Value; 0]);
    reader.wait_for_reads(100);
    let version = rack.set("client2", KEY, "past no switch");
    reader.expect_version(version);
    reader.wait_for_reads(20);
    reader.finish();
    assert!(!rack.get("client1", KEY).from_switch);
    rack.done("client1", &["ping", "-c", "2", "-i", "0.2", "-w", "60", SERVER]);

    // And it can begin anew.
    rack.start_again("switch", "agent");
    rack.until_cached("client1", KEY);
}

#[test]
fn a_soft_switch_ends_with_its_agent_and_traffic_flows_on() {
    needs_root();
    let mut rack = Rack::up(Kind::Soft);
    let has_device = |rack: &Rack| links(rack).contains("shortstop");
    assert!(has_device(&rack));
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        rack.until_cached("client1", KEY);
        let reader = rack.keep_reading("client1", KEY, patient());
        reader.wait_for_hits(20);
        rack.lab.stop("switch", "agent", signal).unwrap();
        if signal == libc::SIGTERM {
            // It gave its lease back, unless the store stood still while it was told.
            let log = rack.lab.dir().join("switch-agent.log");
            let log = std::fs::read_to_string(log).unwrap();
            assert!(log.contains("did not answer") || leases(&rack).is_empty(), "{log}");
        }
        assert!(!has_device(&rack), "{}", links(&rack));
        let status = ["shortstop", "switch", "status", "--name", &rack.switch()];
        let said = rack.refused("switch", &status);
        assert!(said.contains("no switch"), "{said}");
        reader.wait_for_reads(50);
        let version = match signal {
            libc::SIGTERM => rack.set("client2", KEY, "past no switch"),
            // The store waits for the lease of a switch that does not answer any more.
            _ => until("a write", || rack.try_set("client2", KEY, "past no switch", &[]).ok()),
        };
        reader.expect_version(version);
        reader.wait_for_reads(20);
        rack.start_again("switch", "agent");
        reader.wait_for_hits(20);
        reader.finish();
    }
}

fn reads_go_on_without_the_controller_and_its_successor_continues(kind: Kind) {
    needs_root();
    let mut rack = Rack::up(kind);
    rack.until_cached("client1", KEY);
    let items = until("the controller knows of the item", || {
        rack.control_status()?["items"].as_u64().filter(|items| *items > 0)
    });
    let reader = rack.keep_reading("client1", KEY, patient());
    reader.wait_for_hits(50);

    rack.kill("switch", "control");
    wait_longer_than_a_lease(&rack);
    reader.wait_for_hits(50);
    reader.expect_version(rack.set("client2", KEY, "written without a controller"));
    reader.wait_for_hits(50);

    rack.start_again("switch", "control");
    // What it knows is what the switch tells that it holds.
    until("the switch is back with its items", || {
        let status = rack.control_status().filter(|status| status["attached"] == true)?;
        status["items"].as_u64().filter(|now| *now >= items)
    });
    assert!(rack.count("items") >= items);
    rack.until_cached("client2", "key0000000000098");
    reader.wait_for_hits(50);
    reader.finish();
    rack.until_cached("client2", KEY);
}

fn a_store_that_restarts_takes_writes_again_and_nothing_stale_is_served(kind: Kind) {
    needs_root();
    let mut rack = Rack::up(kind);
    let cluster = rack.cluster();
    for key in ["old1", "old2", KEY] {
        rack.set("client1", key, "from the first life");
        rack.until_cached("client2", key);
    }

    rack.kill("server", "store");
    // The copies may be served until the lease is over; then there is an error, not silence.
    let ask = ["shortstop", "get", "--json", "--timeout", "300ms", "--cluster", &cluster, "old1"];
    let error = until("the lease is over", || {
        let output = rack.run("client1", &ask);
        if !output.status.success() {
            return Some(String::from_utf8(output.stderr).unwrap());
        }
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("first life") && said.contains("switch"), "{said}");
        None
    });
    assert!(error.contains(SERVER), "{error}");
    let error = rack.try_set("client1", "old1", "x", &[]).unwrap_err();
    assert!(error.contains(SERVER) && error.contains("outcome unknown"), "{error}");

    rack.start_again("server", "store");
    // Reads are answered from the beginning; writes once every copy of the first life has expired.
    let populated = rack.get("client2", "key0000000000500").value.unwrap();
    assert_eq!(populated, "key0000000000500".repeat(8));
    let version = until("the store takes writes", || {
        rack.try_set("client1", "old1", "from the second life", &[]).ok()
    });
    for host in ["client1", "client2"] {
        let got = rack.get(host, "old1");
        assert_eq!(got.value.as_deref(), Some("from the second life"));
        assert_eq!(got.version, version);
        assert_eq!(rack.get(host, "old2").value, None, "a copy of the first life");
        assert_eq!(rack.get(host, KEY).value.unwrap(), KEY.repeat(8), "a copy of the first life");
    }
    for (key, value) in [("old1", "from the second life".into()), (KEY, KEY.repeat(8))] {
        assert_eq!(rack.until_cached("client2", key).value, Some(value));
    }
    assert_eq!(rack.get("client1", "old2").value, None);
}
