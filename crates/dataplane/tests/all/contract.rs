//! What `bpf/discipline.h` offers, by a discipline that uses all of it
//! (`lab/harness/bpf/trial.bpf.c`): steps, maps of its own, parameter words, given records,
//! fan-out, recirculation.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use dataplane::{Error, Loops, Mode, Object, Rows, TALLIES, Tallies, TenantEntry};
use harness::{
    Message, SeenFrame, Switch, Verdict, World,
    message::store,
    namespace::{ifindex, in_namespace, ip, sysctl, until, without_checksums},
    switch::{pin_to_cpu, tenant},
};
use wire::{Op, Packet};

const SIGNED: u32 = 7;
const NUMBER: u32 = 4;
const NOTES: u32 = 64;
const ROUNDS: u32 = 10;
const GROUP: u32 = 1;
/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);

fn trial() -> Object {
    Object { maps: vec![("trial_notes", NOTES)], ..harness::trial(NUMBER) }
}

fn tenants() -> [TenantEntry; 1] {
    [TenantEntry { parameters: [ROUNDS, GROUP], ..tenant(SIGNED, NUMBER) }]
}

fn switch() -> Switch {
    Switch::load(&[trial()], &tenants())
}

fn rows(switch: &Switch, map: &str) -> Rows {
    Rows::open(switch.backing(), "trial", map).expect("a map of its own")
}

/// `struct note_key` and `struct note`.
fn note_key(letter: u8) -> Vec<u8> {
    [SIGNED.to_ne_bytes(), u32::from(letter).to_ne_bytes()].concat()
}
const EMPTY_NOTE: [u8; 24] = [0; 24];

/// Packets, both parameter words, round, base.
fn note(rows: &Rows, letter: u8) -> (u64, [u32; 4]) {
    let note = rows.get(&note_key(letter)).expect("readable").expect("a row");
    let word = |at: usize| u32::from_ne_bytes(note[at..at + 4].try_into().expect("four bytes"));
    let packets = u64::from_ne_bytes(note[..8].try_into().expect("eight bytes"));
    (packets, [8, 12, 16, 20].map(word))
}

/// What one packet with this key moves.
fn moved(switch: &Switch, key: &[u8]) -> Vec<&'static str> {
    let run = switch.run(&Message::read(SIGNED, key).frame().bytes(), None);
    run.moved.into_keys().collect()
}

#[test]
fn the_first_step_finds_the_tenants_words_and_goes_on_in_others() {
    let switch = switch();
    let notes = rows(&switch, "trial_notes");
    notes.write(&note_key(b'n'), &EMPTY_NOTE).expect("room");
    assert_eq!(moved(&switch, b"n"), ["consume"]);
    assert_eq!(note(&notes, b'n'), (1, [ROUNDS, GROUP, 0, NUMBER * 8]));
    TenantEntry::set_parameters(switch.backing(), &[(SIGNED, [5, 6])]).expect("tenants");
    assert_eq!(moved(&switch, b"n"), ["consume"]);
    assert_eq!(note(&notes, b'n'), (2, [5, 6, 0, NUMBER * 8]));
    assert_eq!(moved(&switch, b"c"), ["drop_refused"], "a third step, which finds no item");
    assert_eq!(moved(&switch, b"m"), ["bypass_no_step", "pass_local"]);
    assert_eq!(moved(&switch, b"x"), ["pass_local"]);
    assert_eq!(moved(&switch, b"f"), ["bypass_no_group", "pass_local"]);
    assert_eq!(moved(&switch, b"r"), ["bypass_no_recirculation", "pass_local"]);
}

#[test]
fn tallies_stay_their_tenants_whoever_comes_and_goes() {
    let switch = switch();
    let home = &switch.backing();
    let tallies = Tallies::open(home).expect("a table");
    let counted = |tenant| tallies.read(tenant).expect("a table").map(|all| all[5]);
    moved(&switch, b"x");
    moved(&switch, b"y");
    let mut counts = [0; TALLIES];
    counts[5] = 2;
    assert_eq!(tallies.read(SIGNED).unwrap(), Some(counts));
    let [signed] = tenants();
    let [other, third] = [3, 5].map(|id| tenant(id, NUMBER));
    for all in [&[other, signed, third][..], &[third, signed]] {
        TenantEntry::install(home, all).expect("tenants");
        moved(&switch, b"x");
    }
    assert_eq!(counted(SIGNED), Some(4));
    assert_eq!((counted(5), counted(3)), (Some(0), None));
}

