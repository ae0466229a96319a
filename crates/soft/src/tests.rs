//! A switch between two hosts, each in a network namespace of its own, with the checksum offloads
//! that links of that kind have.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use dataplane::{
    Backing, Counters, Object, Programs, Rows, Sizes, TenantEntry,
    native::{Frame, Switch},
};
use harness::Message;
use lab::namespace::{ip, sysctls, within};
use wire::{Header, Op};

use crate::{LossCounts, Soft, tap::Sender};

/// How long a datagram may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one that comes twice is waited for.
const MOMENT: Duration = Duration::from_millis(100);

const MAC_OF_B: [u8; 6] = [2, 0, 0, 0x77, 0, 2];
/// The switch's towards `a`.
const MAC_TO_A: [u8; 6] = [2, 0, 0, 0x77, 1, 1];

/// Hosts `a` and `b`, and `s` between them.
struct Net(String);

impl Net {
    fn new(name: &str) -> Net {
        let net = Net(format!("ss-soft{}-{name}", std::process::id()));
        let run = |line: String| ip(&line.split(' ').collect::<Vec<_>>()).unwrap();
        let [a, b, s] = ["a", "b", "s"].map(|host| net.space(host));
        for space in [&a, &b, &s] {
            run(format!("netns add {space}"));
            sysctls(space, &[("net/ipv6/conf/default/accept_dad", "0")]).unwrap();
        }
        let forwarding = [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];
        sysctls(&s, &forwarding).unwrap();
        for (host, space, n) in [("a", &a, 1), ("b", &b, 2)] {
            run(format!(
                "link add name {host} netns {s} address 02:00:00:77:01:0{n} type veth peer name e netns {space} address 02:00:00:77:00:0{n}"
            ));
            for (space, link, last) in [(&s, host, 254), (space, "e", 1)] {
                run(format!("-n {space} link set dev {link} up"));
                run(format!("-n {space} addr add 10.77.{n}.{last}/24 dev {link}"));
                run(format!("-n {space} addr add fd77:{n}::{last:x}/64 dev {link} nodad"));
            }
            run(format!("-n {space} route add default via 10.77.{n}.254"));
            run(format!("-n {space} -6 route add default via fd77:{n}::fe"));
        }
        // A link that is up has a queue that drops all, until the kernel's watch of links has run.
        let drops = |space: &String| {
            let words = ["-n", space, "-o", "link", "show", "up"];
            let said = std::process::Command::new("ip").args(words).output().unwrap().stdout;
            String::from_utf8(said).unwrap().contains(" qdisc noop ")
        };
        let began = Instant::now();
        while [&a, &b, &s].into_iter().any(drops) {
            assert!(began.elapsed() < PATIENCE, "a link does not come up");
        }
        net
    }

    fn space(&self, host: &str) -> String {
        format!("{}{host}", self.0)
    }

    /// What keeps a switch from beginning on an interface of the host between; `None`: nothing.
    fn refusal(&self, interface: &str) -> Option<String> {
        let start = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let interfaces = [interface.to_owned()];
            let start = async { Soft::start("test", &interfaces, &[], Sizes { pages: 1 }).await };
            Ok(runtime.block_on(start).err().map(|e| e.to_string()))
        };
        within(&self.space("s"), start).unwrap()
    }

    /// A socket of a host, as other threads may use it.
    fn socket(&self, host: &str, address: &str) -> UdpSocket {
        let address = SocketAddr::new(address.parse().unwrap(), wire::PORT);
        within(&self.space(host), || Ok(UdpSocket::bind(address)?)).unwrap()
    }

    /// What `work` says while a switch without disciplines forwards, and then what the switch has
    /// to say.
    fn with_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, LossCounts, Counts) {
        self.with_objects(&[], |_| work())
    }

    /// Likewise with these programs; `work` may set them up.
    fn with_objects<T: Send>(
        &self,
        objects: &[Object],
        work: impl FnOnce(&Arc<Switch>) -> T + Send,
    ) -> (T, LossCounts, Counts) {
        let (started, is_started) = mpsc::channel();
        let (done, is_done) = tokio::sync::oneshot::channel();
        let serve = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let interfaces = ["a", "b"].map(String::from);
                let soft = Soft::start("test", &interfaces, objects, Sizes { pages: 1 }).await?;
                started.send(soft.switch().clone())?;
                let answer = is_done.await?;
                let counters = Counters::open(Backing::from(soft.switch()), [])?.read()?;
                let counts = counters.iter().map(|(c, value)| (c.name.to_owned(), *value));
                Ok((answer, soft.losses().now(), counts.collect()))
            })
        };
        std::thread::scope(|scope| {
            let switch = scope.spawn(|| within(&self.space("s"), serve));
            // An error means that it could not start, and says so below.
            if let Ok(switch) = is_started.recv() {
                let _ = done.send(work(&switch));
            }
            switch.join().unwrap().unwrap_or_else(|e| panic!("{e:#}"))
        })
    }
}

