//! Which CPU does the work of an interface's receiving end.
//!
//! In the driver a thread of the kernel's polls it, which is pinned; socket buffers are steered to
//! the CPU (RPS). Otherwise the CPU that sends does it all, which then does little else while
//! packets go round.

use std::{fs, io, path::Path};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare},
    unistd::Pid,
};

/// The last CPU that runs, if there are several: those that could be plugged in do no work.
pub(crate) fn last_cpu() -> Option<u32> {
    last_of(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// The last of a list of CPUs as the kernel writes it (`0-3,8`). With a single one there is nothing
/// to choose.
fn last_of(online: &str) -> Option<u32> {
    let last = online.trim().rsplit([',', '-']).next()?.parse().ok()?;
    (online.trim() != format!("{last}")).then_some(last)
}

/// Runs `work` where `/sys` shows this thread's network namespace: elsewhere it shows the one that
/// it was mounted in.
fn in_sysfs<R: Send>(work: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    let seen = || {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
        let none: Option<&str> = None;
        let ours = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, ours, none)?;
        match mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none) {
            // The one that is there is that of our network namespace already.
            Err(Errno::EBUSY) => {}
            mounted => mounted?,
        }
        work()
    };
    // The mount ends with the thread.
    std::thread::scope(|scope| scope.spawn(seen).join().expect("it does not panic"))
}

/// The kernel's threads that poll an interface.
fn threads(interface: &str) -> Vec<Pid> {
    let prefix = format!("napi/{interface}-");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_interface = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with(&prefix).then(|| Pid::from_raw(number))
    };
    all.filter_map(of_interface).collect()
}

fn rps_files(interface: &str) -> io::Result<Vec<std::path::PathBuf>> {
    let queues = fs::read_dir(format!("/sys/class/net/{interface}/queues"))?;
    let all = queues.flatten().map(|queue| queue.path());
    let receiving = |path: &std::path::PathBuf| path.file_name().is_some_and(is_receiving);
    Ok(all.filter(receiving).map(|path| path.join("rps_cpus")).collect())
}

fn is_receiving(name: &std::ffi::OsStr) -> bool {
    Path::new(name).to_string_lossy().starts_with("rx-")
}

/// A set of CPUs as the kernel writes it: words of 32 bits, the highest first.
fn mask(cpu: u32) -> String {
    let mut text = format!("{:x}", 1u32 << (cpu % 32));
    for _ in 0..cpu / 32 {
        text.push_str(",00000000");
    }
    text
}

/// Has `cpu` do the work of the interface, which is up; `generic`: in socket buffers.
pub(crate) fn pin(interface: &str, cpu: u32, generic: bool) -> io::Result<()> {
    if generic {
        return in_sysfs(|| {
            let mask = mask(cpu);
            rps_files(interface)?.iter().try_for_each(|file| fs::write(file, &mask))
        })
        .and_then(|()| match cpu_of(interface) {
            Some(steered) if steered == cpu => Ok(()),
            // The kernel takes CPUs that do not run for none.
            _ => Err(io::Error::other("that CPU does not run")),
        });
    }
    in_sysfs(|| fs::write(format!("/sys/class/net/{interface}/threaded"), "1"))?;
    let mut set = CpuSet::new();
    set.set(cpu as usize)?;
    let threads = threads(interface);
    if threads.is_empty() {
        return Err(io::Error::other("the kernel shows none of its threads"));
    }
    threads.iter().try_for_each(|thread| Ok(sched_setaffinity(*thread, &set)?))
}

/// The only CPU that does the interface's work, if there is one.
pub(crate) fn cpu_of(interface: &str) -> Option<u32> {
    let threads = threads(interface);
    if let Some(thread) = threads.first() {
        let set = sched_getaffinity(*thread).ok()?;
        let mut cpus = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
        return cpus.next().filter(|_| cpus.next().is_none()).map(|cpu| cpu as u32);
    }
    let text = in_sysfs(|| {
        fs::read_to_string(rps_files(interface)?.first().ok_or(io::ErrorKind::NotFound)?)
    });
    let text = text.ok()?;
    (0..crate::load::kernel::cpus()).find(|cpu| {
        let same = |a: &str, b: &str| a.trim_start_matches(['0', ',']) == b;
        same(text.trim(), &mask(*cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_is_one_that_runs() {
        let rows = [
            ("0-3\n", Some(3)),
            ("0-1,4-5,9\n", Some(9)),
            ("0,2\n", Some(2)),
            ("0\n", None),
            ("5\n", None),
            ("", None),
        ];
        for (online, last) in rows {
            assert_eq!(last_of(online), last, "{online:?}");
        }
    }

    #[test]
    fn a_sysfs_that_shows_this_network_namespace_already_will_do() {
        let lo = || fs::read_to_string("/sys/class/net/lo/ifindex");
        assert_eq!(in_sysfs(|| in_sysfs(lo)).unwrap(), "1\n");
    }

    #[test]
    fn masks_are_as_the_kernel_writes_them() {
        let rows = [
            (0, "1"),
            (5, "20"),
            (31, "80000000"),
            (32, "1,00000000"),
            (65, "2,00000000,00000000"),
        ];
        for (cpu, text) in rows {
            assert_eq!(mask(cpu), text);
        }
    }
}
