//! Commands of Redis on their way to the data, each on a connection of its own: in order there, and
//! in no order with those of others or with what the store itself asks.
//!
//! A connection may be lost with a command on it, which is carried out later, or never. Then the
//! store has Redis end the connection; or Redis does not say which one that is, and nobody can tell
//! for a lease.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt;
use seed::SeededRng;

use crate::redis::{RedisCommand, WatchedState};

/// The least that a command takes.
const LEAST_NS: u64 = 30_000;
/// What one in eight takes at most: a slow script before it, say.
const SLOW_NS: u64 = 20_000_000;

/// Names a connection; no other has had it.
pub type ConnectionId = u64;

/// What a connection comes to.
#[derive(Clone, Debug)]
pub enum CommandEvent {
    /// The reply to its next command.
    Reply(ConnectionId, Vec<u8>),
    /// The data's server has gone, and nothing that was sent on it takes place any more.
    Gone(ConnectionId),
}

/// A command on its way.
struct UnderWay {
    asker: u64,
    connection: ConnectionId,
    command: RedisCommand,
}

/// What a connection is in the middle of.
#[derive(Default)]
struct Connection {
    asker: u64,
    /// When what was sent last on it is carried out.
    last_ns: u64,
    /// Commands of a transaction that is open.
    queued: Option<Vec<RedisCommand>>,
    /// What the next transaction is not carried out without.
    watched: Vec<WatchedKey>,
    /// Nobody hears of it any more.
    is_closed: bool,
}

/// A key that is watched, and what it was then.
pub struct WatchedKey {
    /// A read of it.
    pub read: RedisCommand,
    /// What it was when it began to be watched.
    pub was: WatchedState,
}

/// All that is on its way.
pub struct CommandQueue {
    connections: BTreeMap<ConnectionId, Connection>,
    newest: ConnectionId,
    /// By when each is carried out, on the data's clock.
    under_way: BTreeMap<(u64, u64), UnderWay>,
    sent: u64,
    events: VecDeque<(u64, CommandEvent)>,
    rng: SeededRng,
}

impl CommandQueue {
    /// Nothing yet.
    pub fn new(rng: SeededRng) -> CommandQueue {
        CommandQueue {
            connections: BTreeMap::new(),
            newest: 0,
            under_way: BTreeMap::new(),
            sent: 0,
            events: VecDeque::new(),
            rng,
        }
    }

    /// A connection of this life of a store.
    pub fn open(&mut self, asker: u64) -> ConnectionId {
        self.newest += 1;
        self.connections.insert(self.newest, Connection { asker, ..Connection::default() });
        self.newest
    }

    /// Sends a command; `delay_ns` is what one takes on average.
    pub fn send(
        &mut self,
        connection: ConnectionId,
        command: RedisCommand,
        now_ns: u64,
        delay_ns: u64,
    ) {
        let Some(state) = self.connections.get_mut(&connection) else { return };
        let slow_ns = match self.rng.random_range(0..8) {
            0 => SLOW_NS,
            _ => 2 * delay_ns,
        };
        let took_ns = LEAST_NS + self.rng.random_range(0..=slow_ns);
        state.last_ns = state.last_ns.max(now_ns + took_ns);
        self.sent += 1;
        let under_way = UnderWay { asker: state.asker, connection, command };
        self.under_way.insert((state.last_ns, self.sent), under_way);
    }

