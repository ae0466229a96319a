//! All interfaces of a switch are in one mode, or what one redirects another loses. Needs root.

use dataplane::{Attachment, KeptPorts, Loops, Mode, PortNews};
use harness::{
    Switch,
    namespace::{in_namespace, ip},
};

fn attach(switch: &Switch, interfaces: &[&str], mode: Mode) -> Vec<Attachment> {
    let names: Vec<String> = interfaces.iter().map(|name| name.to_string()).collect();
    let attached = switch.dataplane().attach_all(&names, mode);
    attached.expect("attached")
}

/// Attaches with `auto` on a switch that is attached to none or some of them, and checks that all
/// are in this mode.
fn all_are(mode: Mode, switch: &Switch, interfaces: &[&str]) -> Vec<Attachment> {
    let attached = attach(switch, interfaces, Mode::Auto);
    let modes: Vec<Mode> = attached.iter().map(|attached| attached.mode).collect();
    assert_eq!(modes, vec![mode; interfaces.len()], "{attached:?}");
    attached
}

/// In a namespace of its own, a switch beside interfaces: a tap has a driver that takes programs, a
/// veth too, but generic suits it; a bridge refuses.
fn beside_interfaces(test: fn(&Switch)) {
    in_namespace(move || {
        ip("link add v0 type veth peer name v1");
        ip("tuntap add dev t0 mode tap");
        ip("tuntap add dev t1 mode tap");
        ip("link add b0 type bridge");
        test(&Switch::load(&[], &[]));
    });
}

#[test]
fn auto_is_native_where_all_drivers_have_it() {
    beside_interfaces(|switch| {
        all_are(Mode::Native, switch, &["t0", "t1"]);
    });
}

#[test]
fn auto_is_generic_everywhere_where_one_interface_is() {
    beside_interfaces(|switch| {
        let attached = all_are(Mode::Generic, switch, &["t0", "v0"]);
        assert!(attached[0].reason.starts_with("v0: veth"), "{attached:?}");
    });
}

#[test]
fn auto_is_generic_everywhere_where_one_driver_refuses() {
    beside_interfaces(|switch| {
        let attached = all_are(Mode::Generic, switch, &["t0", "b0"]);
        assert!(attached[0].reason.contains("driver of b0 refuses"), "{attached:?}");
        assert!(attached.iter().all(|attached| !attached.taken_over), "{attached:?}");
    });
}

/// As that of a guest that restarts: under its name there is another.
#[test]
fn an_interface_that_is_made_anew_is_attached_again() {
    beside_interfaces(|switch| {
        let attached = attach(switch, &["t0", "v0"], Mode::Auto);
        let mut kept = KeptPorts::new(&attached, &[], Loops::default());
        let mut news = || -> Vec<String> {
            kept.look(switch.dataplane()).iter().map(PortNews::to_string).collect()
        };
        assert_eq!(news(), [""; 0]);
        ip("link del v0");
        assert_eq!(news(), ["interface v0 is gone: attached again as soon as there is one"]);
        assert_eq!(news(), [""; 0], "said once");
        ip("link add v0 type veth peer name v1");
        assert_eq!(news(), ["interface v0 is there again: attached, generic mode"]);
        assert_eq!(news(), [""; 0]);
        // Between two looks.
        ip("link del v0");
        ip("link add v0 type veth peer name v1");
        assert_eq!(news(), ["interface v0 is there again: attached, generic mode"]);
        // It is too small, then it is not.
        ip("link del v0");
        ip("link add v0 mtu 1000 type veth peer name v1");
        let refused = news();
        assert!(refused[0].contains("v0 is there again, and cannot be attached"), "{refused:?}");
        assert_eq!(news(), [""; 0], "said once");
        ip("link set v0 mtu 1500");
        assert_eq!(news(), ["interface v0 is there again: attached, generic mode"]);
        let attached = dataplane::attached(switch.dataplane().home());
        let names: Vec<String> = attached.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["t0", "v0"]);
    });
}

/// It has another name: nothing is redirected to where no program is.
#[test]
fn an_interface_that_is_called_otherwise_is_sent_nothing() {
    beside_interfaces(|switch| {
        let attached = attach(switch, &["t0", "t1"], Mode::Native);
        let dataplane = switch.dataplane();
        let mut kept = KeptPorts::new(&attached, &[], Loops::default());
        assert_eq!(dataplane.port("t0"), Some(attached[0].ifindex));
        ip("link set t0 down");
        ip("link set t0 name t7");
        let news: Vec<String> = kept.look(dataplane).iter().map(PortNews::to_string).collect();
        assert_eq!(news, ["interface t0 is gone: attached again as soon as there is one"]);
        assert_eq!(dataplane.port("t0"), None);
        assert_eq!(dataplane.port("t1"), Some(attached[1].ifindex));
        ip("link set t7 name t0");
        let news: Vec<String> = kept.look(dataplane).iter().map(PortNews::to_string).collect();
        assert_eq!(news, ["interface t0 is there again: attached, native mode"]);
        assert_eq!(dataplane.port("t0"), Some(attached[0].ifindex));
    });
}

#[test]
fn auto_goes_on_in_the_mode_that_is_there() {
    beside_interfaces(|switch| {
        attach(switch, &["t0"], Mode::Generic);
        let attached = all_are(Mode::Generic, switch, &["t0", "t1"]);
        assert!(attached[0].taken_over && !attached[1].taken_over);
    });
}

/// What is redirected from a native one to a generic one is lost.
#[test]
fn another_mode_does_not_go_beside_what_is_there() {
    beside_interfaces(|switch| {
        attach(switch, &["t0"], Mode::Generic);
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let (dataplane, both) = (switch.dataplane(), names(&["t1", "t0"]));
        let refused = dataplane.attach_all(&both, Mode::Native).unwrap_err().to_string();
        let home = dataplane.home();
        let cure = format!("`shortstop switch detach --name {}` first", home.name());
        assert!(refused.starts_with("interface t0: ") && refused.contains("generic"), "{refused}");
        assert!(refused.contains(&cure), "{refused}");
        let there: Vec<String> =
            dataplane::attached(home).into_iter().map(|(name, _)| name).collect();
        assert_eq!(there, ["t0"], "it stays, and the other is as it was");
        let alone = attach(switch, &["t0"], Mode::Native);
        assert_eq!(alone[0].mode, Mode::Generic, "{alone:?}");
        attach(switch, &["t1", "t0"], Mode::Generic);
        dataplane::free_interfaces(home).unwrap();
        let native = attach(switch, &["t1", "t0"], Mode::Native);
        assert!(native.iter().all(|attached| attached.mode == Mode::Native), "{native:?}");
    });
}
