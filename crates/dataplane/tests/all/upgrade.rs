//! Programs of an earlier loading go on while those of the next take over, on the same tables.
//! Needs root.

use std::{fs, path::PathBuf};

use dataplane::{Dataplane, Error, Loops, Mode, Object, Sizes};
use harness::{
    Message, Switch, Verdict,
    namespace::{ifindex, in_namespace, ip},
    switch::tenant,
};
use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};

pub const SIGNED: u32 = 7;
pub const NUMBER: u32 = 4;

pub fn trial() -> Object {
    harness::trial(NUMBER)
}

pub fn pins(switch: &Switch) -> PathBuf {
    switch.keep_for_itself();
    PathBuf::from("/sys/fs/bpf/shortstop").join(switch.dataplane().home().name())
}

fn again(switch: &Switch, pages: u32) -> Result<Dataplane, Error> {
    switch.keep_for_itself();
    Dataplane::load(switch.dataplane().home().clone(), &[trial()], Sizes { pages })
}

/// Puts a map into the place of one that is pinned.
fn replace(switch: &Switch, name: &str, kind: MapType, key: u32, value: u32, entries: u32) {
    let path = pins(switch).join(name);
    let _ = fs::remove_file(&path);
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let mut map =
        MapHandle::create(kind, Some("older"), key, value, entries, &opts).expect("a map");
    map.pin(path).expect("pinned");
}

fn aside(switch: &Switch) -> Vec<String> {
    let names = fs::read_dir(pins(switch)).expect("there").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("aside")).collect()
}

/// A switch on a0 and b0, each of which is one end of a link.
fn attached_to_two() -> Switch {
    let switch = Switch::load(&[trial()], &[tenant(SIGNED, NUMBER)]);
    for link in ["a", "b"] {
        ip(&format!("link add {link}0 type veth peer name {link}1"));
        switch.dataplane().attach(&format!("{link}0"), Mode::Generic).expect("attached");
    }
    switch
}

#[test]
fn programs_go_on_with_their_own_until_the_last_link_runs_the_new_ones() {
    in_namespace(|| {
        let switch = attached_to_two();
        let new = again(&switch, 4).expect("taken over");
        let read = Message::read(SIGNED, b"note").frame().bytes();
        let consumes =
            |runner: &harness::Runner| runner.run(&read, None, &mut vec![]) == Verdict::Drop;
        let first = new.attach("a0", Mode::Generic).expect("taken over");
        assert!(first.taken_over && first.ifindex == ifindex("a0"));
        assert_eq!(aside(&switch).len(), 1, "one link still runs the old program");
        assert!(consumes(&switch.runner), "which still reaches its discipline");
        // A second one begins before the first is through.
        let newer = again(&switch, 4).expect("taken over");
        assert_eq!(aside(&switch).len(), 2);
        assert!(consumes(&switch.runner));
        newer.attach("a0", Mode::Generic).expect("taken over");
        newer.attach("b0", Mode::Generic).expect("taken over");
        ip("link del b0");
        ip("link add b0 type veth peer name b1");
        newer.attach("b0", Mode::Generic).expect("attached");
        assert_eq!(newer.port("b0"), Some(ifindex("b0")), "not the one that has gone");
        assert_eq!(aside(&switch), Vec::<String>::new());
    });
}

/// An agent that cannot begin is started again every second.
#[test]
fn starts_that_fail_leave_no_more_than_one_does() {
    in_namespace(|| {
        let switch = attached_to_two();
        let dataplane = switch.dataplane();
        let all = ["a0", "b0"].map(String::from);
        let attached = dataplane.attach_all(&all, Mode::Generic).expect("taken over");
        assert!(dataplane.recirculate(&attached, &Loops::default()).expect("ports"));
        let read = Message::read(SIGNED, b"note").frame().bytes();
        for names in [["gone0", "a0"], ["a0", "gone0"]] {
            for _ in 0..3 {
                let new = again(&switch, 4).expect("taken over");
                let refused = new.attach_all(&names.map(String::from), Mode::Generic);
                assert!(matches!(refused, Err(Error::NoInterface(_))), "{refused:?}");
                drop(new);
                assert_eq!(aside(&switch).len(), 1, "what the second one runs");
                assert_eq!(switch.runner.run(&read, None, &mut vec![]), Verdict::Drop);
            }
        }
        let new = again(&switch, 4).expect("taken over");
        let attached = new.attach_all(&all, Mode::Generic).expect("taken over");
        new.recirculate(&attached, &Loops::default()).expect("ports");
        assert_eq!(aside(&switch), Vec::<String>::new());
    });
}

/// An agent that is started again with fewer interfaces than before.
#[test]
fn interfaces_that_are_not_named_again_are_detached_and_hold_nothing_up() {
    in_namespace(|| {
        let switch = attached_to_two();
        let new = again(&switch, 4).expect("taken over");
        let attached = new.attach_all(&["a0".into()], Mode::Generic).expect("taken over");
        assert_eq!(aside(&switch).len(), 1, "the other still runs the old program");
        assert_eq!(new.keep_only(&attached).expect("detached"), ["b0"]);
        assert_eq!(aside(&switch), Vec::<String>::new());
        let there = dataplane::attached(switch.dataplane().home());
        assert_eq!(there, [("a0".to_owned(), ifindex("a0"))]);
        assert_eq!((new.port("a0"), new.port("b0")), (Some(ifindex("a0")), None));
        assert_eq!(new.keep_only(&attached).expect("nothing to do"), [""; 0]);
        let named_again = new.attach("b0", Mode::Generic).expect("it is free");
        assert!(!named_again.taken_over);
        assert_eq!(new.port("b0"), Some(ifindex("b0")));
    });
}

#[test]
fn what_only_counts_is_made_anew_and_other_tables_of_another_layout_are_refused() {
    let switch = Switch::load(&[trial()], &[tenant(SIGNED, NUMBER)]);
    let pinned =
        |name: &str| MapHandle::from_pinned_path(pins(&switch).join(name)).expect("pinned");
    let counters = pinned("counters").max_entries();
    replace(&switch, "counters", MapType::PercpuArray, 4, 8, 3);
    drop(again(&switch, 4).expect("taken over"));
    assert_eq!(pinned("counters").max_entries(), counters);

    let refused = |pages| match again(&switch, pages) {
        Err(Error::OtherLayout { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken over"),
    };
    assert_eq!(
        refused(5),
        "pages: Array of 4 entries, keys of 4 and values of 26560 bytes, \
         expected Array of 5 entries, keys of 4 and values of 26560 bytes"
    );
    let before = aside(&switch);
    switch.poke("config", 0, 28, &1u32.to_ne_bytes());
    assert_eq!(refused(4), "another build wrote them");
    switch.poke("config", 0, 28, &3u32.to_ne_bytes());
    replace(&switch, "tenants", MapType::Hash, 4, 64, 4096);
    assert!(refused(4).starts_with("tenants: Hash of 4096 entries, keys of 4 and values of 64"));
    replace(&switch, "trial_notes", MapType::Hash, 8, 16, 16);
    assert_eq!(aside(&switch), before, "nothing was changed");
}
