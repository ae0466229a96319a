//! Rule 1 across reboots: the invalidation counter starts above every number it ever had. And that
//! one agent at a time serves a switch.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, kill},
        stat::{major, minor},
    },
    unistd::Pid,
};

use tracing::warn;
use wire::Epoch;

use super::{AgentError, LOCKS};

/// Numbers reserved at a time. Half of them at least are ahead of the counter when an agent looks,
/// five times a second; while none runs the programs use them up: 100,000 invalidations per second
/// may go on so for five minutes. A counter of new tables begins up to so many, which are 17
/// minutes of the clock, beyond the last number that was used.
const AHEAD: u64 = 1 << 26;

/// With so many numbers left an agent warns: 10 days, if 20 million a second are used.
const NEAR_END: u64 = 1 << 44;

/// Tells an agent that its switch is to leave. One of an earlier release does not know it.
const LEAVE: Signal = Signal::SIGUSR1;

/// How long an agent may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> AgentError {
    let path = path.to_owned();
    move |source| AgentError::State { path, source }
}

fn not_locked(path: &Path) -> impl FnOnce(std::io::Error) -> AgentError {
    let path = path.to_owned();
    move |source| AgentError::Lock { path, source }
}

/// Where it is written up to which number the counter may have got.
enum Storage {
    File(PathBuf),
    /// With whether what is written there is refused.
    Memory(Arc<AtomicU64>, Arc<AtomicBool>),
}

impl Storage {
    fn set(&self, reserved: u64) -> Result<(), AgentError> {
        let path = match self {
            Storage::File(path) => path,
            Storage::Memory(_, fails) if fails.load(Relaxed) => {
                let source = std::io::Error::other("what it is written to fails");
                return Err(AgentError::State { path: "epoch".into(), source });
            }
            Storage::Memory(kept, _) => {
                kept.store(reserved, Relaxed);
                return Ok(());
            }
        };
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{reserved}\n")).map_err(failed(&fresh))?;
        File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed(&fresh))?;
        fs::rename(&fresh, path).map_err(failed(path))?;
        // Else a power cut could bring the older number back.
        let directory = path.parent().unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed(directory))
    }
}

/// Numbers that the invalidation counter may have had, reserved before it has them.
pub struct Reservation {
    kept: Storage,
    reserved: u64,
    /// The wall clock in 2^-16 seconds.
    clock: u64,
    has_warned: bool,
}

/// What people are told if there are few numbers left.
fn warning(epoch: u64) -> Option<String> {
    let left = Epoch::MAX_NUMBER.saturating_sub(epoch);
    (left <= NEAR_END).then(|| {
        format!(
            "{left} epochs of this switch are left; without any it caches and lends nothing. \
             Detach it, and attach it with another --id and an empty --state-dir"
        )
    })
}

impl Reservation {
    /// In a file of this directory, made if need be. `clock` is the time since 1970.
    ///
    /// # Errors
    /// If the file cannot be read, or is none of ours.
    pub fn open(directory: &Path, clock: Duration) -> Result<Reservation, AgentError> {
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let path = directory.join("epoch");
        let reserved = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|_| {
                let text =
                    format!("{text:?} is not a number; delete the file if the clock is right");
                failed(&path)(std::io::Error::other(text))
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(failed(&path)(e)),
        };
        Ok(Reservation::of(Storage::File(path), reserved, clock))
    }

    /// In memory that outlives the agent, is 0 before the first one, and takes nothing while it
    /// `fails`. `clock` is the time since 1970.
    pub fn in_memory(kept: Arc<AtomicU64>, fails: Arc<AtomicBool>, clock: Duration) -> Reservation {
        let reserved = kept.load(Relaxed);
        Reservation::of(Storage::Memory(kept, fails), reserved, clock)
    }

    fn of(kept: Storage, reserved: u64, clock: Duration) -> Reservation {
        let part = (u64::from(clock.subsec_nanos()) << 16) / 1_000_000_000;
        Reservation { kept, reserved, clock: (clock.as_secs() << 16) | part, has_warned: false }
    }

