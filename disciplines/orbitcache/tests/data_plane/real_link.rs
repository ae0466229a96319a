//! The kernel's own loop: a client's socket, a veth pair, the recirculation port.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use dataplane::{Going, Loops, Mode};
use harness::{
    Switch,
    message::{client, secret_of, store},
    namespace::{in_namespace, ip, until},
};
use nix::sched::{CloneFlags, unshare};
use wire::Packet;

use crate::world::*;

/// Reads that are on their way at once.
const AT_ONCE: u64 = 6;
const ROUNDS: u64 = 300;

/// The client's end of the link, in a namespace of its own, with the store as its neighbour.
fn client_end() {
    ip("link set in1 up");
    ip("address add 10.0.0.1/24 dev in1");
    ip("address add fd00::1/64 dev in1 nodad");
    for host in ["10.0.0.2", "fd00::2"] {
        ip(&format!(
            "neigh add {host} lladdr 02:00:00:00:00:02 dev in1 nud permanent"
        ));
    }
}

fn connected(ipv6: bool) -> UdpSocket {
    let local = SocketAddr::new(client(ipv6).ip(), 0);
    let socket = UdpSocket::bind(local).expect("a socket");
    socket.connect(store(ipv6)).expect("a route");
    let patience = Some(Duration::from_millis(200));
    socket.set_read_timeout(patience).expect("a timeout");
    socket
}

/// Receives an answer; its number.
fn answer(socket: &UdpSocket) -> Option<u64> {
    let mut bytes = [0; 2048];
    let len = socket.recv(&mut bytes).ok()?;
    let packet = Packet::decode(&bytes[..len]).expect("a packet of ours");
    assert_eq!((packet.key, packet.value), (KEY, V));
    assert!(packet.tag_is_valid(&secret_of(SIGNED)));
    Some(packet.header.request)
}

/// Asks in bursts; every read is answered, in whatever order.
fn ask(ipv6: bool) {
    let socket = connected(ipv6);
    let send = |number| {
        let sent = socket.send(&read(SIGNED, number).payload());
        sent.expect("sent")
    };
    // Until the link is up packets may get lost.
    assert!((0..40).any(|_| send(1) > 0 && answer(&socket).is_some()));
    let mut again = 0;
    for round in 1..=ROUNDS {
        let mut numbers: Vec<u64> = (0..AT_ONCE).map(|n| round * 100 + n).collect();
        while !numbers.is_empty() {
            for number in &numbers {
                send(*number);
            }
            while let Some(number) = (!numbers.is_empty()).then(|| answer(&socket)).flatten() {
                numbers.retain(|waited| *waited != number);
            }
            again += numbers.len();
        }
    }
    // A datagram may get lost where the machine has other things to do.
    let most = usize::try_from(ROUNDS * AT_ONCE / 100).expect("few");
    println!("{again} reads were asked again");
    assert!(again <= most, "{again} reads were asked again");
}

fn goes_round(mode: Mode) {
    in_namespace(move || {
        let mut w = world();
        w.cached(SIGNED, KEY, V);
        ip("link add in0 type veth peer name in1");
        ip("link set in0 address 02:00:00:00:00:02");
        ip("link set in0 up");
        let (link_is_there, moved) = mpsc::channel();
        let (namespace_is_there, path) = mpsc::channel();
        let asking = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let thread = nix::unistd::gettid();
            let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
            namespace_is_there.send(path).expect("waits");
            moved.recv().expect("the link");
            client_end();
            // The far end of a native program must be native as well: a switch without tenants passes all.
            let far = Switch::load(&[], &[]);
            far.dataplane().attach("in1", mode).expect("attaching");
            [false, true].into_iter().for_each(ask);
        });
        let path = path.recv().expect("a path");
        ip(&format!("link set in1 netns {path}"));
        let dataplane = w.switch.dataplane();
        let attached = dataplane.attach("in0", mode).expect("attaching");
        let loops = Loops {
            ports: 2,
            cpu: Some(1),
        };
        let made = dataplane.recirculate(&[attached], &loops);
        assert!(made.expect("ports"));
        let going = Going::of(dataplane.home());
        assert_eq!((going.ports.len(), going.cpu), (2, Some(1)));
        link_is_there.send(()).expect("waits");
        asking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let count = |name| w.switch.counters.get(name).expect("counters");
        println!(
            "{mode:?}: {:?}",
            w.switch
                .counts()
                .iter()
                .filter(|(_, n)| *n > 0)
                .collect::<Vec<_>>()
        );
        assert!(count("wake") > 0 && count("hit_round") > ROUNDS);
        assert_eq!(count("wait_late") + count("round_gone"), 0);
        // Nobody asks any more.
        until("everything has parked", || {
            count("round_parked") + count("round_stale") == count("wake")
        });
        let rounds = count("recirculate");
        thread::sleep(Duration::from_millis(200));
        assert_eq!(count("recirculate"), rounds, "an idle switch is idle");
    });
}

#[test]
fn values_go_round_in_the_driver() {
    goes_round(Mode::Native);
}

#[test]
fn values_go_round_in_generic_mode() {
    goes_round(Mode::Generic);
}
