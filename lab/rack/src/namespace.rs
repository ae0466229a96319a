//! Network namespaces by way of `ip` (iproute2), and work done inside them.

use std::{
    fs::File,
    io::Write,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow, bail};
use nix::sched::{CloneFlags, setns};

/// A file whose descriptor stands for the namespace.
///
/// # Errors
/// There is no such namespace.
pub fn open(name: &str) -> anyhow::Result<File> {
    File::open(format!("/run/netns/{name}"))
        .with_context(|| format!("network namespace {name}: it is gone or was never made"))
}

/// Runs `ip` with these arguments.
///
/// # Errors
/// What `ip` had to say.
pub fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("cannot run `ip`: the lab needs iproute2 (Debian: apt install iproute2)")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("`ip {}`: {}", arguments.join(" "), said.trim())
}

/// Runs a batch of `ip` commands inside a namespace.
///
/// # Errors
/// What `ip` had to say about the first line it did not like.
pub fn ip_batch(namespace: &str, lines: &[String]) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `ip`: the lab needs iproute2")?;
    let mut stdin = child.stdin.take().context("no pipe to `ip`")?;
    stdin.write_all(lines.join("\n").as_bytes())?;
    stdin.write_all(b"\n")?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("`ip -batch` in {namespace}: {} (commands: {lines:?})", said.trim())
}

/// Moves this thread into a namespace that was opened.
///
/// # Errors
/// This is not root.
pub fn enter(namespace: &File) -> anyhow::Result<()> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)
        .context("cannot enter a namespace: is this root?")
}

/// Does something on a thread of its own that has moved into the namespace.
///
/// # Errors
/// The namespace cannot be entered, or the work failed.
pub fn within<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let file = open(namespace)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(file.as_fd(), CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("cannot enter {namespace}: is this root?"))?;
            work()
        });
        thread.join().map_err(|_| anyhow!("work inside {namespace} panicked"))?
    })
}

/// Sets network sysctls, given as `net/ipv4/ip_forward`, inside a namespace. Those that this kernel
/// does not have are passed over.
///
/// # Errors
/// A sysctl that cannot be written.
pub fn sysctls(namespace: &str, settings: &[(&str, &str)]) -> anyhow::Result<()> {
    within(namespace, || {
        for (name, value) in settings {
            let path = format!("/proc/sys/{name}");
            match std::fs::write(&path, value) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                done => done.with_context(|| format!("sysctl {path} = {value}"))?,
            }
        }
        Ok(())
    })
}

/// Turns checksum and segmentation offloads of an interface off, so that every frame that leaves it
/// is whole: at most an MTU long and with its checksum in place. As `ethtool -K DEV tx off` does.
///
/// # Errors
/// The interface does not exist.
pub fn offloads_off(namespace: &str, interface: &str) -> anyhow::Result<()> {
    // From linux/ethtool.h: set TSO, GSO, scatter-gather, transmit checksums, GRO.
    const COMMANDS: [u32; 5] = [0x1f, 0x24, 0x19, 0x17, 0x2c];
    within(namespace, || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        for command in COMMANDS {
            let mut setting = [command, 0u32];
            // SAFETY: all-zero is a valid ifreq; the name is cut to its field and stays terminated.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name[..15].iter_mut().zip(interface.bytes()) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = setting.as_mut_ptr().cast();
            use std::os::fd::AsRawFd;
            // SAFETY: SIOCETHTOOL reads an ethtool_value (two u32) at ifru_data, which is alive.
            let done = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &mut request) };
            let error = std::io::Error::last_os_error();
            if done < 0 && error.raw_os_error() == Some(libc::ENODEV) {
                bail!("interface {interface} in {namespace}: {error}");
            }
        }
        Ok(())
    })
}

/// Mounts the BPF file system at its usual place if it is not there, so that switches in any
/// namespace pin to the same one.
///
/// # Errors
/// It cannot be mounted; it needs root.
pub fn mount_bpffs() -> anyhow::Result<()> {
    const PLACE: &str = "/sys/fs/bpf";
    let mounted = nix::sys::statfs::statfs(PLACE)
        .is_ok_and(|fs| fs.filesystem_type() == nix::sys::statfs::BPF_FS_MAGIC);
    if mounted {
        return Ok(());
    }
    let flags = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("bpf"), PLACE, Some("bpf"), flags, None::<&str>)
        .with_context(|| format!("mounting the BPF file system at {PLACE}"))
}
