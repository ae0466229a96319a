//! Parameter words, rows and groups.

use api::proto::{Configurations, TenantVersion};
use dataplane::{Mode, PARAMETERS, Rows};
use decide::{Configuration, Group, Row};
use harness::namespace::{ifindex, in_namespace, ip};

use super::*;

const NOTES: &str = "trial_notes";
const NOTE_BYTES: usize = 24;
const GROUPS: &str = "trial_groups";

/// `struct note_key`.
fn note(tenant: u32, letter: char) -> Vec<u8> {
    [tenant.to_ne_bytes(), u32::from(letter).to_ne_bytes()].concat()
}

fn row(tenant: u32, letter: char, value: u8) -> Row {
    Row {
        map: NOTES.into(),
        key: note(tenant, letter).into(),
        value: vec![value; NOTE_BYTES].into(),
    }
}

fn rows(rows: &[Row]) -> Configuration {
    Configuration { parameters: [5, 6], rows: rows.to_vec(), groups: vec![] }
}

fn group(index: u32, ports: &[&str]) -> Configuration {
    let ports = ports.iter().map(|port| (*port).into()).collect();
    Configuration {
        groups: vec![Group { map: GROUPS.into(), index, ports }],
        ..Configuration::default()
    }
}

impl Switch {
    /// Has a configuration made; the versions that are answered, with what was refused.
    fn configure(
        &mut self,
        version: u64,
        tenant: u32,
        configuration: &Configuration,
    ) -> Vec<(u64, String)> {
        self.heard();
        self.hear(to_switch::Body::Configurations(Configurations {
            term: 1,
            tenants: vec![convert::configuration_to(tenant, version, configuration)],
        }));
        self.configured()
    }

    fn end_window(&mut self) {
        self.now += Duration::from_secs(1);
        let now = self.now;
        self.tables().tick(now).unwrap();
    }

    fn configured(&mut self) -> Vec<(u64, String)> {
        let of = |body| match body {
            Body::Configured(configured) => configured.tenants,
            _ => vec![],
        };
        let all = self.heard().into_iter().flat_map(of);
        all.map(|TenantVersion { version, trouble, .. }| (version, trouble)).collect()
    }

    fn parameters(&self, tenant: u32) -> Option<[u32; PARAMETERS]> {
        let mut all = TenantEntry::parameters(self.place.backing()).unwrap().into_iter();
        all.find(|(id, _)| *id == tenant).map(|(_, words)| words)
    }

    fn notes(&self) -> Rows {
        Rows::open(self.place.backing(), "trial", NOTES).unwrap()
    }

    /// Tenant, letter and value of every note.
    fn noted(&self) -> Vec<(u32, char, u8)> {
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            let word = |at| u32::from_ne_bytes(key[at..at + 4].try_into().unwrap());
            let letter = char::from_u32(word(4)).unwrap();
            (word(0), letter, value[0])
        };
        let mut all: Vec<_> = self.notes().list().unwrap().into_iter().map(read).collect();
        all.sort_unstable();
        all
    }
}

fn fine(version: u64) -> Vec<(u64, String)> {
    vec![(version, String::new())]
}

#[test]
fn parameter_words_stay_through_setups_and_restarts() {
    let mut switch = Switch::start();
    assert_eq!(switch.parameters(CHAIN), Some([0, 0]));
    let words = Configuration::of([3, 4]);
    assert_eq!(switch.configure(1, CHAIN, &words), fine(1));
    assert_eq!(switch.parameters(CHAIN), Some([3, 4]));
    let tenants = [(CHAIN, "trial"), (COPIES, "copies")];
    switch.set_up(&tenants);
    switch.restart(1);
    switch.set_up(&tenants);
    assert_eq!(switch.parameters(CHAIN), Some([3, 4]));
    assert_eq!(switch.parameters(COPIES), Some([0, 0]));
    switch.set_up(&[(CHAIN, "copies"), (COPIES, "copies")]);
    assert_eq!(switch.parameters(CHAIN), Some([0, 0]), "they meant something else");
}

#[test]
fn the_last_configuration_counts_and_is_told_again() {
    let mut switch = Switch::start();
    let words = |word| Configuration::of([word, 0]);
    assert_eq!(switch.configure(5, CHAIN, &words(5)), fine(5));
    assert_eq!(switch.configure(4, CHAIN, &words(4)), []);
    assert_eq!(switch.configure(5, CHAIN, &words(5)), fine(5));
    assert_eq!(switch.parameters(CHAIN), Some([5, 0]));
    // For a tenant that comes with the next setup.
    assert_eq!(switch.configure(6, 10, &words(6)), []);
    switch.set_up(&[(CHAIN, "trial"), (10, "trial")]);
    assert_eq!(switch.configured(), fine(6));
    assert_eq!(switch.parameters(10), Some([6, 0]));
}

