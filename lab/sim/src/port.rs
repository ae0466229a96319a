//! A store's RESP port, by streams in the place of sockets: what of it decides is the store's own
//! (`store::resp_port::session`, and the engine, which has keys held); what only moves bytes there
//! is this here.
//!
//! A connection to Redis may be lost with a command on it. Then, as the port does, the store has
//! Redis end it before the keys are let go; or, where Redis does not say who a connection is, they
//! are held for a lease more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt;
use redis::Value;
use resp::{CommandTable, Limits, ReplyScanner, RequestParser};
use seed::{SeededRng, rng};
use store::{
    HoldEnd, HoldId,
    engine::Engine,
    net::Outbox,
    resp_port::session::{Session, Step},
};

use crate::{
    ids::StreamId,
    kept::{CommandEvent, ConnectionId, Way},
    process::Io,
    redis::{RedisCommand, RedisKey},
    streams::Message,
};

/// One connection in so many is lost when a command that is held for has been sent on it.
const LOST_ONE_IN: u32 = 150;
/// How long it takes to have Redis end a connection.
const ENDS_AFTER_NS: u64 = 2_000_000;
/// How much of a lease a command may take that is on a connection which was lost.
const LATE_PART: f64 = 0.8;

/// The commands that clients send: name, flags, first key, last key, step.
const COMMANDS: [(&str, &str, [i64; 3]); 19] = [
    ("get", "readonly", [1, 1, 1]),
    ("set", "write", [1, 1, 1]),
    ("setnx", "write", [1, 1, 1]),
    ("setrange", "write", [1, 1, 1]),
    ("append", "write", [1, 1, 1]),
    ("incrby", "write", [1, 1, 1]),
    ("getdel", "write", [1, 1, 1]),
    ("getex", "write", [1, 1, 1]),
    ("pexpire", "write", [1, 1, 1]),
    ("persist", "write", [1, 1, 1]),
    ("del", "write", [1, -1, 1]),
    ("mset", "write", [1, -1, 2]),
    ("msetnx", "write", [1, -1, 2]),
    ("rename", "write", [1, 2, 1]),
    ("copy", "write", [1, 2, 1]),
    ("flushall", "write", [0, 0, 0]),
    ("watch", "fast", [1, 1, 1]),
    ("multi", "fast", [0, 0, 0]),
    ("exec", "fast", [0, 0, 0]),
];

fn table() -> CommandTable {
    let row = |(name, flag, keys): &(&str, &str, [i64; 3])| {
        let flags = Value::Array(vec![Value::SimpleString((*flag).into())]);
        let named = [Value::BulkString((*name).into()), Value::Int(-1), flags];
        Value::Array(named.into_iter().chain(keys.map(Value::Int)).collect())
    };
    CommandTable::of(&Value::Array(COMMANDS.iter().map(row).collect())).unwrap_or_default()
}

/// One client, with its connection to Redis.
#[derive(Default)]
struct PortClient {
    /// None: it has gone.
    stream: Option<StreamId>,
    session: Session,
    parser: RequestParser,
    scanner: ReplyScanner,
    input: Vec<u8>,
    /// What waits for its hold.
    waits: Option<(HoldId, RedisCommand)>,
    /// Holds of commands that were sent and are not answered.
    holds: VecDeque<HoldId>,
}

/// All clients of a store.
pub struct Port {
    table: CommandTable,
    clients: BTreeMap<ConnectionId, PortClient>,
    by_stream: BTreeMap<StreamId, ConnectionId>,
    newest_hold: HoldId,
    /// Connections that Redis has been asked to end, and holds that are over when it has.
    ending: BTreeSet<(u64, ConnectionId, Vec<HoldId>)>,
    lease_ns: u64,
    rng: SeededRng,
}

/// What is around it.
pub struct Surroundings<'a> {
    /// The store.
    pub engine: &'a mut Engine,
    /// What the engine sends.
    pub out: &'a mut Outbox,
    /// To Redis.
    pub way: &'a Way,
    /// The engine's clock.
    pub now_ns: u64,
}

