//! The kernel's own loop: sockets of a client and of stores, each store behind a port of the
//! switch, and its recirculation port.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dataplane::{Loops, Mode};
use harness::{
    Switch,
    message::address,
    namespace::{in_namespace, ip, sysctl, until, without_checksums},
};
use nix::sched::{CloneFlags, unshare};

use super::world::*;

/// For how long packets are waited for at first, before all is sent again; a machine that has other
/// things to do gets more each time.
const PATIENCE: Duration = Duration::from_millis(300);
/// In all 90 s.
const TRIES: u32 = 24;
const CLIENT: u8 = 1;
/// A store behind the client's own port.
const BESIDE: u16 = SIX;
/// Every host, by the port that it is behind: the home alone, a replica alone, two of them, and one
/// beside the client.
const PORTS: [&[u8]; 4] = [&[2], &[3], &[4, 5], &[CLIENT, 6]];

/// A packet that came to a host, and to which.
type Arrival = (u8, Vec<u8>);

/// Everything behind one port, in a namespace of its own.
struct FarEnd {
    thread: JoinHandle<()>,
    /// Tells it to send something: from which of its hosts, to whom, what.
    says: Sender<(u8, u8, Vec<u8>)>,
}

fn run_far_end(number: usize, hosts: &[u8], ready: &Receiver<()>) {
    ready.recv().expect("the link");
    // The client and a store live in one namespace: what comes from the one to the other comes
    // from outside.
    sysctl("ipv4/conf/all/accept_local", "1");
    let mut lines = format!("link set lo up\nlink set f{number} up\n");
    for host in hosts {
        lines += &format!("address add 10.0.0.{host}/24 dev f{number}\n");
    }
    let elsewhere = (CLIENT..7).filter(|host| !hosts.contains(host));
    for host in elsewhere {
        lines += &format!(
            "neigh add 10.0.0.{host} lladdr 02:00:00:00:0a:0{number} dev f{number} nud permanent\n"
        );
    }
    ip(&lines);
}

