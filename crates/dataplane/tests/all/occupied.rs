//! An interface that has a program already, and interfaces whose names have dots. Needs root.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use dataplane::{Error, Mode, attached, detach};
use harness::{
    Switch,
    namespace::{ifindex, in_namespace, ip},
};
use libbpf_rs::libbpf_sys;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;

/// What is said when a switch is to be attached to `v0`.
fn refusal(switch: &Switch) -> String {
    match switch.dataplane().attach("v0", Mode::Generic) {
        Err(error @ Error::Occupied { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// As `ip link set dev NAME xdpgeneric obj ...` does.
pub fn attach_without_link(switch: &Switch, interface: &str) {
    let program = switch.dataplane().program().as_fd().as_raw_fd();
    let index = ifindex(interface) as i32;
    // SAFETY: a program's descriptor, and no options.
    let failed =
        unsafe { libbpf_sys::bpf_xdp_attach(index, program, XDP_FLAGS_SKB_MODE, std::ptr::null()) };
    assert_eq!(failed, 0);
}

fn beside_v0(test: fn(&Switch)) {
    in_namespace(move || {
        ip("link add v0 type veth peer name v1");
        test(&Switch::load(&[], &[]));
    });
}

#[test]
fn another_switch_is_named() {
    beside_v0(|switch| {
        let other = Switch::load(&[], &[]);
        other.dataplane().attach("v0", Mode::Generic).expect("attached");
        let name = other.dataplane().home().name();
        let way_out = format!("`shortstop switch detach --name {name}`");
        assert!(refusal(switch).contains(&way_out), "{}", refusal(switch));
    });
}

#[test]
fn a_program_is_named_and_how_it_goes() {
    beside_v0(|switch| {
        attach_without_link(switch, "v0");
        let said = refusal(switch);
        assert!(said.contains("\"entry\" is (program "), "{said}");
        assert!(said.contains("`ip link set dev v0 xdpgeneric off`"), "{said}");
        ip("link set dev v0 xdpgeneric off");
        switch.dataplane().attach("v0", Mode::Generic).expect("nobody is in the way");
    });
}

/// `ip` takes nothing off that a link holds.
#[test]
fn a_link_is_named_where_one_holds_the_program() {
    beside_v0(|switch| {
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
            flags: XDP_FLAGS_SKB_MODE,
            ..Default::default()
        };
        let program = switch.dataplane().program().as_fd().as_raw_fd();
        // SAFETY: a program's descriptor, and options of their length.
        let link = unsafe {
            libbpf_sys::bpf_link_create(program, ifindex("v0") as i32, libbpf_sys::BPF_XDP, &opts)
        };
        assert!(link >= 0);
        // SAFETY: a new descriptor that nobody else owns.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        let said = refusal(switch);
        assert!(said.contains("bpftool link detach id"), "{said}");
        drop(link);
    });
}

#[test]
fn interfaces_of_vlans_have_dots_in_their_names() {
    beside_v0(|switch| {
        ip("link add v0.5 type veth peer name v2");
        switch.dataplane().attach("v0.5", Mode::Generic).expect("attached");
        let home = switch.dataplane().home();
        assert_eq!(attached(home), [("v0.5".to_owned(), ifindex("v0.5"))]);
        let again = switch.dataplane().attach("v0.5", Mode::Generic).expect("attached");
        assert!(again.taken_over);
        assert_eq!(detach(home).expect("detached").len(), 1);
    });
}