#[test]
fn what_the_stream_had_no_room_for_is_told_later() {
    let mut switch = Switch::start();
    let words = Configuration::of([1, 2]);
    while switch.out.len() < ROOM {
        switch.tables().tell_held();
    }
    switch.hear(to_switch::Body::Configurations(Configurations {
        term: 1,
        tenants: vec![convert::configuration_to(CHAIN, 1, &words)],
    }));
    assert_eq!(switch.configured(), []);
    switch.tables().tell_configured();
    assert_eq!(switch.configured(), fine(1));
    switch.tables().tell_configured();
    assert_eq!(switch.configured(), []);
}

#[test]
fn rows_are_replaced_as_a_whole() {
    let mut switch = Switch::start();
    let (a, b, c) = (row(CHAIN, 'a', 1), row(CHAIN, 'b', 1), row(CHAIN, 'c', 1));
    let other = rows(&[row(COPIES, 'a', 9)]);
    assert_eq!(switch.configure(1, COPIES, &other), fine(1));
    let first = rows(&[a.clone(), b]);
    assert_eq!(switch.configure(1, CHAIN, &first), fine(1));
    // A program counts in a row; the next configuration has it as before.
    switch.notes().write(&a.key, &[7; NOTE_BYTES]).unwrap();
    let second = rows(&[a.clone(), c]);
    assert_eq!(switch.configure(2, CHAIN, &second), fine(2));
    let noted = [(CHAIN, 'a', 7), (CHAIN, 'c', 1), (COPIES, 'a', 9)];
    assert_eq!(switch.noted(), noted);
    // An agent that knows nothing of them finds them.
    switch.restart(1);
    switch.set_up(&[(CHAIN, "trial"), (COPIES, "copies")]);
    assert_eq!(switch.noted(), noted);
    assert_eq!(switch.configure(3, CHAIN, &rows(&[a])), fine(3));
    assert_eq!(switch.noted(), [(CHAIN, 'a', 1), (COPIES, 'a', 9)]);
    switch.set_up(&[(COPIES, "copies")]);
    assert_eq!(switch.noted(), [(COPIES, 'a', 9)]);
    switch.restart(1);
    switch.set_up(&[(CHAIN, "trial")]);
    assert_eq!(switch.noted(), []);
}

#[test]
fn what_cannot_be_is_told_and_the_rest_is_in_force() {
    let mut switch = Switch::start();
    let good = row(CHAIN, 'a', 1);
    let with = |bad: Row| rows(&[bad, good.clone()]);
    let short = vec![0; 3].into();
    let bad = [
        (row(COPIES, 'a', 1), "does not begin with the number of tenant 7"),
        (Row { value: vec![0; 3].into(), ..good.clone() }, "a value of 3 bytes, expected 24"),
        (
            Row { key: [note(CHAIN, 'a'), vec![0]].concat().into(), ..good.clone() },
            "a key of 9 bytes, expected 8",
        ),
        (Row { map: "tenants".into(), ..good.clone() }, "it is not a map of trial"),
        (Row { map: "trial_none".into(), ..good.clone() }, "no such map"),
        (
            Row { map: GROUPS.into(), key: CHAIN.to_ne_bytes().to_vec().into(), value: short },
            "has no rows",
        ),
    ];
    for (version, (bad, why)) in (1..).zip(bad) {
        let answers = switch.configure(version, CHAIN, &with(bad));
        assert!(answers[0].1.contains(why), "{why}: {answers:?}");
        assert!(!answers[0].1.contains('\n'));
        assert_eq!(switch.noted(), [(CHAIN, 'a', 1)]);
        assert_eq!(switch.parameters(CHAIN), Some([5, 6]));
    }
    let two =
        Configuration { groups: group(0, &["nowhere"]).groups, ..rows(&[row(COPIES, 'a', 1)]) };
    let answers = switch.configure(20, CHAIN, &two);
    assert!(answers[0].1.ends_with("and 1 more"), "{answers:?}");
    assert_eq!(switch.noted(), []);
}

