//! Data that outlives its store: it is another process's, which is never killed. It answers at
//! once, or after some time and in the order in which it was asked; what a store asked before it
//! was killed is carried out all the same.

mod commands;
mod elsewhere;
mod shard;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rand::RngExt;
use seed::{SeededRng, rng};
use store::backend::{
    Answer, Backend, Change, Completion, Condition, Item, Key, OutsideEvent, Put, ReadOutcome,
    Ticket, Watch,
};
use wire::KeyHash;

use crate::redis::{Redis, RedisCommand, Unversioned, WrittenKeys};
pub use commands::{CommandEvent, ConnectionId};
use commands::{CommandQueue, DueWork, WatchedKey};
pub use shard::SLOTS;
use shard::{REDIRECTS, Shard};

/// A key that is not borrowed.
struct OwnKey {
    tenant: u32,
    hash: KeyHash,
    bytes: Vec<u8>,
}

impl OwnKey {
    fn of(key: Key<'_>) -> OwnKey {
        OwnKey { tenant: key.tenant, hash: key.hash, bytes: key.bytes.into() }
    }

    fn key(&self) -> Key<'_> {
        Key { tenant: self.tenant, hash: self.hash, bytes: &self.bytes }
    }
}

enum Verb {
    /// Of a shard of a cluster: whether it is to tell of changes from now on.
    Get {
        for_grant: bool,
    },
    /// Nothing; that it is answered says something.
    Question,
    Put {
        value: Option<Bytes>,
        ttl_ms: u32,
        condition: Condition,
        version: u64,
    },
    /// Nobody says what became of it.
    LostGet,
    LostChange,
    /// What was lost before is not carried out any more.
    Settled,
}

/// What a store asked, on its way.
struct Command {
    /// On the data's clock.
    due_ns: u64,
    /// Which life of the store asked.
    asker: u64,
    /// When, on the clock of that store.
    asked_ns: u64,
    ticket: Ticket,
    key: OwnKey,
    verb: Verb,
    /// Nodes that have sent it on; where that is odd, it is asked at the other one of two.
    redirects: u8,
}

/// Who asks, when by his own clock, and under which number.
#[derive(Clone, Copy)]
struct Origin {
    asker: u64,
    at_ns: u64,
    ticket: Ticket,
}

impl Origin {
    /// Nobody waits for the answer.
    fn by(asker: u64, at_ns: u64) -> Origin {
        Origin { asker, at_ns, ticket: 0 }
    }
}

/// Of what is about no key.
const NO_KEY: Key<'static> =
    Key { tenant: wire::TENANT_SYSTEM, hash: KeyHash([0; 16]), bytes: &[] };

struct Server {
    backend: Box<dyn Backend>,
    /// Commands in the order in which they are carried out.
    queue: VecDeque<Command>,
    /// What one takes, on average; 0: nothing.
    delay_ns: u64,
    rng: SeededRng,
    askers: u64,
    /// What its clock showed last.
    shown_ns: u64,
    /// It does not run until then.
    down_until_ns: u64,
    /// What others ask than the store itself.
    commands: CommandQueue,
    unversioned: Unversioned,
    written: WrittenKeys,
    /// There if it is a shard of a cluster.
    shard: Option<Shard>,
}

impl Server {
    /// What its clock shows when a store's says that it is so late. It never goes back, whatever
    /// clocks of stores do.
    fn shows(&mut self, now_ns: u64) -> u64 {
        self.shown_ns = self.shown_ns.max(now_ns);
        self.shown_ns
    }

    /// Whether what is asked now is answered later.
    fn answers_later(&self, now_ns: u64) -> bool {
        self.delay_ns > 0 || self.shard.is_some() || now_ns < self.down_until_ns
    }

    /// Puts a command at the end, to be carried out after about the usual time.
    fn queue(&mut self, now_ns: u64, asked: Origin, key: Key<'_>, mut verb: Verb) {
        // Found out when it is there again: of more failures than that histories of open
        // writes grow that nobody can decide.
        let begun_ns = now_ns.max(self.down_until_ns);
        if now_ns < self.down_until_ns {
            verb = match verb {
                Verb::Get { .. } => Verb::LostGet,
                _ => Verb::LostChange,
            };
        }
        let delay_ns = self.rng.random_range(self.delay_ns / 2..=self.delay_ns * 3 / 2);
        let before_ns = self.queue.back().map_or(0, |command| command.due_ns);
        self.queue.push_back(Command {
            due_ns: before_ns.max(begun_ns + delay_ns),
            asker: asked.asker,
            asked_ns: asked.at_ns,
            ticket: asked.ticket,
            key: OwnKey::of(key),
            verb,
            redirects: 0,
        });
    }