type Counts = std::collections::BTreeMap<String, u64>;

impl Drop for Net {
    fn drop(&mut self) {
        for host in ["a", "b", "s"] {
            let _ = ip(&["netns", "del", &self.space(host)]);
        }
    }
}

/// A request of a tenant that nobody knows: it is ours, and goes on unchanged.
fn request() -> Vec<u8> {
    packet(77, Op::ReadRequest, b"key", b"")
}

fn packet(tenant: u32, op: Op, key: &[u8], value: &[u8]) -> Vec<u8> {
    let header = Header { tenant, ..Header::new(op) };
    let mut bytes = vec![];
    let packet = wire::Packet::new(header, key, value);
    packet.encode(&wire::Secret::NONE, &mut bytes).unwrap();
    bytes
}

/// Sends these bytes and sees them arrive, once.
fn crosses(from: &UdpSocket, to: &UdpSocket, bytes: &[u8]) {
    from.send_to(bytes, to.local_addr().unwrap()).unwrap();
    assert_eq!(arrived(from, to, 1), [bytes]);
}

/// So many datagrams that arrive, and no more.
fn arrived(from: &UdpSocket, to: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut got = [0; 4096];
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut next = || {
        let (len, by) = to.recv_from(&mut got).expect("it arrives");
        assert_eq!(by, from.local_addr().unwrap());
        got[..len].to_vec()
    };
    let all = (0..count).map(|_| next()).collect();
    to.set_read_timeout(Some(MOMENT)).unwrap();
    let again = to.recv_from(&mut got);
    assert!(again.is_err(), "it came again: {again:?}");
    all
}

#[test]
fn what_is_ours_crosses_once_and_the_rest_goes_by_the_kernel() {
    let net = Net::new("cross");
    let ends = [("10.77.1.1", "10.77.2.1"), ("fd77:1::1", "fd77:2::1")];
    let sockets = ends.map(|(a, b)| (net.socket("a", a), net.socket("b", b)));
    let (ours, strange) = (request(), b"\x00 is none of our magic".as_slice());
    let ((), lost, counts) = net.with_switch(|| {
        for (a, b) in &sockets {
            for bytes in [&ours, strange, &ours, &ours, strange] {
                crosses(a, b, bytes);
                crosses(b, a, bytes);
            }
            // In fragments, which are the kernel's.
            crosses(a, b, &[7; 3000]);
        }
    });
    assert_eq!(lost, LossCounts::default());
    assert!(counts["forward"] >= 8 && counts["pass_other_magic"] == 8, "{counts:?}");
    // Without the switch the kernel does it all.
    for (a, b) in &sockets {
        crosses(a, b, &ours);
        crosses(b, a, strange);
    }
}

#[test]
fn what_is_for_the_switch_itself_arrives_once() {
    let net = Net::new("here");
    let ends = [("10.77.1.1", "10.77.1.254"), ("fd77:1::1", "fd77:1::fe")];
    let sockets = ends.map(|(a, s)| (net.socket("a", a), net.socket("s", s)));
    net.with_switch(|| {
        for (a, s) in &sockets {
            crosses(a, s, &request());
            crosses(s, a, &request());
        }
    });
}

/// Tagged with a priority and no VLAN: of the interface itself, as the kernel has it too. What is
/// of a VLAN is neither's, where there is no interface for it.
#[test]
fn a_priority_is_no_vlan() {
    let net = Net::new("prio");
    let ends = [("10.77.1.1", "10.77.2.1"), ("fd77:1::1", "fd77:2::1")];
    let sockets = ends.map(|(a, b)| (net.socket("a", a), net.socket("b", b)));
    let send = |message: Message| {
        let mut frame = Frame::new(&message.frame().bytes());
        frame.bytes_mut()[..6].copy_from_slice(&MAC_TO_A);
        let by = || Ok(Sender::open()?.send(&[(nix::net::if_::if_nametoindex("e")?, frame)]));
        assert_eq!(within(&net.space("a"), by).unwrap(), 0);
        message.payload()
    };
    let (_, lost, counts) = net.with_switch(|| {
        for (a, b) in &sockets {
            let (from, to) = (a.local_addr().unwrap(), b.local_addr().unwrap());
            let read = Message { from, to, ..Message::read(77, b"key") };
            for tag in [5, 7 << 13 | 5] {
                send(read.clone().vlan(tag).numbered(1));
            }
            for tag in [0, 1 << 12, 7 << 13] {
                let sent = send(read.clone().vlan(tag));
                assert_eq!(arrived(a, b, 1), [sent]);
            }
        }
    });
    assert_eq!(lost, LossCounts::default());
    // Where a neighbour is not known yet the kernel sends it on.
    assert_eq!(counts["bypass_unknown_tenant"], 6, "{counts:?}");
}

