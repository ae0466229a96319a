//! Network namespaces for this folder's tests. Each belongs to one thread and is gone with it,
//! however the test ends; no names, so tests can run beside others.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use tokio::sync::watch;

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

/// Waits for a value that is as expected.
pub(super) async fn until<T: Clone + std::fmt::Debug>(
    told: &mut watch::Receiver<T>,
    expected: impl Fn(&T) -> bool,
) -> T {
    let waited = tokio::time::timeout(PATIENCE, told.wait_for(expected)).await;
    let waited = waited.map(|value| value.unwrap().clone());
    waited.unwrap_or_else(|_| panic!("not as expected: {:?}", *told.borrow()))
}