impl Port {
    /// Without clients yet, of a store with leases of so many nanoseconds.
    pub fn new(seed: u64, lease_ns: u64) -> Port {
        Port {
            table: table(),
            clients: BTreeMap::new(),
            by_stream: BTreeMap::new(),
            newest_hold: 0,
            ending: BTreeSet::new(),
            lease_ns,
            rng: rng(seed, "port"),
        }
    }

    /// A client has come.
    pub fn opened(&mut self, stream: StreamId, at: &Surroundings<'_>, io: &mut Io<'_>) {
        let Some(connection) = at.way.connect(at.now_ns) else { return io.close(stream) };
        self.by_stream.insert(stream, connection);
        let client = PortClient { stream: Some(stream), ..PortClient::default() };
        self.clients.insert(connection, client);
    }

    /// A client has sent this.
    pub fn said(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        mut at: Surroundings<'_>,
        io: &mut Io<'_>,
    ) {
        let Some(connection) = self.by_stream.get(&stream).copied() else { return };
        if let Some(client) = self.clients.get_mut(&connection) {
            client.input.extend_from_slice(bytes);
        }
        self.take_commands(connection, &mut at, io);
    }

    /// A client has gone. What it has sent is carried out, and held for until it is answered.
    pub fn closed(&mut self, stream: StreamId, at: &mut Surroundings<'_>) {
        let Some(connection) = self.by_stream.remove(&stream) else { return };
        let Some(client) = self.clients.get_mut(&connection) else { return };
        client.stream = None;
        client.input.clear();
        // Not sent yet, it never is.
        if let Some((hold, _)) = client.waits.take() {
            at.engine.end_hold(hold, HoldEnd::Over, at.now_ns, at.out);
        }
        self.forget_if_over(connection, at.way);
    }

    fn forget_if_over(&mut self, connection: ConnectionId, way: &Way) {
        let is_over = |client: &PortClient| client.stream.is_none() && client.holds.is_empty();
        if self.clients.get(&connection).is_some_and(is_over) {
            self.clients.remove(&connection);
            way.disconnect(connection);
        }
    }

    /// Takes what a client has sent as far as it goes.
    fn take_commands(
        &mut self,
        connection: ConnectionId,
        at: &mut Surroundings<'_>,
        io: &mut Io<'_>,
    ) {
        let Port { table, clients, .. } = self;
        let Some(client) = clients.get_mut(&connection) else { return };
        while client.waits.is_none() {
            let mut skipped = 0;
            let request = client.parser.next(&client.input, &Limits::default(), &mut skipped);
            let Ok(Some(request)) = request else { return };
            let (words, len) = (request.words, skipped + request.bytes.len());
            let command = table.find_of(words);
            let mut found = vec![];
            command.iter().for_each(|command| command.keys(words, &mut found));
            let keys = found.iter().filter_map(|word| {
                let (tenant, hash) = at.engine.key_named(words.get(word.index)?)?;
                Some(RedisKey { index: word.index, tenant, hash })
            });
            let keys: Vec<RedisKey> = keys.collect();
            if keys.len() < found.len() {
                // Its tenant is not known yet to a store that has just begun.
                if let Some(stream) = client.stream {
                    io.say(stream, Message::Resp(b"-TRYAGAIN no such tenant yet\r\n".to_vec()));
                }
                client.input.clear();
                return;
            }
            let is_exec = command.is_some_and(|command| command.name == "exec");
            let step = client.session.asked(command, words);
            let words = words.iter().map(<[u8]>::to_vec).collect();
            let command = RedisCommand { words, keys };
            match step {
                Step::Wait => return,
                Step::AskWho => unreachable!("the simulator's Redis has no password"),
                Step::Answered | Step::BecomesReplica => {}
                Step::Send => at.way.command(connection, command, at.now_ns),
                Step::Hold(wanted) => {
                    client.session.sent_held(is_exec);
                    client.session.ends_hold(client.session.unanswered() - 1);
                    self.newest_hold += 1;
                    client.waits = Some((self.newest_hold, command));
                    at.engine.hold(self.newest_hold, wanted, at.now_ns, at.out);
                }
            }
            client.input.drain(..len);
        }
    }

