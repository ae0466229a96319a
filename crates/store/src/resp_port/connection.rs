//! One client of the RESP port, with a connection to Redis of its own: what it sends goes there in
//! the order in which it came, and what comes back goes to the client as it is.
//!
//! Commands that may change copies wait for a hold first. Those that stand together in what the
//! client has sent have one hold together, so a pipeline of writes costs one question to the
//! store's loop. While a hold is had its answers are read whether the client reads them or not.
//!
//! Before a Redis Cluster a command whose slot is at another node takes a
//! [`detour`](super::detour), and the answers behind it wait. A transaction, or WATCH, goes there
//! with the whole connection.
//!
//! A client outlives its connection to Redis where that has lost nothing but answers: it is told
//! what became of each command, and those that come while there is no Redis are refused.
//!
//! What a client can make grow: bytes that it has sent ([`INPUT_BYTES`], or one command), commands
//! that are not answered ([`UNANSWERED`]), answers that it does not read ([`OUTPUT_BYTES`], and
//! [`HELD_OUTPUT_BYTES`] while a hold is had).

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use redis::{ConnectionAddr, Value};
use resp::{Class, Limits, ReplyScanner, RequestParser};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use super::{
    PortState,
    detour::{Arrival, Leg, WHO, travel},
    holding::Hold,
    session::{Movable, Session, Step},
};
use crate::{backend::redis as master, engine::HoldRequest, slot_map::NodeAddress};
use holder::mutants::{Mutant, mutant};

/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// Bytes of commands that are taken from a client before earlier ones have been sent on.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for a client; more are not read from Redis, unless a hold waits for
/// them.
const OUTPUT_BYTES: usize = 1 << 20;
/// More than that a hold does not wait for: the client is sent away.
const HELD_OUTPUT_BYTES: usize = 64 << 20;
/// Commands that are not answered.
const UNANSWERED: usize = 4096;
/// Commands and bytes that share a hold.
const HELD_COMMANDS: usize = 256;
const HELD_BYTES: usize = 256 << 10;
/// Of a reply that is looked into so many bytes are.
const READ_REPLY_BYTES: usize = 64 << 10;
/// How long a client may take for the last answers when Redis has gone.
const LINGERS: Duration = Duration::from_secs(5);
/// Nodes to which a command is sent on, each by the one before.
const REDIRECTS: usize = 4;
/// From one attempt to reach Redis to the next.
const AGAIN: Duration = Duration::from_millis(100);
/// A buffer that has grown beyond this is not kept.
const KEEP_BYTES: usize = 64 << 10;

/// Commands that wait for their hold.
struct HeldCommands {
    bytes: BytesMut,
    count: usize,
    had: oneshot::Receiver<Hold>,
}

/// The command whose answer is next, on its way to another node.
struct Detour {
    to: master::Redirect,
    writes: bool,
    /// How many nodes it was sent to.
    redirects: usize,
    /// As whom.
    greeting: u64,
    travels: JoinHandle<Arrival>,
}

/// The connection, on its way to another node, and the line that is answered if it does not get
/// there.
struct Removal {
    at: NodeAddress,
    line: Vec<u8>,
    opens: JoinHandle<anyhow::Result<Leg>>,
}

/// What else is waited for.
enum WayBack {
    Arrival(Arrival),
    Leg(anyhow::Result<Leg>),
}

/// A connection on which a command may still take place.
type Doubt = (Option<master::Session>, ConnectionAddr);

/// A hold that is had, and what has to be ended before others may have its keys.
struct OpenHold {
    hold: Hold,
    doubts: Vec<Doubt>,
}

/// What ended a connection.
enum End {
    /// The client has gone, or was sent away.
    Client,
    /// Redis has.
    Master,
}

