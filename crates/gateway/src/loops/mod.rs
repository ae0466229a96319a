//! One event loop: everything that one core of the gateway does.
//!
//! A round begins with what the system says has happened on sockets. Answers of [`upstream`]s are
//! given to the [`client`]s that wait for them; what clients have sent is parsed in place,
//! and each command is put at the end of what goes out by its way ([`dispatch`]). The
//! round ends with one write for each socket that has something to say. So what a command costs is
//! its parse, a place in two queues, and its share of the system calls of a round.
//!
//! What a client does, or does not do, holds up nobody else: answers are taken from upstreams
//! whether or not their client reads, and what they take is bounded ([`memory`]).

mod answers;
mod as_cluster;
mod backlog;
mod check;
mod client;
mod coalescing;
mod commands;
mod congestion;
mod dispatch;
mod hello;
mod hot;
pub(crate) mod jobs;
mod joint;
mod local;
mod memory;
mod network;
mod own;
pub(crate) mod owners;
mod packets;
mod presence;
pub(crate) mod publishing;
mod rally;
mod readers;
mod reads;
mod rights;
mod server_facts;
mod speaker;
mod spread;
pub(crate) mod stream;
mod strings;
pub(crate) mod tenant;
mod tls_side;
mod tracked_connections;
mod tracking;
mod turns;
mod upstream;
mod upstreams;
mod users;
mod validity;
mod words;

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ::client::Machine;
use ::client::kit::{self, LocalCopies};
use hashbrown::{DefaultHashBuilder, HashMap};
use mio::{
    Events, Poll, Token,
    net::{TcpListener, TcpStream},
};
use resp::{KeyWord, RequestParser};
use slab::Slab;
use tls::Acceptor;

use self::{
    client::Client,
    commands::Commands,
    hot::Sketch,
    jobs::{JobParts, Jobs},
    owners::Owners,
    packets::Packets,
    rally::Rally,
    reads::Reads,
    speaker::Speaker,
    spread::Joint,
    stream::{Place, Stream, Trust},
    tenant::TenantNames,
    tls_side::TlsSide,
    turns::Turns,
    upstream::{Kind, Phase, Upstream},
    users::Users,
};
use crate::{
    names::NamedAddress, network_use::NetworkUse, shared::GatewayState, strings::session::Session,
};

/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 64 << 10;
/// Events taken from the system at once.
const EVENTS: usize = 1024;
/// Connections accepted in one round.
const ACCEPTS: usize = 4;
/// After an error of accept it is tried again so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long a client may take until it is believed, where clients come by TLS.
const SHAKES_WITHIN: Duration = Duration::from_secs(10);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const SOCKETS: [Token; 2] = [Token(2), Token(3)];
const FIRST: usize = 4;

/// A Redis, or a store's RESP port, and how to become its client.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// As it is called in the log.
    pub name: String,
    /// As clients hear of it.
    pub role: &'static str,
    pub place: Place,
    /// What its name means now, if it has one.
    pub named: Option<Arc<NamedAddress>>,
    /// By TLS: whom to believe.
    pub trust: Option<Trust>,
    /// The user's name, if there is one, and the password.
    pub login: Option<(Option<String>, String)>,
    /// The number of the database.
    pub database: i64,
}

/// A store's RESP port.
#[derive(Clone, Debug)]
pub(crate) struct StorePort {
    pub store: Target,
    /// The Redis behind it, for what touches no copy.
    pub direct: Option<Target>,
}

/// What a loop knows of a store.
struct StoreState {
    /// Index of its Redis among the targets; its own is the store's number.
    direct: Option<usize>,
    /// The run id of the Redis behind it.
    run_id: Option<String>,
    /// When it was asked that said so last: another Redis may be behind it since.
    run_id_asked: Option<u64>,
    /// Whether it was said that the Redis of `--backend` is another one.
    said_other: bool,
}

