//! The process that a client belongs to, and whether this is still it.
//!
//! A forked process has all of its parent's memory, and of its threads only the one that forked.
//! So a client in it would give its requests the numbers that the parent gives to others, which a
//! store takes for the same request sent twice; and it would serve copies that the parent's thread
//! has told stores are gone. [`crate::Client`] asks here before each call, which costs it one load.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::Error;

/// How often this process and those that it comes from were forked, since the first client began.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    forks: u32,
}

impl Process {
    /// This process.
    ///
    /// # Errors
    /// [`Error::Socket`] if the system has no memory left to tell of forks.
    pub fn current() -> Result<Process, Error> {
        static REFUSAL: OnceLock<i32> = OnceLock::new();
        match *REFUSAL.get_or_init(count_forks) {
            0 => Ok(Process { forks: FORKS.load(Ordering::Relaxed) }),
            errno => Err(Error::Socket {
                what: "cannot notice that this process is forked".into(),
                source: io::Error::from_raw_os_error(errno),
            }),
        }
    }

    /// Whether it is the one that asks.
    #[inline]
    pub fn is_current(self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// As [`Process::is_current`].
    ///
    /// # Errors
    /// [`Error::Forked`]: it is not.
    #[inline]
    pub fn check(self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked) }
    }
}

/// Has each child of this process count its fork; 0, or the system's error number.
#[expect(unsafe_code, reason = "the C library alone tells of forks")]
fn count_forks() -> i32 {
    extern "C" fn in_the_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the function stays where it is for as long as the process lives, and does only what
    // may be done in a child of a process with threads.
    unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) }
}
