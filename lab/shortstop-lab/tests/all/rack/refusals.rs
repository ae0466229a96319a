//! Switches that are started wrongly say so in one line and leave nothing behind.

use std::{path::Path, process::Stdio};

use super::{
    support::{Kind, Rack, needs_root, until},
    xdp::attach_pass,
};

/// What is typed after `shortstop switch`, and what the line that comes back must name.
type Case<'a> = (&'a str, &'a [&'a str]);

fn check(rack: &Rack, name: &str, cases: &[Case]) {
    let state = rack.lab.dir().join("state");
    let state = state.to_string_lossy();
    let before = rack.done("switch", &["ip", "-d", "link"]);
    for (typed, expected) in cases {
        let mut words = vec!["shortstop", "switch"];
        words.extend(typed.split(' '));
        for (option, value) in [("--name", name), ("--state-dir", &*state)] {
            if !typed.contains(option) {
                words.extend([option, value]);
            }
        }
        let said = rack.refused("switch", &words);
        for part in *expected {
            assert!(said.contains(part), "{typed}: {part:?} is missing in {said}");
        }
        let pins = Path::new("/sys/fs/bpf/shortstop").join(name);
        assert!(!pins.exists(), "{typed}: {} is left behind", pins.display());
        let after = rack.done("switch", &["ip", "-d", "link"]);
        assert_eq!(before, after, "{typed}: the interfaces have changed");
    }
}

#[test]
fn interfaces_that_cannot_be_used_are_refused() {
    needs_root();
    let rack = Rack::build(Kind::Kernel, &[]);
    // Less than a topology may have.
    rack.done("switch", &["ip", "link", "set", "eth1", "mtu", "1200"]);
    let name = format!("{}-wrong", rack.lab.name());
    let _others = attach_pass(&rack.lab.namespace("switch"), "eth2", false);
    // A link goes down and up again as it is given a program.
    until("eth2 has its carrier again", || {
        rack.done("switch", &["ip", "link", "show", "eth2"]).contains("state UP").then_some(())
    });
    check(
        &rack,
        &name,
        &[
            ("--interface eth9", &["eth9", "ip link"]),
            ("--interface eth0 --interface eth9", &["eth9"]),
            ("--interface eth1", &["eth1", "1200", "1280"]),
            ("--interface eth0 --interface eth1", &["eth1", "MTU"]),
            ("--interface eth2", &["eth2", "XDP program"]),
            ("--interface eth0 --interface eth2", &["eth2", "XDP program"]),
            ("--interface lo --mode native", &["lo", "--mode generic"]),
            ("--interface eth0 --state-dir /proc/none", &["/proc/none", "--state-dir"]),
        ],
    );
    let unprivileged = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let switch = ["shortstop", "switch", "--interface", "eth0", "--name", &name];
    let said = rack.refused("switch", &[&unprivileged[..], &switch].concat());
    assert!(said.contains("not permitted") && said.contains("root"), "{said}");
    assert!(!Path::new("/sys/fs/bpf/shortstop").join(&name).exists());
}

#[test]
fn a_switch_that_is_there_already_is_left_alone() {
    needs_root();
    let rack = Rack::up(Kind::Kernel);
    rack.until_cached("client1", "key0000000000001");
    let other = format!("{}-other", rack.lab.name());
    check(&rack, &other, &[("--id 2 --interface eth0", &["eth0", "XDP program"])]);
    // The same name: its agent still runs.
    let state = rack.lab.dir().join("agent").to_string_lossy().into_owned();
    let same = rack.switch();
    let words =
        ["shortstop", "switch", "--interface", "eth0", "--name", &same, "--state-dir", &state];
    let said = rack.refused("switch", &words);
    assert!(said.contains(&same) && said.contains("another agent"), "{said}");
    rack.until_cached("client1", "key0000000000001");
    assert_eq!(rack.status()["interfaces"].as_array().map(Vec::len), Some(3));
}

