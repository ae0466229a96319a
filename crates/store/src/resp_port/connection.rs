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
//! A client that has said its last, or has gone, waits for what Redis owes it, and so do holds. If
//! Redis answers others and stays silent here, the connection is given up like one that is lost.
//!
//! What a client can make grow: bytes that it has sent ([`INPUT_BYTES`], or one command), commands
//! that are not answered ([`UNANSWERED`]), answers that it does not read (`OUTPUT_BYTES`, and
//! [`HELD_OUTPUT_BYTES`] while a hold is had).

mod client_end;
mod holds;
mod master_end;
mod redirection;

use std::{sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use futures_util::{FutureExt, future::BoxFuture};
use redis::ConnectionAddr;
use resp::{Class, ReplyScanner};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{sleep, timeout},
};

use super::{
    PortState,
    answers::{error_words, of_store, of_subscriber},
    detour::{Leg, WHO},
    session::{Movable, Session, Step},
};
use crate::{
    backend::redis::{self as master, Upstream},
    ports::{Hold, LATE, shrink},
    slot_map::NodeAddress,
};
use client_end::{ClientEnd, INPUT_BYTES, READ_BYTES};
use holder::mutants::{Mutant, mutant};
use holds::{HeldCommands, HoldBatch, HoldQueue, had};
use master_end::MasterEnd;
use redirection::{Detour, Redirection, Return, address_of};

/// More bytes of answers than that a hold does not wait for: the client is sent away.
const HELD_OUTPUT_BYTES: usize = 64 << 20;
/// Commands that are not answered.
const UNANSWERED: usize = 4096;
/// Of a reply that is looked into so many bytes are.
const READ_REPLY_BYTES: usize = 64 << 10;
/// How long a client may take for the last answers when Redis has gone.
const LINGERS: Duration = Duration::from_secs(5);
/// Nodes to which a command is sent on, each by the one before.
const REDIRECTS: usize = 4;

/// How often a Redis may let the time for an answer pass in silence, before it is asked whether it
/// answers others: see [`silence`].
const SILENCES: u32 = 4;

/// What ended a connection.
enum End {
    /// The client has gone, or was sent away.
    Client,
    /// Redis has.
    Master,
}

/// A client and its connection to Redis.
pub(super) struct Connection {
    state: Arc<PortState>,
    session: Session,
    client: ClientEnd,
    master: MasterEnd,
    waits: Option<HeldCommands>,
    holds: HoldQueue,
    redirection: Redirection,
    /// Over when the node that the connection has moved to is no master any more.
    ceases: Option<BoxFuture<'static, ()>>,
    /// Over when Redis will not answer what it owes to a client that has said its last.
    silence: Option<BoxFuture<'static, ()>>,
    /// It is a replica's.
    is_replica: bool,
}

