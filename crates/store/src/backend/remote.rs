//! A backend behind a connection: requests go to one task in order, which carries them out in batches.
//!
//! One connection and one batch at a time: while a batch is under way, the next one gathers. That keeps the
//! order in which requests were handed over, which the coherence rules need, and under load a system call and a
//! round trip are shared by up to [`BATCH`] requests.

use std::{collections::VecDeque, future::Future, time::Duration};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::mpsc;
use wire::KeyHash;

use super::{
    Answer, Backend, Change, Completion, Condition, Found, Item, Key, OutsideEvent, Put, Ticket,
    direct::DirectWrites,
};
use crate::{clock::boot_ns, coherence::Watch};

/// Requests in one batch.
const BATCH: usize = 256;
/// A batch that takes longer has failed, and its connection is given up.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Where outside writes are tracked, a question is asked at least this often.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Bytes of a value that are read: more than fits beside any key, so that a longer one is known to be too long. What is read of a
/// batch is bounded by this, whatever the backend holds.
pub(super) const MOST: usize = wire::MAX_PAYLOAD;
/// Keys whose versions are remembered.
const VERSIONS: usize = 1_000_000;
/// Names of tenants other than 0 begin with this in the backend, then the tenant's number and a colon.
const PREFIX: &str = "shortstop:";

/// A request as a protocol carries it out.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub ticket: Ticket,
    pub name: Vec<u8>,
    /// Of the value that is read, or that the key has once it is written.
    pub version: u64,
    pub verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Get {
        /// The backend is to tell from before it reads if another changes the key.
        track: bool,
    },
    Put {
        value: Bytes,
        ttl_ms: u32,
        only_if: OnlyIf,
    },
    /// Remove it; where it must be absent only look whether it is.
    Delete { only_if: OnlyIf },
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
    /// What remains of its life in milliseconds, 0: it does not expire. Of a value that no packet carries the first
    /// [`MOST`] bytes.
    Value {
        value: Vec<u8>,
        expiry_ms: u32,
    },
    /// No such key.
    Absent,
    /// Stored or removed.
    Done,
    /// Not stored, or there and not removed, because of [`OnlyIf`].
    NotStored,
    TooLarge,
    Full,
    Failed,
}

/// How a kind of server is spoken to. It connects when it has no connection.
pub(super) trait Protocol: Send + 'static {
    /// Carries out commands in order and returns one outcome for each. After an error, or when it is dropped
    /// half-way, the connection is given up: [`Protocol::disconnect`] is called.
    fn execute(
        &mut self,
        commands: &[Command],
    ) -> impl Future<Output = anyhow::Result<Vec<Outcome>>> + Send;

    /// Gives the connection up. If outside writes are tracked, whatever happens until it connects again goes unseen.
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
    direct: DirectWrites,
}

impl Remote {
    /// Starts the task that speaks `protocol`. `base_version` is that of keys which this store never wrote.
    pub fn start(
        protocol: impl Protocol,
        watch: Watch,
        base_version: u64,
        completions: Completions,
    ) -> Remote {
        // Unbounded, but never fuller than the engine's limit on requests that wait for the backend.
        let (commands, queue) = mpsc::unbounded_channel();
        let queue = Queue {
            commands: queue,
            batch: Vec::with_capacity(BATCH),
            completions: completions.clone(),
        };
        tokio::spawn(serve(protocol, watch == Watch::Tracked, queue));
        Remote {
            watch,
            commands,
            completions,
            versions: Versions::new(base_version, VERSIONS),
            direct: DirectWrites::default(),
        }
    }

    /// A completion follows, also where nobody takes commands any more.
    fn send<T>(&mut self, command: Command) -> Answer<T> {
        if let Err(unsent) = self.commands.send(command) {
            let _ = self.completions.send(completion(unsent.0, Outcome::Failed));
        }
        Answer::Later
    }

    fn read(&mut self, key: Key<'_>, ticket: Ticket, track: bool) -> Answer<Option<Item<&[u8]>>> {
        let Some(name) = name_of(key) else {
            return Answer::Now(None);
        };
        // Asked in order, so that a value written before is paired with its version, and none later.
        let version = self.versions.of(key);
        let verb = Verb::Get { track };
        self.send(Command {
            ticket,
            name,
            version,
            verb,
        })
    }

