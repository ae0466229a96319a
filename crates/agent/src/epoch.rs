//! Rule 1 across reboots: the invalidation counter starts above every number it ever had.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::AgentError;

/// Numbers reserved at a time: some four hours of one invalidation per 15 microseconds.
const AHEAD: u64 = 1 << 30;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> AgentError {
    let path = path.to_owned();
    move |source| AgentError::State { path, source }
}

/// Where it is written up to which number the counter may have got.
enum Kept {
    File(PathBuf),
    Memory(Arc<AtomicU64>),
}

impl Kept {
    fn set(&self, reserved: u64) -> Result<(), AgentError> {
        let path = match self {
            Kept::File(path) => path,
            Kept::Memory(kept) => {
                kept.store(reserved, Relaxed);
                return Ok(());
            }
        };
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{reserved}\n")).map_err(failed(&fresh))?;
        File::open(&fresh)
            .and_then(|file| file.sync_all())
            .map_err(failed(&fresh))?;
        fs::rename(&fresh, path).map_err(failed(path))
    }
}

/// Numbers that the invalidation counter may have had, reserved before it has them.
pub struct Reservation {
    kept: Kept,
    reserved: u64,
    /// The wall clock in 2^-16 seconds.
    clock: u64,
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
        Ok(Reservation::of(Kept::File(path), reserved, clock))
    }

    /// In memory that outlives the agent, and is 0 before the first one. `clock` is the time since 1970.
    pub fn in_memory(kept: Arc<AtomicU64>, clock: Duration) -> Reservation {
        let reserved = kept.load(Relaxed);
        Reservation::of(Kept::Memory(kept), reserved, clock)
    }

    fn of(kept: Kept, reserved: u64, clock: Duration) -> Reservation {
        let part = (u64::from(clock.subsec_nanos()) << 16) / 1_000_000_000;
        Reservation {
            kept,
            reserved,
            clock: (clock.as_secs() << 16) | part,
        }
    }

    /// Where the counter must at least stand at the start: above what was reserved before, and above the
    /// wall clock in 2^-16 seconds, should the file be lost.
    pub(super) fn start(&self) -> u64 {
        self.clock.max(self.reserved)
    }

    /// Reserves more numbers when the counter, now at `epoch`, has used half of them.
    pub(super) fn keep_ahead(&mut self, epoch: u64) -> Result<(), AgentError> {
        if epoch + AHEAD / 2 >= self.reserved {
            let reserved = epoch + AHEAD;
            self.kept.set(reserved)?;
            self.reserved = reserved;
        }
        Ok(())
    }
}

/// Keeps a second agent away from the same switch; gone with the process that holds it.
pub(super) struct Lock(#[allow(dead_code)] File);

impl Lock {
    pub fn take(directory: &Path, name: &str) -> Result<Lock, AgentError> {
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let path = directory.join(format!("switch-{name}.lock"));
        let file = File::create(&path).map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(fs::TryLockError::WouldBlock) => Err(AgentError::Running(name.into())),
            Err(fs::TryLockError::Error(e)) => Err(failed(&path)(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_starts_above_everything_that_was_handed_out() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Arc::new(AtomicU64::new(0));
        let clock = Duration::from_secs(1_700_000_000);
        let file = || Reservation::open(directory.path(), clock).unwrap();
        let memory = || Reservation::in_memory(kept.clone(), clock);
        for open in [&file as &dyn Fn() -> Reservation, &memory] {
            let mut first = open();
            assert_eq!(first.start(), clock.as_secs() << 16);
            let far_ahead_of_the_clock = first.start() + (1 << 40);
            first.keep_ahead(far_ahead_of_the_clock).unwrap();
            assert!(open().start() > far_ahead_of_the_clock);
        }
    }

    #[test]
    fn one_agent_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = Lock::take(directory.path(), "tor").unwrap();
        assert!(matches!(
            Lock::take(directory.path(), "tor"),
            Err(AgentError::Running(_))
        ));
        drop(held);
        Lock::take(directory.path(), "tor").unwrap();
    }
}