impl Connection {
    /// One whose client comes by TLS, or not.
    pub fn new(state: Arc<PortState>, is_secure: bool) -> Connection {
        let upstream = &state.upstream;
        Connection {
            session: Session::new(upstream.is_tracked()),
            client: ClientEnd::new(is_secure),
            master: MasterEnd::new(upstream.address(), upstream.is_secure()),
            waits: None,
            holds: HoldQueue::default(),
            redirection: Redirection::default(),
            ceases: None,
            silence: None,
            is_replica: false,
            state,
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
            self.master = MasterEnd::new(upstream.address(), upstream.is_secure());
            self.ceases = None;
            self.silence = None;
            let opened = match self.state.commands.known(self.state.upstream.commands()).await {
                Ok(()) => self.state.upstream.open(&self.master.at).await,
                Err(error) => Err(error),
            };
            let (mut reads, mut writes) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    let why = format!("the Redis behind this store is away: {error:#}");
                    match self.client.refuse(&mut client_reads, &mut client_writes, &why).await {
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
            let user = self.session_of_user();
            let is_sent_away = match (&end, user) {
                (End::Master, Some(user)) => upstream.has_closed(&user, &self.master.at).await,
                _ => false,
            };
            if matches!(end, End::Master) && !is_sent_away && self.goes_on() {
                let why = format!("the Redis at {} takes no connection", self.master.at);
                match self.master.has_answered()
                    || self.client.refuse(&mut client_reads, &mut client_writes, &why).await
                {
                    true => continue,
                    false => return,
                }
            }
            let answers = std::mem::take(&mut self.client.output.waits);
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
        self.master.output.add(&self.session.greeting().bytes());
        self.session.greets();
        self.selects();
        self.asks_who_it_is();
    }

    /// The client is in the store's database, unless it chooses another.
    fn selects(&mut self) {
        let database = self.state.upstream.database();
        if database != 0 {
            self.master.output.add(format!("SELECT {database}\r\n").as_bytes());
            self.session.asks_own();
            self.session.bars();
        }
    }

    /// So that the connection can be ended by somebody else, if it has to be given up.
    fn asks_who_it_is(&mut self) {
        self.master.output.add(WHO);
        self.session.asks_own();
        self.session.asks_own();
        // Redis can tell whether a command stands behind others in a pipeline.
        self.session.bars();
    }

    /// What Redis knows the connection as, if the client has named a user on it. Redis that closes
    /// it and is still there may have sent that user away (CLIENT KILL, ACL DELUSER), who has to
    /// come back by itself then.
    fn session_of_user(&self) -> Option<master::Session> {
        self.session.greeting().names_user().then(|| self.master.named())?
    }

    /// Redis has gone. If nothing is lost with it but answers, the client is told of each that it
    /// will not get, and has another connection.
    fn goes_on(&mut self) -> bool {
        let can = !self.client.is_closing
            && !self.is_replica
            && !self.master.scanner.is_within()
            && !self.redirection.moves()
            && self.session.can_go_on();
        if !can {
            return false;
        }
        let unsent = self.waits.take().map_or(0, |waits| waits.count);
        tokio::spawn(self.holds_end());
        let why = format!("the Redis at {} has gone", self.master.at);
        self.client.output.add(&self.session.begins_anew(unsent, &why));
        true
    }

    /// Moves bytes between a client and Redis until one of them has gone.
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
            if self.is_done() {
                return End::Client;
            }
            let may_take = self.may_take();
            let is_away = self.redirection.is_under_way();
            let must_read = !self.holds.is_empty() || self.client.is_gone;
            let may_read = !is_away && (must_read || self.client.has_room());
            self.hears_silence(may_read);
            if may_take {
                self.client.input.reserve(READ_BYTES);
            }
            if may_read {
                self.master.input.reserve(READ_BYTES);
            }
            tokio::select! {
                biased;
                hold = had(&mut self.waits), if self.waits.is_some() => match hold {
                    Some(Ok(hold)) => self.send_held(hold),
                    Some(Err(_)) => self.refuse_held(),
                    // The store ends.
                    None => return End::Client,
                },
                result = self.master.output.send(writes), if self.master.output.is_due() => {
                    if result.is_err() {
                        return End::Master;
                    }
                }
                result = self.client.output.send(client_writes),
                    if self.client.output.is_due() && !self.client.is_gone =>
                {
                    if result.is_err() {
                        self.client_is_gone();
                    }
                }
                // What it was sent there comes to nothing any more: another has its place.
                () = over(&mut self.ceases) => return End::Master,
                back = self.redirection.back(), if is_away => {
                    match back {
                        Return::Answer(answer, redirects) => {
                            if !self.is_sent_on(&answer, redirects) {
                                self.answers(answer);
                            }
                        }
                        Return::Failure(line, doubt) => {
                            doubt.into_iter().for_each(|doubt| self.holds.doubt(doubt));
                            self.answers(line);
                        }
                        Return::Connection(to, leg) => (*reads, *writes) = self.moves(to, leg),
                    }
                    if !self.take_replies() {
                        return End::Master;
                    }
                }
                result = reads.read_buf(&mut self.master.input), if may_read => match result {
                    Ok(len) if len > 0 => {
                        self.state.upstream.is_heard();
                        self.silence = None;
                        if !self.take_replies() {
                            return End::Master;
                        }
                    }
                    _ => return End::Master,
                },
                () = over(&mut self.silence) => return End::Client,
                result = client_reads.read_buf(&mut self.client.input), if may_take => match result {
                    // What is under way may still be waited for: `echo ... | nc` closes its half
                    // first.
                    Ok(0) => self.client.is_closing = true,
                    Ok(_) => {}
                    Err(_) => self.client_is_gone(),
                },
            }
        }
    }