#[test]
fn groups_are_one_tenants_and_go_with_its_configuration() {
    in_namespace(|| {
        for link in ["left", "right"] {
            ip(&format!("link add {link} type veth peer name far-{link}"));
            ip(&format!("link set {link} up"));
        }
        let mut switch = Switch::start();
        let attach = |switch: &mut Switch| {
            for link in ["left", "right"] {
                let Programs::Kernel(dataplane) = switch.tables().configurations.programs() else {
                    unreachable!("it was loaded into the kernel")
                };
                dataplane.attach(link, Mode::Generic).unwrap();
            }
        };
        attach(&mut switch);
        let all = group(1, &["left", "right"]);
        assert_eq!(switch.configure(1, CHAIN, &all), fine(1));
        let taken = switch.configure(1, COPIES, &all);
        assert!(taken[0].1.contains("it is tenant 7's"), "{taken:?}");
        let wrong = switch.configure(2, CHAIN, &group(1, &["left", "middle"]));
        assert!(wrong[0].1.contains("not attached to middle"), "{wrong:?}");
        assert_eq!(switch.configure(2, COPIES, &all), fine(2));
        assert_eq!(groups(&switch), [1]);
        // An agent that knows nothing of them waits until everybody has said what he has.
        switch.restart(1);
        attach(&mut switch);
        switch.set_up(&[(CHAIN, "trial"), (COPIES, "copies")]);
        assert_eq!(switch.configure(3, CHAIN, &group(2, &["left"])), fine(3));
        assert_eq!(groups(&switch), [1, 2]);
        let none = Configuration::default();
        assert_eq!(switch.configure(3, COPIES, &none), fine(3));
        assert_eq!(groups(&switch), [2]);
    });
}

/// As an interface of a guest that restarts. Programs copy packets to what is in the group.
#[test]
fn a_group_has_the_interface_that_was_made_anew() {
    in_namespace(|| {
        ip("link add left type veth peer name far-left
            link add right type veth peer name far-right");
        let mut switch = Switch::start();
        let Programs::Kernel(dataplane) = switch.tables().configurations.programs() else {
            unreachable!("it was loaded into the kernel")
        };
        let names = ["left".to_owned(), "right".to_owned()];
        let attached = dataplane.attach_all(&names, Mode::Generic).unwrap();
        let kept = KeptPorts::new(&attached, &[], dataplane::Loops::default());
        switch.tables().keep_attached(kept);
        let both = group(1, &["left", "right"]);
        assert_eq!(switch.configure(1, CHAIN, &both), fine(1));
        assert_eq!(ports_of_group(&switch, 1), [ifindex("left"), ifindex("right")]);
        let before = ifindex("right");
        ip("link del right");
        ip("link add right type veth peer name far-right");
        assert_ne!(ifindex("right"), before);
        switch.end_window();
        assert_eq!(ports_of_group(&switch, 1), [ifindex("left"), ifindex("right")]);
        // What is asked for while there is none is in force as far as it can be.
        ip("link del right");
        switch.end_window();
        let other = group(2, &["right"]);
        assert!(switch.configure(2, CHAIN, &other)[0].1.contains("not attached to right"));
        ip("link add right type veth peer name far-right");
        switch.end_window();
        assert_eq!(ports_of_group(&switch, 2), [ifindex("right")]);
        assert_eq!(switch.configured(), fine(2), "the controller hears of it");
    });
}

/// The indexes of the interfaces of a group.
fn ports_of_group(switch: &Switch, index: u32) -> Vec<u32> {
    use libbpf_rs::{MapCore, MapFlags, MapHandle};
    let Place::Kernel(home) = &switch.place else { unreachable!("it was loaded into the kernel") };
    let path = format!("/sys/fs/bpf/shortstop/{}/{GROUPS}", home.name());
    let groups = MapHandle::from_pinned_path(path).unwrap();
    let Some(id) = groups.lookup(&index.to_ne_bytes(), MapFlags::ANY).unwrap() else {
        return vec![];
    };
    let group = MapHandle::from_map_id(u32::from_ne_bytes(id.try_into().unwrap())).unwrap();
    let port = |key: Vec<u8>| {
        let port = group.lookup(&key, MapFlags::ANY).unwrap()?;
        Some(u32::from_ne_bytes(*port.first_chunk()?)).filter(|port| *port != 0)
    };
    group.keys().filter_map(port).collect()
}

/// The groups that there are.
fn groups(switch: &Switch) -> Vec<u32> {
    use libbpf_rs::{MapCore, MapFlags, MapHandle};
    let Place::Kernel(home) = &switch.place else { unreachable!("it was loaded into the kernel") };
    let path = format!("/sys/fs/bpf/shortstop/{}/{GROUPS}", home.name());
    let map = MapHandle::from_pinned_path(path).unwrap();
    let is_there = |index: &u32| {
        let found = map.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        found.unwrap().is_some()
    };
    (0..map.max_entries()).filter(is_there).collect()
}