    /// Sends what has what it waited for, as long as there is such.
    pub fn send_held(&mut self, at: &mut Surroundings<'_>, io: &mut Io<'_>) {
        for hold in at.engine.take_refused() {
            let waits =
                |client: &PortClient| matches!(client.waits, Some((waits, _)) if waits == hold);
            let found = self.clients.iter_mut().find(|(_, client)| waits(client));
            // Its client learns no more of it than if the connection had been lost.
            if let Some((connection, client)) = found {
                client.waits = None;
                let connection = *connection;
                self.lose(connection, at, io);
            }
        }
        loop {
            let had = at.engine.take_held();
            if had.is_empty() {
                return;
            }
            for hold in had {
                let waits = |client: &PortClient| {
                    client.waits.as_ref().is_some_and(|(waits, _)| *waits == hold)
                };
                let found = self.clients.iter_mut().find(|(_, client)| waits(client));
                let Some((connection, client)) = found else { continue };
                let Some((_, command)) = client.waits.take() else { continue };
                at.way.command(*connection, command, at.now_ns);
                client.holds.push_back(hold);
                let connection = *connection;
                if self.rng.random_range(0..LOST_ONE_IN) == 0 {
                    self.lose(connection, at, io);
                }
            }
        }
    }

    /// A connection to Redis is lost.
    fn lose(&mut self, connection: ConnectionId, at: &mut Surroundings<'_>, io: &mut Io<'_>) {
        let Some(client) = self.clients.remove(&connection) else { return };
        if let Some(stream) = client.stream {
            self.by_stream.remove(&stream);
            io.close(stream);
        }
        let says_who_it_is = self.rng.random();
        let late_ns = (self.lease_ns as f64 * LATE_PART) as u64;
        if says_who_it_is {
            let ended_ns = at.now_ns + ENDS_AFTER_NS;
            self.ending.insert((ended_ns, connection, client.holds.into()));
        } else {
            at.way.lose(connection, at.now_ns, late_ns);
            for hold in client.holds {
                at.engine.end_hold(hold, HoldEnd::Unknown, at.now_ns, at.out);
            }
        }
    }

    /// Takes what Redis has said, and what is due.
    pub fn wake(&mut self, at: &mut Surroundings<'_>, io: &mut Io<'_>) {
        while let Some(event) = at.way.next_command_event(at.now_ns) {
            match event {
                CommandEvent::Reply(connection, reply) => self.replied(connection, &reply, at, io),
                CommandEvent::Gone(connection) => {
                    let Some(client) = self.clients.remove(&connection) else { continue };
                    if let Some(stream) = client.stream {
                        self.by_stream.remove(&stream);
                        io.close(stream);
                    }
                    let waits = client.waits.map(|(hold, _)| hold);
                    for hold in client.holds.into_iter().chain(waits) {
                        at.engine.end_hold(hold, HoldEnd::Over, at.now_ns, at.out);
                    }
                }
            }
        }
        while let Some((ended_ns, ..)) = self.ending.first()
            && *ended_ns <= at.now_ns
            && let Some((_, connection, holds)) = self.ending.pop_first()
        {
            at.way.end(connection);
            for hold in holds {
                at.engine.end_hold(hold, HoldEnd::Over, at.now_ns, at.out);
            }
        }
    }

    fn replied(
        &mut self,
        connection: ConnectionId,
        reply: &[u8],
        at: &mut Surroundings<'_>,
        io: &mut Io<'_>,
    ) {
        let Some(client) = self.clients.get_mut(&connection) else { return };
        let Ok(Some(found)) = client.scanner.scan(reply) else { return };
        let outcome = client.session.replied(found, reply);
        if outcome.ends_hold
            && let Some(hold) = client.holds.pop_front()
        {
            at.engine.end_hold(hold, HoldEnd::Over, at.now_ns, at.out);
        }
        match client.stream {
            Some(stream) => {
                io.say(stream, Message::Resp(reply.to_vec()));
                self.take_commands(connection, at, io);
            }
            None => self.forget_if_over(connection, at.way),
        }
    }

    /// When [`Port::wake`] has something to do, beside what Redis says.
    pub fn next_ns(&self) -> Option<u64> {
        self.ending.first().map(|(ended_ns, ..)| *ended_ns)
    }
}