#[test]
fn rows_are_of_the_maps_own_lengths() {
    let switch = switch();
    let notes = rows(&switch, "trial_notes");
    for n in 0..NOTES {
        notes.write(&note_key(n as u8), &EMPTY_NOTE).expect("sized when loaded");
    }
    assert!(notes.write(&note_key(200), &EMPTY_NOTE).is_err(), "it is full");
    assert_eq!(notes.list().expect("readable").len(), NOTES as usize);
    for n in 0..NOTES {
        notes.delete(&note_key(n as u8)).expect("there or not");
        notes.delete(&note_key(n as u8)).expect("there or not");
    }
    assert_eq!(notes.list().expect("readable"), []);
    let wrong = |result: Result<(), Error>| result.expect_err("a wrong length").to_string();
    assert_eq!(
        wrong(notes.write(b"short", &EMPTY_NOTE)),
        "map trial_notes: a key of 5 bytes, expected 8"
    );
    assert_eq!(
        wrong(notes.write(&note_key(1), b"")),
        "map trial_notes: a value of 0 bytes, expected 24"
    );
    for (map, why) in [
        ("tenants", "it is not a map of trial"),
        ("trial_other", "trial has no such map here"),
        ("trial_groups", "it is a ArrayOfMaps, which has no rows"),
    ] {
        let opened = Rows::open(switch.backing(), "trial", map);
        let error = opened.err().expect("refused").to_string();
        assert_eq!(error, format!("map {map}: {why}"));
    }
}

#[test]
fn an_object_that_is_not_as_it_says_is_refused() {
    let loaded = |object: Object| {
        let home = dataplane::Home::new(&format!("test-wrong-{}", std::process::id()));
        let home = home.expect("a fine name");
        let sizes = dataplane::Sizes { pages: 1 };
        let error = dataplane::Dataplane::load(home.clone(), &[object], sizes).err();
        assert!(!home.exists(), "nothing is left behind");
        error.expect("refused").to_string()
    };
    let rows: [(Object, &str); 5] = [
        (Object { number: 15, ..trial() }, "its number is 15, expected one below 15"),
        (Object { steps: vec![], ..trial() }, "it has 0 steps, expected 1 to 8"),
        (Object { steps: vec!["nothing"], ..trial() }, "its object has no program nothing"),
        (Object { egress: Some("nothing"), ..trial() }, "its object has no program nothing"),
        (Object { maps: vec![("trial_x", 1)], ..trial() }, "it has no map trial_x"),
    ];
    for (object, why) in rows {
        assert_eq!(loaded(object), format!("discipline trial: {why}"));
    }
    let error = loaded(Object { maps_of: "other", maps: vec![], ..trial() });
    assert!(error.contains("must be named other_..."), "{error}");
}

fn pair(n: u64) -> Vec<u8> {
    [n.to_ne_bytes(), n.to_ne_bytes()].concat()
}

/// The record that a read is answered with.
fn answer(frame: &[u8]) -> Vec<u8> {
    let seen = SeenFrame::read(frame).expect("a right packet");
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    assert!(
        packet.header.op == Op::ReadReply
            && packet.tag_is_valid(&harness::message::secret_of(SIGNED))
    );
    packet.value.to_vec()
}

#[test]
fn a_given_record_is_there_at_once_and_changes_in_place() {
    let mut w = World::new(&[trial()], &tenants());
    let place = w.given(SIGNED, b"counter", &pair(40), 64);
    let read = || {
        let read = Message::read(SIGNED, b"counter").without_checksum();
        let run = w.switch.run(&read.frame().bytes(), None);
        assert_eq!((run.verdict, run.moved.get("answer")), (Verdict::Tx, Some(&1)));
        answer(&run.frame)
    };
    assert_eq!(read(), pair(40));
    w.send_as("answer", Message::write(SIGNED, b"counter", b""));
    assert_eq!((read(), w.switch.table.given(place)), (pair(41), Ok(pair(41))));
    assert_eq!(w.switch.table.set_given(place, &pair(7)), Ok(true));
    assert_eq!(read(), pair(7));
    assert_eq!(w.switch.table.set_given(place, &[0; 1400]), Ok(false), "it does not fit");
    let held = &w.switch.table.scan()[0];
    assert_eq!((held.lease, held.valid, held.value_len), (dataplane::NO_LEASE, true, 16));
    w.send_as("drop_refused", Message::read(SIGNED, b"counters"));
}

