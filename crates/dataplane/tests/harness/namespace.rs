//! A network namespace for one thread, with two links: packets come in by one and leave by the other.

use std::{process::Command, thread};

use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a thread of its own with a network namespace of its own; its panic is this thread's.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (run as root)");
        test();
    };
    let result = thread::spawn(run).join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// `ip ARGS`, in this thread's namespace.
pub fn ip(args: &str) {
    let done = Command::new("ip")
        .args(args.split_whitespace())
        .output()
        .expect("iproute2");
    assert!(
        done.status.success(),
        "ip {args}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Sets a sysctl of this thread's namespace.
pub fn sysctl(path: &str, value: &str) {
    // Reading and writing here mean the namespace of the thread that does it.
    let path = format!("/proc/sys/net/{path}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("writing {path}: {error}"));
}

pub fn ifindex(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).expect("an interface")
}
