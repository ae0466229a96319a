//! All interfaces of a switch are in one mode, or what one redirects another loses. Needs root.

use dataplane::{Attached, Mode};
use harness::{
    Switch,
    namespace::{in_namespace, ip},
};

fn attach(switch: &Switch, interfaces: &[&str], mode: Mode) -> Vec<Attached> {
    let names: Vec<String> = interfaces.iter().map(|name| name.to_string()).collect();
    let attached = switch.dataplane().attach_all(&names, mode);
    attached.expect("attached")
}

fn modes(attached: &[Attached]) -> Vec<Mode> {
    attached.iter().map(|attached| attached.mode).collect()
}

/// A tap has a driver that takes programs, a veth too, but generic suits it; a bridge refuses.
fn interfaces() {
    ip("link add v0 type veth peer name v1");
    ip("tuntap add dev t0 mode tap");
    ip("tuntap add dev t1 mode tap");
    ip("link add b0 type bridge");
}

#[test]
fn auto_is_native_where_all_drivers_have_it() {
    in_namespace(|| {
        interfaces();
        let switch = Switch::load(&[], &[]);
        let attached = attach(&switch, &["t0", "t1"], Mode::Auto);
        assert_eq!(
            modes(&attached),
            [Mode::Native, Mode::Native],
            "{attached:?}"
        );
    });
}

#[test]
fn auto_is_generic_everywhere_where_one_interface_is() {
    in_namespace(|| {
        interfaces();
        let switch = Switch::load(&[], &[]);
        let attached = attach(&switch, &["t0", "v0"], Mode::Auto);
        assert_eq!(
            modes(&attached),
            [Mode::Generic, Mode::Generic],
            "{attached:?}"
        );
        assert!(attached[0].reason.starts_with("v0: veth"), "{attached:?}");
    });
}

#[test]
fn auto_is_generic_everywhere_where_one_driver_refuses() {
    in_namespace(|| {
        interfaces();
        let switch = Switch::load(&[], &[]);
        let attached = attach(&switch, &["t0", "b0"], Mode::Auto);
        assert_eq!(
            modes(&attached),
            [Mode::Generic, Mode::Generic],
            "{attached:?}"
        );
        assert!(
            attached[0].reason.contains("driver of b0 refuses"),
            "{attached:?}"
        );
        assert!(
            attached.iter().all(|attached| !attached.taken_over),
            "{attached:?}"
        );
    });
}

#[test]
fn auto_goes_on_in_the_mode_that_is_there() {
    in_namespace(|| {
        interfaces();
        let switch = Switch::load(&[], &[]);
        attach(&switch, &["t0"], Mode::Generic);
        let attached = attach(&switch, &["t0", "t1"], Mode::Auto);
        assert_eq!(
            modes(&attached),
            [Mode::Generic, Mode::Generic],
            "{attached:?}"
        );
        assert!(attached[0].taken_over && !attached[1].taken_over);
    });
}