#[test]
fn a_given_record_is_never_torn_and_no_change_is_lost() {
    const CHANGES: u64 = 40_000;
    let mut w = World::new(&[trial()], &tenants());
    let place = w.given(SIGNED, b"counter", &pair(0), 16);
    let other = w.switch.another_runner();
    let (done, has_read) = (AtomicBool::new(false), AtomicBool::new(false));
    // So many changes, and more until somebody has read.
    let add = |runner: &harness::Runner| {
        let add = Message::write(SIGNED, b"counter", b"").frame().bytes();
        let (mut out, mut tried, mut added) = (vec![], 0, 0);
        let began = Instant::now();
        while tried < CHANGES || !has_read.load(Relaxed) {
            assert!(began.elapsed() < PATIENCE, "nobody reads");
            tried += 1;
            added += u64::from(runner.run(&add, None, &mut out) == Verdict::Tx);
        }
        added
    };
    let (mut reads, mut added) = (0, 0);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            pin_to_cpu(1);
            let added = add(&other);
            done.store(true, Relaxed);
            added
        });
        while !done.load(Relaxed) {
            if let Ok(record) = w.switch.table.given(place) {
                assert_eq!(record[..8], record[8..]);
                reads += 1;
                has_read.store(true, Relaxed);
            }
            let read = Message::read(SIGNED, b"counter").without_checksum().frame().bytes();
            let mut out = vec![];
            if w.switch.runner.run(&read, None, &mut out) == Verdict::Tx {
                let record = answer(&out);
                assert_eq!(record[..8], record[8..]);
                reads += 1;
            }
            let write = Message::write(SIGNED, b"counter", b"").frame().bytes();
            added += u64::from(w.switch.runner.run(&write, None, &mut out) == Verdict::Tx);
        }
        added += adding.join().expect("no panic");
    });
    println!("{added} changes, {reads} reads");
    assert!(reads > 0 && added > CHANGES / 2);
    assert_eq!(w.switch.table.given(place), Ok(pair(added)));
}

/// A link that was just set up drops what is sent until the kernel has given it a queue.
fn links_pass_packets() -> bool {
    let shown = std::process::Command::new("ip").args(["-o", "link", "show", "up"]).output();
    let shown = shown.expect("iproute2").stdout;
    !String::from_utf8_lossy(&shown).contains(" qdisc noop ")
}

/// Packets come in by `in0`, sent at `in1`; `out0` and `out1` lead to hosts 10.0.1.1 and 10.0.2.1
/// at `host0` and `host1`, and 10.0.0.2 is routed there. A far switch without tenants passes what
/// hosts get to their stacks.
fn network(switch: &Switch, mode: Mode) -> (UdpSocket, Switch, Vec<dataplane::Attachment>) {
    sysctl("ipv4/ip_forward", "1");
    for (link, peer) in [("in0", "in1"), ("out0", "host0"), ("out1", "host1")] {
        ip(&format!(
            "link add {link} type veth peer name {peer}
             link set {link} up
             link set {peer} up"
        ));
    }
    ip("link set in0 address 02:00:00:00:00:10
        address add 10.0.0.1/32 dev in1
        neigh add 10.0.0.2 lladdr 02:00:00:00:00:10 dev in1 nud permanent
        route add 10.0.0.2/32 dev in1 table 7
        rule add from 10.0.0.1 iif lo lookup 7
        route add 10.0.0.2/32 dev out0
        neigh add 10.0.0.2 lladdr 02:00:00:00:01:00 dev out0 nud permanent");
    for n in 0..2 {
        ip(&format!(
            "link set host{n} address 02:00:00:00:01:0{n}
             address add 10.0.{}.1/32 dev host{n}",
            n + 1
        ));
        sysctl(&format!("ipv4/conf/host{n}/accept_local"), "1");
    }
    let far = Switch::load(&[], &[]);
    let attach = |switch: &Switch, port: &str, mode| {
        switch.dataplane().attach(port, mode).expect("attaching")
    };
    for port in ["in1", "host0", "host1"] {
        attach(&far, port, if mode == Mode::Native { Mode::Native } else { Mode::Generic });
    }
    let attached = ["in0", "out0", "out1"].map(|port| attach(switch, port, mode));
    until("links pass packets", links_pass_packets);
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 0, 0, 1), 40_001)).expect("a socket");
    without_checksums(&socket);
    socket.connect(store(false)).expect("a route");
    (socket, far, attached.to_vec())
}

