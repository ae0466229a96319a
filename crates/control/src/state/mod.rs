//! What the controller remembers, and which controller may change it.
//!
//! Small JSON rows under string keys, and the items that each switch is known to hold. They lie in
//! one redb file of this machine, or in etcd, where several controllers stand by and one leads. The
//! outside is the same for both: [`State::open`], then [`State::campaign`] until this controller
//! leads, then [`Lead::load`] once and [`Lead::write`] for each change. Only a [`Lead`] can read or
//! write, so that nothing is done in the name of a controller that does not lead.
//!
//! Every lead has a *term* that is higher than all before it, over restarts and over machines.
//! Writes of an older term are refused by the store ([`StateError::Deposed`]), and its messages by
//! the switches. What a new leader loads is therefore final: nothing of an older term can come
//! after it.
//!
//! Costs: a write is one synced commit of the file, or one round trip to etcd per 100 rows; the
//! leader has etcd write some seven heartbeats a second, and a standby reads five keys ten times a
//! second and keeps a copy of all rows by a watch.

mod batch;
mod etcd;
#[cfg(test)]
pub(crate) mod faulty;
mod heartbeat;
mod in_memory;
mod leader;
mod mirror;
mod redb;
mod tenure;
mod url;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use decide::{ItemKey, SwitchId};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use wire::maps::HashSet;

pub use self::{
    batch::{Batch, ROW_MAX, ROWS_TOGETHER},
    in_memory::InMemory,
    leader::{Candidate, Leader},
    tenure::Pace,
    url::{Location, LocationError},
};
use self::{etcd::Etcd, heartbeat::Heartbeat, mirror::Mirror, redb::File, tenure::Tenure};

/// Version of what is stored and how; it is stored with it.
const FORMAT: u64 = 3;

/// Everything that is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedState {
    /// The rows by their keys.
    pub rows: BTreeMap<String, Vec<u8>>,
    /// What each switch was last known to hold; empty with etcd, where switches tell it themselves.
    pub items: BTreeMap<SwitchId, HashSet<ItemKey>>,
}

impl LoadedState {
    /// Makes the changes of a batch.
    pub fn apply(&mut self, batch: &Batch) {
        for (key, value) in batch.rows() {
            match value {
                Some(value) => self.rows.insert(key.clone(), value.clone()),
                None => self.rows.remove(key),
            };
        }
        for (switch, key, held) in &batch.items {
            let items = self.items.entry(*switch).or_default();
            match held {
                true => items.insert(key.clone()),
                false => items.remove(key),
            };
        }
        self.items.retain(|_, items| !items.is_empty());
    }

    /// The row under this key, from its JSON.
    ///
    /// # Errors
    /// [`StateError::Row`] if it is not what is expected.
    pub fn row<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StateError> {
        let Some(json) = self.rows.get(key) else { return Ok(None) };
        parse(key, json).map(Some)
    }

    /// The rows whose keys begin with `prefix`, by what follows it (`"7"` of `tenant/7` for the
    /// prefix `tenant/`), in the order of their keys.
    ///
    /// # Errors
    /// [`StateError::Row`] if one of them is not what is expected.
    pub fn rows_under<T: DeserializeOwned>(
        &self,
        prefix: &str,
    ) -> Result<Vec<(&str, T)>, StateError> {
        self.rows
            .range(prefix.to_string()..)
            .map_while(|(key, json)| Some((key, key.strip_prefix(prefix)?, json)))
            .map(|(key, rest, json)| Ok((rest, parse(key, json)?)))
            .collect()
    }
}

