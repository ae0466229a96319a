//! The kernel's own loop: a client's socket, a veth pair, the recirculation port.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use dataplane::{Loops, Mode, RecirculationPorts};
use harness::{
    Switch,
    message::secret_of,
    namespace::{across_a_link, connected, in_namespace, ip, until},
};
use wire::Packet;

use super::world::*;

/// Reads that are on their way at once.
const AT_ONCE: u64 = 6;
const ROUNDS: u64 = 300;
/// After which a read is asked again while the link comes up.
const AT_FIRST: Duration = Duration::from_millis(200);
/// Enough of these for whatever else the machine does meanwhile.
const TRIES: u32 = 450;
/// For how long an answer is waited for later: longer than a switch lets a read wait, so that what
/// is asked again was lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Receives an answer; its number.
fn answer(socket: &UdpSocket) -> Option<u64> {
    let mut bytes = [0; 2048];
    let len = socket.recv(&mut bytes).ok()?;
    let packet = Packet::decode(&bytes[..len]).expect("a packet of ours");
    assert_eq!((packet.key, packet.value), (KEY, V));
    assert!(packet.tag_is_valid(&secret_of(SIGNED)));
    Some(packet.header.request)
}

/// Asks in bursts; every read is answered, in whatever order. How many had to be asked again, those
/// of before the link was up included.
fn ask(ipv6: bool) -> u64 {
    let socket = connected(ipv6, AT_FIRST);
    let send = |number| {
        let sent = socket.send(&read(SIGNED, number).payload());
        sent.expect("sent")
    };
    // Until the link is up packets may get lost.
    let first = (0..TRIES).find(|_| send(1) > 0 && answer(&socket).is_some());
    let first = first.expect("the link comes up");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
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
            again += numbers.len() as u64;
        }
    }
    // A datagram may get lost where the machine has other things to do.
    println!("{again} reads were asked again");
    assert!(again <= ROUNDS * AT_ONCE / 100, "{again} reads were asked again");
    again + u64::from(first)
}

/// How long a read waits for a value that went round for nobody until now, in microseconds: the
/// first read wakes it, the second waits. Median of many, from one answer to the other; and how
/// many reads were not answered.
fn wake_us() -> (u128, u64) {
    let socket = connected(false, PATIENCE);
    let (mut took, mut unanswered) = (vec![], 0);
    for number in (1_000_000..1_000_200).step_by(2) {
        thread::sleep(Duration::from_millis(5));
        for number in [number, number + 1] {
            let sent = socket.send(&read(SIGNED, number).payload());
            sent.expect("sent");
        }
        let first = answer(&socket);
        let begun = Instant::now();
        let second = first.and_then(|_| answer(&socket));
        took.extend(second.map(|_| begun.elapsed().as_micros()));
        unanswered += [first, second].iter().filter(|answer| answer.is_none()).count() as u64;
    }
    took.sort_unstable();
    (took[took.len() / 2], unanswered)
}

/// Times that threads which poll the recirculation ports were woken so far.
fn wakeups(going: &RecirculationPorts) -> u64 {
    let fars = going.ports.iter().map(|near| {
        let (start, number) = near.split_at(near.len() - 1);
        let number: u32 = number.parse().expect("a digit");
        format!("napi/{start}{}-", number + 1)
    });
    let fars: Vec<String> = fars.collect();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let of_thread = |entry: std::fs::DirEntry| -> Option<u64> {
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let ours = fars.iter().any(|far| name.starts_with(far));
        let status = std::fs::read_to_string(entry.path().join("status")).ok();
        let status = status.filter(|_| ours)?;
        let switches =
            |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok();
        status.lines().find_map(switches)
    };
    all.filter_map(of_thread).sum::<u64>()
}

fn goes_round(mode: Mode) {
    in_namespace(move || {
        let mut w = world();
        w.cached(SIGNED, KEY, V);
        let again = Arc::new(AtomicU64::new(0));
        let asked_again = again.clone();
        let there = move || {
            // The far end of a native program must be native as well: a switch without tenants
            // passes all.
            let far = Switch::load(&[], &[]);
            far.dataplane().attach("in1", mode).expect("attaching");
            for ipv6 in [false, true] {
                asked_again.fetch_add(ask(ipv6), SeqCst);
            }
            let (wake_us, unanswered) = wake_us();
            asked_again.fetch_add(unanswered, SeqCst);
            println!("{mode:?}: orbit_wake_us {wake_us}");
        };
        let here = || {
            let dataplane = w.switch.dataplane();
            let attached = dataplane.attach("in0", mode).expect("attaching");
            let loops = Loops { ports: 2, cpu: Some(1) };
            let made = dataplane.recirculate(&[attached], &loops);
            assert!(made.expect("ports"));
            let going = RecirculationPorts::of(dataplane.home());
            assert_eq!((going.ports.len(), going.cpu), (2, Some(1)));
        };
        across_a_link(here, there);
        let going = RecirculationPorts::of(w.switch.dataplane().home());
        let count = |name| w.switch.counters.get(name).expect("counters");
        println!(
            "{mode:?}: {:?}",
            w.switch.counts().iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        );
        assert!(count("wake") > 0 && count("hit_round") > ROUNDS);
        assert_eq!(count("round_gone"), 0);
        // Whatever waited for a second, because the machine stood still, was asked again, or not
        // answered.
        assert!(count("wait_late") <= again.load(SeqCst));
        // Nobody asks any more.
        until("everything has parked", || {
            count("round_parked") + count("round_stale") == count("wake")
        });
        // A thread may be woken for something else now and then.
        until("half a second passes in which it is idle", || {
            let before = (count("recirculate"), wakeups(&going));
            thread::sleep(Duration::from_millis(500));
            let idle = wakeups(&going) - before.1;
            println!("{mode:?}: idle_loop_wakeups {idle}");
            (count("recirculate"), idle) == (before.0, 0)
        });
    });
}

/// The port is gone, and its name is another's: what goes round no more is answered from where
/// it lies.
#[test]
fn without_a_port_reads_are_answered_from_the_cells() {
    in_namespace(|| {
        let mut w = world();
        w.cached(SIGNED, KEY, V);
        let there = || {
            let far = Switch::load(&[], &[]);
            let attached = far.dataplane().attach("in1", Mode::Generic);
            attached.expect("attaching");
            ask(false);
        };
        let here = || {
            let dataplane = w.switch.dataplane();
            let attached = [dataplane.attach("in0", Mode::Generic).expect("attaching")];
            let loops = Loops { ports: 1, cpu: None };
            let made = dataplane.recirculate(&attached, &loops);
            assert!(made.expect("a port"));
            let near = RecirculationPorts::of(dataplane.home()).ports.remove(0);
            ip(&format!("link del {near}"));
            let far = near.replace("-rec0", "-rec1");
            ip(&format!("link add {far} type veth peer name others"));
            let again = dataplane.recirculate(&attached, &loops);
            assert!(again.is_err(), "its name is taken");
        };
        across_a_link(here, there);
        let count = |name| w.switch.counters.get(name).expect("counters");
        assert!(count("hit") > ROUNDS && count("wait") == 0);
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