/// What the kernel counts of each link here, and of the protocols above them.
fn link_counts() -> String {
    let shown = std::process::Command::new("ip").args(["-s", "link", "show"]).output();
    let links = String::from_utf8_lossy(&shown.expect("iproute2").stdout).into_owned();
    let protocols = ["snmp", "netstat"].map(|name| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    });
    links + &protocols.concat()
}

fn copies(mode: Mode) {
    in_namespace(move || {
        let switch = switch();
        let (socket, _far, _) = network(&switch, mode);
        let hosts = rows(&switch, "trial_hosts");
        let receivers = [0u8, 1].map(|n| {
            let mut name = format!("out{n}").into_bytes();
            name.resize(16, 0);
            let address = [10, 0, n + 1, 1];
            let host = [&[2, 0, 0, 0, 1, n, 0, 0][..], &address].concat();
            hosts.write(&name, &host).expect("room");
            let receiver =
                UdpSocket::bind(SocketAddr::from((address, wire::PORT))).expect("a socket");
            receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            receiver
        });
        let ports = ["out0", "out1"].map(|name| switch.dataplane().port(name).expect("attached"));
        assert_eq!(ports, ["out0", "out1"].map(ifindex));
        switch.dataplane().set_group("trial_groups", GROUP, &ports).expect("a group");
        let receive = |receiver: &UdpSocket| {
            let mut bytes = [0; 2048];
            let len = receiver.recv(&mut bytes).unwrap_or_else(|e| {
                let counted = switch.counters.read().expect("counters");
                let counted: Vec<_> = counted.iter().filter(|(_, count)| *count > 0).collect();
                panic!("no copy: {e}; the switch counted {counted:?}, and links {}", link_counts())
            });
            bytes[..len].to_vec()
        };
        let send = |number: u64| {
            let message = Message::write(SIGNED, b"for all", b"value").numbered(number);
            socket.send(&message.payload()).expect("sent");
            message.payload()
        };
        let whole = if mode == Mode::Native { 20 } else { 0 };
        for number in 1..=whole {
            let sent = send(number);
            for receiver in &receivers {
                assert_eq!(receive(receiver), sent);
            }
        }
        // In generic mode some kernels let copies share their bytes (docs/operations/drivers.md):
        // as many come as there are, but maybe all of them with the address of one.
        for number in whole + 1..=20 {
            let sent = send(number);
            let mut came = 0;
            until("both copies come", || {
                for receiver in &receivers {
                    receiver.set_nonblocking(true).expect("a socket");
                    let mut bytes = [0; 2048];
                    while let Ok(len) = receiver.recv(&mut bytes) {
                        assert_eq!(bytes[..len], sent);
                        came += 1;
                    }
                    receiver.set_nonblocking(false).expect("a socket");
                }
                came == receivers.len()
            });
        }
        // One that is alone has the address of its port in any mode.
        for (n, receiver) in receivers.iter().enumerate() {
            let dataplane = switch.dataplane();
            dataplane.set_group("trial_groups", GROUP, &ports[n..=n]).expect("a group");
            let sent = send(21 + n as u64);
            assert_eq!(receive(receiver), sent);
        }
        assert_eq!(switch.counters.get("fan_out").expect("counters"), 22);
        let refused = |result: Result<(), Error>| result.expect_err("refused").to_string();
        let dataplane = switch.dataplane();
        assert_eq!(
            refused(dataplane.set_group("trial_groups", 4, &ports)),
            "map trial_groups: group 4 of 4"
        );
        assert_eq!(
            refused(dataplane.set_group("trial_notes", 0, &ports)),
            "map trial_notes: it is no map of groups"
        );
        dataplane.set_group("trial_groups", GROUP, &[]).expect("no group");
        dataplane.set_group("trial_groups", GROUP, &[]).expect("no group");
        assert!(moved(&switch, b"f").contains(&"bypass_no_group"));
    });
}

