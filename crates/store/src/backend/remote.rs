//! A backend behind a connection: requests go to one task in order, which carries them out
//! in batches.
//!
//! One connection and one batch at a time: while a batch is under way, the next one gathers. That
//! keeps the order in which requests were handed over, which the coherence rules need, and under
//! load a system call and a round trip are shared by up to [`BATCH`] requests.
//!
//! Of values that no packet carries a batch has [`BATCH_BYTES`] at most, so that small ones do not
//! wait for long. A read finds out that its value is one of these, and is asked again in a later
//! batch, in its tenant's turn. That it is carried out late does no harm: it is not answered
//! before, and what it finds then is newer.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    ops::Bound,
    time::Duration,
};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::mpsc;
use wire::KeyHash;

use super::{
    Answer, Backend, Change, Completion, Condition, Item, Key, OutsideEvent, Put, ReadOutcome,
    Ticket, outage::Outage,
};
use crate::{clock::boot_ns, coherence::Watch};

/// Requests in one batch.
const BATCH: usize = 256;
/// Bytes of large values that are read and written in one batch, if there are several.
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// Where outside writes are tracked, a question is asked at least this often.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// Bytes of a value that are read at first: more than fits beside any key. One that is as long is
/// large, and read later.
pub(super) const SMALL: usize = wire::MAX_PAYLOAD;
/// Keys whose versions are remembered.
const VERSIONS: usize = 1_000_000;
/// Names of tenants other than 0 begin with this in the backend, then the tenant's number and
/// a colon.
const PREFIX: &str = "shortstop:";

/// A request as a protocol carries it out.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub ticket: Ticket,
    pub tenant: u32,
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
}