#[test]
fn an_id_that_is_taken_is_reported_and_harms_nobody() {
    needs_root();
    // The rack's own switch leaves one interface to another.
    let all = "\"{interfaces}\"";
    let two = "\"--interface\", \"eth0\", \"--interface\", \"eth2\"";
    let rack = Rack::with(Kind::Kernel, &[(all, two)]);
    rack.until_cached("client1", "key0000000000001");
    let (name, log) = (format!("{}-twin", rack.lab.name()), rack.lab.dir().join("twin.log"));
    let state = rack.lab.dir().join("twin").to_string_lossy().into_owned();
    let words = ["shortstop", "switch", "--id", "1", "--interface", "eth1", "--name", &name];
    let mut twin = rack.command("switch", &[&words[..], &["--state-dir", &state]].concat());
    let out = std::fs::File::create(&log).unwrap();
    let mut twin = twin.stdout(Stdio::null()).stderr(out).spawn().unwrap();
    let said = until("the twin's complaint", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().find(|line| line.contains("controller: ")).map(String::from)
    });
    let _ = twin.kill();
    let _ = twin.wait();
    rack.done("switch", &["shortstop", "switch", "detach", "--name", &name]);
    assert!(said.contains("id 1") && said.contains(&rack.switch()), "{said}");
    rack.until_cached("client1", "key0000000000001");
    assert_eq!(rack.control_status().unwrap()["name"], rack.switch().as_str());
}

#[test]
fn a_soft_switch_takes_two_capabilities_and_no_more() {
    needs_root();
    let command = "\"shortstop\", \"switch\", \"--id\"";
    let confined = format!(
        "\"setpriv\", \"--bounding-set=-all,+net_raw,+net_admin\", \"--inh-caps=-all\", {command}"
    );
    let rack = Rack::with(Kind::Soft, &[(command, &confined)]);
    rack.until_cached("client1", "key0000000000001");
    let status = rack.status();
    assert_eq!(status["mode"], "soft");
    let nothing_lost = status["lost"].as_object().expect("what was lost");
    assert!(nothing_lost.values().all(|n| n == 0), "{status}");
    let (same, other) = (rack.switch(), format!("{}-other", rack.lab.name()));
    let soft = ["shortstop", "switch", "--soft", "--interface", "eth0"];
    for (bounds, lacks) in [
        ("-all", "CAP_NET_RAW and CAP_NET_ADMIN"),
        ("-all,+net_admin", "CAP_NET_RAW, "),
        ("-all,+net_raw", "CAP_NET_ADMIN, "),
    ] {
        let bounds = format!("--bounding-set={bounds}");
        let confined = ["setpriv", &bounds, "--inh-caps=-all"];
        let words = [&confined[..], &soft, &["--name", &other]].concat();
        let said = rack.refused("switch", &words);
        assert!(said.contains(lacks), "{said}");
    }
    for (words, expected) in [
        (["--name", &same], "another agent"),
        (["--name", &other], "interface eth0: another soft switch"),
    ] {
        let said = rack.refused("switch", &[&soft[..], &words].concat());
        assert!(said.contains(expected), "{said}");
    }
    let said = rack.refused("switch", &["shortstop", "switch", "detach", "--name", &same]);
    assert!(said.contains(&same) && said.contains("is soft"), "{said}");
    rack.until_cached("client1", "key0000000000001");
}

#[test]
fn a_switch_in_the_kernel_is_not_soft_as_well() {
    needs_root();
    let mut rack = Rack::up(Kind::Kernel);
    assert!(rack.status()["agent"].is_i64(), "it runs");
    rack.kill("switch", "agent");
    assert!(rack.status()["agent"].is_null(), "it was killed");
    let same = rack.switch();
    let words = ["shortstop", "switch", "--soft", "--interface", "eth0", "--name", &same];
    let said = rack.refused("switch", &words);
    assert!(said.contains(&same) && said.contains("detach"), "{said}");
    assert_eq!(rack.status()["mode"], "kernel");
}