    /// Whether nothing is left to be done for the client.
    fn is_done(&self) -> bool {
        let ClientEnd { is_gone, is_closing, output, .. } = &self.client;
        if *is_gone && self.holds.is_empty() {
            return true;
        }
        let is_idle = self.session.unanswered() == 0 && self.waits.is_none();
        let is_told = is_idle && (*is_gone || output.waits.is_empty());
        // What it waits for may never come, and nobody waits for it.
        let is_blocked = self.session.is_blocked() && self.holds.is_empty();
        *is_closing && (is_told || is_blocked || mutant(Mutant::HoldForgotten))
    }

    /// Begins to wait for the end of a Redis's silence, or goes on with that, if Redis owes answers
    /// that only holds and a client without more to say wait for. Otherwise there is none:
    /// whoever is there may wait as long as it likes.
    fn hears_silence(&mut self, may_read: bool) {
        let unsent = self.waits.as_ref().map_or(0, |waits| waits.count);
        let is_owed = self.session.unanswered() > unsent;
        if !(may_read && self.client.is_closing && is_owed) {
            self.silence = None;
        } else if self.silence.is_none() {
            let (upstream, at) = (self.state.upstream.clone(), self.master.at.clone());
            self.silence = Some(silence(upstream, at).boxed());
        }
    }

    /// Whether more is to be read of what the client sends.
    fn may_take(&self) -> bool {
        self.client.may_send()
            && self.client.has_room()
            && self.waits.is_none()
            && self.session.unanswered() < UNANSWERED
            && self.master.output.waits.len() < INPUT_BYTES
    }

    /// Nobody reads answers any more; those that holds wait for are read all the same.
    fn client_is_gone(&mut self) {
        self.client.leave();
        // Not sent yet, it never is.
        self.waits = None;
    }

