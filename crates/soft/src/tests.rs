//! A switch between two hosts, each in a network namespace of its own, with the checksum offloads that links of that kind have.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::mpsc,
    time::Duration,
};

use dataplane::{Backing, Counters, Sizes};
use lab::namespace::{ip, sysctls, within};
use wire::{Header, Op};

use crate::{Lost, Soft};

/// How long a datagram may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one that comes twice is waited for.
const MOMENT: Duration = Duration::from_millis(100);

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
        let forwarding = [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
        ];
        sysctls(&s, &forwarding).unwrap();
        for (host, space, n) in [("a", &a, 1), ("b", &b, 2)] {
            run(format!(
                "link add name {host} netns {s} type veth peer name e netns {space}"
            ));
            for (space, link, last) in [(&s, host, 254), (space, "e", 1)] {
                run(format!("-n {space} link set dev {link} up"));
                run(format!(
                    "-n {space} addr add 10.77.{n}.{last}/24 dev {link}"
                ));
                run(format!(
                    "-n {space} addr add fd77:{n}::{last:x}/64 dev {link} nodad"
                ));
            }
            run(format!("-n {space} route add default via 10.77.{n}.254"));
            run(format!("-n {space} -6 route add default via fd77:{n}::fe"));
        }
        net
    }

    fn space(&self, host: &str) -> String {
        format!("{}{host}", self.0)
    }

    /// A socket of a host, as other threads may use it.
    fn socket(&self, host: &str, address: &str) -> UdpSocket {
        let address = SocketAddr::new(address.parse().unwrap(), wire::PORT);
        within(&self.space(host), || Ok(UdpSocket::bind(address)?)).unwrap()
    }

    /// What `work` says while the switch forwards, and then what the switch has to say.
    fn with_switch<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, Lost, Counts) {
        let (started, is_started) = mpsc::channel();
        let (done, is_done) = tokio::sync::oneshot::channel();
        let serve = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let interfaces = ["a", "b"].map(String::from);
                let soft = Soft::start("test", &interfaces, &[], Sizes { pages: 1 }).await?;
                started.send(())?;
                let answer = is_done.await?;
                let counters = Counters::open(Backing::from(soft.switch()))?.read()?;
                let counts = counters.iter().map(|(c, value)| (c.name.clone(), *value));
                Ok((answer, soft.losses().now(), counts.collect()))
            })
        };
        std::thread::scope(|scope| {
            let switch = scope.spawn(|| within(&self.space("s"), serve));
            // An error means that it could not start, and says so below.
            if is_started.recv().is_ok() {
                let _ = done.send(work());
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
    let header = Header {
        tenant: 77,
        ..Header::new(Op::ReadRequest)
    };
    let mut bytes = vec![];
    wire::Packet {
        header,
        key: b"key",
        value: b"",
    }
    .encode(&wire::Secret::NONE, &mut bytes)
    .unwrap();
    bytes
}

/// Sends these bytes and sees them arrive, once.
fn crosses(from: &UdpSocket, to: &UdpSocket, bytes: &[u8]) {
    from.send_to(bytes, to.local_addr().unwrap()).unwrap();
    let mut got = [0; 4096];
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let (len, by) = to.recv_from(&mut got).expect("it arrives");
    assert_eq!((&got[..len], by), (bytes, from.local_addr().unwrap()));
    to.set_read_timeout(Some(MOMENT)).unwrap();
    let again = to.recv_from(&mut got);
    assert!(again.is_err(), "it came again: {again:?}");
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
    assert_eq!(lost, Lost::default());
    assert!(
        counts["forward"] >= 8 && counts["pass_other_magic"] == 8,
        "{counts:?}"
    );
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

#[test]
fn an_interface_has_one_soft_switch() {
    let net = Net::new("twice");
    let second = || {
        let start = async { Soft::start("second", &["a".into()], &[], Sizes { pages: 1 }).await };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(start).err().map(|e| e.to_string()))
    };
    let (refused, ..) = net.with_switch(|| within(&net.space("s"), second).unwrap());
    let refused = refused.expect("a refusal");
    assert!(
        refused.contains("interface a") && refused.contains("another soft switch"),
        "{refused}"
    );
    let after = within(&net.space("s"), second).unwrap();
    assert!(after.is_none(), "{after:?}");
}