/// As a sender's kernel hands them over where the link could divide them.
#[test]
fn datagrams_that_come_as_one_are_divided() {
    let net = Net::new("join");
    let ends = [("10.77.1.1", "10.77.2.1"), ("fd77:1::1", "fd77:2::1")];
    let sockets = ends.map(|(a, b)| (net.socket("a", a), net.socket("b", b)));
    let parts = [vec![1; 500], vec![2; 500], vec![3; 77]];
    net.with_switch(|| {
        for (a, b) in &sockets {
            let size = nix::sys::socket::sockopt::UdpGsoSegment;
            nix::sys::socket::setsockopt(a, size, &500).unwrap();
            a.send_to(&parts.concat(), b.local_addr().unwrap()).unwrap();
            assert_eq!(arrived(a, b, 3), parts);
        }
    });
}

/// The discipline for tests under a number, with a tenant of its own number.
const TENANT: TenantEntry = TenantEntry {
    // Rounds that a packet may go, and the group that it is copied to.
    parameters: [300, 1],
    ..TenantEntry::new(5, wire::Secret::NONE, 3)
};

/// `struct port_name`.
fn named(port: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..port.len()].copy_from_slice(port.as_bytes());
    name
}

fn trial() -> Object {
    let maps = vec![("trial_notes", 16), ("trial_hosts", 16)];
    Object { maps, ..harness::trial(TENANT.discipline) }
}

#[test]
fn packets_go_round_and_are_copied() {
    let net = Net::new("round");
    let [a, b] = [net.socket("a", "10.77.1.1"), net.socket("b", "10.77.2.1")];
    let send = |op, key, value: &[u8]| {
        let bytes = packet(TENANT.id, op, key, value);
        a.send_to(&bytes, b.local_addr().unwrap()).unwrap();
        bytes
    };
    let (_, lost, counts) = net.with_objects(&[trial()], |switch| {
        TenantEntry::install(switch, &[TENANT]).unwrap();
        // The way to b is learnt from a packet that goes none of the others'.
        crosses(&a, &b, &request());
        for rounds in [1, 7] {
            let sent = send(Op::WriteRequest, b"round", &[rounds]);
            assert_eq!(arrived(&a, &b, 1), [sent]);
        }
        // Nobody stops it before it has gone too often.
        send(Op::WriteRequest, b"round", &[]);
        let programs = Programs::from(switch.clone());
        let port = |name| programs.port(name).unwrap();
        programs.set_group("trial_groups", 1, &[port("a"), port("b")]).unwrap();
        // A copy for each port but its own.
        let hosts = Rows::open(switch, "trial", "trial_hosts").unwrap();
        let host = [&MAC_OF_B[..], &[0, 0], &[10, 77, 2, 1]].concat();
        hosts.write(&named("b"), &host).unwrap();
        let sent = send(Op::ReadRequest, b"fan", b"");
        assert_eq!(arrived(&a, &b, 1), [sent]);
    });
    assert_eq!(lost, LossCounts::default());
    assert_eq!(counts["drop_rounds"], 1, "{counts:?}");
}

#[test]
fn an_interface_has_one_soft_switch() {
    let net = Net::new("twice");
    let second = || {
        let start = async { Soft::start("second", &["a".into()], &[], Sizes { pages: 1 }).await };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(start).err().map(|e| e.to_string()))
    };
    let (refused, ..) = net.with_switch(|| within(&net.space("s"), second).unwrap());
    let refused = refused.expect("a refusal");
    assert!(
        refused.contains("interface a") && refused.contains("another soft switch"),
        "{refused}"
    );
    // A child that another test is just starting may have a copy of its descriptors.
    let start = Instant::now();
    while let Some(refused) = within(&net.space("s"), second).unwrap() {
        assert!(start.elapsed() < PATIENCE, "{refused}");
    }
}

/// The kernel has its frames come in by the bridge, and would forward them as well.
#[test]
fn an_interface_that_is_part_of_another_is_refused() {
    let net = Net::new("part");
    let space = net.space("s");
    for line in
        ["link add p0 type veth peer name p1", "link add b0 type bridge", "link set p0 master b0"]
    {
        let words: Vec<&str> = ["-n", &space].into_iter().chain(line.split(' ')).collect();
        ip(&words).unwrap();
    }
    let refused = net.refusal("p0").expect("a refusal");
    assert!(refused.contains("interface p0") && refused.contains("bridge"), "{refused}");
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    let net = Net::new("other");
    let refused = net.refusal("lo").expect("a refusal");
    assert!(refused.contains("interface lo") && refused.contains("Ethernet"), "{refused}");
}
