//! Labs of real namespaces: addresses, routes, faulty links, and that nothing is left behind.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    path::Path,
    process::{Command, Stdio},
};

use lab::{
    namespace::within,
    process::ProcessId,
    rack::{Lab, unique_name},
    state::State,
};
use plan::topology::Topology;

use super::support::{PATIENCE, needs_root, on_a_run_of_its_own, roles};

const CHAIN: &str = r#"
    [[host]]
    name = "left"
    [[host]]
    name = "right"
    [[switch]]
    name = "s1"
    [[switch]]
    name = "s2"
    [[link]]
    ends = ["left", "s1"]
    [[link]]
    ends = ["s1", "s2"]
    [[link]]
    ends = ["s2", "right"]
"#;

#[test]
fn streams_cross_two_switches_over_both_address_families() {
    needs_root();
    roles();
    let lab = Lab::create(&unique_name(), Topology::parse(CHAIN).unwrap(), false).unwrap();
    for address in ["10.0.3.1", "fd00:0:0:3::1"] {
        let listen = || Ok(TcpListener::bind((address, 0))?);
        let listener = within(&lab.namespace("right"), listen).unwrap();
        let to = listener.local_addr().unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let copy = sent.clone();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&copy).unwrap();
        });
        let connect = || Ok(TcpStream::connect_timeout(&to, PATIENCE)?);
        let mut stream = within(&lab.namespace("left"), connect).unwrap();
        let mut received = vec![];
        stream.read_to_end(&mut received).unwrap();
        server.join().unwrap();
        assert!(received == sent, "{address}: {} bytes arrived", received.len());
    }
}

#[test]
fn a_faulty_link_loses_and_duplicates_as_told() {
    needs_root();
    roles();
    let text = r#"
        [[host]]
        name = "a"
        [[host]]
        name = "b"
        [[link]]
        ends = ["a", "b"]
        fault = { loss = 0.1, duplicate = 0.05, seed = 3 }
    "#;
    let lab = Lab::create(&unique_name(), Topology::parse(text).unwrap(), false).unwrap();
    let bind = || Ok(UdpSocket::bind("0.0.0.0:9")?);
    let from = within(&lab.namespace("a"), bind).unwrap();
    let to = within(&lab.namespace("b"), bind).unwrap();
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    const FRAMES: u32 = 4000;
    /// Frames on their way: fewer than wait at a socket, or for a neighbour to be found.
    const TOGETHER: u32 = 32;
    let mut seen = vec![0u8; (FRAMES + TOGETHER) as usize];
    let mut buffer = [0; 2000];
    for first in (0..FRAMES + TOGETHER).step_by(TOGETHER as usize) {
        for number in first..first + TOGETHER {
            let mut frame = [0; 1000];
            frame[..4].copy_from_slice(&number.to_be_bytes());
            from.send_to(&frame, "10.0.1.2:9").unwrap();
        }
        // They stay in order: once one of these has come, those before will not any more.
        let mut newest = 0;
        while newest < first {
            assert_eq!(to.recv(&mut buffer).expect("a frame"), 1000);
            newest = u32::from_be_bytes(buffer[..4].try_into().unwrap());
            seen[newest as usize] += 1;
        }
    }
    seen.truncate(FRAMES as usize);
    // It says what it did once it is told to end.
    let log = lab.dir().join("fault-1.log");
    let id = lab.process("fault-1").expect("the link's process");
    id.signal(libc::SIGTERM);
    lab::interrupt::wait_for("counts", PATIENCE, || {
        let text = std::fs::read_to_string(&log)?;
        Ok(text.lines().any(|line| line.contains("duplicated")).then_some(()))
    })
    .unwrap();
    let share = |of| seen.iter().filter(|count| **count == of).count() as f64 / f64::from(FRAMES);
    let (lost, twice) = (share(0), share(2));
    assert!((lost - 0.1).abs() < 0.025, "{lost} lost");
    assert!((twice - 0.045).abs() < 0.02, "{twice} twice");
}

fn namespaces_of(lab: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return 0 };
    let prefix = format!("ss-{lab}-");
    entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(&prefix)).count()
}

#[test]
fn nothing_is_left_after_a_lab_is_dropped() {
    needs_root();
    roles();
    let name = unique_name();
    let lab = Lab::create(&name, Topology::parse(CHAIN).unwrap(), false).unwrap();
    assert_eq!(namespaces_of(&name), 4);
    let again = Lab::create(&name, Topology::parse(CHAIN).unwrap(), false);
    let error = format!("{:#}", again.err().expect("the name is taken"));
    assert!(error.contains("lab down"), "{error}");
    assert_eq!(namespaces_of(&name), 4, "the failed attempt must not touch the lab that is there");
    let dir = lab.dir();
    drop(lab);
    assert_eq!(namespaces_of(&name), 0);
    assert!(!dir.exists() && State::load(&name).is_err());
}

#[test]
fn what_a_killed_owner_left_is_removed() {
    needs_root();
    // Whoever starts a lab removes stale ones.
    on_a_run_of_its_own(removes_what_a_killed_owner_left);
}

fn removes_what_a_killed_owner_left() {
    let name = unique_name();
    let mut owner =
        Command::new(roles()).args(["hold", &name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let state = State::load(&name).unwrap();
    let children: Vec<ProcessId> = state.processes.iter().map(|(_, id)| *id).collect();
    assert!(!state.is_stale() && children.len() == 1 && children[0].is_alive());
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(state.is_stale());
    assert_eq!(namespaces_of(&name), 2, "nobody could clean up");
    State::remove_stale();
    assert_eq!(namespaces_of(&name), 0);
    let end = || Ok((!children.iter().any(ProcessId::is_alive)).then_some(()));
    lab::interrupt::wait_for("children die with their owner", PATIENCE, end).unwrap();
    assert!(!Path::new("/run/shortstop/lab").join(format!("{name}.json")).exists());
}
