//! One client of memcached's protocol. Its commands are carried out in their order: what copies
//! answer at once, what others answer batch by batch, one server after the other.
//!
//! What it can make grow: bytes that it has sent, and answers that it does not read; `INPUT_BYTES`
//! and `OUTPUT_BYTES` are their bounds but for one long command, and `--max-memory` that of all
//! clients together.

use std::{sync::Arc, time::Duration};

use ::client::kit::now_ns;
use bytes::{Buf, Bytes, BytesMut};
use memcached::{Class, CommandSubject, Exchange, Front, Limits, RequestParser};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    joint,
    links::Link,
    servers::ANSWERS_WITHIN,
    state::{CopyCoverage, HeldMemory, SideState},
};

/// How long a client that is sent away may take for the last answers.
const LINGERS: Duration = Duration::from_secs(5);
/// Bytes of commands that are taken from a client before earlier ones have been carried out.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for a client; beyond them nothing is carried out for it.
const OUTPUT_BYTES: usize = 1 << 20;
/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// Commands and bytes that go to a server together.
const COMMANDS: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// Keys of one command that are asked for at once.
const KEYS: usize = 64;
/// Longest answer of a server to a command for all of them.
const ANSWER_BYTES: usize = 4096;
/// What it answers when it has carried it out.
const DONE: &[u8] = b"OK\r\n";
/// The answer to a meta no-op.
const NO_OP: &[u8] = b"MN\r\n";

const STATS: &[u8] =
    b"CLIENT_ERROR stats is not possible by a gateway of several stores: ask their memcached ports\r\n";

/// What is to be done next.
enum Step {
    /// More has to come from the client, or to leave.
    Wait,
    /// These commands go to one server.
    Forward(Batch),
    /// A command of values that several servers have, or that are here in part.
    Joint(Bytes),
    /// A command for every server, and whether the client wants no answer.
    Everything(Bytes, bool),
    /// The connection ends.
    End,
}

/// Commands that go to a server together.
struct Batch {
    server: usize,
    bytes: BytesMut,
    /// Those to which the client wants an answer.
    answered: usize,
    changes: bool,
}

/// The connection ends.
struct ConnectionEnd;

/// An exchange that did not come to its end.
struct Failure {
    /// Of the server; none: the client has gone.
    why: Option<String>,
    has_answered: bool,
    is_within_answer: bool,
}

/// A client.
pub(super) struct Client {
    state: Arc<SideState>,
    stream: TcpStream,
    input: BytesMut,
    out: BytesMut,
    parser: RequestParser,
    limits: Limits,
    held: HeldMemory,
    /// The client sends nothing more.
    has_ended: bool,
}

impl Client {
    /// One that has been taken in.
    pub fn new(state: Arc<SideState>, stream: TcpStream) -> Client {
        let held = HeldMemory::new(state.clone());
        Client {
            state,
            stream,
            input: BytesMut::new(),
            out: BytesMut::new(),
            parser: RequestParser::default(),
            limits: Limits::default(),
            held,
            has_ended: false,
        }
    }

    /// Serves it until it has gone, or until everything is answered that it had sent when
    /// `stopping` came true.
    pub async fn serve(mut self, mut stopping: watch::Receiver<bool>) {
        let ended = self.runs(&mut stopping).await;
        if ended.is_ok() {
            let _ = timeout(LINGERS, self.stream.write_all_buf(&mut self.out)).await;
            let _ = self.stream.shutdown().await;
        }
    }

    /// Ok: what is left is to be sent.
    async fn runs(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), ConnectionEnd> {
        loop {
            if !self.held.is(self.input.capacity() + self.out.capacity()) {
                self.says(b"SERVER_ERROR out of memory\r\n");
                return Ok(());
            }
            match self.next() {
                Step::End => return Ok(()),
                Step::Wait if self.has_ended && self.out.len() < OUTPUT_BYTES => return Ok(()),
                Step::Wait => {
                    let is_idle = self.out.is_empty() && self.input.is_empty();
                    if is_idle && *stopping.borrow_and_update() {
                        return Ok(());
                    }
                    self.waits(stopping).await?;
                }
                Step::Forward(batch) => {
                    if self.forward(batch).await.is_err() {
                        return Ok(());
                    }
                }
                Step::Joint(command) => self.joint(&command).await?,
                Step::Everything(command, is_silent) => {
                    self.everything(&command, is_silent).await;
                }
            }
        }
    }

