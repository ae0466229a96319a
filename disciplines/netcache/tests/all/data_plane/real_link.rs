//! Hits over a link: a client's socket, a veth pair, the program in the driver. A packet cannot
//! grow at its tail there, so the front moves into the head room, as far as that goes (some 200
//! bytes).

use std::{io, net::UdpSocket, time::Duration};

use dataplane::Mode;
use wire::Packet;

use harness::{
    Message, Switch,
    namespace::{across_a_link, connected, in_namespace},
};

use super::world::*;

/// After which a request is sent again: a datagram may get lost while the link comes up.
const AGAIN: Duration = Duration::from_millis(100);
/// Enough for whatever else the machine does meanwhile.
const TRIES: u32 = 900;

/// Sends the request with this number until its reply comes. What was only late, of one that was
/// sent twice, is left out.
fn ask(socket: &UdpSocket, number: u64, request: Message) -> Vec<u8> {
    let request = request.numbered(number).payload();
    let mut reply = [0; 2048];
    for _ in 0..TRIES {
        socket.send(&request).expect("sent");
        loop {
            match socket.recv(&mut reply) {
                Ok(len) => {
                    let packet = Packet::decode(&reply[..len]).expect("a packet of ours");
                    if packet.header.request == number {
                        return reply[..len].to_vec();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("receiving: {error}"),
            }
        }
    }
    panic!("no reply to {TRIES} requests");
}

#[test]
fn a_request_is_answered_with_a_larger_reply_in_the_driver() {
    in_namespace(|| {
        let mut w = world();
        let values: Vec<(Vec<u8>, Vec<u8>)> =
            [(16, 128), (1, 200), (16, 61), (250, 190), (3, 77), (16, 700), (16, 1356)]
                .map(long_item)
                .to_vec();
        for (key, value) in &values {
            w.cached(SIGNED, key, value);
        }
        let attach = |switch: &Switch, interface| {
            let attached = switch.dataplane().attach(interface, Mode::Native);
            attached.expect("attaching");
        };
        let there = move || {
            // The far end of a native program must be native as well: a switch without tenants
            // passes all.
            let far = Switch::load(&[], &[]);
            attach(&far, "in1");
            for ipv6 in [false, true] {
                let socket = connected(ipv6, AGAIN);
                for (number, (key, value)) in (1..).zip(&values) {
                    let read = Message::read(SIGNED, key).padded(padding_for(value.len()));
                    let reply = ask(&socket, number, read);
                    let packet = Packet::decode(&reply).expect("a packet of ours");
                    assert_eq!((packet.key, packet.value), (&key[..], &value[..]));
                    assert!(packet.tag_is_valid(&harness::message::secret_of(SIGNED)));
                }
            }
        };
        across_a_link(|| attach(&w.switch, "in0"), there);
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
    (vec![b'k'; key_len - 1].into_iter().chain([value_len as u8]).collect(), value)
}