impl Command {
    /// Bytes of a large value that it takes to carry it out.
    pub fn large_bytes(&self) -> usize {
        match &self.verb {
            Verb::Get { large, .. } => large.unwrap_or(0),
            Verb::Put { value, .. } if value.len() > SMALL => value.len(),
            Verb::Put { .. } | Verb::Delete { .. } => 0,
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
    /// It is large and was not read: its length.
    Large(usize),
    /// No such key.
    Absent,
    /// Stored or removed.
    Done,
    /// Not stored, or there and not removed, because of [`OnlyIf`].
    NotStored,
    TooLarge,
    Full,
    Failed,
    /// There was no connection, and none could be made: it was not asked.
    Unreached,
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
    /// Longest value that is of use, and longest that the backend takes.
    most: usize,
    takes: usize,
}

impl Remote {
    /// Starts the task that speaks `protocol`. `base_version` is that of keys which this store
    /// never wrote.
    pub fn start(
        protocol: impl Protocol,
        watch: Watch,
        base_version: u64,
        completions: Completions,
        within: Duration,
    ) -> Remote {
        // Unbounded, but never fuller than the engine's limit on requests that wait for
        // the backend.
        let (commands, queue) = mpsc::unbounded_channel();
        let queue = Queue {
            commands: queue,
            next: VecDeque::new(),
            large: Large::default(),
            next_first: false,
            batch: Vec::with_capacity(BATCH),
            completions: completions.clone(),
        };
        tokio::spawn(serve(protocol, watch == Watch::Tracked, within, queue));
        Remote {
            watch,
            commands,
            completions,
            versions: Versions::new(base_version, VERSIONS),
            most: wire::MAX_VALUE_DEFAULT as usize,
            takes: usize::MAX,
        }
    }

    /// The backend takes no longer values than this, key included.
    pub fn that_takes(self, takes: usize) -> Remote {
        Remote { takes, ..self }
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
        // Asked in order, so that a value written before is paired with its version, and
        // none later.
        let version = self.versions.of(key);
        let verb = Verb::Get { track, most: self.most, large: None };
        self.send(Command { ticket, tenant: key.tenant, name, version, verb })
    }

    /// What the backend checks of a condition, or that it does not hold.
    fn condition(&self, key: Key<'_>, condition: Condition) -> Result<OnlyIf, Change> {
        match condition {
            Condition::Always => Ok(OnlyIf::Always),
            Condition::Absent => Ok(OnlyIf::Absent),
            Condition::Present => Ok(OnlyIf::Present),
            Condition::Version(wanted) => match self.versions.of(key) {
                current if current == wanted => Ok(OnlyIf::Present),
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

    fn settle(&mut self, tenant: u32, hash: KeyHash, version: u64) {
        self.versions.put((tenant, hash), version);
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, _: u64, ticket: Ticket) -> Answer<Change> {
        let Some(name) = name_of(key) else {
            return Answer::Now(Change::TooLarge);
        };
        if name.len() + put.value.len() > self.takes {
            return Answer::Now(Change::TooLarge);
        }
        let only_if = match self.condition(key, put.condition) {
            Ok(only_if) => only_if,
            Err(mismatch) => return Answer::Now(mismatch),
        };
        self.versions.set(key, put.version);
        let verb = Verb::Put { value: put.value.clone(), ttl_ms: put.ttl_ms, only_if };
        self.send(Command { ticket, tenant: key.tenant, name, version: put.version, verb })
    }

    fn delete(
        &mut self,
        key: Key<'_>,
        condition: Condition,
        version: u64,
        _: u64,
        ticket: Ticket,
    ) -> Answer<Change> {
        let Some(name) = name_of(key) else {
            return Answer::Now(Change::NotFound);
        };
        let only_if = match self.condition(key, condition) {
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
            tenant: key.tenant,
            name,
            version,
            verb: Verb::Delete { only_if },
        })
    }
}

/// A key's name in the backend: tenant 0's keys as they are; those of tenant 7 after
/// `shortstop:7:`. `None` for a key of tenant 0 that looks like another tenant's.
fn name_of(key: Key<'_>) -> Option<Vec<u8>> {
    if key.tenant == wire::TENANT_OPEN {
        return (!key.bytes.starts_with(PREFIX.as_bytes())).then(|| key.bytes.into());
    }
    let mut name = format!("{PREFIX}{}:", key.tenant).into_bytes();
    name.extend_from_slice(key.bytes);
    Some(name)
}

/// The tenant and the key of a name in the backend: the reverse of [`name_of`]. `None` for a name
/// that no key has.
pub(super) fn key_of(name: &[u8]) -> Option<(u32, &[u8])> {
    let Some(rest) = name.strip_prefix(PREFIX.as_bytes()) else {
        return Some((wire::TENANT_OPEN, name));
    };
    let colon = rest.iter().position(|byte| *byte == b':')?;
    let tenant = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    Some((tenant, &rest[colon + 1..]))
}

/// Commands on their way to the backend. Each is answered: if the task ends before its time, with
/// a failure.
struct Queue {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Received, and in no batch yet.
    next: VecDeque<Command>,
    /// Reads of values that turned out to be large.
    large: Large,
    /// They took the room that the first of `next` needs: it goes before them now.
    next_first: bool,
    /// Taken, and not yet answered.
    batch: Vec<Command>,
    completions: Completions,
}

impl Queue {
    /// Waits for commands, if there are none, and takes a batch of them. False: nobody will send
    /// any more.
    async fn gather(&mut self) -> bool {
        let mut room = BATCH_BYTES;
        let next_first = std::mem::take(&mut self.next_first);
        if next_first {
            self.take_next(&mut room);
        }
        // Otherwise first, for they were asked first.
        while let Some(read) = self.large.pop(room, self.batch.is_empty()) {
            room = room.saturating_sub(read.large_bytes());
            self.batch.push(read);
        }
        if self.next.is_empty() {
            if self.batch.is_empty() {
                match self.commands.recv().await {
                    Some(command) => self.next.push_back(command),
                    None => return false,
                }
            }
            while self.next.len() < BATCH
                && let Ok(command) = self.commands.try_recv()
            {
                self.next.push_back(command);
            }
        }
        self.take_next(&mut room);
        self.next_first = !next_first && !self.next.is_empty();
        true
    }

    /// Puts what there is room for into the batch, in order.
    fn take_next(&mut self, room: &mut usize) {
        while let Some(first) = self.next.front()
            && (self.batch.is_empty() || first.large_bytes() <= *room)
        {
            *room = room.saturating_sub(first.large_bytes());
            self.batch.extend(self.next.pop_front());
        }
    }

    /// Answers the batch, but for reads that go on; false if nobody listens any more.
    fn answer(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> bool {
        for (mut command, outcome) in self.batch.drain(..).zip(outcomes) {
            if let (Verb::Get { most, large, .. }, Outcome::Large(len)) =
                (&mut command.verb, &outcome)
                && len <= most
            {
                *large = Some(*len);
                self.large.push(command);
                continue;
            }
            let completion = completion(command, outcome);
            if self.completions.send(completion).is_err() {
                return false;
            }
        }
        true
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.commands.close();
        self.batch.extend(self.next.drain(..));
        while let Some(read) = self.large.pop(usize::MAX, true) {
            self.batch.push(read);
        }
        while let Ok(command) = self.commands.try_recv() {
            self.batch.push(command);
        }
        self.answer(std::iter::repeat(Outcome::Failed));
    }
}

/// Reads of large values: tenants take turns.
#[derive(Default)]
struct Large {
    tenants: BTreeMap<u32, VecDeque<Command>>,
    /// Whose turn it was.
    last: u32,
}

impl Large {
    fn push(&mut self, read: Command) {
        self.tenants.entry(read.tenant).or_default().push_back(read);
    }

    /// The next read, if its value takes no more than `room` bytes or `any` will do.
    fn pop(&mut self, room: usize, any: bool) -> Option<Command> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let mut turns = self.tenants.range(after).chain(&self.tenants);
        let tenant = *turns.next()?.0;
        let reads = self.tenants.get_mut(&tenant)?;
        let fits = |read: &Command| any || read.large_bytes() <= room;
        reads.front().filter(|read| fits(read))?;
        let read = reads.pop_front();
        if reads.is_empty() {
            self.tenants.remove(&tenant);
        }
        self.last = tenant;
        read
    }
}

/// The half beside the connection. A batch that takes longer than `within` has failed, and its
/// connection is given up.
async fn serve(mut protocol: impl Protocol, watched: bool, within: Duration, mut queue: Queue) {
    let mut connected = true;
    let mut outage = Outage::default();
    loop {
        let gathered = queue.gather();
        if watched {
            // An empty batch is a question, too: its answer proves that nothing has gone unseen.
            if let Ok(false) = tokio::time::timeout(HEARTBEAT, gathered).await {
                return;
            }
        } else if !gathered.await {
            return;
        }
        let asked = boot_ns();
        let batch = &queue.batch;
        let mut is_reached = false;
        let carried_out = tokio::time::timeout(within, async {
            protocol.connect().await?;
            is_reached = true;
            protocol.execute(batch).await
        });
        let outcomes = match carried_out.await {
            Ok(Ok(outcomes)) if outcomes.len() == batch.len() => {
                connected = true;
                if let Some(after) = outage.answered(boot_ns()) {
                    tracing::warn!("backend: answers again, after {:.1} s", after.as_secs_f64());
                }
                if watched {
                    let seen = OutsideEvent::Seen(asked);
                    let _ = queue.completions.send(Completion::Outside(seen));
                }
                outcomes
            }
            failed => {
                if let Some(unsaid) = outage.failed(boot_ns()) {
                    let why = match failed {
                        Ok(Err(error)) => format!("{error:#}"),
                        Ok(Ok(_)) => "an answer is missing".into(),
                        Err(_) => format!("no answer within {within:?}"),
                    };
                    match unsaid {
                        0 => tracing::warn!("backend: {why}"),
                        _ => tracing::warn!("backend: {why} (and {unsaid} failures before)"),
                    }
                }
                protocol.disconnect();
                if watched && connected {
                    let lost = Completion::Outside(OutsideEvent::Everything);
                    let _ = queue.completions.send(lost);
                }
                connected = false;
                let outcome = if is_reached { Outcome::Failed } else { Outcome::Unreached };
                vec![outcome; batch.len()]
            }
        };
        if !queue.answer(outcomes) {
            return;
        }
    }
}

fn completion(command: Command, outcome: Outcome) -> Completion {
    let Command { ticket, version, verb, .. } = command;
    if let Verb::Get { .. } = verb {
        return Completion::Get(
            ticket,
            match outcome {
                Outcome::Value { value, expiry_ms } => {
                    ReadOutcome::Item(Item { value, version, expiry_ms })
                }
                Outcome::Absent => ReadOutcome::Absent,
                Outcome::TooLarge | Outcome::Large(_) => ReadOutcome::TooLarge(version),
                _ => ReadOutcome::Failed,
            },
        );
    }
    let change = match (outcome, &verb) {
        (Outcome::Done, _) => Change::Done(version),
        // It is there, with the version that this write has raised it to all the same.
        (Outcome::NotStored, Verb::Put { only_if: OnlyIf::Absent, .. }) => {
            Change::Mismatch(version)
        }
        (Outcome::NotStored, Verb::Delete { .. }) => Change::Mismatch(version),
        (Outcome::NotStored, _) => Change::Mismatch(wire::VERSION_ABSENT),
        (Outcome::Absent, Verb::Delete { only_if: OnlyIf::Present }) => {
            Change::Mismatch(wire::VERSION_ABSENT)
        }
        (Outcome::Absent, _) => Change::NotFound,
        (Outcome::TooLarge, _) => Change::TooLarge,
        (Outcome::Full, _) => Change::Full,
        (Outcome::Unreached, _) => Change::Unreached,
        _ => Change::Failed,
    };
    Completion::Change(ticket, change)
}

/// The versions of keys written here, as many as may be remembered. The rest report the floor,
/// which is at least every version forgotten: a version once reported never comes to stand for
/// another value.
struct Versions {
    known: HashMap<(u32, KeyHash), u64>,
    order: VecDeque<((u32, KeyHash), u64)>,
    floor: u64,
    limit: usize,
}

impl Versions {
    fn new(floor: u64, limit: usize) -> Versions {
        Versions { known: HashMap::new(), order: VecDeque::new(), floor, limit }
    }

    fn of(&self, key: Key<'_>) -> u64 {
        self.known.get(&(key.tenant, key.hash)).copied().unwrap_or(self.floor)
    }

    fn set(&mut self, key: Key<'_>, version: u64) {
        self.put((key.tenant, key.hash), version);
    }

    /// A key has another version, if it still has this one; whether it had.
    fn raise(&mut self, id: (u32, KeyHash), from: u64, to: u64) -> bool {
        let present = self.known.get(&id).copied().unwrap_or(self.floor);
        let applies = present == from;
        if applies {
            self.put(id, to);
        }
        applies
    }

    fn put(&mut self, id: (u32, KeyHash), version: u64) {
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
        Key { tenant: 0, hash: KeyHash([n; 16]), bytes: b"k" }
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
        assert_eq!(versions.of(key(2)), 12, "forgotten: the floor is its version");
        assert_eq!(versions.of(key(9)), 12);
    }

    /// Ends a test that hangs; nothing takes that long.
    const PATIENCE: Duration = Duration::from_secs(90);

    /// A task that ends before its time: a bug, or something that it could not foresee.
    struct PanickingProtocol;

    impl Protocol for PanickingProtocol {
        async fn connect(&mut self) -> anyhow::Result<()> {
            Ok(())
        }

        async fn execute(&mut self, _: &[Command]) -> anyhow::Result<Vec<Outcome>> {
            panic!("the test's own panic");
        }

        fn disconnect(&mut self) {}
    }

    #[tokio::test]
    async fn a_backend_that_is_gone_is_a_failure_and_not_an_absence() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let mut remote =
            Remote::start(PanickingProtocol, Watch::Unneeded, 1, completions, PATIENCE);
        // The first is under way when the task ends, others wait behind it, and one comes when it
        // has ended.
        for ticket in 0..2 {
            assert_eq!(remote.get(key(1), 0, ticket), Answer::Later);
        }
        assert_eq!(done.recv().await, Some(Completion::Get(0, ReadOutcome::Failed)));
        assert_eq!(done.recv().await, Some(Completion::Get(1, ReadOutcome::Failed)));
        assert_eq!(remote.get(key(1), 0, 2), Answer::Later);
        assert_eq!(done.recv().await, Some(Completion::Get(2, ReadOutcome::Failed)));
        let deleted = remote.delete(key(1), Condition::Always, 2, 0, 3);
        assert_eq!(deleted, Answer::Later);
        let failed = Completion::Change(3, Change::Failed);
        assert_eq!(done.recv().await, Some(failed));
    }

    /// A server that is reached, or not, and never answers.
    struct MuteProtocol {
        is_reached: bool,
    }

    impl Protocol for MuteProtocol {
        async fn connect(&mut self) -> anyhow::Result<()> {
            anyhow::ensure!(self.is_reached, "the test's own error");
            Ok(())
        }

        async fn execute(&mut self, _: &[Command]) -> anyhow::Result<Vec<Outcome>> {
            anyhow::bail!("the test's own error")
        }

        fn disconnect(&mut self) {}
    }

    fn put_under(version: u64, condition: Condition) -> Put<'static> {
        static VALUE: Bytes = Bytes::from_static(b"v");
        Put { value: &VALUE, ttl_ms: 0, condition, version }
    }

    #[tokio::test]
    async fn only_a_write_of_which_the_backend_was_told_is_in_doubt() {
        for (is_reached, change) in [(true, Change::Failed), (false, Change::Unreached)] {
            let (completions, mut done) = mpsc::unbounded_channel();
            let protocol = MuteProtocol { is_reached };
            let mut remote = Remote::start(protocol, Watch::Unneeded, 1, completions, PATIENCE);
            remote.put(key(1), put_under(2, Condition::Always), 0, 7);
            assert_eq!(done.recv().await, Some(Completion::Change(7, change)));
            remote.get(key(1), 0, 8);
            assert_eq!(done.recv().await, Some(Completion::Get(8, ReadOutcome::Failed)));
        }
    }

    #[tokio::test]
    async fn what_was_read_while_a_write_was_in_doubt_is_not_what_is_there_after_it() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let protocol = MuteProtocol { is_reached: true };
        let mut remote = Remote::start(protocol, Watch::Unneeded, 1, completions, PATIENCE);
        remote.put(key(1), put_under(2, Condition::Always), 0, 7);
        assert_eq!(done.recv().await, Some(Completion::Change(7, Change::Failed)));
        remote.settle(0, key(1).hash, 3);
        for version in [1, 2] {
            let put = remote.put(key(1), put_under(4, Condition::Version(version)), 0, 8);
            assert_eq!(put, Answer::Now(Change::Mismatch(3)), "{version}");
        }
        let put = remote.put(key(1), put_under(4, Condition::Version(3)), 0, 9);
        assert_eq!(put, Answer::Later);
    }

    const MIB: usize = 1 << 20;

    /// Of keys whose first byte is `l` it says that their values have a MiB, until they are asked
    /// for as such.
    struct Long {
        /// Large bytes of each batch, and the tenants of its large reads.
        batches: mpsc::UnboundedSender<(usize, Vec<u32>)>,
    }

    impl Protocol for Long {
        async fn connect(&mut self) -> anyhow::Result<()> {
            Ok(())
        }

        async fn execute(&mut self, commands: &[Command]) -> anyhow::Result<Vec<Outcome>> {
            let bytes = commands.iter().map(Command::large_bytes).sum();
            let large = commands.iter().filter(|command| command.large_bytes() > 0);
            let _ = self.batches.send((bytes, large.map(|command| command.tenant).collect()));
            tokio::task::yield_now().await;
            let outcome = |command: &Command| match &command.verb {
                Verb::Get { large: None, .. } if command.name.ends_with(b"l") => {
                    Outcome::Large(MIB)
                }
                Verb::Get { large, .. } => {
                    Outcome::Value { value: vec![0; large.unwrap_or(1)], expiry_ms: 0 }
                }
                _ => Outcome::Done,
            };
            Ok(commands.iter().map(outcome).collect())
        }

        fn disconnect(&mut self) {}
    }

    fn named(tenant: u32, bytes: &[u8]) -> Key<'_> {
        let hash = KeyHash::default();
        Key { tenant, hash, bytes }
    }