#[test]
fn a_packet_is_copied_to_every_port_of_a_group_with_addresses_of_its_own() {
    copies(Mode::Native);
}

#[test]
fn a_packet_is_copied_in_generic_mode() {
    copies(Mode::Generic);
}

/// Whatever mode its interfaces were in before: what one redirects to another mode may be lost.
#[test]
fn the_ports_by_which_values_go_round_are_in_the_mode_of_the_interfaces() {
    in_namespace(|| {
        let switch = switch();
        let (_socket, _far, mut attached) = network(&switch, Mode::Generic);
        for mode in [Mode::Generic, Mode::Native, Mode::Generic] {
            attached.iter_mut().for_each(|port| port.mode = mode);
            let made = switch.dataplane().recirculate(&attached, &Loops::default());
            assert!(made.expect("a port"));
            let shown =
                std::process::Command::new("ip").args(["-o", "link"]).output().expect("iproute2");
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            let far: Vec<&str> = shown.lines().filter(|line| line.contains("-rec1@")).collect();
            assert_eq!(far.len(), 1, "{shown}");
            assert_eq!(far[0].contains(" xdpgeneric "), mode == Mode::Generic, "{}", far[0]);
        }
    });
}

fn sends_round(mode: Mode) {
    in_namespace(move || {
        let switch = switch();
        let (socket, far, attached) = network(&switch, mode);
        let loops = Loops::default();
        let made = switch.dataplane().recirculate(&attached, &loops);
        assert!(made.expect("a port"));
        assert!(switch.dataplane().recirculate(&attached, &loops).expect("the same port"));
        let port = switch.dataplane().port(dataplane::RECIRCULATION).expect("a port");
        let notes = rows(&switch, "trial_notes");
        notes.write(&note_key(b'r'), &EMPTY_NOTE).expect("room");
        let count = |name: &str| switch.counters.get(name).expect("counters");

        // The value says after how many rounds it leaves.
        socket.send(&Message::write(SIGNED, b"round", &[3]).payload()).expect("sent");
        until("a packet leaves", || count("forward") == 1);
        assert_eq!(
            (count("recirculate"), note(&notes, b'r')),
            (3, (4, [ROUNDS, GROUP, 3, NUMBER * 8]))
        );
        until("it arrives", || far.counters.get("bypass_unknown_tenant").expect("counters") >= 2);

        // Never, says this one.
        socket.send(&Message::write(SIGNED, b"round", &[0]).payload()).expect("sent");
        until("a packet ends", || count("drop_rounds") == 1);
        assert_eq!(count("recirculate"), 3 + u64::from(ROUNDS));
        assert_eq!(note(&notes, b'r').1[2], ROUNDS);

        // A copy goes round as well.
        switch.dataplane().set_group("trial_groups", GROUP, &[port]).expect("a group");
        notes.write(&note_key(b'f'), &EMPTY_NOTE).expect("room");
        socket.send(&Message::write(SIGNED, b"for all", &[2]).payload()).expect("sent");
        until("the copy leaves", || count("forward") == 2);
        assert_eq!((count("fan_out"), note(&notes, b'f').1[2]), (1, 2));

        // The link leaves with the switch.
        drop(switch);
        let mut links = dataplane::interfaces().into_iter();
        assert_eq!(links.find(|link| link.contains("-rec")), None);
    });
}

#[test]
fn a_packet_goes_round_in_the_driver_until_it_may_no_more() {
    sends_round(Mode::Native);
}

#[test]
fn a_packet_goes_round_in_generic_mode_until_it_may_no_more() {
    sends_round(Mode::Generic);
}
