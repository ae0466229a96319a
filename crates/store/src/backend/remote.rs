//! A backend behind a connection: requests go to one task in order, which carries them out
//! in batches.
//!
//! One connection and one batch at a time: while a batch is under way, the next one gathers. That
//! keeps the order in which requests were handed over, which the coherence rules need, and under
//! load a system call and a round trip are shared by up to [`queue::BATCH`] requests.
//!
//! Of values that no packet carries a batch has [`BATCH_BYTES`] at most, so that small ones do not
//! wait for long. A read finds out that its value is one of these, and is asked again in a later
//! batch, in its tenant's turn. That it is carried out late does no harm: it is not answered
//! before, and what it finds then is newer.

mod attention;
mod completion;
mod health;
mod queue;
mod task;
#[cfg(test)]
mod tests;
mod versions;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Release},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use wire::KeyHash;

use super::{
    Answer, Backend, Change, Completion, Condition, Item, Key, Put, Refusal, Ticket, Trouble,
    outage::Outage,
};
use crate::{clock::boot_ns, coherence::Watch};
use attention::Attention;
use completion::completion;
pub(super) use health::Health;
use queue::Queue;
use task::Task;
use versions::Versions;

/// Bytes of large values that are read and written in one batch, if there are several.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// Bytes of a value that are read at first: more than fits beside any key. One that is as long is
/// large, and read later.
pub(super) const SMALL: usize = wire::MAX_PAYLOAD;
/// A question is asked at least this often, also where there is nothing to ask, while anybody reads
/// or writes.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(100);
/// Keys whose versions are remembered.
const VERSIONS: usize = 1_000_000;

/// A request as a protocol carries it out.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub ticket: Ticket,
    pub tenant: u32,
    pub name: Vec<u8>,
    /// Of the value that is read, or that the key has once it is written.
    pub version: u64,
    /// The version that its key had to have, and had when it came here.
    pub compared: Option<u64>,
    pub verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Get {
        /// The backend is to tell from before it reads if another changes the key.
        track: bool,
        /// Longest value that is of use.
        most: usize,
        /// Its length, if it is known to be large: then all of it is read.
        large: Option<usize>,
    },
    Put {
        value: Bytes,
        ttl_ms: u32,
        only_if: OnlyIf,
    },
    /// Remove it; where it must be absent only look whether it is.
    Delete {
        only_if: OnlyIf,
    },
    /// These keys, by their names, were read so often elsewhere. Nobody waits for the answer, and
    /// the command's own name is empty.
    Mark(Vec<(Vec<u8>, u32)>),
}

impl Command {
    /// Bytes of a large value that it takes to carry it out.
    pub fn large_bytes(&self) -> usize {
        match &self.verb {
            Verb::Get { large, .. } => large.unwrap_or(0),
            Verb::Put { value, .. } if value.len() > SMALL => value.len(),
            Verb::Put { .. } | Verb::Delete { .. } | Verb::Mark(_) => 0,
        }
    }
}

/// What a backend can check by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnlyIf {
    Always,
    Absent,
    Present,
}

/// A backend's answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// What remains of its life in milliseconds, 0: it does not expire.
    Value {
        value: Vec<u8>,
        expiry_ms: u32,
    },
    /// The same, or no such key, from a server that does not tell of changes, though that was
    /// asked for.
    Untold(Option<(Vec<u8>, u32)>),
    /// It is large and was not read: its length.
    Large(usize),
    /// No such key.
    Absent,
    /// Stored or removed.
    Done,
    /// Not stored, or there and not removed, because of [`OnlyIf`].
    NotStored,
    TooLarge,
    /// The key cannot be named to the backend: it takes so many bytes of one like it.
    KeyTooLong(u8),
    Full,
    /// The backend refused it, or was not asked because there is no connection.
    Refused(Refusal),
    Failed,
}

