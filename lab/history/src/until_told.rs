//! A process of clients: it goes on until it is told to stop, says how far it is, and at last what
//! was recorded.

use std::{
    io::{BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::ClientRecord;

/// What the clients of a process share.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    stopped: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Progress {
    /// Whether they are to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Counts an operation, if its answer says something.
    pub fn count(&self, says_something: bool) {
        self.done.fetch_add(says_something.into(), Relaxed);
    }
}

/// Runs the clients that `begin` starts until `input` ends; writes the number of operations every
/// tenth of a second and what was recorded at last, each as a line of JSON.
///
/// # Errors
/// The clients cannot start, or nobody reads the output.
pub(crate) fn run_until_told(
    mut input: impl BufRead + Send + 'static,
    mut output: impl Write,
    begin: impl AsyncFnOnce(&Progress) -> anyhow::Result<Vec<JoinHandle<ClientRecord>>>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let progress = Progress::default();
    let stopped = progress.stopped.clone();
    std::thread::spawn(move || {
        let _ = input.read_line(&mut String::new());
        stopped.store(true, Relaxed);
    });
    let mut recorded = ClientRecord::default();
    runtime.block_on(async {
        let tasks = begin(&progress).await?;
        while !progress.is_stopped() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            writeln!(output, "{}", progress.done.load(Relaxed)).context("nobody listens")?;
            output.flush()?;
        }
        for task in tasks {
            recorded.add(task.await?);
        }
        anyhow::Ok(())
    })?;
    serde_json::to_writer(&mut output, &recorded)?;
    writeln!(output)?;
    Ok(())
}
