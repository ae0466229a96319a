//! Processes of a lab: inside a namespace, on a CPU, and never left behind.

use std::{
    fs::File,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::namespace;

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The network namespace, by full name.
    pub namespace: &'a str,
    /// Program and arguments, as [`command_in`] takes them.
    pub command: &'a [String],
    /// Where standard output and error go.
    pub log: &'a Path,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// Niceness.
    pub nice: i32,
    /// Whether it outlives this process; otherwise the kernel kills it when the thread that started
    /// it ends.
    pub detached: bool,
    /// Whether standard input and output are pipes to this process.
    pub piped: bool,
}

/// A process by id and start time: ids are used again, the pair is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl ProcessId {
    /// This process.
    pub fn own() -> ProcessId {
        let pid = std::process::id() as i32;
        ProcessId { pid, start: start_time(pid).unwrap_or(0) }
    }

    /// The process that now has this id.
    pub fn of(pid: i32) -> Option<ProcessId> {
        start_time(pid).map(|start| ProcessId { pid, start })
    }

    /// Seconds of a processor that it has used so far; none: it has ended.
    pub fn cpu_s(&self) -> Option<f64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let of = |path: std::path::PathBuf| -> Option<f64> {
            let said = std::fs::read_to_string(path.join("schedstat")).ok()?;
            said.split(' ').next()?.parse().ok()
        };
        let sum: f64 = threads.filter_map(|thread| of(thread.ok()?.path())).sum();
        self.is_alive().then_some(sum / 1e9)
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: i32) {
        if self.is_alive() {
            // SAFETY: kill has no memory effects.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Ends the processes: asks first, insists after `patience`.
    pub fn end_all(processes: &[ProcessId], patience: Duration) {
        processes.iter().for_each(|p| p.signal(libc::SIGTERM));
        let start = Instant::now();
        while processes.iter().any(ProcessId::is_alive) && start.elapsed() < patience {
            reap(processes);
            std::thread::sleep(Duration::from_millis(5));
        }
        processes.iter().for_each(|p| p.signal(libc::SIGKILL));
        let start = Instant::now();
        while processes.iter().any(ProcessId::is_alive) && start.elapsed() < patience {
            reap(processes);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Collects those that are our own children and have ended, so that they are no longer there.
fn reap(processes: &[ProcessId]) {
    for process in processes {
        // SAFETY: waitpid writes no status; for processes that are not our children it only fails.
        unsafe { libc::waitpid(process.pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Start time of a process in clock ticks since boot; none if it has ended (zombies count
/// as ended).
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may hold anything, but its closing parenthesis is the last one.
    let after_name = &stat[stat.rfind(')')? + 2..];
    let mut fields = after_name.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Moves the calling thread to one CPU; without effect if there is no such CPU.
pub fn pin_self(cpu: usize) {
    // SAFETY: the set is plain data, initialised to empty; CPU_SET stays within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

static BINARY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();

/// Says which binary stands for `shortstop-lab`, where it is not the running one (tests). The first
/// call counts.
pub fn set_binary(path: PathBuf) {
    let _ = BINARY.set(path);
}

/// The program of labs itself: the running one, unless [`set_binary`] said otherwise.
///
/// # Errors
/// The kernel does not say where it is.
pub fn own_binary() -> anyhow::Result<PathBuf> {
    match BINARY.get() {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe().context("cannot find the running binary"),
    }
}

/// The program that labs are about, `shortstop`: beside that of labs.
///
/// # Errors
/// It is not there.
pub fn product() -> anyhow::Result<PathBuf> {
    let path = own_binary()?.with_file_name("shortstop");
    anyhow::ensure!(
        path.exists(),
        "{}: there is no such program; a lab runs the `shortstop` that lies beside it: build both, with `cargo build`",
        path.display()
    );
    Ok(path)
}

/// Starts a process.
///
/// # Errors
/// The program does not exist, or the namespace cannot be entered.
pub fn launch(what: &Launch) -> anyhow::Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(what.log)
        .with_context(|| format!("log file {}", what.log.display()))?;
    let mut command = command_in(what.namespace, what.command)?;
    command.stderr(log.try_clone()?);
    if what.piped {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).stdout(log);
    }
    let (cpu, nice, detached) = (what.cpu, what.nice, what.detached);
    let parent = std::process::id() as i32;
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if let Some(cpu) = cpu {
                pin_self(cpu);
            }
            if nice != 0 {
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
            }
            // A session or group of its own: the terminal's Ctrl-C is for the lab to handle.
            if detached {
                libc::setsid();
            } else {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    return Err(std::io::Error::other("the lab has ended meanwhile"));
                }
            }
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("cannot start {}", what.command[0]))
}

/// A command that is going to run in a network namespace. There, `shortstop-lab` is the running
/// binary and `shortstop` the one beside it, as the program itself and wherever the command looks
/// for one of these names.
///
/// # Errors
/// There is no such namespace, no command, or no `shortstop`.
pub fn command_in(namespace: &str, words: &[String]) -> anyhow::Result<Command> {
    let (program, arguments) = words.split_first().context("an empty command")?;
    let binary = own_binary()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = binary.parent().map(Path::to_path_buf);
    let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))?;
    let mut command = Command::new(match program.as_str() {
        "shortstop" => product()?,
        "shortstop-lab" => binary,
        other => other.into(),
    });
    command.args(arguments).env("PATH", path);
    enter(&mut command, namespace)?;
    Ok(command)
}

/// Makes a command enter a network namespace before it becomes the program, with a `/sys` that
/// shows the interfaces of that namespace (sysfs belongs to a mount, not to the process that reads
/// it). The BPF file system stays the one of the machine.
///
/// # Errors
/// There is no such namespace.
pub fn enter(command: &mut Command, namespace: &str) -> anyhow::Result<()> {
    let file: OwnedFd = namespace::open(namespace)?.into();
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            check(libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET))?;
            own_sysfs()
        });
    }
    Ok(())
}

fn check(result: i32) -> std::io::Result<()> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts a sysfs of this network namespace over `/sys`, in a mount namespace of this process alone,
/// and the BPF file system back into its place. Allocates nothing: it runs between fork and exec.
fn own_sysfs() -> std::io::Result<()> {
    let (sys, bpf, sysfs) = (c"/sys".as_ptr(), c"/sys/fs/bpf".as_ptr(), c"sysfs".as_ptr());
    let null = std::ptr::null();
    // SAFETY: every pointer is a terminated string or null, as mount takes them.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_SLAVE | libc::MS_REC;
        check(libc::mount(c"none".as_ptr(), c"/".as_ptr(), null, private, null.cast()))?;
        let old = libc::open(bpf, libc::O_PATH | libc::O_CLOEXEC);
        check(libc::mount(sysfs, sys, sysfs, 0, null.cast()))?;
        if old < 0 {
            return Ok(());
        }
        let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
        let (mut digits, mut rest) = (1, old);
        while rest >= 10 {
            (digits, rest) = (digits + 1, rest / 10);
        }
        let mut number = old;
        for at in (14..14 + digits).rev() {
            path[at] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        check(libc::mount(path.as_ptr().cast(), bpf, null, libc::MS_BIND, null.cast()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_id_and_start() {
        let own = ProcessId::own();
        assert!(own.is_alive());
        assert!(!ProcessId { start: own.start + 1, ..own }.is_alive());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        assert!(id.is_alive());
        ProcessId::end_all(&[id], Duration::from_secs(2));
        assert!(!id.is_alive());
        let _ = child.wait();
    }
}