/// What a loop is made of.
pub(crate) struct Parts {
    pub listener: std::net::TcpListener,
    /// By which clients come in, where they come by TLS.
    pub acceptor: Option<Acceptor>,
    /// The stores' RESP ports; none where only the commands on strings are carried out.
    pub ports: Vec<StorePort>,
    /// Which of them a key's store has.
    pub owners: Owners,
    /// How the tenant's keys are called there, if not as they are.
    pub tenant: Option<TenantNames>,
    /// By which hot keys are read, and which of them; `None`: none.
    pub network: Option<(Machine, NetworkUse)>,
    /// The copies that the gateway keeps.
    pub local: Option<LocalCopies>,
    /// The stores, as the network knows them.
    pub stores: Vec<SocketAddr>,
    /// By which commands on strings are carried out, where there are no RESP ports.
    pub strings: Option<JobParts>,
    pub shared: Arc<GatewayState>,
}

/// Ends a loop from another thread.
pub(crate) struct Stopper(mio::Waker);

impl Stopper {
    /// Has it answer what it was sent, and end.
    pub fn stop(&self) {
        let _ = self.0.wake();
    }
}

/// One loop.
pub(crate) struct EventLoop {
    poll: Poll,
    listener: Option<TcpListener>,
    /// Connections may wait that could not be taken: when they are tried again.
    accept_again: Option<Instant>,
    acceptor: Option<Acceptor>,
    /// Clients that are not believed yet, as they came: until when they have to be, place and
    /// number.
    shaking: VecDeque<(Instant, usize, u64)>,
    /// The RESP ports of all stores, and then their Redis servers.
    targets: Vec<Target>,
    stores: Vec<StoreState>,
    owners: Owners,
    tenant: Option<TenantNames>,
    /// Commands of several stores that are under way.
    joints: Slab<Joint>,
    clients: Slab<Client>,
    /// Bytes that its clients hold, as they are counted.
    held: usize,
    upstreams: Slab<Upstream>,
    /// Those that clients share.
    common: HashMap<Kind, usize>,
    commands: Commands,
    /// The store whose they are, or that is asked for them next.
    commands_store: usize,
    /// The run id of the Redis whose commands they are.
    commands_of: Option<String>,
    /// When a server did not tell them, and whom.
    commands_failed: Option<(Instant, Speaker)>,
    /// Clients that wait to know what commands there are.
    awaiting: Vec<usize>,
    /// Clients whose messages wait for subscriptions.
    publishers: Vec<usize>,
    /// Clients whose commands wait until they have read, and when to look whether they do.
    readers: VecDeque<(Instant, usize)>,
    users: Users,
    shared: Arc<GatewayState>,
    reads: Option<Reads>,
    /// Commands on strings that are carried out here; `None`: servers carry out all commands.
    jobs: Option<Jobs>,
    /// What a command may be.
    request_limits: resp::Limits,
    local: Option<LocalCopies>,
    /// How often each command was answered from copies in this round, by its row.
    local_hits: Vec<(u16, u64)>,
    hasher: DefaultHashBuilder,
    /// Which keys are hot; `None`: all of them.
    sketch: Option<Sketch>,
    /// Clients whose next command may go on.
    turns: Turns,
    /// Those with something to send in this round.
    dirty_clients: Vec<usize>,
    dirty_upstreams: Vec<usize>,
    scratch: Vec<u8>,
    /// An answer of the network's as clients get it.
    answer: Vec<u8>,
    parser: RequestParser,
    /// Words of a command that are keys.
    keys: Vec<KeyWord>,
    /// How often names had got other addresses when that was looked at last; `None`: no server is
    /// given by a name.
    names_seen: Option<u64>,
    /// When connections that are silent were looked for last.
    looked_at: Instant,
    /// When the round began.
    now: Instant,
    /// Likewise, on the clock of leases, which goes on while the machine is suspended.
    now_ns: u64,
    /// A time, on the clock of leases, when what is being carried out had come already: a copy
    /// whose lease holds then may answer it.
    read_ns: u64,
    next_number: u64,
    /// It is stopped: a client of which there is nothing to read any more has ended.
    leaving: bool,
}

