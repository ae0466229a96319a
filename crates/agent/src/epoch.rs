//! Rule 1 across reboots: the invalidation counter starts above every number it ever had.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::AgentError;

/// Numbers reserved at a time: some four hours of one invalidation per 15 microseconds.
const AHEAD: u64 = 1 << 30;

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> AgentError {
    let path = path.to_owned();
    move |source| AgentError::State { path, source }
}

/// A file that says up to which number the counter may have got.
pub(super) struct Reservation {
    path: PathBuf,
    reserved: u64,
}

impl Reservation {
    pub fn open(directory: &Path) -> Result<Reservation, AgentError> {
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
        Ok(Reservation { path, reserved })
    }

    /// Where the counter must at least stand at the start: above what was reserved before, and above the
    /// wall clock in 2^-16 seconds, should the file be lost.
    pub fn start(&self) -> u64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let clock = (now.as_secs() << 16) | ((u64::from(now.subsec_nanos()) << 16) / 1_000_000_000);
        clock.max(self.reserved)
    }

    /// Reserves more numbers when the counter, now at `epoch`, has used half of them.
    pub fn keep_ahead(&mut self, epoch: u64) -> Result<(), AgentError> {
        if epoch + AHEAD / 2 < self.reserved {
            return Ok(());
        }
        let reserved = epoch + AHEAD;
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, format!("{reserved}\n")).map_err(failed(&fresh))?;
        File::open(&fresh)
            .and_then(|file| file.sync_all())
            .map_err(failed(&fresh))?;
        fs::rename(&fresh, &self.path).map_err(failed(&self.path))?;
        self.reserved = reserved;
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
        let mut first = Reservation::open(directory.path()).unwrap();
        let far_ahead_of_the_clock = first.start() + (1 << 40);
        first.keep_ahead(far_ahead_of_the_clock).unwrap();
        let second = Reservation::open(directory.path()).unwrap();
        assert!(second.start() > far_ahead_of_the_clock);
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