fn serve(
    hosts: &'static [u8],
    came: &Sender<Arrival>,
    says: &Receiver<(u8, u8, Vec<u8>)>,
    stop: &AtomicBool,
) {
    let socket = |host: &u8| {
        let port = if *host == CLIENT { 40_001 } else { wire::PORT };
        let socket = UdpSocket::bind(SocketAddr::new(address(false, *host), port));
        let socket = socket.expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        without_checksums(&socket);
        (*host, socket)
    };
    let sockets: BTreeMap<u8, UdpSocket> = hosts.iter().map(socket).collect();
    while !stop.load(Relaxed) {
        let mut rests = true;
        for (from, to, bytes) in says.try_iter() {
            rests = false;
            let to = SocketAddr::new(address(false, to), wire::PORT);
            sockets[&from].send_to(&bytes, to).expect("sent");
        }
        for (host, socket) in &sockets {
            let mut bytes = [0; 2048];
            while let Ok(len) = socket.recv(&mut bytes) {
                rests = false;
                came.send((*host, bytes[..len].to_vec())).expect("waits");
            }
        }
        if rests {
            // An emulated machine has one processor for all of them.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Makes the port and what is behind it.
fn far_end(number: usize, mode: Mode, came: Sender<Arrival>, stop: Arc<AtomicBool>) -> FarEnd {
    let hosts = PORTS[number];
    let mut lines = format!(
        "link add h{number} type veth peer name f{number}
        link set h{number} address 02:00:00:00:0a:0{number}
        link set f{number} address 02:00:00:00:0b:0{number}
        link set h{number} up\n"
    );
    for host in hosts {
        lines += &format!(
            "route add 10.0.0.{host}/32 dev h{number}
            neigh add 10.0.0.{host} lladdr 02:00:00:00:0b:0{number} dev h{number} nud permanent\n"
        );
    }
    ip(&lines);
    let (says, said) = channel();
    let (namespace, path) = channel();
    let (link_is_there, ready) = channel();
    let (told, is_ready) = channel();
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let thread = nix::unistd::gettid();
        let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        namespace.send(path).expect("waits");
        run_far_end(number, hosts, &ready);
        // The far end of a native program must be native as well: a switch without tenants
        // passes all.
        let end = Switch::load(&[], &[]);
        let attached = end.dataplane().attach(&format!("f{number}"), mode);
        attached.expect("attaching");
        told.send(()).expect("waits");
        serve(hosts, &came, &said, &stop);
    });
    let path = path.recv().expect("a path");
    ip(&format!("link set f{number} netns {path}"));
    link_is_there.send(()).expect("waits");
    is_ready.recv().expect("a host");
    FarEnd { thread, says }
}

/// A switch between the client and its stores.
struct Rack {
    w: World,
    far_ends: Vec<FarEnd>,
    came: Receiver<Arrival>,
    stop: Arc<AtomicBool>,
    number: u64,
}

impl Rack {
    fn new(mode: Mode) -> Rack {
        sysctl("ipv4/ip_forward", "1");
        let mut w = world();
        hot(&mut w, &[A, B, C, BESIDE], &[]);
        tell_at(&w, SIGNED, BESIDE, address(false, 6));
        let (tell, came) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let make = |number| far_end(number, mode, tell.clone(), stop.clone());
        let far_ends: Vec<FarEnd> = (0..PORTS.len()).map(make).collect();
        let attach = |number: usize| {
            let attached = w.switch.dataplane().attach(&format!("h{number}"), mode);
            attached.expect("attaching")
        };
        let attached: Vec<_> = (0..PORTS.len()).map(attach).collect();
        let made = w.switch.dataplane().recirculate(&attached, &Loops::default());
        assert!(made.expect("a port"));
        Rack { w, far_ends, came, stop, number: 0 }
    }

    fn say(&self, from: u8, to: u8, message: &Message) {
        let at = PORTS.iter().position(|hosts| hosts.contains(&from));
        let says = &self.far_ends[at.expect("a host")].says;
        says.send((from, to, message.payload())).expect("it runs");
    }

    /// Sends a request home until somebody has it; who has it then, with what op and node. What
    /// comes late of others is left out.
    fn ask(&mut self, message: &Message, enough: usize) -> Vec<(u8, Op, u16)> {
        for patience in (1..=TRIES).map(|n| PATIENCE * n) {
            self.number += 1;
            let message = message.clone().numbered(self.number);
            self.say(CLIENT, 2, &message);
            let begun = Instant::now();
            let mut all = vec![];
            while begun.elapsed() < patience && all.len() < enough {
                let Ok((host, bytes)) = self.came.recv_timeout(PATIENCE / 4) else { continue };
                let packet = Packet::decode(&bytes).expect("a packet of ours");
                if packet.header.request == self.number {
                    assert!(packet.tag_is_valid(&message.secret));
                    assert_eq!((packet.key, packet.value), (KEY, &message.value[..]));
                    all.push((host, packet.header.op, packet.header.node));
                }
            }
            // A datagram may get lost while links come up.
            if all.len() >= enough {
                all.sort_unstable_by_key(|(host, ..)| *host);
                return all;
            }
            println!("of {enough}: {all:?}");
        }
        let counts = self.w.switch.counts().into_iter();
        panic!("in vain: {:?}", counts.filter(|(_, n)| *n > 0).collect::<Vec<_>>());
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        for far in self.far_ends {
            far.thread.join().expect("it did not panic");
        }
    }
}

fn goes_to_all(mode: Mode) {
    in_namespace(move || {
        let mut rack = Rack::new(mode);
        let update = |host, node| (host, Op::ReplicaUpdate, node);
        let all = rack.ask(&write(), 5);
        let wanted = [
            (2, Op::WriteRequest, NODE_ALL),
            update(3, A),
            update(4, B),
            update(5, C),
            update(6, BESIDE),
        ];
        assert_eq!(all, wanted, "{mode:?}");
        // Nobody has confirmed: reads go home. Then one does.
        assert_eq!(rack.ask(&read(), 1), [(2, Op::ReadRequest, 0)]);
        let mut confirm = confirms(B);
        confirm.from.set_ip(IpAddr::from([10, 0, 0, 4]));
        let before = rack.w.switch.counters.get("replica_confirm").expect("counters");
        rack.say(4, 2, &confirm);
        until("it is taken", || {
            rack.w.switch.counters.get("replica_confirm").expect("counters") > before
        });
        let mut hosts: Vec<u8> =
            (0..16).flat_map(|_| rack.ask(&read(), 1)).map(|(h, ..)| h).collect();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts, [4], "who has confirmed");
        // A delete is an update without a value.
        let all = rack.ask(&Message::delete(SIGNED, KEY), 5);
        assert_eq!(all[0], (2, Op::DeleteRequest, NODE_ALL));
        assert!(all[1..].iter().all(|(_, op, _)| *op == Op::ReplicaUpdate));
        rack.end();
    });
}

#[test]
fn writes_go_to_all_in_the_driver() {
    goes_to_all(Mode::Native);
}

#[test]
fn writes_go_to_all_in_generic_mode() {
    goes_to_all(Mode::Generic);
}