impl EventLoop {
    /// A loop that begins when it is run.
    ///
    /// # Errors
    /// The system refuses what it needs.
    pub fn new(parts: Parts) -> anyhow::Result<(EventLoop, Stopper)> {
        let Parts { listener, acceptor, ports, owners, tenant, network, .. } = parts;
        let Parts { local, stores, strings, shared, .. } = parts;
        let poll = Poll::new()?;
        let stopper = Stopper(mio::Waker::new(poll.registry(), WAKER)?);
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, mio::Interest::READABLE)?;
        let sketch = match &network {
            Some((_, NetworkUse::Always)) => None,
            _ => Some(Sketch::new()),
        };
        let packets = network.map(|(machine, _)| {
            Packets::new(machine, packets::families(stores), poll.registry(), SOCKETS)
        });
        let mut targets: Vec<Target> = ports.iter().map(|port| port.store.clone()).collect();
        let states = ports.into_iter().map(|port| {
            let direct = port.direct.map(|target| {
                targets.push(target);
                targets.len() - 1
            });
            StoreState { direct, run_id: None, run_id_asked: None, said_other: false }
        });
        let states = states.collect();
        let mut request_limits = resp::Limits::default();
        let jobs = strings.map(|mut parts| {
            targets.append(&mut parts.backends);
            let (word_bytes, words) = (shared.limits.word_bytes, shared.limits.words);
            request_limits = resp::Limits { word_bytes, words };
            Jobs::new(parts, targets.len(), &shared.stats)
        });
        let has_names = targets.iter().any(|target| target.named.is_some());
        let names_seen = has_names.then_some(0);
        let event_loop = EventLoop {
            poll,
            listener: Some(listener),
            accept_again: None,
            acceptor,
            shaking: VecDeque::new(),
            targets,
            stores: states,
            owners,
            tenant,
            joints: Slab::new(),
            clients: Slab::new(),
            held: 0,
            upstreams: Slab::new(),
            common: HashMap::new(),
            commands: Commands::new(Arc::default(), &shared.stats),
            commands_store: 0,
            commands_of: None,
            commands_failed: None,
            awaiting: vec![],
            publishers: vec![],
            readers: VecDeque::new(),
            users: Users::new(),
            shared,
            reads: packets.transpose()?.map(Reads::new),
            jobs,
            request_limits,
            local,
            local_hits: vec![],
            hasher: DefaultHashBuilder::default(),
            sketch,
            turns: Turns::new(),
            dirty_clients: vec![],
            dirty_upstreams: vec![],
            scratch: vec![0; READ_BYTES],
            answer: vec![],
            parser: RequestParser::default(),
            keys: vec![],
            names_seen,
            looked_at: Instant::now(),
            now: Instant::now(),
            now_ns: kit::now_ns(),
            read_ns: 0,
            next_number: 1,
            leaving: false,
        };
        Ok((event_loop, stopper))
    }

    /// Serves until it is stopped and everybody is answered, or until `ends` after that.
    ///
    /// # Errors
    /// The system does not tell of events any more.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut rally = Rally::default();
        self.check_backends();
        loop {
            if self.leaving && self.clients.is_empty() {
                return Ok(());
            }
            let wait = match self.turns.next() {
                Some(at) if at <= self.now => Some(Duration::ZERO),
                // What was taken from servers for clients who have read, after these had their
                // share of the round: nothing else tells of it.
                _ if !self.dirty_clients.is_empty() || !self.dirty_upstreams.is_empty() => {
                    Some(Duration::ZERO)
                }
                turn => {
                    let publisher = self.next_publisher();
                    let next = self.next_timer().into_iter().chain(turn).chain(publisher).min();
                    next.map(|at| at.saturating_duration_since(Instant::now()))
                }
            };
            let idle_since = Instant::now();
            match self.await_events(&mut events, wait, &rally, idle_since) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            (self.now, self.now_ns) = (Instant::now(), kit::now_ns());
            rally.round(events.iter().map(mio::event::Event::token), self.now - idle_since);
            self.follow_names();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => self.leave(),
                    token if SOCKETS.contains(&token) => self.network_event(token),
                    Token(token) if token % 2 == 0 => self.client_event((token - FIRST) / 2, event),
                    Token(token) => self.upstream_event((token - FIRST) / 2, event),
                }
            }
            self.expire();
            self.take_reads();
            self.wake_publishers();
            self.wake_readers();
            self.take_turns();
            if self.jobs.is_some() {
                self.run_jobs();
            }
            self.flush();
            self.keep_within();
        }
    }

    /// Waits for something to happen, so long at the most.
    fn await_events(
        &mut self,
        events: &mut Events,
        wait: Option<Duration>,
        rally: &Rally,
        now: Instant,
    ) -> io::Result<()> {
        if let Some(until) = rally.looks_until(now).filter(|_| wait != Some(Duration::ZERO)) {
            while Instant::now() < until {
                self.poll.poll(events, Some(Duration::ZERO))?;
                if !events.is_empty() {
                    return Ok(());
                }
            }
        }
        self.poll.poll(events, wait)
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((socket, peer)) => self.take_in(socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_again = None;
                    return;
                }
                // It was gone before it was taken.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // No descriptor is free, most likely. The system does not tell again of those
                    // that wait.
                    let again = self.now + ACCEPT_AGAIN;
                    if self.accept_again.replace(again).is_none() {
                        tracing::warn!(%error, "cannot accept a connection");
                    }
                    return;
                }
            }
        }
        // More may wait, which the system does not tell again.
        let _ = self.listener.as_mut().map(|listener| {
            self.poll.registry().reregister(listener, LISTENER, mio::Interest::READABLE)
        });
    }

    fn take_in(&mut self, socket: TcpStream, peer: SocketAddr) {
        let config = self.acceptor.as_ref().map(Acceptor::config);
        let mut stream = match config.map(TlsSide::accepted).transpose() {
            Ok(secure) => Stream::accepted(socket, secure),
            Err(error) => return self.shared.tls_failed(Some(peer), &error),
        };
        if !self.shared.connect() {
            self.shared.counters.rejected_connections.add_one();
            stream.out().extend_from_slice(b"-ERR max number of clients reached\r\n");
            let _ = stream.flush();
            return;
        }
        self.shared.counters.total_connections_received.add_one();
        let entry = self.clients.vacant_entry();
        let token = Token(FIRST + 2 * entry.key());
        if let Err(error) = stream.register(self.poll.registry(), token) {
            tracing::warn!(%peer, %error, "cannot serve a connection");
            return self.shared.disconnect();
        }
        if stream.is_shaking() {
            self.shaking.push_back((self.now + SHAKES_WITHIN, entry.key(), self.next_number));
        }
        let mut client = Client::new(stream, self.next_number, self.now);
        let is_session = self.jobs.is_some();
        client.session = is_session.then(|| Box::new(Session::new(self.next_number, peer)));
        entry.insert(client);
        self.next_number += 1;
    }

    /// Ends those that were not believed in time.
    fn expire_shaking(&mut self) {
        while let Some((until, at, number)) = self.shaking.front().copied() {
            let client = self.clients.get(at).filter(|client| client.number == number);
            if client.is_some_and(|client| client.stream.is_shaking()) {
                if self.now < until {
                    return;
                }
                let peer = client.and_then(|client| client.stream.peer());
                let late = io::Error::new(io::ErrorKind::InvalidData, "no handshake in time");
                self.shared.tls_failed(peer, &late);
                self.close(at);
            }
            self.shaking.pop_front();
        }
    }

    /// Takes no connection any more, and ends those that have nothing to say and wait for nothing.
    fn leave(&mut self) {
        self.leaving = true;
        self.listener = None;
        self.accept_again = None;
        for at in 0..self.clients.capacity() {
            if let Some(client) = self.clients.get_mut(at) {
                // What has come may not have been told yet.
                client.stream.readable = true;
                client.is_ready = false;
                self.serve(at);
                self.touch_client(at);
            }
        }
    }

    fn client_event(&mut self, at: usize, event: &mio::event::Event) {
        let Some(client) = self.clients.get_mut(at) else { return };
        if event.is_writable() {
            client.stream.may_write();
            self.touch_client(at);
        }
        let Some(client) = self.clients.get_mut(at) else { return };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            client.stream.may_read(event.is_read_closed() || event.is_error());
            self.make_ready(at);
        }
    }

    /// Whether a target is a Redis, and no store.
    fn is_direct(&self, target: usize) -> bool {
        target >= self.stores.len()
    }

    fn touch_client(&mut self, at: usize) {
        if let Some(client) = self.clients.get_mut(at)
            && !client.is_dirty
        {
            client.is_dirty = true;
            self.dirty_clients.push(at);
        }
    }

    fn touch_upstream(&mut self, at: usize) {
        if let Some(upstream) = self.upstreams.get_mut(at)
            && !upstream.is_dirty
        {
            upstream.is_dirty = true;
            self.dirty_upstreams.push(at);
        }
    }

    /// Sends what this round has brought.
    fn flush(&mut self) {
        self.flush_network();
        self.count_local();
        for at in std::mem::take(&mut self.dirty_upstreams) {
            let Some(upstream) = self.upstreams.get_mut(at) else { continue };
            upstream.is_dirty = false;
            let is_up = upstream.phase == Phase::Up;
            let stream = upstream.stream.as_mut().filter(|_| is_up);
            if let Some(Err(error)) = stream.map(Stream::flush) {
                self.upstream_lost(at, &error.to_string());
                continue;
            }
            upstream.backlog.set(upstream.unsent());
            if !is_up {
                continue;
            }
            let Some(stream) = &mut upstream.stream else { continue };
            if upstream.ends && upstream.held.is_none() && stream.waiting() == 0 {
                stream.end();
                upstream.ends = false;
            } else if let Some((owner, _)) = self.upstreams[at].owner
                && self.clients.get(owner).is_some_and(|client| client.ties.raw && client.waits)
            {
                self.make_ready(owner);
            }
        }
        for at in std::mem::take(&mut self.dirty_clients) {
            self.flush_client(at);
        }
    }

    /// Sends a client what waits for it.
    fn flush_client(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.is_dirty = false;
        match client.stream.flush() {
            Ok(sent) => self.shared.counters.total_net_output_bytes.add(sent as u64),
            Err(_) => return self.close(at),
        }
        self.has_read(at);
        self.settle(at);
    }

    /// Sends a client what waits for it if that is much: of many clients it would be more, until
    /// the round is over, than all may hold.
    fn relieve(&mut self, at: usize) {
        if self.clients.get(at).is_some_and(Client::owes_much) {
            self.flush_client(at);
        }
    }

    /// A client whose commands nobody looks at says nothing more. Nor does its own connection, once
    /// what it has sent has left: the server carries that out, and closes it.
    fn end_raw(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.ended = true;
        let is_there =
            |own: &usize| self.upstreams.get(*own).is_some_and(|own| own.stream.is_some());
        let Some(own) = client.own.filter(is_there) else { return self.close(at) };
        self.upstreams[own].ends = true;
        self.touch_upstream(own);
    }

    /// Nobody waits any longer for what may never come to this client. Its own connection says so,
    /// and the client goes with it: what the server has answered before is not lost.
    fn release(&mut self, at: usize) {
        let Some(own) = self.clients.get(at).and_then(|client| client.own) else { return };
        if let Some(upstream) = self.upstreams.get_mut(own) {
            upstream.ends = true;
            self.touch_upstream(own);
        }
    }

    /// After something has left: ends a connection that is done, counts what it holds.
    fn settle(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        if client.is_done() {
            client.rest();
            // What is left of its input cannot become a command if nothing holds it up.
            let is_held_up = !client.input.is_empty() && (client.waits || client.is_ready);
            // A raw connection ends when its server has carried out what was sent last.
            if client.closing || client.ended && !is_held_up && !client.ties.raw {
                client.stream.end();
                return self.close(at);
            }
        }
        if client.ties.raw {
            self.pump_back(at);
        }
        self.count(at);
    }

    /// Ends a connection at once.
    fn close(&mut self, at: usize) {
        let Some(client) = self.clients.try_remove(at) else { return };
        self.held -= client.counted;
        self.shared.release(client.counted);
        self.shared.disconnect();
        self.users.leave(client.user, self.now);
        if let Some(user) = client.then.and_then(|then| then.user) {
            self.users.leave(user, self.now);
        }
        let tracking = client.tracking.iter().flat_map(|tracking| &tracking.owns);
        for own in client.own.iter().chain(tracking) {
            self.drop_own(*own);
        }
    }

    /// Ends a connection of a client's own. What was asked by it has no answer: others may know of
    /// it, too, as a command of several stores does.
    fn drop_own(&mut self, at: usize) {
        let Some(upstream) = self.upstreams.try_remove(at) else { return };
        for pending in upstream.pending {
            self.refuse(pending, "-TRYAGAIN no answer\r\n");
        }
    }
}