/// How a kind of server is spoken to.
pub(super) trait Protocol: Send + 'static {
    /// Connects, if it has no connection. After an error nothing was asked.
    fn connect(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Carries out commands in order and returns one outcome for each. After an error, or when it
    /// is dropped half-way, the connection is given up: [`Protocol::disconnect`] is called.
    fn execute(
        &mut self,
        commands: &[Command],
    ) -> impl Future<Output = anyhow::Result<Vec<Outcome>>> + Send;

    /// Why the connection is of no use any more, though all commands were answered on it: it is
    /// given up then, and nothing more is sent on it.
    fn over(&mut self) -> Option<String> {
        None
    }

    /// Up to when everything has been told that was changed in the server's data, now that it has
    /// answered what it was asked at `asked_ns`. None: the answers prove nothing of that.
    fn seen(&self, asked_ns: u64) -> Option<u64> {
        Some(asked_ns)
    }

    /// The server, as messages name it.
    fn name(&self) -> String;

    /// Gives the connection up. If outside writes are tracked, whatever happens until it connects
    /// again goes unseen.
    fn disconnect(&mut self);
}

/// Where answers go, and what others did, in the order in which the backend sent it.
pub(super) type Completions = mpsc::UnboundedSender<Completion>;

/// The half in the server loop.
pub(super) struct Remote {
    watch: Watch,
    commands: mpsc::UnboundedSender<Command>,
    /// For what the task cannot answer any more.
    completions: Completions,
    versions: Versions,
    /// All versions below it were forgotten: nothing is there that had them.
    forgotten: Arc<AtomicU64>,
    /// Says when the first attempt to connect is over.
    tried: Option<oneshot::Receiver<()>>,
    /// Longest value that is of use.
    most: usize,
    health: Health,
    attention: Attention,
}

impl Remote {
    /// Starts the task that speaks `protocol` to a server of which that is known. `base_version` is
    /// that of keys which this store never wrote.
    pub fn start(
        protocol: impl Protocol,
        health: Health,
        watch: Watch,
        base_version: u64,
        completions: Completions,
        within: Duration,
    ) -> Remote {
        // Unbounded, but never fuller than the engine's limit on requests that wait for
        // the backend.
        let (commands, queue) = mpsc::unbounded_channel();
        let queue = Queue::new(queue, completions.clone());
        let (ends, tried) = oneshot::channel();
        let attention = Attention::default();
        let forgotten = Arc::<AtomicU64>::default();
        let task = Task {
            forgotten: forgotten.clone(),
            left_at: None,
            protocol,
            watched: watch == Watch::Tracked,
            within,
            queue,
            outage: Outage::default(),
            health: health.clone(),
            attention: attention.clone(),
            why: "the backend is not connected".into(),
            tried: Some(ends),
        };
        tokio::spawn(task.run());
        Remote {
            tried: Some(tried),
            watch,
            commands,
            completions,
            versions: Versions::new(base_version, VERSIONS),
            forgotten,
            most: wire::MAX_VALUE_DEFAULT as usize,
            health,
            attention,
        }
    }

    /// Waits until the first attempt to connect is over.
    pub async fn has_tried(&mut self) {
        if let Some(tried) = self.tried.take() {
            let _ = tried.await;
        }
    }

    /// A completion follows, also where nobody takes commands any more.
    fn send<T>(&mut self, command: Command) -> Answer<T> {
        if let Err(unsent) = self.commands.send(command) {
            let failed = completion(unsent.0, Outcome::Failed);
            failed.into_iter().for_each(|failed| drop(self.completions.send(failed)));
        }
        Answer::Later
    }

    fn read(&mut self, key: Key<'_>, ticket: Ticket, track: bool) -> Answer<Option<Item<&[u8]>>> {
        let Some(name) = name_of(key) else { return Answer::Now(None) };
        // Asked in order, so that a value written before is paired with its version, and
        // none later.
        let version = self.versions.of(key);
        let verb = Verb::Get { track, most: self.most, large: None };
        self.send(Command { ticket, tenant: key.tenant, name, version, compared: None, verb })
    }