fn parse<T: DeserializeOwned>(key: &str, json: &[u8]) -> Result<T, StateError> {
    serde_json::from_slice(json)
        .map_err(|e| StateError::Row { key: key.into(), reason: e.to_string() })
}

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has the file open.
    #[error(
        "{0}: another controller uses this state file; stop it, or give this one another --state directory"
    )]
    Locked(PathBuf),
    /// Written by a version of this program that is not compatible.
    #[error(
        "{place}: the state has format {found}, this version reads format {FORMAT}: use the version that wrote it, or another --state"
    )]
    Format {
        /// The file, or etcd and the prefix there.
        place: String,
        /// Its format.
        found: String,
    },
    /// The directory or the file cannot be made, read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// etcd refuses what it is asked, and will when it is asked again.
    #[error("{place}: etcd refused: {reason}")]
    Refused {
        /// etcd and the prefix there.
        place: String,
        /// In its words.
        reason: String,
    },
    /// This controller does not lead any more. What was being written may be written or not: who
    /// leads next sees it.
    #[error("this controller does not lead any more; nothing may be changed by it")]
    Deposed,
    /// A row is not what was expected, or cannot be stored.
    #[error("state row {key:?}: {reason}")]
    Row {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// An open store, before and between times of leading.
pub struct State {
    backend: Backend,
    candidate: Candidate,
    pace: Pace,
    leader: watch::Sender<Option<Leader>>,
}

#[derive(Clone)]
enum Backend {
    File(Arc<File>),
    Etcd(Arc<Etcd>),
}

impl State {
    /// Opens the state file, or prepares to reach etcd: whether it can be reached shows in
    /// [`State::campaign`].
    ///
    /// # Errors
    /// If the file is locked, of another format, or not accessible.
    pub async fn open(location: &Location, candidate: Candidate) -> Result<State, StateError> {
        State::open_at_pace(location, candidate, Pace::default()).await
    }

    /// Likewise, with an election at another pace.
    ///
    /// # Errors
    /// As [`State::open`].
    pub async fn open_at_pace(
        location: &Location,
        candidate: Candidate,
        pace: Pace,
    ) -> Result<State, StateError> {
        let backend = match location {
            Location::Directory(path) => {
                let path = path.clone();
                Backend::File(Arc::new(blocking(move || File::open(&path)).await?))
            }
            Location::Etcd(servers) => Backend::Etcd(Arc::new(Etcd::new(servers).await?)),
        };
        Ok(State { backend, candidate, pace, leader: watch::Sender::new(None) })
    }

    /// A state on a disk that may fail.
    #[cfg(test)]
    pub(crate) fn on(
        disk: &faulty::FaultyDisk,
        directory: &std::path::Path,
        candidate: Candidate,
    ) -> Result<State, StateError> {
        let file = File::open_by(directory, disk.opener())?;
        let (backend, leader) = (Backend::File(Arc::new(file)), watch::Sender::new(None));
        Ok(State { backend, candidate, pace: Pace::default(), leader })
    }

    /// Waits until this controller leads: at once with a file, with etcd when no other one does. It
    /// goes on trying while etcd cannot be reached. To be dropped to stop standing by. A lead that
    /// this controller won before must be gone or resigned.
    ///
    /// # Errors
    /// Only what does not pass by waiting: another format, or etcd denies access.
    pub async fn campaign(&self) -> Result<Lead, StateError> {
        match &self.backend {
            Backend::File(file) => {
                let file = file.clone();
                let term = blocking(move || file.next_term()).await?;
                self.leader.send_replace(Some(Leader::of(&self.candidate, term)));
                Ok(Lead {
                    backend: self.backend.clone(),
                    tenure: Arc::new(Tenure::unlimited(term)),
                    heartbeat: None,
                    mirror: Mutex::default(),
                })
            }
            Backend::Etcd(etcd) => {
                let mirror = Mirror::start(etcd.clone(), self.pace);
                let tenure =
                    leader::campaign(etcd, &self.candidate, self.pace, &self.leader).await?;
                let tenure = Arc::new(tenure);
                let heartbeat = Heartbeat::start(etcd.place().clone(), tenure.clone());
                Ok(Lead {
                    backend: self.backend.clone(),
                    tenure,
                    heartbeat: Some(heartbeat),
                    mirror: Mutex::new(Some(mirror)),
                })
            }
        }
    }

    /// Who leads, as far as this controller saw in [`State::campaign`]: for the messages that a
    /// standby answers with.
    pub fn leader(&self) -> Option<Leader> {
        self.leader.borrow().clone()
    }

    /// Whether this controller is that leader.
    pub fn is_own(&self, leader: &Leader) -> bool {
        (&leader.name, &leader.url) == (&self.candidate.name, &self.candidate.url)
    }
}

/// The right to read and change the state, while it lasts. If it is dropped without
/// [`Lead::resign`], it ends as if the process had been killed: with etcd, others lead when they
/// have heard nothing of it for long enough.
pub struct Lead {
    backend: Backend,
    tenure: Arc<Tenure>,
    heartbeat: Option<Heartbeat>,
    /// What this controller had read while it stood by, until it is used.
    mirror: Mutex<Option<Mirror>>,
}

impl Lead {
    /// The term: higher than that of every lead before.
    pub fn term(&self) -> u64 {
        self.tenure.term
    }

    /// Whether this controller leads now, by this machine's clock: to be asked right before
    /// something is sent that only the leader may send. While etcd does not answer it may not hold,
    /// and hold again later.
    pub fn holds(&self) -> bool {
        self.tenure.holds()
    }

    /// Done when this controller does not lead any more: another took its place, or etcd does not
    /// answer for too long. Never with a file.
    pub async fn lost(&self) {
        self.tenure.lost().await;
    }

    /// Reads everything; the first time at once, if this controller stood by long enough.
    ///
    /// # Errors
    /// [`StateError::Deposed`] if the lead was lost while etcd could not be read; or the file
    /// cannot be read.
    pub async fn load(&self) -> Result<LoadedState, StateError> {
        match &self.backend {
            Backend::File(file) => {
                let file = file.clone();
                blocking(move || file.load()).await
            }
            Backend::Etcd(etcd) => {
                let mirror = self.take_mirror();
                if let (Some(mirror), Some(fence)) = (mirror, self.tenure.fence())
                    && let Some(rows) =
                        mirror.at(fence.leader_since, self.tenure.pace.copy_within).await
                {
                    return Ok(rows);
                }
                etcd.load(&self.tenure).await
            }
        }
    }

    /// Writes a batch and waits until it is durable. [`Batch`] says what of it is written whole or
    /// not at all; batches are written in the order of the calls. While etcd cannot be reached it
    /// is tried again, as long as this controller leads. If this is given up (the future dropped),
    /// the batch is written or not, but never after a later one.
    ///
    /// # Errors
    /// [`StateError::Deposed`]: step down. With any other, this controller still leads, and the
    /// first units of the batch may be written.
    pub async fn write(&self, batch: &Arc<Batch>) -> Result<(), StateError> {
        match &self.backend {
            Backend::File(file) => {
                let (file, batch, term) = (file.clone(), batch.clone(), self.term());
                let turn = self.tenure.writes.clone().lock_owned().await;
                let write = move || {
                    let written = file.write(term, &batch);
                    // Also if nobody waits any more, the next one begins only now.
                    drop(turn);
                    written
                };
                blocking(write).await
            }
            Backend::Etcd(etcd) => {
                // It has nothing of what this lead writes.
                drop(self.take_mirror());
                etcd.write(&self.tenure, batch).await
            }
        }
    }

    /// Has every lead after this one begin above `term`, durably. Nothing more can be written in
    /// this one; it is to be resigned.
    ///
    /// # Errors
    /// As of [`Lead::write`].
    pub async fn begin_above(&self, term: u64) -> Result<(), StateError> {
        match &self.backend {
            Backend::File(file) => {
                let (file, own) = (file.clone(), self.term());
                blocking(move || file.begin_above(own, term)).await
            }
            Backend::Etcd(etcd) => etcd.begin_above(&self.tenure, term).await,
        }
    }

    fn take_mirror(&self) -> Option<Mirror> {
        let mirror = self.mirror.lock();
        mirror.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the lead, so that another controller can lead at once.
    pub async fn resign(mut self) {
        self.tenure.end("it stops");
        if let Some(heartbeat) = self.heartbeat.take() {
            heartbeat.ended().await;
        }
    }
}

/// Runs what waits for the disk where it holds nothing else up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => std::panic::resume_unwind(e.into_panic()),
    }
}