    /// Sends what is there, or reads what comes.
    async fn waits(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), ConnectionEnd> {
        let has_room = self.out.len() < OUTPUT_BYTES
            && self.input.len() < INPUT_BYTES.max(self.parser.wanted() + READ_BYTES);
        let may_read = has_room && !self.has_ended;
        if may_read {
            self.input.reserve(READ_BYTES);
        }
        let counters = &self.state.shared.counters;
        let (mut reads, mut writes) = self.stream.split();
        tokio::select! {
            biased;
            sent = writes.write_buf(&mut self.out), if !self.out.is_empty() => match sent {
                Ok(0) | Err(_) => return Err(ConnectionEnd),
                Ok(len) => counters.total_net_output_bytes.add(len as u64),
            },
            taken = reads.read_buf(&mut self.input), if may_read => match taken {
                // What has come is carried out: `echo ... | nc` closes its half first.
                Ok(0) => self.has_ended = true,
                Ok(len) => counters.total_net_input_bytes.add(len as u64),
                Err(_) => return Err(ConnectionEnd),
            },
            _ = stopping.changed() => {}
        }
        Ok(())
    }

    /// Tells the client something.
    fn says(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Answers what can be answered here, and finds what cannot.
    fn next(&mut self) -> Step {
        // What is looked at has come already: a copy that may be served now may answer it.
        let read_ns = now_ns();
        while self.out.len() < OUTPUT_BYTES {
            let (len, changes, is_silent) = match self.parser.next(&self.input, &self.limits) {
                Front::Partial => break,
                Front::Skipped(len) => {
                    self.input.advance(len);
                    continue;
                }
                Front::NoOp(len) => {
                    self.input.advance(len);
                    self.says(NO_OP);
                    continue;
                }
                Front::Quit(_) => return Step::End,
                Front::Refused(refusal) => {
                    self.input.advance(refusal.len);
                    if !refusal.answer.is_empty() {
                        self.says(refusal.answer.as_bytes());
                        self.says(b"\r\n");
                    }
                    if refusal.closes {
                        return Step::End;
                    }
                    continue;
                }
                Front::Command(request) => {
                    (request.len, request.class != Class::Read, request.is_silent)
                }
            };
            self.state.shared.counters.total_commands_processed.add_one();
            let servers = &self.state.servers;
            let command = &self.input[..len];
            let server = match memcached::subject(command) {
                CommandSubject::Item(item) if self.state.item(&item, read_ns, &mut self.out) => {
                    self.input.advance(len);
                    continue;
                }
                CommandSubject::Item(item) => servers.of(item.name),
                CommandSubject::Values(asked) => {
                    match self.state.values(&asked, read_ns, &mut self.out) {
                        CopyCoverage::All => {
                            self.input.advance(len);
                            continue;
                        }
                        CopyCoverage::None if servers.have_all(&asked) => {
                            servers.of(asked.names[0])
                        }
                        _ => return Step::Joint(self.input.split_to(len).freeze()),
                    }
                }
                CommandSubject::Key(name) => servers.of(&name),
                CommandSubject::Everything => {
                    return Step::Everything(self.input.split_to(len).freeze(), is_silent);
                }
                CommandSubject::Server if servers.count() > 1 && command.starts_with(b"stats") => {
                    self.input.advance(len);
                    self.says(STATS);
                    continue;
                }
                CommandSubject::Server => 0,
            };
            let answered = usize::from(!is_silent);
            return Step::Forward(self.batch(server, len, answered, changes));
        }
        Step::Wait
    }

    /// The command at the front, and those behind it that the same server has, as far as they have
    /// come: whatever of them copies could answer comes behind it.
    fn batch(&mut self, server: usize, first: usize, answered: usize, changes: bool) -> Batch {
        let mut batch = Batch { server, bytes: BytesMut::new(), answered, changes };
        let (mut len, mut count) = (first, 1);
        let servers = &self.state.servers;
        while count < COMMANDS && len < BATCH_BYTES {
            // What is not taken is looked at again, by a parser that knows nothing of it.
            let mut parser = RequestParser::default();
            let Front::Command(request) = parser.next(&self.input[len..], &self.limits) else {
                break;
            };
            let command = &self.input[len..len + request.len];
            let is_there = match memcached::subject(command) {
                CommandSubject::Item(item) => servers.of(item.name) == server,
                CommandSubject::Key(name) => servers.of(&name) == server,
                CommandSubject::Values(asked) => {
                    servers.have_all(&asked) && servers.of(asked.names[0]) == server
                }
                CommandSubject::Everything | CommandSubject::Server => false,
            };
            if !is_there {
                break;
            }
            batch.answered += usize::from(!request.is_silent);
            batch.changes |= request.class != Class::Read;
            (len, count) = (len + request.len, count + 1);
        }
        self.state.shared.counters.total_commands_processed.add(count as u64 - 1);
        batch.bytes = self.input.split_to(len);
        batch
    }

    /// Has a batch carried out, and passes on what is answered.
    ///
    /// # Errors
    /// Nothing more can be said to the client than there is.
    async fn forward(&mut self, batch: Batch) -> Result<(), ConnectionEnd> {
        let state = self.state.clone();
        let links = state.servers.links(batch.server);
        let mut kept = links.kept();
        loop {
            let was_kept = kept.is_some();
            let link = match kept.take() {
                Some(link) => link,
                None => match links.open().await {
                    Ok(link) => link,
                    Err(why) => {
                        let line = format!("SERVER_ERROR nothing was done: {why:#}\r\n");
                        self.says(line.repeat(batch.answered).as_bytes());
                        return Ok(());
                    }
                },
            };
            let failure = match self.exchanges(link, batch.bytes.clone()).await {
                Ok(link) => {
                    links.keep(link);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            // The port may have been started again since the connection was used last.
            if was_kept && !batch.changes && !failure.has_answered {
                links.forget();
                continue;
            }
            let Some(why) = failure.why else { return Err(ConnectionEnd) };
            let name = links.name();
            let line = match batch.changes {
                true => format!(
                    "SERVER_ERROR outcome unknown: {name} {why}; what is not answered may have taken place, or may yet\r\n"
                ),
                false => format!("SERVER_ERROR no answer: {name} {why}\r\n"),
            };
            // In the midst of a value it would be taken for the rest of that.
            if !failure.is_within_answer {
                self.says(line.as_bytes());
            }
            return Err(ConnectionEnd);
        }
    }

    /// Carries an exchange on as far as the client reads; the connection on which it was.
    async fn exchanges(&mut self, link: Link, commands: BytesMut) -> Result<Link, Failure> {
        let mut exchange = Exchange::new(link, commands);
        let mut has_answered = false;
        let mut late = std::pin::pin!(sleep(ANSWERS_WITHIN));
        while !exchange.is_over() {
            let has_room = self.out.len() < OUTPUT_BYTES;
            let out = &mut self.out;
            let failed = tokio::select! {
                biased;
                moved = exchange.moves(has_room) => {
                    late.as_mut().reset(Instant::now() + ANSWERS_WITHIN);
                    let taken = moved.and_then(|()| {
                        exchange.take(|answers| {
                            has_answered |= !answers.is_empty();
                            out.extend_from_slice(answers);
                        })
                    });
                    taken.err().map(Some)
                }
                sent = self.stream.write_buf(out), if !out.is_empty() => {
                    late.as_mut().reset(Instant::now() + ANSWERS_WITHIN);
                    // The client has gone.
                    matches!(sent, Ok(0) | Err(_)).then_some(None)
                }
                () = &mut late, if has_room => {
                    Some(Some(format!("does not answer within {ANSWERS_WITHIN:?}")))
                }
            };
            if let Some(why) = failed {
                let is_within_answer = exchange.is_within_answer();
                return Err(Failure { why, has_answered, is_within_answer });
            }
        }
        Ok(exchange.into_link())
    }

    /// Answers a command of values that several servers have, or that are here in part: some of
    /// its keys at a time, and what they have has left before the next.
    async fn joint(&mut self, command: &[u8]) -> Result<(), ConnectionEnd> {
        let CommandSubject::Values(asked) = memcached::subject(command) else { return Ok(()) };
        let state = self.state.clone();
        for names in asked.names.chunks(KEYS) {
            while self.out.len() >= OUTPUT_BYTES {
                if matches!(self.stream.write_buf(&mut self.out).await, Ok(0) | Err(_)) {
                    return Err(ConnectionEnd);
                }
            }
            let read_ns = now_ns();
            let here = names.iter().map(|name| state.value(&asked, name, read_ns)).collect();
            match joint::values(&state.servers, &asked, names, here).await {
                Ok(values) => self.says(&values),
                Err(line) => {
                    self.says(format!("{line}\r\n").as_bytes());
                    return Ok(());
                }
            }
        }
        self.says(b"END\r\n");
        Ok(())
    }

    /// Has every server carry a command out; what is answered is what the first says that does not
    /// say that it is done.
    async fn everything(&mut self, command: &[u8], is_silent: bool) {
        let servers = &self.state.servers;
        let mut said = None;
        for server in 0..servers.count() {
            let answer = servers.asked(server, command, ANSWER_BYTES, false).await;
            let answer = answer.unwrap_or_else(|why| {
                format!("SERVER_ERROR outcome unknown: {why}; other stores may have done it\r\n")
                    .into_bytes()
            });
            if said.as_deref().is_none_or(|said: &[u8]| said == DONE) {
                said = Some(answer);
            }
        }
        if !is_silent {
            self.out.extend_from_slice(&said.unwrap_or_default());
        }
    }
}
