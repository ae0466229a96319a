//! Hits over a link: a client's socket, a veth pair, the program in the driver. A packet cannot grow at its tail there, so
//! the front moves into the head room, as far as that goes (some 200 bytes).

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use dataplane::Mode;
use nix::sched::{CloneFlags, unshare};
use wire::Packet;

use harness::{
    Message, Switch,
    message::{client, store},
    namespace::{in_namespace, ip},
};

use crate::world::*;

/// Sends `request` until a reply comes; a datagram may get lost while the link comes up.
fn ask(socket: &UdpSocket, request: &[u8]) -> Vec<u8> {
    const TRIES: u32 = 40;
    let mut reply = [0; 2048];
    for _ in 0..TRIES {
        socket.send(request).expect("sent");
        match socket.recv(&mut reply) {
            Ok(len) => return reply[..len].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => panic!("receiving: {error}"),
        }
    }
    panic!("no reply to {TRIES} requests");
}

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
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a timeout");
    socket
}

#[test]
fn a_request_is_answered_with_a_larger_reply_in_the_driver() {
    in_namespace(|| {
        let mut w = world();
        let values: Vec<(Vec<u8>, Vec<u8>)> = [
            (16, 128),
            (1, 200),
            (16, 61),
            (250, 190),
            (3, 77),
            (16, 700),
            (16, 1356),
        ]
        .map(long_item)
        .to_vec();
        for (key, value) in &values {
            w.cached(SIGNED, key, value);
        }
        ip("link add in0 type veth peer name in1");
        ip("link set in0 address 02:00:00:00:00:02");
        ip("link set in0 up");
        let (link_is_there, moved) = mpsc::channel();
        let (namespace_is_there, path) = mpsc::channel();
        let asking = thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let thread = nix::unistd::gettid();
            namespace_is_there
                .send(format!("/proc/self/task/{thread}/ns/net"))
                .expect("waits");
            moved.recv().expect("the link");
            client_end();
            // The far end of a native program must be native as well: a switch without tenants passes all.
            let far = Switch::load(&[], &[]);
            far.dataplane()
                .attach("in1", Mode::Native)
                .expect("attaching");
            for ipv6 in [false, true] {
                let socket = connected(ipv6);
                for (key, value) in &values {
                    let read = Message::read(SIGNED, key).padded(padding_for(value.len()));
                    let reply = ask(&socket, &read.payload());
                    let packet = Packet::decode(&reply).expect("a packet of ours");
                    assert_eq!((packet.key, packet.value), (&key[..], &value[..]));
                    assert!(packet.tag_is_valid(&harness::message::secret_of(SIGNED)));
                }
            }
        });
        let path = path
            .recv()
            .expect("a path")
            .replace("self", &std::process::id().to_string());
        ip(&format!("link set in1 netns {path}"));
        w.switch
            .dataplane()
            .attach("in0", Mode::Native)
            .expect("attaching");
        link_is_there.send(()).expect("waits");
        asking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let count = |name| w.switch.counters.get(name).expect("counters");
        assert!(count("hit") >= 14);
        assert_eq!((count("bypass_no_room"), count("miss")), (0, 0));
    });
}

/// What fits neither tail nor head room must have been padded for.
fn padding_for(value_len: usize) -> usize {
    if value_len <= 200 { 0 } else { value_len }
}

fn long_item((key_len, value_len): (usize, usize)) -> (Vec<u8>, Vec<u8>) {
    let value = (0..value_len).map(|i| (i % 251) as u8).collect();
    (
        vec![b'k'; key_len - 1]
            .into_iter()
            .chain([value_len as u8])
            .collect(),
        value,
    )
}
