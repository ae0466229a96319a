//! A standby's copy of all rows, kept up to date by a watch, so that it can lead at once when it
//! is elected.
//!
//! It watches everything under the prefix, the election too: what came up to the revision in which
//! this controller was elected is all that was ever written before.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use etcd_client::{Client, EventType, WatchOptions};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{
    LoadedState,
    etcd::{Backoff, Etcd, Fault},
    tenure::Pace,
};

/// A watch that tells nothing for so long may hang: leaders write more often.
const SILENT_MOST: Duration = Duration::from_secs(10);

/// The copy; it is no longer kept up when this is dropped.
pub(super) struct Mirror {
    copy: Arc<Copy>,
    keeping: JoinHandle<()>,
}

struct Copy {
    rows: Mutex<LoadedState>,
    /// The revision up to which it is complete; 0: it is not.
    complete: watch::Sender<i64>,
}

impl Mirror {
    /// Begins to copy.
    pub(super) fn start(etcd: Arc<Etcd>, pace: Pace) -> Mirror {
        let copy = Arc::new(Copy { rows: Mutex::default(), complete: watch::Sender::new(0) });
        let keeping = tokio::spawn(keep(etcd, pace, copy.clone()));
        Mirror { copy, keeping }
    }

    /// All rows as they were in this revision, in which the last was written; none: they are not
    /// here within this time.
    pub(super) async fn at(self, revision: i64, within: Duration) -> Option<LoadedState> {
        let mut complete = self.copy.complete.subscribe();
        let wait = complete.wait_for(|complete| *complete >= revision);
        timeout(within, wait).await.ok()?.ok()?;
        Some(std::mem::take(&mut *self.copy.rows()))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

impl Copy {
    fn rows(&self) -> MutexGuard<'_, LoadedState> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep(etcd: Arc<Etcd>, pace: Pace, copy: Arc<Copy>) {
    let mut backoff = Backoff::new();
    loop {
        let Err(fault) = follow(&etcd, pace, &copy).await;
        copy.complete.send_replace(0);
        tracing::debug!("the copy of the rows begins anew: {fault}");
        backoff.wait().await;
    }
}

async fn follow(etcd: &Etcd, pace: Pace, copy: &Copy) -> Result<std::convert::Infallible, Fault> {
    let (rows, revision) = etcd.snapshot(pace).await?;
    *copy.rows() = rows;
    let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
    let all = etcd.key("");
    let watch = |mut client: Client| async move { client.watch(all, Some(options)).await };
    let mut stream = etcd.ask(pace.page_within, watch).await?;
    copy.complete.send_replace(revision);
    let prefix = etcd.key("rows/");
    loop {
        let hangs = |_| Fault::Passing("a watch tells nothing".into());
        let message = timeout(SILENT_MOST, stream.message()).await;
        let Some(message) = message.map_err(hangs)?? else {
            return Err(Fault::Passing("a watch ended".into()));
        };
        if message.canceled() {
            let reason = message.cancel_reason().to_string();
            return Err(Fault::Passing(reason));
        }
        let mut last = 0;
        let mut rows = copy.rows();
        for event in message.events() {
            let Some(row) = event.kv() else { continue };
            last = row.mod_revision().max(last);
            let key = row.key_str().ok().and_then(|key| key.strip_prefix(&prefix));
            let Some(key) = key else { continue };
            match event.event_type() {
                EventType::Put => rows.rows.insert(key.into(), row.value().into()),
                EventType::Delete => rows.rows.remove(key),
            };
        }
        drop(rows);
        copy.complete.send_if_modified(|complete| {
            *complete = last.max(*complete);
            last == *complete
        });
    }
}