    #[tokio::test]
    async fn large_values_are_read_in_turns_and_small_ones_do_not_wait_for_them() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let (batches, mut seen) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Long { batches }, Watch::Unneeded, 1, completions, PATIENCE);
        for ticket in 0..30 {
            remote.get(named(7, b"l"), 0, ticket);
        }
        for ticket in 30..32 {
            remote.get(named(8, b"l"), 0, ticket);
        }
        remote.get(named(7, b"s"), 0, 32);
        let mut order = vec![];
        while order.len() < 33 {
            let Some(Completion::Get(ticket, ReadOutcome::Item(item))) = done.recv().await else {
                panic!("all are answered");
            };
            assert_eq!(item.value.len(), if ticket == 32 { 1 } else { MIB });
            order.push(ticket);
        }
        assert_eq!(order[0], 32, "{order:?}");
        assert_eq!(order[1..6], [0, 30, 1, 31, 2], "{order:?}");
        let (mut first, mut most) = (None, 0);
        while let Ok((bytes, tenants)) = seen.try_recv() {
            most = most.max(bytes);
            first = first.or(Some(tenants).filter(|tenants| !tenants.is_empty()));
        }
        assert_eq!(most, BATCH_BYTES);
        assert_eq!(first.unwrap().len(), BATCH_BYTES / MIB);
    }

    #[tokio::test]
    async fn large_writes_keep_their_order_and_share_no_batch_beyond_its_bytes() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let (batches, mut seen) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Long { batches }, Watch::Unneeded, 1, completions, PATIENCE);
        let value = Bytes::from(vec![1; 3 * MIB]);
        for ticket in 0..10 {
            let put = Put { value: &value, ttl_ms: 0, condition: Condition::Always, version: 9 };
            remote.put(named(7, b"l"), put, 0, ticket);
        }
        for ticket in 0..10 {
            assert_eq!(done.recv().await, Some(Completion::Change(ticket, Change::Done(9))));
        }
        while let Ok((bytes, _)) = seen.try_recv() {
            assert_eq!(bytes, 3 * MIB);
        }
    }

    #[tokio::test]
    async fn a_large_write_and_what_stands_behind_it_do_not_wait_for_all_large_reads() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let (batches, _seen) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Long { batches }, Watch::Unneeded, 1, completions, PATIENCE);
        for ticket in 0..200 {
            remote.get(named(7, b"l"), 0, ticket);
        }
        let first = done.recv().await.unwrap();
        assert!(matches!(first, Completion::Get(0, ReadOutcome::Item(_))));
        let put = Put {
            value: &Bytes::from(vec![1; 2000]),
            ttl_ms: 0,
            condition: Condition::Always,
            version: 9,
        };
        remote.put(named(8, b"w"), put, 0, 200);
        remote.get(named(8, b"s"), 0, 201);
        let mut before = 0;
        loop {
            match done.recv().await.unwrap() {
                Completion::Get(201, _) => break,
                _ => before += 1,
            }
        }
        // A batch that is answered, one that is under way, one that has no room, and the write.
        assert!(before <= 3 * BATCH_BYTES / MIB + 1, "{before} answers before it");
        for _ in before + 2..202 {
            assert!(done.recv().await.is_some(), "all are answered");
        }
    }

    #[tokio::test]
    async fn longer_than_is_of_use_is_not_read() {
        let (completions, mut done) = mpsc::unbounded_channel();
        let (batches, _seen) = mpsc::unbounded_channel();
        let mut remote = Remote::start(Long { batches }, Watch::Unneeded, 5, completions, PATIENCE);
        remote.longest(MIB - 1);
        remote.get(named(7, b"l"), 0, 1);
        assert_eq!(done.recv().await, Some(Completion::Get(1, ReadOutcome::TooLarge(5))));
    }

    #[test]
    fn a_version_is_raised_unless_the_key_was_written_since() {
        let mut versions = Versions::new(10, 5);
        let id = (0, key(1).hash);
        assert!(versions.raise(id, 10, 11));
        assert!(!versions.raise(id, 10, 12));
        assert_eq!(versions.of(key(1)), 11);
        versions.set(key(1), 13);
        assert!(!versions.raise(id, 11, 14));
        assert_eq!(versions.of(key(1)), 13);
    }

    #[test]
    fn tenants_cannot_name_one_anothers_keys() {
        let of = |tenant, bytes| name_of(Key { tenant, hash: KeyHash::default(), bytes });
        assert_eq!(of(0, b"a"), Some(b"a".to_vec()));
        assert_eq!(of(7, b"a"), Some(b"shortstop:7:a".to_vec()));
        assert_eq!(of(0, b"shortstop:7:a"), None);
        assert_eq!(of(8, b"shortstop:7:a"), Some(b"shortstop:8:shortstop:7:a".to_vec()));
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