    /// What came is no delete but says that a write past the store begins or has ended: the key has this version now.
    fn announced(
        &mut self,
        key: Key<'_>,
        condition: Condition,
        version: u64,
        now_ns: u64,
    ) -> Option<Change> {
        match condition {
            Condition::Version(wire::VERSION_DIRECT_BEGINS) => {
                if !self.direct.begin(key, now_ns) {
                    return Some(Change::Full);
                }
            }
            Condition::Version(wire::VERSION_DIRECT_ENDED) => self.direct.end(key),
            _ => return None,
        }
        self.versions.set(key, version);
        Some(Change::Mismatch(version))
    }

    /// What the backend checks of a condition, or that it does not hold.
    fn condition(&self, key: Key<'_>, condition: Condition, now_ns: u64) -> Result<OnlyIf, Change> {
        match condition {
            Condition::Always => Ok(OnlyIf::Always),
            Condition::Absent => Ok(OnlyIf::Absent),
            Condition::Present => Ok(OnlyIf::Present),
            Condition::Version(wanted) => match self.versions.of(key) {
                current if current == wanted && !self.direct.go_on(key, now_ns) => {
                    Ok(OnlyIf::Present)
                }
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

    fn watch(&self) -> Watch {
        self.watch
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        let Some(name) = name_of(key) else {
            return Answer::Now(Change::TooLarge);
        };
        let only_if = match self.condition(key, put.condition, now_ns) {
            Ok(only_if) => only_if,
            Err(mismatch) => return Answer::Now(mismatch),
        };
        self.versions.set(key, put.version);
        let verb = Verb::Put {
            value: put.value.clone(),
            ttl_ms: put.ttl_ms,
            only_if,
        };
        self.send(Command {
            ticket,
            name,
            version: put.version,
            verb,
        })
    }

    fn delete(
        &mut self,
        key: Key<'_>,
        condition: Condition,
        version: u64,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Change> {
        let Some(name) = name_of(key) else {
            return Answer::Now(Change::NotFound);
        };
        if let Some(change) = self.announced(key, condition, version, now_ns) {
            return Answer::Now(change);
        }
        let only_if = match self.condition(key, condition, now_ns) {
            Ok(only_if) => only_if,
            Err(mismatch) => return Answer::Now(mismatch),
        };
        let version = match only_if {
            // Nothing will change.
            OnlyIf::Absent => self.versions.of(key),
            OnlyIf::Always | OnlyIf::Present => {
                self.versions.set(key, version);
                version
            }
        };
        self.send(Command {
            ticket,
            name,
            version,
            verb: Verb::Delete { only_if },
        })
    }
}

/// A key's name in the backend: tenant 0's keys as they are; those of tenant 7 after `shortstop:7:`. `None` for a key of
/// tenant 0 that looks like another tenant's.
fn name_of(key: Key<'_>) -> Option<Vec<u8>> {
    if key.tenant == wire::TENANT_OPEN {
        return (!key.bytes.starts_with(PREFIX.as_bytes())).then(|| key.bytes.into());
    }
    let mut name = format!("{PREFIX}{}:", key.tenant).into_bytes();
    name.extend_from_slice(key.bytes);
    Some(name)
}

/// The tenant and the key of a name in the backend: the reverse of [`name_of`]. `None` for a name that no key has.
pub(super) fn key_of(name: &[u8]) -> Option<(u32, &[u8])> {
    let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else {
        return Some((wire::TENANT_OPEN, name));
    };
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let tenant = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    Some((tenant, &rest[colon + 1..]))
}

/// Commands on their way to the backend. Each is answered: if the task ends before its time, with a failure.
struct Queue {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Taken, and not yet answered.
    batch: Vec<Command>,
    completions: Completions,
}

impl Queue {
    /// Answers the batch; false if nobody listens any more.
    fn answer(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> bool {
        let mut answers = self.batch.drain(..).zip(outcomes);
        answers.all(|(command, outcome)| {
            let completion = completion(command, outcome);
            self.completions.send(completion).is_ok()
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.batch.push(command);
        }
        self.answer(std::iter::repeat(Outcome::Failed));
    }
}

/// The half beside the connection.
async fn serve(mut protocol: impl Protocol, watched: bool, mut queue: Queue) {
    let mut connected = true;
    loop {
        let received = queue.commands.recv_many(&mut queue.batch, BATCH);
        if watched {
            // An empty batch is a question, too: its answer proves that nothing has gone unseen.
            if let Ok(0) = tokio::time::timeout(HEARTBEAT, received).await {
                return;
            }
        } else if received.await == 0 {
            return;
        }
        let asked = boot_ns();
        let batch = &queue.batch;
        let outcomes = match tokio::time::timeout(TIMEOUT, protocol.execute(batch)).await {
            Ok(Ok(outcomes)) if outcomes.len() == batch.len() => {
                connected = true;
                if watched {
                    let seen = OutsideEvent::Seen(asked);
                    let _ = queue.completions.send(Completion::Outside(seen));
                }
                outcomes
            }
            failed => {
                match failed {
                    // Said already, and nobody has asked anything since.
                    _ if batch.is_empty() && !connected => {}
                    Ok(Err(error)) => tracing::warn!("backend: {error:#}"),
                    Ok(Ok(_)) => tracing::warn!("backend: an answer is missing"),
                    Err(_) => tracing::warn!("backend: no answer within {TIMEOUT:?}"),
                }
                protocol.disconnect();
                if watched && connected {
                    let lost = Completion::Outside(OutsideEvent::Everything);
                    let _ = queue.completions.send(lost);
                }
                connected = false;
                vec![Outcome::Failed; batch.len()]
            }
        };
        if !queue.answer(outcomes) {
            return;
        }
    }
}

fn completion(command: Command, outcome: Outcome) -> Completion {
    let Command {
        ticket,
        version,
        verb,
        ..
    } = command;
    if let Verb::Get { .. } = verb {
        return Completion::Get(
            ticket,
            match outcome {
                Outcome::Value { value, expiry_ms } => Found::Item(Item {
                    value,
                    version,
                    expiry_ms,
                }),
                Outcome::Absent => Found::Absent,
                _ => Found::Failed,
            },
        );
    }
    let change = match (outcome, &verb) {
        (Outcome::Done, _) => Change::Done(version),
        // It is there, with the version that this write has raised it to all the same.
        (
            Outcome::NotStored,
            Verb::Put {
                only_if: OnlyIf::Absent,
                ..
            },
        ) => Change::Mismatch(version),
        (Outcome::NotStored, Verb::Delete { .. }) => Change::Mismatch(version),
        (Outcome::NotStored, _) => Change::Mismatch(wire::VERSION_ABSENT),
        (
            Outcome::Absent,
            Verb::Delete {
                only_if: OnlyIf::Present,
            },
        ) => Change::Mismatch(wire::VERSION_ABSENT),
        (Outcome::Absent, _) => Change::NotFound,
        (Outcome::TooLarge, _) => Change::TooLarge,
        (Outcome::Full, _) => Change::Full,
        _ => Change::Failed,
    };
    Completion::Change(ticket, change)
}

/// The versions of keys written here, as many as may be remembered. The rest report the floor, which is at least
/// every version forgotten: a version once reported never comes to stand for another value.
struct Versions {
    known: HashMap<(u32, KeyHash), u64>,
    order: VecDeque<((u32, KeyHash), u64)>,
    floor: u64,
    limit: usize,
}

impl Versions {
    fn new(floor: u64, limit: usize) -> Versions {
        Versions {
            known: HashMap::new(),
            order: VecDeque::new(),
            floor,
            limit,
        }
    }

    fn of(&self, key: Key<'_>) -> u64 {
        self.known
            .get(&(key.tenant, key.hash))
            .copied()
            .unwrap_or(self.floor)
    }

    fn set(&mut self, key: Key<'_>, version: u64) {
        let id = (key.tenant, key.hash);
        self.known.insert(id, version);
        self.order.push_back((id, version));
        while self.known.len() > self.limit || self.order.len() > 2 * self.limit {
            let Some((id, version)) = self.order.pop_front() else {
                break;
            };
            // A key written again since stands further back with its newer version.
            if self.known.get(&id) == Some(&version) {
                self.known.remove(&id);
                self.floor = self.floor.max(version);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key<'static> {
        Key {
            tenant: 0,
            hash: KeyHash([n; 16]),
            bytes: b"k",
        }
    }

    #[test]
    fn forgetting_a_version_raises_what_unknown_keys_report() {
        let mut versions = Versions::new(10, 2);
        assert_eq!(versions.of(key(1)), 10);
        versions.set(key(1), 11);
        versions.set(key(2), 12);
        versions.set(key(1), 13);
        versions.set(key(3), 14);
        assert_eq!(versions.of(key(1)), 13, "written again since: kept");
        assert_eq!(
            versions.of(key(2)),
            12,
            "forgotten: the floor is its version"
        );
        assert_eq!(versions.of(key(9)), 12);
    }

    /// A task that ends before its time: a bug, or something that it could not foresee.
    struct Broken;

    impl Protocol for Broken {
        async fn execute(&mut self, _: &[Command]) -> anyhow::Result<Vec<Outcome>> {
            panic!("the test's own panic");
        }

        fn disconnect(&mut self) {}
    }

    #[tokio::test]
    async fn a_backend_that_is_gone_is_a_failure_and_not_an_absence() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Broken, Watch::Unneeded, 1, completions);
        // The first is under way when the task ends, others wait behind it, and one comes when it has ended.
        for ticket in 0..2 {
            assert_eq!(remote.get(key(1), 0, ticket), Answer::Later);
        }
        assert_eq!(done.recv().await, Some(Completion::Get(0, Found::Failed)));
        assert_eq!(done.recv().await, Some(Completion::Get(1, Found::Failed)));
        assert_eq!(remote.get(key(1), 0, 2), Answer::Later);
        assert_eq!(done.recv().await, Some(Completion::Get(2, Found::Failed)));
        let deleted = remote.delete(key(1), Condition::Always, 2, 0, 3);
        assert_eq!(deleted, Answer::Later);
        let failed = Completion::Change(3, Change::Failed);
        assert_eq!(done.recv().await, Some(failed));
    }

    /// Carries everything out at once.
    struct Willing;

    impl Protocol for Willing {
        async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
            Ok(vec![Outcome::Done; commands.len()])
        }

        fn disconnect(&mut self) {}
    }

    #[tokio::test]
    async fn what_was_read_before_the_end_of_a_direct_write_cannot_be_written_upon() {
        let (completions, _done) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Willing, Watch::Unneeded, 10, completions);
        let key = key(1);
        let mut newest = 10;
        let mut delete = |remote: &mut Remote, version, now_ns| {
            newest += 1;
            let wanted = Condition::Version(version);
            match remote.delete(key, wanted, newest, now_ns, 0) {
                Answer::Later => None,
                Answer::Now(change) => Some(change),
            }
        };
        let begins = delete(&mut remote, wire::VERSION_DIRECT_BEGINS, 0);
        assert_eq!(begins, Some(Change::Mismatch(11)));
        let before = delete(&mut remote, 10, 1);
        assert_eq!(before, Some(Change::Mismatch(11)), "read before it");
        let during = delete(&mut remote, 11, 1);
        assert_eq!(during, Some(Change::Mismatch(11)), "read while it goes on");
        let put = Put {
            value: &Bytes::from_static(b"v"),
            ttl_ms: 0,
            condition: Condition::Version(11),
            version: 12,
        };
        let put = remote.put(key, put, 1, 0);
        assert_eq!(put, Answer::Now(Change::Mismatch(11)));
        let ended = delete(&mut remote, wire::VERSION_DIRECT_ENDED, 2);
        assert_eq!(ended, Some(Change::Mismatch(14)));
        let late = delete(&mut remote, 11, 3);
        assert_eq!(late, Some(Change::Mismatch(14)), "read while it went on");
        assert_eq!(delete(&mut remote, 14, 3), None, "read after it");
    }

    #[test]
    fn tenants_cannot_name_one_anothers_keys() {
        let of = |tenant, bytes| {
            name_of(Key {
                tenant,
                hash: KeyHash::default(),
                bytes,
            })
        };
        assert_eq!(of(0, b"a"), Some(b"a".to_vec()));
        assert_eq!(of(7, b"a"), Some(b"shortstop:7:a".to_vec()));
        assert_eq!(of(0, b"shortstop:7:a"), None);
        assert_eq!(
            of(8, b"shortstop:7:a"),
            Some(b"shortstop:8:shortstop:7:a".to_vec())
        );
    }

    #[test]
    fn a_name_leads_back_to_its_key() {
        type Key = Option<(u32, &'static [u8])>;
        let rows: [(&[u8], Key); 6] = [
            (b"a", Some((0, b"a"))),
            (b"shortstop:7:a", Some((7, b"a"))),
            (b"shortstop:8:shortstop:7:a", Some((8, b"shortstop:7:a"))),
            (b"shortstop:x:a", None),
            (b"shortstop:7", None),
            (b"shortstop:\xff:a", None),
        ];
        for (name, key) in rows {
            assert_eq!(key_of(name), key, "{}", String::from_utf8_lossy(name));
        }
    }
}
