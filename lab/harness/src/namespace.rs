//! A network namespace for one thread, with two links: packets come in by one and leave by
//! the other.

use std::{
    io::Write,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::{
    libc,
    sched::{CloneFlags, unshare},
};

use crate::message::{client, store};

/// Runs `test` in a thread of its own with a network namespace of its own; its panic is this
/// thread's.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (run as root)");
        test();
    };
    let result = thread::spawn(run).join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Carries out commands of `ip`, one in each line, in this thread's namespace: by one process, for
/// an emulated machine takes longer to start it than for what it does.
pub fn ip(commands: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("iproute2");
    let mut to = child.stdin.take().expect("a pipe");
    to.write_all(commands.as_bytes()).expect("it reads its commands");
    drop(to);
    let done = child.wait_with_output().expect("its status");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip: {said} of:\n{commands}");
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

/// Keeps the kernel from leaving checksums to a device: what XDP redirects in the driver would
/// arrive with half of one.
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

/// A real link: `in0`, an interface of this namespace, and its far end `in1` in a namespace of its
/// own, with the addresses of the client and the store for a neighbour. `here` prepares this end;
/// then a thread at the far end runs `there`. Its panic is this thread's.
pub fn across_a_link(here: impl FnOnce(), there: impl FnOnce() + Send + 'static) {
    ip("link add in0 type veth peer name in1
        link set in0 address 02:00:00:00:00:02
        link set in0 up");
    let (link_is_there, moved) = mpsc::channel();
    let (namespace_is_there, path) = mpsc::channel();
    let far = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let thread = nix::unistd::gettid();
        let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        namespace_is_there.send(path).expect("waits");
        moved.recv().expect("the link");
        ip("link set in1 up
            address add 10.0.0.1/24 dev in1
            address add fd00::1/64 dev in1 nodad
            neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev in1 nud permanent
            neigh add fd00::2 lladdr 02:00:00:00:00:02 dev in1 nud permanent");
        there();
    });
    let path = path.recv().expect("a path");
    ip(&format!("link set in1 netns {path}"));
    here();
    link_is_there.send(()).expect("waits");
    far.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// A socket at the far end of such a link, for requests to the store.
pub fn connected(ipv6: bool, patience: Duration) -> UdpSocket {
    let local = SocketAddr::new(client(ipv6).ip(), 0);
    let socket = UdpSocket::bind(local).expect("a socket");
    socket.connect(store(ipv6)).expect("a route");
    socket.set_read_timeout(Some(patience)).expect("a timeout");
    socket
}

/// Waits for what other threads or the kernel are about to do; the patience ends a test that would
/// hang, and decides nothing else.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_secs(90);
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
