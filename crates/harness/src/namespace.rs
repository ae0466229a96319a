//! A network namespace for one thread, with two links: packets come in by one and leave by the other.

use std::{
    net::UdpSocket,
    os::fd::AsRawFd,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::{
    libc,
    sched::{CloneFlags, unshare},
};

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

/// Keeps the kernel from leaving checksums to a device: what XDP redirects in the driver would arrive with half of one.
pub fn without_checksums(socket: &UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: a valid descriptor; the option is an int.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    } != 0;
    assert!(!failed, "SO_NO_CHECK");
}

/// Waits for what other threads or the kernel are about to do.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(20);
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::yield_now();
    }
}