    /// A connection is over, and nobody hears of it. What is on it is carried out all the same.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(state) = self.connections.get_mut(&connection) {
            state.is_closed = true;
        }
        self.forget_if_over(connection);
    }

    /// What is on its way is carried out as its connection says: in a transaction, maybe.
    fn forget_if_over(&mut self, connection: ConnectionId) {
        let is_its = |under_way: &UnderWay| under_way.connection == connection;
        let is_closed = self.connections.get(&connection).is_some_and(|state| state.is_closed);
        if is_closed && !self.under_way.values().any(is_its) {
            self.connections.remove(&connection);
        }
    }

    /// Has what is on a connection not take place any more.
    pub fn end(&mut self, connection: ConnectionId) {
        self.under_way.retain(|_, under_way| under_way.connection != connection);
        self.close(connection);
    }

    /// What is on a connection takes up to so long from now.
    pub fn delay(&mut self, connection: ConnectionId, now_ns: u64, most_ns: u64) {
        let late_ns = now_ns + self.rng.random_range(0..=most_ns);
        let keys: Vec<(u64, u64)> = self.under_way.keys().copied().collect();
        for (due_ns, number) in keys {
            let is_its = |under_way: &UnderWay| under_way.connection == connection;
            if self.under_way.get(&(due_ns, number)).is_some_and(is_its)
                && let Some(its) = self.under_way.remove(&(due_ns, number))
            {
                self.under_way.insert((due_ns.max(late_ns), number), its);
            }
        }
    }

    /// The server of the data dies: of what was on its way on each connection the first commands
    /// are due at once, the rest never are. So half of a transaction is not carried out.
    pub fn restart(&mut self, now_ns: u64) {
        let mut lost = BTreeSet::new();
        for ((_, number), under_way) in std::mem::take(&mut self.under_way) {
            if !self.rng.random::<bool>() {
                lost.insert(under_way.connection);
            }
            if !lost.contains(&under_way.connection) {
                self.under_way.insert((now_ns, number), under_way);
            }
        }
    }

    /// It is there again, with no connection: all are gone, and what was on them is over.
    pub fn is_there_again(&mut self) {
        self.under_way.clear();
        let connections = std::mem::take(&mut self.connections).into_iter();
        let heard = connections.filter(|(_, state)| !state.is_closed);
        self.events.extend(heard.map(|(id, state)| (state.asker, CommandEvent::Gone(id))));
    }

    /// When the next command is due, on the data's clock.
    pub fn next_ns(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// The next that is due by then: what is to be carried out at once, the connection, and when.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(DueCommand, u64)> {
        let due_ns = self.next_ns().filter(|due_ns| *due_ns <= now_ns)?;
        let (_, UnderWay { asker, connection, command }) = self.under_way.pop_first()?;
        let name = command.words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let mut state = self.connections.get_mut(&connection);
        let queued = state.as_mut().and_then(|state| state.queued.as_mut());
        let what = match (&name[..], queued) {
            (b"multi", _) => {
                state.into_iter().for_each(|state| state.queued = Some(vec![]));
                DueWork::Said("+OK\r\n")
            }
            (b"exec", Some(queued)) => {
                let queued = std::mem::take(queued);
                let watched = state.map(|state| {
                    state.queued = None;
                    std::mem::take(&mut state.watched)
                });
                DueWork::Transaction(queued, watched.unwrap_or_default())
            }
            (_, Some(queued)) => {
                queued.push(command);
                DueWork::Said("+QUEUED\r\n")
            }
            (b"watch", None) => {
                let mut read = command;
                read.words[0] = b"get".into();
                DueWork::Watch(read)
            }
            (_, None) => DueWork::Command(command),
        };
        Some((DueCommand { asker, connection, what }, due_ns))
    }

    /// A key is watched from now on.
    pub fn watch(&mut self, due: &DueCommand, key: WatchedKey) {
        if let Some(state) = self.connections.get_mut(&due.connection) {
            state.watched.push(key);
        }
    }

    /// A command has been carried out, and this is its reply.
    pub fn replied(&mut self, due: &DueCommand, reply: Vec<u8>) {
        let is_heard = self.connections.get(&due.connection).is_some_and(|state| !state.is_closed);
        self.forget_if_over(due.connection);
        if is_heard {
            self.events.push_back((due.asker, CommandEvent::Reply(due.connection, reply)));
        }
    }

    /// What comes to this life of a store next; what others do not hear is forgotten.
    pub fn next_event(&mut self, asker: u64) -> Option<CommandEvent> {
        while let Some((of, event)) = self.events.pop_front() {
            if of == asker {
                return Some(event);
            }
        }
        None
    }

    /// Whether something has come that nobody has taken.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }
}

/// A command that is due.
pub struct DueCommand {
    asker: u64,
    connection: ConnectionId,
    /// What there is to do.
    pub what: DueWork,
}

/// What there is to do.
pub enum DueWork {
    /// Nothing but to say this.
    Said(&'static str),
    /// This.
    Command(RedisCommand),
    /// This read, whose key is to be watched.
    Watch(RedisCommand),
    /// All of these at once, if the keys are what they were.
    Transaction(Vec<RedisCommand>, Vec<WatchedKey>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_dies_carries_out_no_half_of_a_transaction() {
        let mut whole = 0;
        for seed in 0..256 {
            let mut queue = CommandQueue::new(seed::rng(seed, "commands"));
            let connection = queue.open(1);
            for words in ["MULTI", "DEL k", "SETRANGE k 0 v", "EXEC"] {
                let words = words.split(' ').map(|word| word.as_bytes().into()).collect();
                queue.send(connection, RedisCommand { words, keys: vec![] }, 0, 0);
            }
            queue.restart(1);
            while let Some((due, _)) = queue.take_due(1) {
                match due.what {
                    DueWork::Transaction(all, _) => {
                        assert_eq!(all.len(), 2, "seed {seed}");
                        whole += 1;
                    }
                    DueWork::Said(_) => {}
                    DueWork::Command(_) | DueWork::Watch(_) => panic!("seed {seed}"),
                }
            }
        }
        assert!(whole > 0);
    }
}