    /// Dies, and runs again later with what it has. Of what was under way some was carried out.
    fn restart(&mut self, now_ns: u64, for_ns: u64) {
        self.run(now_ns);
        self.down_until_ns = now_ns + for_ns;
        if let Some(shard) = &mut self.shard {
            shard.is_lost(now_ns, self.down_until_ns);
        }
        self.commands.restart(now_ns);
        for mut command in std::mem::take(&mut self.queue) {
            if self.rng.random() {
                self.carry_out(&command);
            }
            command.verb = match command.verb {
                Verb::Get { .. } | Verb::LostGet => Verb::LostGet,
                Verb::Settled | Verb::Question => continue,
                _ => Verb::LostChange,
            };
            command.due_ns = now_ns;
            self.queue.push_back(command);
        }
        // Who connects again learns it, before anything else is answered.
        self.queue.push_back(Command {
            due_ns: self.down_until_ns,
            asker: self.askers,
            asked_ns: 0,
            ticket: 0,
            key: OwnKey::of(NO_KEY),
            verb: Verb::Settled,
            redirects: 0,
        });
    }

    /// Carries out the commands of others that are due by then.
    fn carry_out_commands(&mut self, now_ns: u64) {
        while let Some((due, now_ns)) = self.commands.take_due(now_ns) {
            let Server { backend, unversioned, written, .. } = self;
            let backend = &mut **backend;
            let mut redis = Redis { backend, unversioned, written, now_ns };
            let reply = match &due.what {
                DueWork::Said(text) => text.as_bytes().to_vec(),
                DueWork::Command(command) => redis.carry_out(command),
                DueWork::Watch(read) => {
                    let key = WatchedKey { was: redis.watched_state(read), read: read.clone() };
                    self.commands.watch(&due, key);
                    b"+OK\r\n".to_vec()
                }
                DueWork::Transaction(_, watched)
                    if watched.iter().any(|key| redis.watched_state(&key.read) != key.was) =>
                {
                    b"*-1\r\n".to_vec()
                }
                DueWork::Transaction(all, _) => {
                    let replies = all.iter().flat_map(|command| redis.carry_out(command));
                    let count = format!("*{}\r\n", all.len()).into_bytes();
                    count.into_iter().chain(replies).collect()
                }
            };
            self.commands.replied(&due, reply);
        }
    }

    fn carry_out(&mut self, command: &Command) -> Completion {
        let (key, now_ns, ticket) = (command.key.key(), command.due_ns, command.ticket);
        let change = match &command.verb {
            Verb::LostGet => return Completion::Get(ticket, ReadOutcome::Failed),
            Verb::LostChange => return Completion::Change(ticket, Change::Failed),
            Verb::Settled => {
                self.commands.is_there_again();
                return Completion::Settled;
            }
            Verb::Question => {
                return Completion::Outside(OutsideEvent::Seen(command.asked_ns));
            }
            Verb::Get { .. } => {
                let Answer::Now(found) = self.backend.get(key, now_ns, ticket) else {
                    return Completion::Get(ticket, ReadOutcome::Failed);
                };
                let found = found.map(|item| Item {
                    value: item.value.to_vec(),
                    version: item.version,
                    expiry_ms: item.expiry_ms,
                });
                return Completion::Get(
                    ticket,
                    found.map_or(ReadOutcome::Absent, ReadOutcome::Item),
                );
            }
            Verb::Put { value, ttl_ms, condition, version } => {
                let (value, ttl_ms) = (value.as_ref(), *ttl_ms);
                let put = Put { value, ttl_ms, condition: *condition, version: *version };
                self.written.count(key);
                self.backend.put(key, put, now_ns, ticket)
            }
        };
        match change {
            Answer::Now(change) => Completion::Change(ticket, change),
            Answer::Later => Completion::Change(ticket, Change::Failed),
        }
    }
}

/// The data, wherever it is asked from.
#[derive(Clone)]
pub struct KeptData(Arc<Mutex<Server>>);

impl KeptData {
    /// What lies in a backend now, and is answered after `delay_ns` on average.
    pub fn new(backend: Box<dyn Backend>, delay_ns: u64, seed: u64) -> KeptData {
        KeptData(Arc::new(Mutex::new(Server {
            backend,
            queue: VecDeque::new(),
            delay_ns,
            rng: rng(seed, "data"),
            askers: 0,
            shown_ns: 0,
            down_until_ns: 0,
            commands: CommandQueue::new(rng(seed, "commands")),
            unversioned: Unversioned::new(),
            written: WrittenKeys::default(),
            shard: None,
        })))
    }

