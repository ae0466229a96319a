//! What the tests of real namespaces share.

use std::{path::PathBuf, time::Duration};

use lab::process;
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Ends a test that hangs; nothing takes that long.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The example that stands in for the binary; cargo builds it with the tests.
pub fn roles() -> PathBuf {
    let mut path = std::env::current_exe().expect("a running test");
    path.pop();
    path.pop();
    path.push("examples/roles");
    process::set_binary(path.clone());
    path
}

/// Fails where namespaces cannot be made, rather than pass without having tested anything.
pub fn needs_root() {
    // SAFETY: geteuid cannot fail.
    assert!(unsafe { libc::geteuid() } == 0, "network namespaces need root");
}

/// Runs `test` in a thread with a `/run` of its own, where no other lab of this machine is; its
/// panic is this thread's.
pub fn on_a_run_of_its_own(test: fn()) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNS).expect("mounts of its own");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private");
        mount(none, "/run", Some("tmpfs"), MsFlags::empty(), none).expect("an empty /run");
        test();
    };
    let result = std::thread::spawn(run).join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