pub(super) struct Connection {
    state: Arc<PortState>,
    /// Where its Redis is.
    at: ConnectionAddr,
    session: Session,
    limits: Limits,
    parser: RequestParser,
    scanner: ReplyScanner,
    input: BytesMut,
    to_master: BytesMut,
    from_master: BytesMut,
    to_client: BytesMut,
    waits: Option<HeldCommands>,
    /// Holds of commands that are sent and not answered, in order.
    holds: VecDeque<OpenHold>,
    /// The reply that is being read, as far as it is looked into.
    reply: Vec<u8>,
    /// The error that is being read, if the master is a node of a Redis Cluster.
    error: Vec<u8>,
    /// What Redis answered of this connection.
    own: Vec<Value>,
    /// What Redis knows it as, where that was asked otherwise.
    session_there: Option<master::Session>,
    /// Other nodes of the Redis Cluster that were asked something, and as whom: how often the
    /// greeting had changed.
    legs: HashMap<NodeAddress, (Box<Leg>, u64)>,
    detour: Option<Detour>,
    removal: Option<Removal>,
    /// The client sends nothing more; it still reads.
    is_closing: bool,
    /// The client does not read any more.
    is_gone: bool,
    /// It is a replica's.
    is_replica: bool,
    /// What was written waits, until it is flushed: to the client, and to Redis.
    client_lags: Lag,
    master_lags: Lag,
}

/// Whether what was written to a connection may not have left. By TLS it leaves in records, for
/// which the socket may have no room; whoever writes nothing more has to ask for it.
struct Lag {
    may: bool,
    lags: bool,
}

/// Writes what waits, or has what was written leave.
async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    waits: &mut BytesMut,
    lag: &mut Lag,
) -> io::Result<()> {
    if waits.is_empty() {
        to.flush().await?;
        lag.lags = false;
        return Ok(());
    }
    if to.write_buf(waits).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    lag.lags = lag.may;
    shrink(waits);
    Ok(())
}

impl Connection {
    /// One whose client comes by TLS, or not.
    pub fn new(state: Arc<PortState>, is_secure: bool) -> Connection {
        let master_lags = Lag { may: state.upstream.is_secure(), lags: false };
        Connection {
            client_lags: Lag { may: is_secure, lags: false },
            master_lags,
            session: Session::new(state.upstream.is_tracked()),
            at: state.upstream.address(),
            state,
            limits: Limits::default(),
            parser: RequestParser::default(),
            scanner: ReplyScanner::default(),
            input: BytesMut::new(),
            to_master: BytesMut::new(),
            from_master: BytesMut::new(),
            to_client: BytesMut::new(),
            waits: None,
            holds: VecDeque::new(),
            reply: Vec::new(),
            error: Vec::new(),
            own: Vec::new(),
            session_there: None,
            legs: HashMap::new(),
            detour: None,
            removal: None,
            is_closing: false,
            is_gone: false,
            is_replica: false,
        }
    }

