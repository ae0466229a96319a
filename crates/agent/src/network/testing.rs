//! For this folder's tests: neighbours that are probed, and network namespaces. Each namespace
//! belongs to one thread and is gone with it, however the test ends; no names, so tests can run
//! beside others.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use api::proto::{self, Setup};
use nix::sched::{CloneFlags, unshare};
use tokio::sync::watch;
use wire::{Header, Op, Packet, Secret};

/// The secret of the system.
pub(super) const SECRET: Secret = Secret([7; 16]);

/// Ends a test that hangs; nothing takes that long.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Runs a test on a thread in a network namespace of its own, with a runtime that stays on
/// that thread.
pub(super) fn in_namespace(test: impl Future<Output = ()> + Send + 'static) {
    let work = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
        ip("link set lo up");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(test);
    };
    let thread = std::thread::Builder::new().spawn(work).unwrap();
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these words in the thread's namespace; returns what it printed.
pub(super) fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes an interface that is up and has carrier: one end of a link whose other end is `far-NAME`.
pub(super) fn make(name: &str) {
    let far = format!("far-{name}");
    ip(&format!("link add {name} type veth peer name {far}"));
    for end in [name, &far] {
        ip(&format!("link set {end} addrgenmode none up"));
    }
    until_up(name);
}

/// Waits until the kernel calls an interface up that has been set up, and has carrier: a
/// moment later.
pub(super) fn until_up(name: &str) {
    let began = Instant::now();
    while !ip(&format!("-o link show {name}")).contains("state UP") {
        assert!(began.elapsed() < PATIENCE, "{name} does not come up");
    }
}

/// A setup of this term, with a neighbour at an address behind an interface, or with none.
pub(super) fn setup(term: u64, neighbour: Option<(&str, &str)>) -> Setup {
    let cluster =
        proto::Cluster { system_secret: SECRET.0.to_vec().into(), ..proto::Cluster::default() };
    let neighbour = neighbour.map(|(address, interface)| proto::Neighbour {
        switch_id: 2,
        address: address.into(),
        interface: interface.into(),
    });
    Setup {
        cluster: Some(Box::new(cluster)),
        neighbours: neighbour.into_iter().collect(),
        term,
        ..Setup::default()
    }
}

/// What a neighbour answers to a probe.
pub(super) fn answer(request: &[u8], secret: &Secret) -> Vec<u8> {
    let header = Header { op: Op::ProbeReply, ..Packet::decode(request).unwrap().header };
    let mut bytes = vec![];
    Packet::new(header, &[], &[]).encode(secret, &mut bytes).unwrap();
    bytes
}

/// Waits for a value that is as expected.
pub(super) async fn until<T: Clone + std::fmt::Debug>(
    told: &mut watch::Receiver<T>,
    expected: impl Fn(&T) -> bool,
) -> T {
    let waited = tokio::time::timeout(PATIENCE, told.wait_for(expected)).await;
    let waited = waited.map(|value| value.unwrap().clone());
    waited.unwrap_or_else(|_| panic!("not as expected: {:?}", *told.borrow()))
}
