//! What a store tells about itself on its status socket: one JSON document per connection.

use std::{io::Read, os::unix::net::UnixStream, path::Path, time::Duration};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    backend::{Trouble, TroubleKind},
    coherence::Watch,
    counters::Counters,
};

/// A store's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Whether it answers requests.
    pub ready: bool,
    /// Whether it takes writes: one lease after its start.
    pub takes_writes: bool,
    /// Where it listens.
    pub listen: String,
    /// Which backend holds the data.
    pub backend: String,
    /// What is wrong with the backend, if something is.
    pub backend_trouble: Option<BackendTroubleStatus>,
    /// Keys held, where the backend knows.
    pub items: Option<u64>,
    /// Bytes held, overhead included, where the backend knows.
    pub memory_bytes: Option<u64>,
    /// Items evicted for room.
    pub evicted: u64,
    /// Bytes that values take which are written in parts, until their writes are over.
    pub writing_bytes: u64,
    /// Bytes that values take which are read in parts from a backend of another process.
    pub reading_bytes: u64,
    /// What becomes of writes that others make in the backend.
    pub outside_writes: OutsideWritesStatus,
    /// Copies that the directory remembers.
    pub copies: u64,
    /// Pairs of a tenant and a switch that may have copies of its items; `None`: no controller has
    /// told, and all may.
    pub placements: Option<u64>,
    /// Switches whose lease holds, and stores that hold copies of keys of this one.
    pub leases: Vec<LeaseStatus>,
    /// Holders at the clients' side that may have copies.
    pub holders: u64,
    /// The partitions that it owns.
    pub partitions: Vec<PartitionStatus>,
    /// Keys that switches answer for (write-back).
    pub loans: LoansStatus,
    /// Copies of other stores' keys that are held here.
    pub replicas: ReplicasStatus,
    /// Every counter by name.
    pub totals: Counters,
}

/// What is wrong with a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendTroubleStatus {
    /// Of which kind it is.
    pub state: BackendState,
    /// For how long it has gone on, in milliseconds.
    pub for_ms: u64,
    /// When it began, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// What the backend said last, or what went wrong with the connection.
    pub words: String,
}

/// How a backend is that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendState {
    /// There is no connection to it, or it is not what the data may be asked of: requests are
    /// refused.
    Away,
    /// It does not answer, and is waited for.
    Slow,
    /// It answers, and refuses requests because of how it is.
    Refuses,
}

impl BackendTroubleStatus {
    /// That trouble, by a clock that shows so many milliseconds since 1970 now.
    pub(crate) fn at(trouble: Trouble, unix_ms: u64) -> BackendTroubleStatus {
        let for_ms = trouble.for_ns / 1_000_000;
        BackendTroubleStatus {
            state: match trouble.kind {
                TroubleKind::Away => BackendState::Away,
                TroubleKind::Slow => BackendState::Slow,
                TroubleKind::Refuses => BackendState::Refuses,
            },
            for_ms,
            since_unix_ms: unix_ms.saturating_sub(for_ms),
            words: trouble.words,
        }
    }
}

/// Copies of other stores' keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicasStatus {
    /// Keys that disciplines want held.
    pub keys: u64,
    /// Of these, those whose copy may be served now.
    pub valid: u64,
    /// Of these, those for whose value there is no room.
    pub no_room: u64,
    /// Bytes that copies take.
    pub bytes: u64,
}

/// What becomes of writes that others make in the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutsideWritesStatus {
    /// There are none, or they were said not to matter.
    #[default]
    Ignored,
    /// The backend tells of them, and copies are called back.
    Tracked,
    /// The backend cannot tell: switches are granted no copies.
    Impossible,
}

impl From<Watch> for OutsideWritesStatus {
    fn from(watch: Watch) -> OutsideWritesStatus {
        match watch {
            Watch::Unneeded => OutsideWritesStatus::Ignored,
            Watch::Tracked => OutsideWritesStatus::Tracked,
            Watch::Impossible => OutsideWritesStatus::Impossible,
        }
    }
}

/// One switch's lease, or a store's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// The switch; above 32767 a store ([`wire::store_at`]).
    pub switch: u16,
    /// The lease's term.
    pub term: u64,
    /// What is left of it in milliseconds.
    pub left_ms: u64,
}

/// Keys that are lent to switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoansStatus {
    /// Keys that a switch answers for.
    pub lent: u64,
    /// Keys that are being called back.
    pub returning: u64,
    /// A tenant has write-back, and yet nothing is lent: why.
    pub none_because: Option<String>,
}

/// One partition's load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its number.
    pub partition: u32,
    /// Requests taken.
    pub served: u64,
    /// Requests dropped because its queue was full.
    pub dropped: u64,
}

/// Asks the store behind a status socket; waits 5 seconds at most.
///
/// # Errors
/// No such socket, nobody behind it, or an answer that is not a status.
pub fn read_status(socket: &Path) -> anyhow::Result<Status> {
    let ask = || -> anyhow::Result<Status> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    };
    ask().with_context(|| {
        format!(
            "no status from {}: is a store running with this --status-socket?",
            socket.display()
        )
    })
}