    /// Where the counter must at least stand at the start: above what was reserved before, and
    /// above the wall clock in 2^-16 seconds, should the file be lost.
    pub(super) fn start(&self) -> u64 {
        self.clock.max(self.reserved)
    }

    /// Reserves more numbers when the counter, now at `epoch`, has used half of them. Warns once if
    /// it is near its end.
    pub(super) fn keep_ahead(&mut self, epoch: u64) -> Result<(), AgentError> {
        if !self.has_warned
            && let Some(warning) = warning(epoch)
        {
            warn!("{warning}");
            self.has_warned = true;
        }
        if epoch + AHEAD / 2 >= self.reserved {
            let reserved = epoch + AHEAD;
            self.kept.set(reserved)?;
            self.reserved = reserved;
        }
        Ok(())
    }
}

/// Keeps a second agent away from the same switch; gone with the process that holds it, and its
/// file with the lock.
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

fn lock_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("switch-{name}.lock"))
}

/// Whether this is the file that is there.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let ours = file.metadata()?;
    let is_ours = |there: fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
    Ok(fs::metadata(path).is_ok_and(is_ours))
}

impl Lock {
    /// In the first of these directories that may be written to. A directory that has no room at
    /// the moment is no reason to go on to the next: another agent would find room there later.
    pub fn take_first(directories: &[PathBuf], name: &str) -> Result<Lock, AgentError> {
        let never = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        let mut refused = None;
        for directory in directories {
            match Lock::take(directory, name) {
                Err(AgentError::Lock { path, source }) if never.contains(&source.kind()) => {
                    refused.get_or_insert(AgentError::Lock { path, source });
                }
                done => return done,
            }
        }
        Err(refused.unwrap_or_else(|| AgentError::Running(name.into())))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    pub fn take(directory: &Path, name: &str) -> Result<Lock, AgentError> {
        fs::create_dir_all(directory).map_err(not_locked(directory))?;
        let path = lock_path(directory, name);
        // Whoever may open it may lock it, and keep the agent away.
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        loop {
            let file = open.open(&path).map_err(not_locked(&path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(AgentError::Running(name.into())),
                Err(fs::TryLockError::Error(e)) => return Err(not_locked(&path)(e)),
            }
            // Whoever held it may have removed the file since it was opened here: then this lock
            // keeps nobody away.
            if is_at(&file, &path).map_err(not_locked(&path))? {
                return Ok(Lock { path, file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is still locked, so that nobody else locks what is removed. Another's lock is
        // there if somebody cleared the directory away.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Who has this lock, as the kernel knows it here.
fn holder(path: &Path) -> Option<Pid> {
    let file = fs::metadata(path).ok()?;
    let inode = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // `NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END`; whoever waits has an
        // arrow before the kind.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, of, ..] = words[..] else { return None };
        let pid = pid.parse::<i32>().ok().filter(|pid| *pid > 0);
        pid.filter(|_| of == inode).map(Pid::from_raw)
    })
}

/// The process that serves the switch of this name on this machine, if one does.
pub(super) fn agent_of(name: &str) -> Option<i32> {
    holder(&lock_path(Path::new(LOCKS), name)).map(Pid::as_raw)
}

/// Ends the agent that serves the switch of this name, which is to leave, and waits until it has
/// ended; false: there is none.
///
/// # Errors
/// [`AgentError::Lives`].
pub fn stop(name: &str) -> Result<bool, AgentError> {
    stop_holder(Path::new(LOCKS), name)
}

/// A switch that no agent serves, nor begins to, while this lives.
pub struct UnservedSwitch {
    _lock: Lock,
}

/// Keeps agents away from the switch of this name, which is to be taken apart.
///
/// # Errors
/// [`AgentError::Running`] if one serves it, or the lock cannot be taken.
pub fn keep_away(name: &str) -> Result<UnservedSwitch, AgentError> {
    Ok(UnservedSwitch { _lock: Lock::take_first(&[LOCKS.into()], name)? })
}

/// Whether a process does something of its own at a signal, which else would end it as a crash
/// does.
fn catches(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 != 0)
}

/// Done when the agent is told that its switch is to leave ([`stop`]).
pub async fn told_to_leave() {
    let signal = tokio::signal::unix::SignalKind::from_raw(LEAVE as i32);
    match tokio::signal::unix::signal(signal) {
        Ok(mut told) => drop(told.recv().await),
        Err(_) => std::future::pending().await,
    }
}

fn stop_holder(directory: &Path, name: &str) -> Result<bool, AgentError> {
    let path = lock_path(directory, name);
    let Some(pid) = holder(&path) else { return Ok(false) };
    let lives = |reason: String| AgentError::Lives { name: name.into(), pid: pid.as_raw(), reason };
    let signal = if catches(pid, LEAVE) { LEAVE } else { Signal::SIGTERM };
    kill(pid, signal).map_err(|e| lives(e.to_string()))?;
    let until = Instant::now() + ENDS_WITHIN;
    while holder(&path) == Some(pid) {
        if Instant::now() > until {
            return Err(lives(format!("it was told to {} s ago", ENDS_WITHIN.as_secs())));
        }
        sleep(Duration::from_millis(20));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::PermissionsExt,
        process::{Command, Stdio},
    };

    use nix::{
        mount::{MsFlags, mount},
        sched::{CloneFlags, unshare},
        unistd::{Uid, setfsuid},
    };

    use super::*;

    #[test]
    fn a_restart_starts_above_everything_that_was_handed_out() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Arc::new(AtomicU64::new(0));
        let clock = Duration::from_secs(1_700_000_000);
        let file = || Reservation::open(directory.path(), clock).unwrap();
        let memory = || Reservation::in_memory(kept.clone(), Arc::default(), clock);
        for open in [&file as &dyn Fn() -> Reservation, &memory] {
            let mut first = open();
            assert_eq!(first.start(), clock.as_secs() << 16);
            let far_ahead_of_the_clock = first.start() + (1 << 40);
            first.keep_ahead(far_ahead_of_the_clock).unwrap();
            assert!(open().start() > far_ahead_of_the_clock);
        }
    }

    #[test]
    fn people_are_warned_days_before_the_numbers_are_used_up() {
        // The clock's part of the counter gets there in 2096.
        assert_eq!(warning(4_000_000_000 << 16), None);
        let near = Epoch::MAX_NUMBER - NEAR_END;
        assert!(warning(near - 1).is_none() && warning(near).is_some());
        assert!(warning(Epoch::MAX_NUMBER + 5).is_some_and(|text| text.starts_with("0 epochs")));
    }

    /// What cannot be reserved is not used: the next start would give it out again.
    #[test]
    fn what_a_disk_refuses_is_not_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Duration::from_secs(1);
        let fails = Arc::new(AtomicBool::new(true));
        // Nobody, root neither, writes a file where a directory is.
        fs::create_dir(directory.path().join("epoch.new")).unwrap();
        for mut refused in [
            Reservation::open(directory.path(), clock).unwrap(),
            Reservation::in_memory(Arc::default(), fails.clone(), clock),
        ] {
            let first = refused.start();
            assert!(matches!(refused.keep_ahead(first), Err(AgentError::State { .. })));
            fs::remove_dir(directory.path().join("epoch.new")).ok();
            fails.store(false, Relaxed);
            assert_eq!(refused.start(), first);
            refused.keep_ahead(first).unwrap();
            fails.store(true, Relaxed);
        }
    }

    /// Without root, and with the two capabilities that a soft switch takes.
    #[test]
    fn who_may_not_lock_for_the_machine_locks_for_himself() {
        let (machine, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mode = |directory: &tempfile::TempDir, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(directory.path(), mode).unwrap();
            directory.path().to_owned()
        };
        let directories = vec![mode(&machine, 0o555), mode(&own, 0o777)];
        // Of this thread alone.
        let nobody = std::thread::spawn(move || {
            setfsuid(Uid::from_raw(65_534));
            let lock = Lock::take_first(&directories, "tor").unwrap();
            assert_eq!(lock.directory(), directories[1]);
            let second = Lock::take_first(&directories, "tor");
            assert!(matches!(second, Err(AgentError::Running(_))));
            let error = Lock::take_first(&directories[..1], "tor").err().unwrap().to_string();
            assert!(error.contains("run this as root") && !error.contains("--state-dir"));
        });
        nobody.join().unwrap();
    }

    /// A container may have its /run like that.
    #[test]
    fn where_nothing_can_be_written_the_lock_is_the_users_own_and_where_no_room_is_there_is_none() {
        let (machine, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Mounts of this thread alone.
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(none, "/", none, private, none).unwrap();
            let at = |flags, data| {
                mount(Some("tmpfs"), machine.path(), Some("tmpfs"), flags, Some(data)).unwrap();
            };
            let directories = [machine.path().to_owned(), own.path().to_owned()];
            at(MsFlags::MS_RDONLY, "");
            let lock = Lock::take_first(&directories, "tor").unwrap();
            assert_eq!(lock.directory(), directories[1]);
            let error = Lock::take_first(&directories[..1], "tor").err().unwrap().to_string();
            assert!(error.contains("mount it") && !error.contains("--state-dir"), "{error}");
            drop(lock);
            // One inode, which is the directory's.
            at(MsFlags::empty(), "nr_inodes=1");
            let error = Lock::take_first(&directories, "tor").err().unwrap().to_string();
            assert!(error.contains("make room") && !error.contains("--state-dir"), "{error}");
        });
        thread.join().unwrap();
    }

    #[test]
    fn nobody_else_opens_a_lock() {
        let directory = tempfile::tempdir().unwrap();
        let _lock = Lock::take(directory.path(), "tor").unwrap();
        let file = fs::metadata(lock_path(directory.path(), "tor")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_agent_is_ended_by_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!stop_holder(directory.path(), "tor").unwrap(), "there is none");
        let path = lock_path(directory.path(), "tor");
        let mut agent = Command::new("flock")
            .arg("--close")
            .arg(&path)
            .args(["sh", "-c", "echo; exec sleep 5"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has the lock by then.
        let mut line = [0];
        std::io::Read::read_exact(agent.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert!(matches!(Lock::take(directory.path(), "tor"), Err(AgentError::Running(_))));
        let ended = std::thread::scope(|scope| {
            let ended = scope.spawn(|| stop_holder(directory.path(), "tor"));
            agent.wait().unwrap();
            ended.join().unwrap()
        });
        assert!(ended.unwrap());
        drop(Lock::take(directory.path(), "tor").unwrap());
        assert!(!stop_holder(directory.path(), "tor").unwrap());
    }

    #[test]
    fn one_agent_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = Lock::take(directory.path(), "tor").unwrap();
        assert!(matches!(Lock::take(directory.path(), "tor"), Err(AgentError::Running(_))));
        drop(held);
        let path = directory.path().join("switch-tor.lock");
        assert!(!path.exists(), "a lock that nobody holds leaves no file");
        // One that was killed leaves it, and it keeps nobody away.
        fs::write(&path, "").unwrap();
        Lock::take(directory.path(), "tor").unwrap();
    }

    /// As systemd does when it removes the directory of a service that has ended.
    #[test]
    fn a_lock_whose_directory_was_cleared_away_leaves_the_next_one_alone() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("shortstop");
        let first = Lock::take(&directory, "tor").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        let _second = Lock::take(&directory, "tor").unwrap();
        drop(first);
        assert!(matches!(Lock::take(&directory, "tor"), Err(AgentError::Running(_))));
    }

    #[test]
    fn no_agent_begins_to_serve_a_switch_that_is_taken_apart() {
        let name = format!("test-away-{}", std::process::id());
        let agent = || Lock::take(Path::new(LOCKS), &name);
        let unserved = keep_away(&name).unwrap();
        assert!(matches!(agent(), Err(AgentError::Running(_))));
        drop(unserved);
        let _serves = agent().unwrap();
        assert!(matches!(keep_away(&name), Err(AgentError::Running(_))));
    }

    /// Agents that come and go: of those that take the lock, one at a time has it.
    #[test]
    fn a_lock_that_is_being_removed_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let holders = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 300 {
                        if let Ok(lock) = Lock::take(directory.path(), "tor") {
                            assert_eq!(holders.fetch_add(1, Relaxed), 0, "held twice");
                            taken += 1;
                            holders.fetch_sub(1, Relaxed);
                            drop(lock);
                        }
                    }
                });
            }
        });
    }
}