    /// Serves a client until it, or Redis, has gone.
    pub async fn serve(
        mut self,
        mut client_reads: impl AsyncRead + Unpin,
        mut client_writes: impl AsyncWrite + Unpin,
    ) {
        loop {
            let mut upstream = self.state.upstream.anew();
            self.at = upstream.address();
            let opened = match self.state.commands_known().await {
                Ok(()) => self.state.upstream.open(&self.at).await,
                Err(error) => Err(error),
            };
            let (mut reads, mut writes) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let why = format!("the Redis behind this store is away: {error:#}");
                    match self.refuses(&mut client_reads, &mut client_writes, &why).await {
                        true => continue,
                        false => return,
                    }
                }
            };
            self.introduces();
            let runs = self.runs(&mut client_reads, &mut client_writes, &mut reads, &mut writes);
            let end = tokio::select! {
                end = runs => end,
                // What is asked of the one before says nothing of the data any more.
                () = upstream.moves() => End::Master,
            };
            drop((reads, writes));
            let has_answered = !self.own.is_empty();
            if matches!(end, End::Master) && self.goes_on() {
                let why = format!("the Redis at {} takes no connection", self.at);
                match has_answered
                    || self.refuses(&mut client_reads, &mut client_writes, &why).await
                {
                    true => continue,
                    false => return,
                }
            }
            let answers = std::mem::take(&mut self.to_client);
            let goodbye = async {
                if matches!(end, End::Master) {
                    let _ = client_writes.write_all(&answers).await;
                }
                let _ = client_writes.shutdown().await;
            };
            // Whoever waits for the keys does not wait for a client that does not read.
            let ends = self.holds_end();
            let _ = tokio::join!(timeout(LINGERS, goodbye), ends);
            return;
        }
    }

    /// Tells a new connection what there is to be told.
    fn introduces(&mut self) {
        let database = self.state.upstream.database();
        self.to_master.extend_from_slice(&self.session.greeting().bytes());
        (0..self.session.greeting().len()).for_each(|_| self.session.asks_own());
        if database != 0 {
            self.to_master.extend_from_slice(format!("SELECT {database}\r\n").as_bytes());
            self.session.asks_own();
        }
        self.asks_who_it_is();
    }

    /// Redis has gone. If nothing is lost with it but answers, the client is told of each that it
    /// will not get, and has another connection.
    fn goes_on(&mut self) -> bool {
        let can = !self.is_closing
            && !self.is_replica
            && !self.scanner.is_within()
            && self.removal.is_none()
            && self.session.can_go_on();
        if !can {
            return false;
        }
        let unsent = self.waits.take().map_or(0, |waits| waits.count);
        tokio::spawn(self.holds_end());
        let why = format!("the Redis at {} has gone", self.at);
        let lines = self.session.begins_anew(unsent, &why);
        self.to_client.extend_from_slice(&lines);
        for buffer in [&mut self.to_master, &mut self.from_master] {
            buffer.clear();
        }
        self.reply.clear();
        self.error.clear();
        self.own.clear();
        self.session_there = None;
        self.scanner = ReplyScanner::default();
        self.master_lags.lags = false;
        true
    }

    /// While there is no Redis, commands are refused, but for those that say something of the
    /// connection: they wait. False: the client has gone.
    async fn refuses(
        &mut self,
        client_reads: &mut (impl AsyncRead + Unpin),
        client_writes: &mut (impl AsyncWrite + Unpin),
        why: &str,
    ) -> bool {
        let again = tokio::time::sleep(AGAIN);
        let mut again = std::pin::pin!(again);
        let line = format!("-TRYAGAIN nothing was done: {why}\r\n");
        loop {
            while self.to_client.len() < OUTPUT_BYTES {
                let mut skipped = 0;
                let request = match self.parser.next(&self.input, &self.limits, &mut skipped) {
                    Ok(Some(request)) => request,
                    Ok(None) => {
                        self.input.advance(skipped);
                        break;
                    }
                    // It is said when there is a Redis.
                    Err(_) => break,
                };
                // What is said of the connection would be missed by what follows.
                if Class::is_of_connections(request.words.get(0).unwrap_or_default()) {
                    break;
                }
                let len = skipped + request.bytes.len();
                self.to_client.extend_from_slice(line.as_bytes());
                self.input.advance(len);
            }
            let may_take = self.input.len() < INPUT_BYTES && !self.is_closing;
            if self.is_closing && self.to_client.is_empty() {
                return false;
            }
            tokio::select! {
                biased;
                result = send(client_writes, &mut self.to_client, &mut self.client_lags),
                    if !self.to_client.is_empty() || self.client_lags.lags =>
                {
                    if result.is_err() {
                        return false;
                    }
                }
                result = client_reads.read_buf(&mut self.input), if may_take => match result {
                    Ok(0) => self.is_closing = true,
                    Ok(_) => {}
                    Err(_) => return false,
                },
                () = &mut again => return true,
            }
        }
    }

    /// So that the connection can be ended by somebody else, if it has to be given up.
    fn asks_who_it_is(&mut self) {
        self.to_master.extend_from_slice(WHO);
        self.session.asks_own();
        self.session.asks_own();
        // Redis can tell whether a command stands behind others in a pipeline.
        self.session.bars();
    }

    /// What Redis knows this connection as, if it has said so.
    fn named(&self) -> Option<master::Session> {
        if let Some(session) = &self.session_there {
            return Some(session.clone());
        }
        let [.., id, info] = &self.own[..] else { return None };
        master::Session::in_answers(&[id.clone(), info.clone()])
    }

    async fn runs(
        &mut self,
        client_reads: &mut (impl AsyncRead + Unpin),
        client_writes: &mut (impl AsyncWrite + Unpin),
        reads: &mut master::Reader,
        writes: &mut master::Writer,
    ) -> End {
        loop {
            self.take_commands().await;
            self.give_local();
            let is_idle = self.session.unanswered() == 0 && self.waits.is_none();
            let is_done = is_idle && (self.is_gone || self.to_client.is_empty());
            // What it waits for may never come, and nobody waits for it.
            let is_blocked = self.session.is_blocked() && self.holds.is_empty();
            let forgets = self.is_closing && mutant(Mutant::HoldForgotten);
            if self.is_gone && self.holds.is_empty()
                || forgets
                || self.is_closing && (is_done || is_blocked)
            {
                return End::Client;
            }
            let may_take = !self.is_closing
                && self.waits.is_none()
                && self.input.len() < INPUT_BYTES.max(self.parser.wanted() + READ_BYTES)
                && self.session.unanswered() < UNANSWERED;
            let may_take = may_take
                && self.to_client.len() < OUTPUT_BYTES
                && self.to_master.len() < INPUT_BYTES;
            let must_read = !self.holds.is_empty() || self.is_gone;
            let is_away = self.detour.is_some() || self.removal.is_some();
            let may_read = !is_away && (must_read || self.to_client.len() < OUTPUT_BYTES);
            if may_take {
                self.input.reserve(READ_BYTES);
            }
            if may_read {
                self.from_master.reserve(READ_BYTES);
            }
            tokio::select! {
                biased;
                hold = had(&mut self.waits), if self.waits.is_some() => match hold {
                    Some(hold) => self.send_held(hold),
                    // The store ends.
                    None => return End::Client,
                },
                result = send(writes, &mut self.to_master, &mut self.master_lags),
                    if !self.to_master.is_empty() || self.master_lags.lags =>
                {
                    if result.is_err() {
                        return End::Master;
                    }
                }
                result = send(client_writes, &mut self.to_client, &mut self.client_lags),
                    if (!self.to_client.is_empty() || self.client_lags.lags) && !self.is_gone =>
                {
                    if result.is_err() {
                        self.client_is_gone();
                    }
                }
                came = from_elsewhere(&mut self.detour, &mut self.removal), if is_away => {
                    match came {
                        WayBack::Arrival(arrival) => self.arrived(arrival),
                        WayBack::Leg(Ok(leg)) => (*reads, *writes) = self.removed(leg),
                        WayBack::Leg(Err(error)) => self.stays(&error),
                    }
                    if let Err(error) = self.take_replies() {
                        tracing::warn!("RESP port: {error}; a connection is given up");
                        return End::Master;
                    }
                }
                result = reads.read_buf(&mut self.from_master), if may_read => match result {
                    Ok(len) if len > 0 => {
                        if let Err(error) = self.take_replies() {
                            tracing::warn!("RESP port: {error}; a connection is given up");
                            return End::Master;
                        }
                    }
                    _ => return End::Master,
                },
                result = client_reads.read_buf(&mut self.input), if may_take => match result {
                    // What is under way may still be waited for: `echo ... | nc` closes its half
                    // first.
                    Ok(0) => self.is_closing = true,
                    Ok(_) => {}
                    Err(_) => self.client_is_gone(),
                },
            }
        }
    }

    /// Nobody reads answers any more; those that holds wait for are read all the same.
    fn client_is_gone(&mut self) {
        self.is_closing = true;
        self.is_gone = true;
        self.input.clear();
        self.to_client.clear();
        // Not sent yet, it never is.
        self.waits = None;
    }

    /// Takes commands from what the client has sent, as long as there is something to be done
    /// with them.
    async fn take_commands(&mut self) {
        if self.is_gone {
            return;
        }
        let mut table = self.state.commands();
        let mut wanted = HoldRequest::default();
        let mut held = BytesMut::new();
        let mut commands = 0;
        let mut last_held = 0;
        while self.waits.is_none()
            && self.session.unanswered() < UNANSWERED
            && self.to_master.len() < INPUT_BYTES
        {
            let mut skipped = 0;
            let request = match self.parser.next(&self.input, &self.limits, &mut skipped) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    self.input.advance(skipped);
                    break;
                }
                Err(error) => {
                    self.session.answers_last(format!("-ERR {error}\r\n").into_bytes());
                    self.input.clear();
                    self.is_closing = true;
                    break;
                }
            };
            let len = skipped + request.bytes.len();
            let words = request.words;
            let mut command = table.find_of(words);
            if command.is_none() && self.state.may_ask_again() {
                // A module may have been loaded.
                let _ = self.state.ask_commands().await;
                table = self.state.commands();
                command = table.find_of(words);
            }
            let class = command.map(|command| command.class);
            if self.is_replica {
                if !is_of_replica(words.get(0).unwrap_or_default()) {
                    self.client_is_gone();
                    break;
                }
                self.to_master.extend_from_slice(request.bytes);
                self.input.advance(len);
                continue;
            }
            let joins = matches!(class, Some(Class::StringRead | Class::Write));
            if commands > 0 && !joins {
                break;
            }
            let is_cluster = self.state.upstream.is_cluster();
            let is_exec = command.is_some_and(|command| command.name == "exec");
            let proves = command.is_some_and(|command| match &command.name[..] {
                "auth" => true,
                "hello" => words.len() > 2,
                _ => false,
            });
            match self.session.asked(command, words) {
                Step::Wait => break,
                Step::Answered => {}
                Step::BecomesReplica => {
                    self.is_replica = true;
                    self.to_master.extend_from_slice(request.bytes);
                }
                Step::Send => {
                    let may_write = command.is_none_or(|command| command.has_flag("write"));
                    let keeps = is_cluster || class == Some(Class::Connection);
                    self.session.keeps(may_write, keeps.then_some(request.bytes));
                    match commands > 0 {
                        true => {
                            held.extend_from_slice(request.bytes);
                            commands += 1;
                        }
                        false => self.to_master.extend_from_slice(request.bytes),
                    }
                }
                Step::Hold(mut more) => {
                    wanted.everything |= more.everything;
                    wanted.names.append(&mut more.names);
                    self.session.sent_held(is_exec);
                    self.session.keeps(true, is_cluster.then_some(request.bytes));
                    last_held = self.session.unanswered() - 1;
                    held.extend_from_slice(request.bytes);
                    commands += 1;
                }
            }
            self.input.advance(len);
            if proves && self.named().is_none() && !self.session.is_in_multi() {
                self.asks_who_it_is();
            }
            if wanted.everything || commands >= HELD_COMMANDS || held.len() >= HELD_BYTES {
                break;
            }
        }
        if commands > 0 {
            self.session.ends_hold(last_held);
            let had = self.state.holder.ask(wanted);
            self.waits = Some(HeldCommands { bytes: held, count: commands, had });
        }
        shrink(&mut self.input);
    }

    /// The hold is had that commands wait for: they are sent.
    fn send_held(&mut self, mut hold: Hold) {
        let Some(commands) = self.waits.take() else { return };
        if self.to_master.is_empty() {
            self.to_master = commands.bytes;
        } else {
            self.to_master.extend_from_slice(&commands.bytes);
        }
        hold.sent();
        self.holds.push_back(OpenHold { hold, doubts: vec![] });
    }

    /// Looks at what Redis has sent: finds where answers end, and passes on what the client wants.
    fn take_replies(&mut self) -> Result<(), resp::ReplyError> {
        if self.is_replica {
            self.to_client.extend_from_slice(&self.from_master);
            self.from_master.clear();
            return Ok(());
        }
        let mut piece = std::mem::take(&mut self.from_master);
        while !piece.is_empty() && self.detour.is_none() && self.removal.is_none() {
            self.give_local();
            let reads = self.session.reads_replies();
            let found = self.scanner.scan(&piece)?;
            let len = found.map_or(piece.len(), |reply| reply.len);
            if reads {
                let room = READ_REPLY_BYTES.saturating_sub(self.reply.len());
                self.reply.extend_from_slice(&piece[..len.min(room)]);
            }
            let marker = found.map(|reply| reply.marker).or(self.scanner.marker());
            if marker == Some(b'-') && self.state.upstream.is_cluster() {
                self.error.extend_from_slice(&piece[..len]);
                if found.is_none() {
                    // It is short, and its rest is on its way.
                    piece.advance(len);
                    continue;
                }
            }
            let error = std::mem::take(&mut self.error);
            if self.is_sent_on(&error, 0) {
                piece.advance(len);
                continue;
            }
            let is_push = marker == Some(b'>');
            let mut is_wanted = self.session.is_wanted(is_push);
            if let Some(reply) = found {
                let outcome = self.session.replied(reply, &self.reply);
                is_wanted = outcome.is_wanted;
                if outcome.is_own {
                    self.own.extend(redis::parse_redis_value(&self.reply).ok());
                }
                if outcome.ends_hold {
                    self.ends_hold();
                }
                self.reply.clear();
            }
            if is_wanted && !self.is_gone {
                match error.is_empty() {
                    true => self.to_client.extend_from_slice(&piece[..len]),
                    false => self.to_client.extend_from_slice(&of_store(error)),
                }
            }
            piece.advance(len);
        }
        self.from_master = piece;
        shrink(&mut self.from_master);
        self.give_local();
        if !self.holds.is_empty() && self.to_client.len() > HELD_OUTPUT_BYTES {
            self.client_is_gone();
        }
        Ok(())
    }

    /// The first hold has all its answers.
    fn ends_hold(&mut self) {
        let Some(OpenHold { hold, doubts }) = self.holds.pop_front() else { return };
        if doubts.is_empty() {
            return hold.over();
        }
        let upstream = self.state.upstream.clone();
        tokio::spawn(async move {
            if end_all(&upstream, doubts).await {
                hold.over();
            }
        });
    }

    /// Whether an error says that the command is to be asked elsewhere, and it is, after so many
    /// nodes before.
    fn is_sent_on(&mut self, error: &[u8], redirects: usize) -> bool {
        let ConnectionAddr::Tcp(host, _) = &self.at else { return false };
        let words = error_words(error);
        let to = words.and_then(|words| master::Redirect::in_words(words, host));
        let Some(to) = to.filter(|_| redirects < REDIRECTS) else { return false };
        let (upstream, greeting) = (self.state.upstream.clone(), self.session.greeting().clone());
        match self.session.movable() {
            Movable::Alone(kept) => {
                let changes = self.session.greeting().changes();
                let leg = self.legs.remove(&to.at).filter(|(_, as_whom)| *as_whom == changes);
                let leg = leg.map(|(leg, _)| leg);
                let travels = tokio::spawn(travel(upstream, leg, greeting, to.clone(), kept.bytes));
                let (redirects, writes) = (redirects + 1, kept.writes);
                let greeting = self.session.greeting().changes();
                self.detour = Some(Detour { to, writes, redirects, greeting, travels });
            }
            Movable::Whole(before) if !to.asking => {
                let at = to.at.clone();
                let opens = tokio::spawn(async move {
                    let mut leg = Leg::open(&upstream, &to.at, &greeting).await?;
                    if !before.is_empty() {
                        let answer = leg.ask(&before.concat(), before.len()).await?;
                        anyhow::ensure!(!answer.starts_with(b"-"), "it has refused a command");
                    }
                    Ok(leg)
                });
                self.removal = Some(Removal { at, line: of_store(error.to_vec()), opens });
            }
            Movable::Whole(_) | Movable::No => return false,
        }
        true
    }

    /// A command has come back from another node.
    fn arrived(&mut self, arrival: Arrival) {
        let Some(Detour { to, writes, redirects, greeting, .. }) = self.detour.take() else {
            return;
        };
        let answer = match arrival {
            Arrival::Answered(answer, leg) => {
                self.legs.insert(to.at, (leg, greeting));
                if self.is_sent_on(&answer, redirects) {
                    return;
                }
                answer
            }
            Arrival::NotAsked(why) => format!("-TRYAGAIN nothing was done: {why}\r\n").into(),
            Arrival::Lost(why, session) => {
                if let Some(first) = self.holds.front_mut() {
                    let at = ConnectionAddr::Tcp(to.at.host, to.at.port);
                    first.doubts.push((session, at));
                }
                let code = if writes { "ERR outcome unknown" } else { "TRYAGAIN no answer" };
                format!("-{code}: {why}\r\n").into()
            }
        };
        self.answers(answer);
    }

    /// The answer to the first command that is not answered, which came another way.
    fn answers(&mut self, answer: Bytes) {
        self.give_local();
        let Ok(Some(reply)) = ReplyScanner::default().scan(&answer) else { return };
        let outcome = self.session.replied(reply, &answer);
        if outcome.ends_hold {
            self.ends_hold();
        }
        if outcome.is_wanted && !self.is_gone {
            match answer.starts_with(b"-") {
                true => self.to_client.extend_from_slice(&of_store(answer.to_vec())),
                false => self.to_client.extend_from_slice(&answer),
            }
        }
    }

    /// The connection is another node's from now on: what it was sent and has not answered is sent
    /// there.
    fn removed(&mut self, leg: Leg) -> (master::Reader, master::Writer) {
        if let Some(Removal { at, .. }) = self.removal.take() {
            self.at = ConnectionAddr::Tcp(at.host, at.port);
        }
        self.session_there = leg.session;
        self.from_master.clear();
        self.scanner = ReplyScanner::default();
        self.to_master.clear();
        for command in self.session.kept() {
            self.to_master.extend_from_slice(command);
        }
        (leg.reads, leg.writes)
    }

    /// The connection could not go to another node: its client is told to try again.
    fn stays(&mut self, error: &anyhow::Error) {
        tracing::debug!("RESP port: a connection stays where it is: {error:#}");
        if let Some(Removal { line, .. }) = self.removal.take() {
            self.answers(line.into());
        }
    }

    fn give_local(&mut self) {
        while let Some(bytes) = self.session.take_local() {
            if !self.is_gone {
                self.to_client.extend_from_slice(&bytes);
            }
        }
    }

    /// The connection is over. What was sent under a hold may take place still, until Redis has
    /// ended the connection that it was sent on; only then others may have the keys.
    fn holds_end(&mut self) -> impl Future<Output = ()> + Send + use<> {
        self.waits = None;
        let (holds, detour) = (std::mem::take(&mut self.holds), self.detour.take());
        let (own, upstream) = ((self.named(), self.at.clone()), self.state.upstream.clone());
        async move {
            if holds.is_empty() {
                // Nobody needs its answer, which may never come.
                if let Some(detour) = detour {
                    detour.travels.abort();
                }
                return;
            }
            let forgets = mutant(Mutant::HoldForgotten);
            let mut doubts = vec![own];
            if let Some(Detour { to, travels, .. }) = detour
                && !forgets
                && let Ok(Arrival::Lost(_, session)) = travels.await
            {
                doubts.push((session, ConnectionAddr::Tcp(to.at.host, to.at.port)));
            }
            let mut had = vec![];
            for open in holds {
                doubts.extend(open.doubts);
                had.push(open.hold);
            }
            if forgets || end_all(&upstream, doubts).await {
                had.into_iter().for_each(Hold::over);
            }
        }
    }
}

