//! What drivers must not do to packets before the programs see them. Needs root.

use std::{
    process::Command,
    sync::{Arc, Mutex},
};

use dataplane::{Loops, Mode, RecirculationPorts, detach};
use harness::{
    Switch,
    namespace::{ifindex, in_namespace, ip},
};

use crate::{
    occupied::attach_without_link,
    upgrade::{pins, trial},
};

/// Whether a feature of an interface is on; as `ethtool` calls it.
fn is_on(interface: &str, feature: &str) -> bool {
    let shown = Command::new("ethtool").args(["-k", interface]).output();
    let text = String::from_utf8(shown.expect("ethtool is installed").stdout).expect("text");
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let (_, state) = lines
        .find(|(name, _)| *name == feature)
        .unwrap_or_else(|| panic!("{interface} has no {feature}: {text}"));
    state.starts_with("on")
}

fn turn(interface: &str, feature: &str, state: &str) {
    let done = Command::new("ethtool").args(["-K", interface, feature, state]).status();
    assert!(done.expect("ethtool is installed").success(), "{feature} {state}");
}

const OFF_WHILE_ATTACHED: [&str; 4] =
    ["rx-vlan-offload", "rx-vlan-stag-hw-parse", "rx-udp-gro-forwarding", "rx-gro-list"];

/// Where an interface takes tags off, hosts of different VLANs would be in one network; where it
/// joins datagrams, two would be one.
#[test]
fn what_was_on_is_off_while_a_switch_is_attached_and_on_after() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        for feature in ["rx-udp-gro-forwarding", "rx-gro-list"] {
            turn("v0", feature, "on");
        }
        let before = OFF_WHILE_ATTACHED.map(|feature| is_on("v0", feature));
        assert_eq!(before, [true; 4]);
        let switch = Switch::load(&[], &[]);
        // Twice, as the agent after the first one does.
        for _ in 0..2 {
            let attached = switch.dataplane().attach("v0", Mode::Generic).expect("attached");
            assert_eq!(attached.reason, "as asked for");
            assert_eq!(OFF_WHILE_ATTACHED.map(|feature| is_on("v0", feature)), [false; 4]);
        }
        detach(switch.dataplane().home()).expect("detached");
        assert_eq!(OFF_WHILE_ATTACHED.map(|feature| is_on("v0", feature)), before);
    });
}

#[test]
fn what_was_off_stays_off() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        turn("v0", "rx-vlan-offload", "off");
        let switch = Switch::load(&[], &[]);
        switch.dataplane().attach("v0", Mode::Generic).expect("attached");
        detach(switch.dataplane().home()).expect("detached");
        assert!(!is_on("v0", "rx-vlan-offload") && is_on("v0", "rx-vlan-stag-hw-parse"));
    });
}

/// Both number their interfaces alike, and have the same names for them.
#[test]
fn who_detaches_in_another_namespace_touches_nothing_there() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        turn("v0", "rx-gro-list", "on");
        let switch = Switch::load(&[trial()], &[]);
        switch.keep_for_itself();
        let home = switch.dataplane().home().clone();
        let attached = switch.dataplane().attach("v0", Mode::Generic).expect("attached");
        switch.dataplane().recirculate(&[attached], &Loops::default()).expect("ports");
        let here = ifindex("v0");
        let detach_elsewhere = || {
            let (said, home) = (Arc::new(Mutex::new(None)), home.clone());
            let says = said.clone();
            in_namespace(move || {
                ip("link add v0 type veth peer name v1");
                assert_eq!(ifindex("v0"), here);
                *says.lock().unwrap() = Some(detach(&home));
                assert!(!is_on("v0", "rx-gro-list") && is_on("v0", "rx-vlan-offload"));
            });
            said.lock().unwrap().take().expect("it was tried")
        };
        // A namespace of a thread, without a name.
        let refused = detach_elsewhere().expect_err("it is not found").to_string();
        assert!(refused.contains("v0 in another network namespace"), "{refused}");
        assert_eq!(dataplane::attached(&home), [("v0".to_owned(), here)]);
        let name = format!("test-detach-{}", std::process::id());
        ip(&format!("netns attach {name} {}", nix::unistd::gettid()));
        let detached = detach_elsewhere();
        ip(&format!("netns del {name}"));
        assert_eq!(detached.expect("it has a name"), [("v0".to_owned(), here)]);
        assert!(is_on("v0", "rx-gro-list") && !home.exists());
        assert!(RecirculationPorts::of(&home).ports.is_empty());
    });
}

/// An agent that is killed while it makes a port has pinned nothing of it yet.
#[test]
fn a_half_made_recirculation_port_goes_with_the_switch() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        let switch = Switch::load(&[trial()], &[]);
        switch.keep_for_itself();
        let home = switch.dataplane().home();
        let attached = switch.dataplane().attach("v0", Mode::Generic).expect("attached");
        switch.dataplane().recirculate(&[attached], &Loops::default()).expect("ports");
        let pin = pins(&switch).join("recirculation_link_1");
        std::fs::remove_file(pin).expect("it was pinned");
        detach(home).expect("detached");
        assert!(RecirculationPorts::of(home).ports.is_empty());
    });
}

#[test]
fn a_switch_that_is_refused_changes_nothing() {
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        turn("v0", "rx-gro-list", "on");
        let switch = Switch::load(&[], &[]);
        attach_without_link(&switch, "v0");
        let refused = switch.dataplane().attach("v0", Mode::Generic);
        assert!(refused.is_err(), "{refused:?}");
        assert!(is_on("v0", "rx-gro-list") && is_on("v0", "rx-vlan-offload"));
    });
}

/// Generic programs leave a checksum that a socket left to a device to the switch's interfaces, if
/// all of them make checksums.
#[test]
fn checksums_are_left_to_interfaces_that_make_them() {
    const SUMS_LATER: usize = 56; // in `struct config` of `bpf/maps.h`
    in_namespace(|| {
        ip("link add v0 type veth peer name v1");
        ip("link add w0 type veth peer name w1");
        let switch = Switch::load(&[], &[]);
        let dataplane = switch.dataplane();
        let are_left = || {
            let config = switch.backing().element("config", 0).expect("a switch's");
            config[SUMS_LATER] != 0
        };
        dataplane.attach("v0", Mode::Generic).expect("attached");
        assert!(are_left());
        turn("w0", "tx", "off");
        let attached = dataplane.attach("w0", Mode::Generic).expect("attached");
        assert!(attached.reason.contains("ethtool -K DEV tx off"), "{}", attached.reason);
        assert!(!are_left());
        turn("w0", "tx", "on");
        dataplane.note_interfaces().expect("noted");
        assert!(are_left());
    });
}
