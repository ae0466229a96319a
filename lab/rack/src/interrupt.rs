//! SIGINT and SIGTERM set a flag that every wait of the lab looks at, so that it always cleans up.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use anyhow::bail;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// From now on SIGINT, SIGTERM and SIGHUP end the lab by way of [`check`].
pub fn install() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
    }
}

/// An error once a signal has come.
///
/// # Errors
/// "interrupted".
pub fn check() -> anyhow::Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Waits until `ready` gives something, looking every few milliseconds.
///
/// # Errors
/// An interruption, an error of `ready`, or `what` not having happened in time.
pub fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut ready: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        check()?;
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if start.elapsed() > timeout {
            bail!("{what}: not within {} s", timeout.as_secs_f64());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
