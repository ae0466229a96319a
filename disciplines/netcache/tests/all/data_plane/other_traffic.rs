//! What is not ours passes to the kernel, byte for byte.

use harness::{Message, Switch, Verdict};

use super::world::*;

/// A read request's frame, changed.
fn changed(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Message::read(SIGNED, KEY).frame().bytes();
    change(&mut frame);
    frame
}

fn changed_ipv6(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Message::read(SIGNED, KEY).over_ipv6().frame().bytes();
    change(&mut frame);
    frame
}

fn to_port(port: u16) -> Vec<u8> {
    let mut read = Message::read(SIGNED, KEY);
    read.to.set_port(port);
    read.frame().bytes()
}

fn with_payload(payload: &[u8]) -> Vec<u8> {
    let mut frame = Message::read(SIGNED, KEY).frame();
    frame.payload = payload.into();
    frame.bytes()
}

const IP: usize = 14;
const UDP: usize = IP + 20;

#[test]
fn passes_unchanged() {
    let switch: Switch = world().switch;
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("TCP", changed(|f| f[IP + 9] = 6), "pass_not_ours"),
        ("ICMP", changed(|f| f[IP + 9] = 1), "pass_not_ours"),
        ("ARP", changed(|f| f[12..14].copy_from_slice(&[8, 6])), "pass_not_ours"),
        ("an 802.3 length", changed(|f| f[12..14].copy_from_slice(&[0, 100])), "pass_not_ours"),
        ("a first fragment", changed(|f| f[IP + 6] = 0x20), "pass_not_ours"),
        ("a later fragment", changed(|f| f[IP + 7] = 0x10), "pass_not_ours"),
        (
            "IP options",
            changed(|f| {
                f[IP] = 0x46;
                f.splice(UDP..UDP, [1, 1, 1, 1]);
            }),
            "pass_not_ours",
        ),
        ("an IPv4 header that says it is shorter", changed(|f| f[IP] = 0x44), "pass_not_ours"),
        ("IPv6 hop-by-hop options", changed_ipv6(|f| f[IP + 6] = 0), "pass_not_ours"),
        ("an IPv6 fragment", changed_ipv6(|f| f[IP + 6] = 44), "pass_not_ours"),
        ("ICMPv6", changed_ipv6(|f| f[IP + 6] = 58), "pass_not_ours"),
        (
            "two VLAN tags",
            changed(|f| {
                f.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
            }),
            "pass_not_ours",
        ),
        ("another port", to_port(7118), "pass_not_ours"),
        (
            "our port, another magic",
            with_payload(b"hello, is this a DNS server?"),
            "pass_other_magic",
        ),
        ("our port, no payload", with_payload(b""), "pass_other_magic"),
        ("Ethernet alone", changed(|f| f.truncate(14)), "pass_not_ours"),
        ("cut in the IP header", changed(|f| f.truncate(IP + 19)), "pass_not_ours"),
        ("cut in the UDP header", changed(|f| f.truncate(UDP + 7)), "pass_not_ours"),
        ("cut before the payload", changed(|f| f.truncate(UDP + 8)), "pass_other_magic"),
        (
            "cut in the VLAN tag",
            {
                let mut frame = Message::read(SIGNED, KEY).vlan(5).frame().bytes();
                frame.truncate(16);
                frame
            },
            "pass_not_ours",
        ),
        ("a UDP length below its header", changed(|f| f[UDP + 5] = 7), "pass_other_magic"),
    ];
    for (name, frame, ending) in rows {
        let run = switch.run(&frame, None);
        assert_eq!(run.moved.into_iter().collect::<Vec<_>>(), [(ending, 1)], "{name}");
        assert_eq!(run.verdict, Verdict::Pass, "{name}");
        assert_eq!(run.frame, frame, "{name}: changed");
    }
}
