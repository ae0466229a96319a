//! Packets that really leave: a namespace with two links, routes, a neighbour. No discipline is
//! loaded, so every admitted packet is only forwarded.

use std::net::IpAddr;

use dataplane::{
    Sizes, SourceCheck, Table, TenantEntry,
    native::{self, Clock, Fib, Route},
};
use harness::{
    Message, SeenFrame, Switch, Verdict,
    message::address,
    namespace::{ifindex, in_namespace, ip, sysctl},
    switch::tenant,
};

const SIGNED: u32 = 7;
const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 0x22];
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

/// Clients at 10.0.0.1 and fd00::1 behind `in0`; stores at 10.0.0.2 and fd00::2 behind `out0`.
fn router() -> Switch {
    sysctl("ipv4/ip_forward", "1");
    sysctl("ipv6/conf/all/forwarding", "1");
    for (link, peer) in [("in0", "in1"), ("out0", "out1"), ("off0", "off1")] {
        ip(&format!("link add {link} type veth peer name {peer}"));
        // The kernel's own packets to find neighbours and routers would be counted among those of
        // the test.
        sysctl(&format!("ipv6/conf/{peer}/disable_ipv6"), "1");
        ip(&format!("link set {peer} up"));
        ip(&format!("link set {link} up"));
    }
    // Where the tests' frames go. .3 has no neighbour entry.
    ip("link set in0 address 02:00:00:00:00:02
        link set out0 address 02:00:00:00:00:11
        route add 10.0.0.1/32 dev in0
        route add 10.0.0.2/31 dev out0
        route add 10.0.0.9/32 dev off0
        route add fd00::1/128 dev in0
        route add fd00::2/127 dev out0
        neigh add 10.0.0.2 lladdr 02:00:00:00:00:22 dev out0 nud permanent
        neigh add fd00::2 lladdr 02:00:00:00:00:22 dev out0 nud permanent
        neigh add 10.0.0.9 lladdr 02:00:00:00:00:99 dev off0 nud permanent");
    let switch = Switch::load(&[], &[tenant(SIGNED, 0)]);
    for port in ["in0", "out0"] {
        switch.dataplane().attach(port, dataplane::Mode::Generic).expect("attaching");
    }
    switch
}

fn read() -> Message {
    Message::read(SIGNED, b"key0000000000042").padded(129)
}

fn to_host(mut message: Message, last: u8) -> Message {
    message.to.set_ip(address(message.to.is_ipv6(), last));
    message
}

struct Row {
    name: &'static str,
    packet: Message,
    /// What it is counted as beside `bypass_no_discipline`.
    ending: &'static str,
}

fn row(name: &'static str, packet: Message, ending: &'static str) -> Row {
    Row { name, packet, ending }
}

/// Same packet, one hop on.
fn check_hop(name: &str, sent: &Message, frame: &[u8]) {
    let seen = SeenFrame::read(frame).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    let before = SeenFrame::read(&sent.frame().bytes()).expect("a right packet");
    let hop_limit = before.hop_limit - 1;
    let after = SeenFrame { to_mac: NEXT_HOP, from_mac: OWN, hop_limit, ..before };
    assert_eq!(seen, after, "{name}");
}

#[test]
fn to_the_next_hop() {
    in_namespace(|| {
        let switch = router();
        let rows = [
            row("IPv4", read(), "forward"),
            row("IPv4 without a UDP checksum", read().without_checksum(), "forward"),
            row("IPv4, hop limit 2", read().hop_limit(2), "forward"),
            row("IPv4, hop limit 255", read().hop_limit(255), "forward"),
            row("IPv6", read().over_ipv6(), "forward"),
            row("IPv6, hop limit 2", read().over_ipv6().hop_limit(2), "forward"),
            row("IPv4, hop limit 1", read().hop_limit(1), "pass_ttl"),
            row("IPv4, hop limit 0", read().hop_limit(0), "pass_ttl"),
            row("IPv6, hop limit 1", read().over_ipv6().hop_limit(1), "pass_ttl"),
            row("IPv4, no neighbour", to_host(read(), 3), "pass_no_neighbour"),
            row("IPv6, no neighbour", to_host(read().over_ipv6(), 3), "pass_no_neighbour"),
            row("no route", to_host(read(), 77), "pass_local"),
            row("an interface that is not the switch's", to_host(read(), 9), "pass_no_port"),
            row("a VLAN tag", read().vlan(5), "pass_vlan"),
        ];
        for Row { name, packet, ending } in rows {
            let frame = packet.frame().bytes();
            let run = switch.run(&frame, Some(ifindex("in0")));
            let mut moved: Vec<_> = run.moved.into_iter().collect();
            moved.retain(|counted| *counted != ("bypass_no_discipline", 1));
            assert_eq!(moved, [(ending, 1)], "{name}");
            if ending == "forward" {
                assert_eq!(run.verdict, Verdict::Redirect, "{name}");
                check_hop(name, &packet, &run.frame);
            } else {
                assert_eq!((run.verdict, run.frame), (Verdict::Pass, frame), "{name}");
            }
        }
    });
}

/// The checksum is not computed anew but counted on; both ends of its range are met.
#[test]
fn the_ipv4_checksum_is_right_after_every_hop_limit_and_source() {
    in_namespace(|| {
        let switch = router();
        let mut out = vec![];
        for last in 0..=255u8 {
            for hop_limit in [2, 3, 64, 128, 255] {
                let mut packet = read().hop_limit(hop_limit);
                packet.from.set_ip([10, 77, last, 255 - last].into());
                let verdict =
                    switch.runner.run(&packet.frame().bytes(), Some(ifindex("in0")), &mut out);
                assert_eq!(verdict, Verdict::Redirect);
                check_hop("source", &packet, &out);
            }
        }
    });
}

#[test]
fn a_packet_too_large_for_the_next_link_is_the_kernels() {
    in_namespace(|| {
        let switch = router();
        ip("link set out0 mtu 1300");
        for packet in [read().padded(1300), read().padded(1300).over_ipv6()] {
            let frame = packet.frame().bytes();
            let run = switch.run(&frame, Some(ifindex("in0")));
            assert_eq!(run.moved.get("pass_mtu"), Some(&1), "{:?}", run.moved);
            assert_eq!((run.verdict, run.frame), (Verdict::Pass, frame));
        }
    });
}

#[test]
fn a_host_that_does_not_forward_keeps_the_packet() {
    in_namespace(|| {
        let switch = router();
        sysctl("ipv4/ip_forward", "0");
        let frame = read().frame().bytes();
        let run = switch.run(&frame, Some(ifindex("in0")));
        assert_eq!(run.moved.get("pass_local"), Some(&1), "{:?}", run.moved);
        assert_eq!((run.verdict, run.frame), (Verdict::Pass, frame));
    });
}

/// A packet of ours from a source, and what it is counted as with each setting.
#[test]
fn sources_are_looked_at_as_the_setting_says() {
    const IN: &str = "forward";
    const DROPPED: &str = "drop_source";
    let by = |packet: Message, host: u8| {
        let ipv6 = packet.from.is_ipv6();
        packet.sent_by(address(ipv6, host))
    };
    let no_route = |packet: Message| packet.sent_by([10, 9, 9, 9].into());
    in_namespace(move || {
        let switch = router();
        ip("address add 10.0.0.100/32 dev in0");
        ip("route add blackhole 10.0.0.66/32");
        ip("route add 10.0.0.12/32 dev in0"); // without a neighbour
        let rows = [
            ("the interface's own", by(read(), 1), [IN, IN, IN]),
            ("likewise IPv6", read().over_ipv6(), [IN, IN, IN]),
            ("no neighbour yet", by(read(), 12), [IN, IN, IN]),
            ("of another", by(read(), 9), [IN, IN, DROPPED]),
            ("of another, IPv6", by(read().over_ipv6(), 2), [IN, IN, DROPPED]),
            ("no route", no_route(read()), [IN, DROPPED, DROPPED]),
            ("no route, IPv6", by(read().over_ipv6(), 99), [IN, DROPPED, DROPPED]),
            ("blackhole", by(read(), 66), [IN, DROPPED, DROPPED]),
            ("this host's", by(read(), 100), [IN, DROPPED, DROPPED]),
            ("a VLAN", read().vlan(5), ["pass_vlan"; 3]),
        ];
        for (name, packet, endings) in rows {
            let settings = [SourceCheck::Off, SourceCheck::Loose, SourceCheck::Strict];
            for (setting, ending) in settings.into_iter().zip(endings) {
                switch.table.check_sources(setting);
                let run = switch.run(&packet.frame().bytes(), Some(ifindex("in0")));
                let mut moved: Vec<_> = run.moved.into_iter().collect();
                moved.retain(|counted| *counted != ("bypass_no_discipline", 1));
                assert_eq!(moved, [(ending, 1)], "{name}, {setting:?}");
            }
        }
    });
}

/// The way back as the soft switch knows it.
struct Back;

impl Fib for Back {
    fn route(&self, _: IpAddr, to: IpAddr, _: u16, _: u32) -> Route {
        let by = |port| Route::By { port, from: OWN, to: NEXT_HOP };
        match to.to_string().as_str() {
            "10.0.0.1" | "fd00::1" => by(1),
            "10.0.0.2" | "fd00::2" => by(2),
            "10.0.0.12" => Route::NoNeighbour { port: 1 },
            "10.0.0.13" => Route::NoNeighbour { port: 2 },
            "10.0.0.14" => Route::NoNeighbour { port: 0 },
            "10.0.0.15" => Route::Off,
            _ => Route::None,
        }
    }
}

#[test]
fn a_soft_switch_looks_at_sources_too() {
    let sizes = Sizes { pages: 4 };
    let switch = native::Switch::new("test", &[], sizes, 1, Clock::Boot).unwrap();
    let switch = switch.routed(Box::new(Back));
    TenantEntry::install(&switch, &[tenant(SIGNED, 0)]).unwrap();
    switch.add_port(2, "out0").unwrap();
    let table = Table::open(&switch).unwrap();
    let mut cpu = native::Cpu::of(&switch, 0);
    let mut run = |packet: &Message| {
        let mut frame = native::Frame::new(&packet.frame().bytes());
        cpu.run(native::Program::Entry, &mut frame, 1, 0)
    };
    use native::Verdict::{Drop, Pass, To};
    let forged = [
        (1, [To(2), To(2)]),
        (2, [To(2), Drop]),
        (12, [To(2), To(2)]),
        (13, [To(2), Drop]),
        (14, [Pass, Pass]),
        (15, [Pass, Pass]),
        (77, [Drop, Drop]),
    ];
    for (host, verdicts) in forged {
        let packet = read().sent_by(address(false, host));
        assert_eq!(run(&packet), To(2), "{host}: any source may be");
        for (setting, verdict) in
            [SourceCheck::Loose, SourceCheck::Strict].into_iter().zip(verdicts)
        {
            table.check_sources(setting);
            assert_eq!(run(&packet), verdict, "{host}, {setting:?}");
        }
        table.check_sources(SourceCheck::Off);
    }
}