    /// Takes commands from what the client has sent, as long as there is something to be done
    /// with them.
    async fn take_commands(&mut self) {
        if self.client.is_gone {
            return;
        }
        let mut table = self.state.commands.table();
        let mut batch = HoldBatch::default();
        let mut last_held = 0;
        while self.waits.is_none()
            && self.session.unanswered() < UNANSWERED
            && self.master.output.waits.len() < INPUT_BYTES
        {
            let client = &mut self.client;
            let mut skipped = 0;
            let request = match client.parser.next(&client.input, &client.limits, &mut skipped) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    client.input.advance(skipped);
                    break;
                }
                Err(error) => {
                    self.session.answers_last(format!("-ERR {error}\r\n").into_bytes());
                    client.input.clear();
                    client.is_closing = true;
                    break;
                }
            };
            let len = skipped + request.bytes.len();
            let words = request.words;
            let mut command = table.find_of(words);
            if command.is_none() && self.state.commands.may_be_others() {
                // A module may have been loaded.
                let _ = self.state.commands.ask(self.state.upstream.commands()).await;
                table = self.state.commands.table();
                command = table.find_of(words);
            }
            let name = words.get(0).unwrap_or_default();
            let is_renamed = command.is_none() && {
                let knows = self.state.upstream.knows_command(name);
                self.state.commands.may_be_renamed(name, knows).await
            };
            let class = command.map(|command| command.class);
            if self.is_replica {
                if !is_of_replica(name) {
                    self.client_is_gone();
                    break;
                }
                self.master.output.add(request.bytes);
                client.input.advance(len);
                continue;
            }
            let joins = matches!(class, Some(Class::StringRead | Class::Write));
            if !batch.is_empty() && !joins {
                break;
            }
            let is_cluster = self.state.upstream.is_cluster();
            let is_exec = command.is_some_and(|command| command.name == "exec");
            let proves = command.is_some_and(|command| match &command.name[..] {
                "auth" => true,
                "hello" => words.len() > 2,
                _ => false,
            });
            let step = match is_renamed {
                true => self.session.asked_renamed(),
                false => self.session.asked(command, words),
            };
            match step {
                Step::Wait => break,
                Step::AskWho => {
                    self.asks_who_it_is();
                    break;
                }
                Step::Answered => {}
                Step::BecomesReplica => {
                    self.is_replica = true;
                    self.master.output.add(request.bytes);
                }
                Step::Send => {
                    let may_write = command.is_none_or(|command| command.has_effects());
                    let keeps = is_cluster || class == Some(Class::Connection);
                    self.session.keeps(may_write, keeps.then_some(request.bytes));
                    match batch.is_empty() {
                        true => self.master.output.add(request.bytes),
                        false => batch.add(request.bytes),
                    }
                }
                Step::Hold(wanted) => {
                    self.session.sent_held(is_exec);
                    self.session.keeps(true, is_cluster.then_some(request.bytes));
                    last_held = self.session.unanswered() - 1;
                    batch.add_held(request.bytes, wanted);
                }
            }
            client.input.advance(len);
            if proves && self.master.named().is_none() && !self.session.is_in_multi() {
                self.asks_who_it_is();
            }
            if batch.is_full() {
                break;
            }
        }
        if !batch.is_empty() {
            self.session.ends_hold(last_held);
            self.waits = Some(batch.ask(&self.state.holder));
        }
        shrink(&mut self.client.input);
    }

    /// The hold is had that commands wait for: they are sent.
    fn send_held(&mut self, hold: Hold) {
        let Some(commands) = self.waits.take() else { return };
        let output = &mut self.master.output;
        match output.waits.is_empty() {
            true => output.waits = commands.bytes,
            false => output.add(&commands.bytes),
        }
        self.holds.begin(hold);
    }

    /// The hold is refused that commands wait for, and so are they. A transaction of which Redis
    /// has what was queued cannot go on without its EXEC: it ends with the client's connection.
    fn refuse_held(&mut self) {
        let Some(commands) = self.waits.take() else { return };
        if self.session.refuses_last(commands.count, LATE) {
            self.client.input.clear();
            self.client.is_closing = true;
        }
    }

    /// Looks at what Redis has sent: finds where answers end, and passes on what the client wants.
    /// False: nobody can tell where they end, and the connection is of no use any more.
    fn take_replies(&mut self) -> bool {
        if self.is_replica {
            self.client.output.add(&self.master.input);
            self.master.input.clear();
            return true;
        }
        let taken = self.scan_replies();
        if let Err(error) = &taken {
            tracing::warn!("RESP port: {error}; a connection is given up");
        }
        taken.is_ok()
    }

    fn scan_replies(&mut self) -> Result<(), resp::ReplyError> {
        let mut piece = std::mem::take(&mut self.master.input);
        while !piece.is_empty() && !self.redirection.is_under_way() {
            self.give_local();
            let master = &mut self.master;
            let reads = self.session.reads_replies();
            let found = master.scanner.scan(&piece)?;
            let len = found.map_or(piece.len(), |reply| reply.len);
            if reads {
                let room = READ_REPLY_BYTES.saturating_sub(master.reply.len());
                master.reply.extend_from_slice(&piece[..len.min(room)]);
            }
            let marker = found.map(|reply| reply.marker).or(master.scanner.marker());
            if marker == Some(b'-') && self.state.upstream.is_cluster() {
                master.error.extend_from_slice(&piece[..len]);
                if found.is_none() {
                    // It is short, and its rest is on its way.
                    piece.advance(len);
                    continue;
                }
            }
            let error = std::mem::take(&mut master.error);
            if self.is_sent_on(&error, 0) {
                piece.advance(len);
                continue;
            }
            let is_push = marker == Some(b'>');
            let mut is_wanted = self.session.is_wanted(is_push);
            if let Some(reply) = found {
                let outcome = self.session.replied(reply, &self.master.reply);
                is_wanted = outcome.is_wanted;
                if outcome.is_own {
                    self.master.note_own();
                }
                if outcome.is_undirected {
                    self.selects();
                }
                // It is another user's connection then, or speaks another protocol; unless there
                // was no room for it at all, which is tried again.
                if outcome.is_stranger && !is_full(&self.master.reply) {
                    self.client_is_gone();
                }
                if outcome.ends_hold {
                    self.holds.end_first(&self.state.upstream);
                }
                self.master.reply.clear();
            }
            if is_wanted {
                match error.is_empty() {
                    true => self.client.give(&piece[..len]),
                    false if self.session.has_subscribed() => {
                        self.client.give(&of_subscriber(error));
                    }
                    false => self.client.give(&of_store(error)),
                }
            }
            piece.advance(len);
        }
        self.master.input = piece;
        shrink(&mut self.master.input);
        self.give_local();
        if !self.holds.is_empty() && self.client.output.waits.len() > HELD_OUTPUT_BYTES {
            self.client_is_gone();
        }
        Ok(())
    }

    /// Whether an error says that the command is to be asked elsewhere, and it is, after so many
    /// nodes before.
    fn is_sent_on(&mut self, error: &[u8], redirects: usize) -> bool {
        let ConnectionAddr::Tcp(host, _) = &self.master.at else { return false };
        let words = error_words(error);
        let to = words.and_then(|words| master::Redirect::in_words(words, host));
        let Some(to) = to.filter(|_| redirects < REDIRECTS) else { return false };
        let (upstream, greeting) = (&self.state.upstream, self.session.greeting());
        match self.session.movable() {
            Movable::Alone(command) => {
                let writes = command.writes;
                self.redirection.send_command(upstream, greeting, to, command, redirects);
                if writes {
                    self.session.writes_at_other_node();
                }
            }
            Movable::Whole(before) if !to.asking => {
                let line = of_store(error.to_vec()).into();
                self.redirection.send_connection(upstream, greeting, to.at, before, line);
            }
            Movable::Whole(_) | Movable::No => return false,
        }
        true
    }

    /// The answer to the first command that is not answered, which came another way.
    fn answers(&mut self, answer: Bytes) {
        self.give_local();
        let Ok(Some(reply)) = ReplyScanner::default().scan(&answer) else { return };
        let outcome = self.session.replied(reply, &answer);
        if outcome.ends_hold {
            self.holds.end_first(&self.state.upstream);
        }
        if outcome.is_wanted {
            match answer.starts_with(b"-") {
                true => self.client.give(&of_store(answer.to_vec())),
                false => self.client.give(&answer),
            }
        }
    }

    /// The connection is another node's from now on: what it was sent and has not answered is sent
    /// there.
    fn moves(&mut self, to: NodeAddress, leg: Leg) -> (master::Reader, master::Writer) {
        self.master.move_to(address_of(to.clone()), leg.session);
        let upstream = self.state.upstream.clone();
        self.ceases = Some(async move { upstream.ceases(&to).await }.boxed());
        // What waits for its hold goes there when that is had, and once.
        let unsent = self.waits.as_ref().map_or(0, |waits| waits.count);
        for command in self.session.kept(unsent) {
            self.master.output.add(command);
        }
        (leg.reads, leg.writes)
    }

    /// Gives the client the port's own answers whose turn it is.
    fn give_local(&mut self) {
        while let Some(bytes) = self.session.take_local() {
            self.client.give(&bytes);
        }
    }

    /// The connection is over. What was sent under a hold may take place still, until Redis has
    /// ended the connection that it was sent on; only then others may have the keys.
    fn holds_end(&mut self) -> impl Future<Output = ()> + Send + use<> {
        self.waits = None;
        let (holds, detour) = (std::mem::take(&mut self.holds), self.redirection.take_detour());
        let own = (self.master.named(), self.master.at.clone());
        let upstream = self.state.upstream.clone();
        async move {
            if holds.is_empty() {
                return detour.into_iter().for_each(Detour::abort);
            }
            let forgets = mutant(Mutant::HoldForgotten);
            let mut doubts = vec![own];
            if let Some(detour) = detour
                && !forgets
            {
                doubts.extend(detour.doubt().await);
            }
            holds.end_all(&upstream, doubts, forgets).await;
        }
    }
}

/// Over when a Redis that has said nothing all the while will not answer any more: it answers
/// others, so it is in the midst of nothing, and has had the time for an answer once more after
/// that. A command may have none, or fewer answers than it has words for; to wait for them would be
/// to hold its keys for ever.
async fn silence(upstream: Upstream, at: ConnectionAddr) {
    loop {
        sleep(upstream.within() * SILENCES).await;
        if upstream.answers(&at).await {
            return sleep(upstream.within()).await;
        }
    }
}

/// Waits for that, if it is to come.
async fn over(what: &mut Option<BoxFuture<'static, ()>>) {
    match what {
        Some(what) => what.await,
        None => std::future::pending().await,
    }
}

/// Whether Redis says that it takes no more connections: it closes this one.
fn is_full(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR max number of clients")
}

/// What a replica may say: nothing of that writes.
fn is_of_replica(name: &[u8]) -> bool {
    let known: [&[u8]; 6] = [b"replconf", b"psync", b"sync", b"ping", b"auth", b"info"];
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}
