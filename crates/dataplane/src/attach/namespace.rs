//! Other network namespaces of this machine, in which a switch may have its interfaces.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    thread,
};

use nix::sched::{CloneFlags, setns};

/// The network namespaces that have a name or a process, but for this thread's.
pub(crate) fn others() -> impl Iterator<Item = File> {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let named = entries("/run/netns").map(|entry| entry.path());
    let of_processes = entries("/proc").map(|entry| entry.path().join("ns/net"));
    let ours = PathBuf::from("/proc/thread-self/ns/net");
    let mut seen: BTreeSet<u64> = fs::metadata(ours).map(|of| of.ino()).into_iter().collect();
    named.chain(of_processes).filter_map(move |path| {
        let file = File::open(path).ok()?;
        seen.insert(file.metadata().ok()?.ino()).then_some(file)
    })
}

/// What `work` returns in this network namespace; none: it cannot be entered.
pub(crate) fn inside<R: Send>(namespace: &File, work: impl FnOnce() -> R + Send) -> Option<R> {
    let enter_and_work = || {
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).ok()?;
        Some(work())
    };
    // A thread of its own, for this one stays where it is.
    thread::scope(|scope| scope.spawn(enter_and_work).join().ok().flatten())
}