/// Has connections ended. False: of one nobody says.
async fn end_all(upstream: &master::Upstream, doubts: Vec<Doubt>) -> bool {
    let mut all = true;
    for (session, at) in doubts {
        all &= upstream.end(session, &at).await;
    }
    all
}

/// What comes from another node next.
async fn from_elsewhere(detour: &mut Option<Detour>, removal: &mut Option<Removal>) -> WayBack {
    match (detour, removal) {
        (Some(detour), _) => {
            let arrival = (&mut detour.travels).await;
            let lost = |error: tokio::task::JoinError| Arrival::Lost(error.to_string(), None);
            WayBack::Arrival(arrival.unwrap_or_else(lost))
        }
        (None, Some(removal)) => {
            let leg = (&mut removal.opens).await;
            WayBack::Leg(leg.map_err(anyhow::Error::from).flatten())
        }
        (None, None) => std::future::pending().await,
    }
}

/// The hold that commands wait for, when it is had; `None` if it never is.
async fn had(waits: &mut Option<HeldCommands>) -> Option<Hold> {
    match waits {
        Some(waits) => (&mut waits.had).await.ok(),
        None => std::future::pending().await,
    }
}

/// An error line of a node of a Redis Cluster, as clients of a store are told it: they do not go
/// elsewhere.
fn of_store(line: Vec<u8>) -> Vec<u8> {
    match error_words(&line) {
        Some(words) if master::is_elsewhere(words) => {
            format!("-{}\r\n", master::put_off(words)).into_bytes()
        }
        _ => line,
    }
}

/// What an error says.
fn error_words(line: &[u8]) -> Option<&str> {
    let words = line.strip_prefix(b"-").and_then(|words| words.strip_suffix(b"\r\n"))?;
    std::str::from_utf8(words).ok()
}

/// What a replica may say: nothing of that writes.
fn is_of_replica(name: &[u8]) -> bool {
    let known: [&[u8]; 6] = [b"replconf", b"psync", b"sync", b"ping", b"auth", b"info"];
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Gives back the memory of a buffer that was large and is empty.
fn shrink(buffer: &mut BytesMut) {
    if buffer.is_empty() && buffer.capacity() > KEEP_BYTES {
        *buffer = BytesMut::new();
    }
}