    /// What the backend checks of a condition, and the version that was compared here; or that it
    /// does not hold.
    fn condition(
        &self,
        key: Key<'_>,
        condition: Condition,
    ) -> Result<(OnlyIf, Option<u64>), Change> {
        match condition {
            Condition::Always => Ok((OnlyIf::Always, None)),
            Condition::Absent => Ok((OnlyIf::Absent, None)),
            Condition::Present => Ok((OnlyIf::Present, None)),
            Condition::Version(wanted) => match self.versions.of(key) {
                current if current == wanted => Ok((OnlyIf::Present, Some(wanted))),
                current => Err(Change::Mismatch(current)),
            },
        }
    }
}

impl Backend for Remote {
    fn get(&mut self, key: Key<'_>, _: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        self.read(key, ticket, false)
    }

    fn get_for_grant(
        &mut self,
        key: Key<'_>,
        _: u64,
        ticket: Ticket,
    ) -> Answer<Option<Item<&[u8]>>> {
        self.read(key, ticket, self.watch == Watch::Tracked)
    }

    fn longest(&mut self, bytes: usize) {
        self.most = bytes;
    }

    fn raise(&mut self, tenant: u32, hash: KeyHash, from: u64, to: u64) -> bool {
        self.versions.raise((tenant, hash), from, to)
    }

    fn forget_versions(&mut self, version: u64) {
        self.forgotten.store(version, Release);
        self.versions.forget_all(version);
    }

    fn settle(&mut self, tenant: u32, hash: KeyHash, version: u64) {
        self.versions.put((tenant, hash), version);
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn marks_at_once(&self) -> usize {
        self.health.marks()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.health.trouble(boot_ns())
    }

    fn attend(&mut self) {
        self.attention.attend(boot_ns());
    }

    fn ask(&mut self) {
        self.attention.ask();
    }

    fn mark_read(&mut self, keys: &[(Key<'_>, u32)]) {
        let named = |(key, reads): &(Key<'_>, u32)| Some((name_of(*key)?, *reads));
        let verb = Verb::Mark(keys.iter().filter_map(named).collect());
        let (ticket, tenant, name, version) = (0, wire::TENANT_SYSTEM, vec![], 0);
        let compared = None;
        let _: Answer<()> = self.send(Command { ticket, tenant, name, version, compared, verb });
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, _: u64, ticket: Ticket) -> Answer<Change> {
        let Some(name) = name_of(key) else {
            return Answer::Now(match put.value {
                Some(_) => Change::Refused(Refusal::new(ANOTHERS_NAME)),
                None => Change::NotFound,
            });
        };
        if put.value.is_some_and(|value| name.len() + value.len() > self.health.takes()) {
            return Answer::Now(Change::TooLarge);
        }
        let (only_if, compared) = match self.condition(key, put.condition) {
            Ok(holds) => holds,
            Err(mismatch) => return Answer::Now(mismatch),
        };
        let mut version = put.version;
        let verb = match put.value.cloned() {
            Some(value) => Verb::Put { value, ttl_ms: put.ttl_ms, only_if },
            None => Verb::Delete { only_if },
        };
        if matches!(verb, Verb::Delete { only_if: OnlyIf::Absent }) {
            // Nothing will change.
            version = self.versions.of(key);
        } else {
            self.versions.set(key, version);
        }
        self.send(Command { ticket, tenant: key.tenant, name, version, compared, verb })
    }
}

/// What a write of tenant 0 is told whose key is another tenant's name in the backend.
const ANOTHERS_NAME: &str =
    "ERR names that begin with shortstop:NUMBER: are those of the tenant of that number";

/// What a key is called in the backend. `None`: it is another tenant's name there.
fn name_of(key: Key<'_>) -> Option<Vec<u8>> {
    wire::backend_name(key.tenant, key.bytes)
}
