//! The machine's bpffs, also where this process has mounts of its own.
//!
//! `ip netns exec` gives what it runs a mount namespace with a new `/sys`, in which there is no
//! bpffs; one that was mounted there would end with the last process that sees it, and every pin
//! with it. So the machine's own is put there: what is pinned outlives the process, and whoever
//! looks from elsewhere finds it.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::Once,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};

use crate::Error;

/// Where bpffs is mounted.
pub(crate) const ROOT: &str = "/sys/fs/bpf";
/// Processes that are looked at on the way to the first one.
const ANCESTORS_MOST: usize = 64;

/// Whether bpffs is where it should be, as this thread sees it.
fn is_mounted() -> bool {
    statfs(Path::new(ROOT)).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC)
}

fn mount_own() -> io::Result<()> {
    Ok(mount(Some("bpf"), ROOT, Some("bpf"), MsFlags::empty(), Some("mode=0700"))?)
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold anything, but its closing parenthesis is the last one.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// What `/proc` has of the machine, or of the container in which this is: of the first process, or
/// of the ancestor nearest to it that may be looked at.
fn machine() -> Option<PathBuf> {
    let own = std::process::id();
    let chain = std::iter::successors(Some(own), |pid| parent_of(*pid).filter(|pid| *pid > 0));
    let processes = chain.take(ANCESTORS_MOST).map(|pid| PathBuf::from(format!("/proc/{pid}")));
    processes.filter(|process| fs::read_link(process.join("ns/mnt")).is_ok()).last()
}

/// The machine's mount namespace, if this thread has another one.
fn outer() -> Option<PathBuf> {
    let machine = machine()?.join("ns/mnt");
    let own = fs::read_link("/proc/thread-self/ns/mnt").ok()?;
    (fs::read_link(&machine).ok()? != own).then_some(machine)
}

/// Whether the rest of the machine sees the bpffs that this process pins in: it has the same one in
/// the same place. One that a mount namespace or a container has to itself ends with its last
/// process, and with it all that is pinned there. Where nobody else may be looked at, as without
/// root, nothing speaks against it. Who was put into a container or a namespace from without has no
/// ancestors there, but the first process is there all the same.
pub fn is_seen_by_all() -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let own = device(Path::new(ROOT));
    let others = machine().into_iter().chain([PathBuf::from("/proc/1")]);
    let mut theirs = others.filter_map(|other| device(&other.join("root/sys/fs/bpf")));
    theirs.all(|theirs| own == Some(theirs))
}

/// The machine's bpffs, mounted there if it was not, as a mount that is nowhere yet.
fn of_machine(machine: &Path) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: libc::c_int = 1;
    let machine = fs::File::open(machine)?;
    let take = move || -> io::Result<OwnedFd> {
        // A thread may enter another mount namespace once it shares no working directory.
        unshare(CloneFlags::CLONE_FS)?;
        setns(machine, CloneFlags::CLONE_NEWNS)?;
        if !is_mounted() {
            mount_own()?;
        }
        let path = std::ffi::CString::new(ROOT).expect("no NUL");
        let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC;
        // SAFETY: a terminated string; the call returns a new descriptor or an error.
        let fd =
            unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
        match i32::try_from(fd) {
            // SAFETY: a new descriptor that nobody else owns.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    std::thread::spawn(take).join().unwrap_or_else(|_| Err(io::Error::other("it panicked")))
}

/// Puts the machine's bpffs where this process looks for it.
fn put_there(machine: &Path) -> io::Result<()> {
    let tree = of_machine(machine)?;
    let path = std::ffi::CString::new(ROOT).expect("no NUL");
    const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
    // SAFETY: a valid descriptor and terminated strings.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if moved == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has this process see the machine's bpffs, if it has mounts of its own and none there. Without
/// the privilege nothing is changed.
pub(crate) fn reach() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        if !is_mounted()
            && let Some(machine) = outer()
        {
            let _ = put_there(&machine);
        }
    });
}

/// Mounts bpffs if it is not. Whoever starts a switch asks then whether it [`is_seen_by_all`].
///
/// # Errors
/// The kernel refuses.
pub(crate) fn make_sure() -> Result<(), Error> {
    reach();
    if is_mounted() {
        return Ok(());
    }
    mount_own().map_err(Error::file("mounting bpffs on", ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ip netns exec` does it: a `/sys` of its own.
    #[test]
    fn the_machines_bpffs_is_seen_with_a_sys_of_ones_own() {
        assert!(nix::unistd::geteuid().is_root(), "mounts need root");
        let seen = std::thread::spawn(|| {
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            mount(Some("none"), ROOT, Some("tmpfs"), MsFlags::empty(), none).unwrap();
            assert!(!is_mounted() && !is_seen_by_all());
            put_there(&outer().expect("the process has another one")).unwrap();
            assert!(is_mounted() && is_seen_by_all());
            let there = fs::metadata(ROOT).unwrap();
            (there.dev(), there.ino())
        });
        let seen = seen.join().unwrap();
        let machines = fs::metadata(ROOT).unwrap();
        assert_eq!(seen, (machines.dev(), machines.ino()));
    }
}