    /// Likewise in a shard of a Redis Cluster.
    pub fn of_shard(backend: Box<dyn Backend>, delay_ns: u64, seed: u64) -> KeptData {
        let data = KeptData::new(backend, delay_ns, seed);
        data.lock().shard = Some(Shard::new(delay_ns, rng(seed, "shard")));
        data
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One life's way to it.
#[derive(Clone)]
pub struct Way {
    data: KeptData,
    /// The data's clock when this store's was at 0.
    began_ns: u64,
    asker: u64,
}

impl Way {
    /// For a store whose clock is at 0 at `world_ns` of the world: the data's clock is its own, not
    /// one of the store's machine.
    pub fn new(data: KeptData, world_ns: u64) -> Way {
        let mut server = data.lock();
        let began_ns = server.shows(world_ns);
        server.run(world_ns);
        server.askers += 1;
        let asker = server.askers;
        if let Some(shard) = &mut server.shard {
            shard.connects(began_ns);
        }
        drop(server);
        Way { data, began_ns, asker }
    }

    /// The data's server dies, and runs again after so long.
    pub fn restart(&self, now_ns: u64, for_ns: u64) {
        let mut server = self.data.lock();
        let now_ns = server.shows(now_ns + self.began_ns);
        server.restart(now_ns, for_ns);
    }

    /// The data, for the next life.
    pub fn into_data(self) -> KeptData {
        self.data
    }

    /// When the next answer is due.
    pub fn next_ns(&self) -> Option<u64> {
        let server = self.data.lock();
        let first = server.queue.front().map(|command| command.due_ns);
        let next_ns = first.into_iter().chain(server.commands.next_ns()).min();
        let now_ns = server.commands.has_event().then_some(server.shown_ns);
        let of_shard = server.shard.iter().flat_map(|shard| {
            [Some(shard.question_ns()), shard.next_told_ns(), shard.next_step_ns()]
        });
        let next_ns = next_ns.into_iter().chain(now_ns).chain(of_shard.flatten()).min()?;
        Some(next_ns.saturating_sub(self.began_ns))
    }

    /// A connection for commands of Redis; none while it does not run.
    pub fn connect(&self, now_ns: u64) -> Option<ConnectionId> {
        let mut server = self.data.lock();
        let now_ns = server.shows(now_ns + self.began_ns);
        (now_ns >= server.down_until_ns).then(|| server.commands.open(self.asker))
    }

    /// Sends a command on a connection.
    pub fn command(&self, connection: ConnectionId, command: RedisCommand, now_ns: u64) {
        let mut server = self.data.lock();
        let now_ns = server.shows(now_ns + self.began_ns);
        if now_ns >= server.down_until_ns {
            let delay_ns = server.delay_ns;
            server.commands.send(connection, command, now_ns, delay_ns);
        }
    }

    /// A connection is over. What is on it is carried out.
    pub fn disconnect(&self, connection: ConnectionId) {
        self.data.lock().commands.close(connection);
    }

    /// Redis ends a connection: what is on it does not take place any more.
    pub fn end(&self, connection: ConnectionId) {
        self.data.lock().commands.end(connection);
    }

    /// A connection is lost, and what is on it takes place up to so long from now.
    pub fn lose(&self, connection: ConnectionId, now_ns: u64, most_ns: u64) {
        let mut server = self.data.lock();
        server.commands.delay(connection, now_ns + self.began_ns, most_ns);
        server.commands.close(connection);
    }

    /// Carries out the commands that are due; what comes of them to this life next.
    pub fn next_command_event(&self, now_ns: u64) -> Option<CommandEvent> {
        let mut server = self.data.lock();
        server.carry_out_commands(now_ns + self.began_ns);
        server.commands.next_event(self.asker)
    }

    /// Carries out what is due; the next answer to this life, if there is one.
    pub fn next_completion(&self, now_ns: u64) -> Option<Completion> {
        let mut server = self.data.lock();
        if server.shard.is_some() {
            return server.next_told(now_ns + self.began_ns, Origin::by(self.asker, now_ns));
        }
        while server.queue.front()?.due_ns <= now_ns + self.began_ns {
            let command = server.queue.pop_front()?;
            server.carry_out_commands(command.due_ns);
            let completion = server.carry_out(&command);
            if command.asker == self.asker {
                return Some(completion);
            }
        }
        None
    }
}

/// The backend of one life of a store.
pub struct KeptBackend {
    way: Way,
    /// The value that was read last.
    value: Vec<u8>,
}

impl KeptBackend {
    /// By this way.
    pub fn new(way: Way) -> KeptBackend {
        let value = vec![];
        KeptBackend { way, value }
    }
}

impl Backend for KeptBackend {
    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        let mut server = self.way.data.lock();
        let asked = Origin { ticket, ..Origin::by(self.way.asker, now_ns) };
        let now_ns = server.shows(now_ns + self.way.began_ns);
        if server.answers_later(now_ns) {
            server.queue(now_ns, asked, key, Verb::Get { for_grant: false });
            return Answer::Later;
        }
        server.carry_out_commands(now_ns);
        let Answer::Now(found) = server.backend.get(key, now_ns, ticket) else {
            return Answer::Later;
        };
        Answer::Now(found.map(|item| {
            self.value.clear();
            self.value.extend_from_slice(item.value);
            Item { value: &self.value[..], version: item.version, expiry_ms: item.expiry_ms }
        }))
    }

    fn get_for_grant(
        &mut self,
        key: Key<'_>,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Option<Item<&[u8]>>> {
        if self.watch() != Watch::Tracked {
            return self.get(key, now_ns, ticket);
        }
        let mut server = self.way.data.lock();
        let asked = Origin { ticket, ..Origin::by(self.way.asker, now_ns) };
        let now_ns = server.shows(now_ns + self.way.began_ns);
        server.queue(now_ns, asked, key, Verb::Get { for_grant: true });
        Answer::Later
    }

    fn watch(&self) -> Watch {
        match self.way.data.lock().shard {
            Some(_) => Watch::Tracked,
            None => Watch::Unneeded,
        }
    }

    fn attend(&mut self) {
        let mut server = self.way.data.lock();
        let now_ns = server.shown_ns;
        server.shard.iter_mut().for_each(|shard| shard.attend(now_ns));
    }

    fn ask(&mut self) {
        let mut server = self.way.data.lock();
        let now_ns = server.shown_ns;
        if now_ns >= server.down_until_ns {
            server.shard.iter_mut().for_each(|shard| shard.wants_question(now_ns));
        }
    }

    fn raise(&mut self, tenant: u32, hash: KeyHash, from: u64, to: u64) -> bool {
        self.way.data.lock().raise((tenant, hash), from, to)
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        let mut server = self.way.data.lock();
        let asked = Origin { ticket, ..Origin::by(self.way.asker, now_ns) };
        let now_ns = server.shows(now_ns + self.way.began_ns);
        if !server.answers_later(now_ns) {
            server.carry_out_commands(now_ns);
            server.written.count(key);
            return server.backend.put(key, put, now_ns, ticket);
        }
        let verb = Verb::Put {
            value: put.value.cloned(),
            ttl_ms: put.ttl_ms,
            condition: put.condition,
            version: put.version,
        };
        server.queue(now_ns, asked, key, verb);
        Answer::Later
    }

    fn settle(&mut self, tenant: u32, hash: KeyHash, version: u64) {
        let mut server = self.way.data.lock();
        let now_ns = server.shown_ns;
        let Some(bytes) = server.unversioned.remove(&(tenant, hash)) else { return };
        let key = Key { tenant, hash, bytes: &bytes };
        let Answer::Now(Some(item)) = server.backend.get(key, now_ns, 0) else { return };
        let (value, ttl_ms) = (Bytes::copy_from_slice(item.value), item.expiry_ms);
        server.backend.put(key, Put { ttl_ms, ..Put::of(&value, version) }, now_ns, 0);
    }

    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        self.way.data.lock().backend.pin(key, pinned);
    }

    fn items(&self) -> Option<u64> {
        self.way.data.lock().backend.items()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.way.data.lock().backend.memory_bytes()
    }

    fn evicted(&self) -> u64 {
        self.way.data.lock().backend.evicted()
    }
}

#[cfg(test)]
mod tests {
    use store::backend::embedded::EmbeddedBackend;

    use super::*;

    const S: u64 = 1_000_000_000;
    const KEY: Key<'_> = Key { tenant: 0, hash: KeyHash([1; 16]), bytes: b"k" };

    #[test]
    fn a_value_lives_as_long_as_it_was_to_over_the_lives_of_stores() {
        let data = KeptData::new(Box::new(EmbeddedBackend::new(1 << 20)), 0, 1);
        // (the world's time at the life's beginning, the store's clock, whether the value is there)
        let lives = [
            (5 * S, S, true),
            (8 * S, S / 2, true),
            (9 * S, S, true),
            (9 * S, 2 * S, false),
            (2 * S, 0, false),
        ];
        let mut first = KeptBackend::new(Way::new(data.clone(), 0));
        let value = Bytes::from_static(b"v");
        let put = Put { ttl_ms: 10_000, ..Put::of(&value, 1) };
        assert_eq!(first.put(KEY, put, S, 1), Answer::Now(Change::Done(1)));
        for (world_ns, now_ns, is_there) in lives {
            let mut kept = KeptBackend::new(Way::new(data.clone(), world_ns));
            let found = kept.get(KEY, now_ns, 2);
            let found = matches!(found, Answer::Now(Some(_)));
            assert_eq!(found, is_there, "{world_ns} + {now_ns}");
        }
    }
}
