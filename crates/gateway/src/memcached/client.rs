//! One client of memcached's protocol. Its commands are carried out in their order: what copies
//! answer at once, what others answer batch by batch, one server after the other.
//!
//! What it can make grow: bytes that it has sent, and answers that it does not read; `INPUT_BYTES`
//! and `OUTPUT_BYTES` are their bounds but for one long command, and `memory` has that of all
//! clients together. A client that reads too little while a server answers it is sent away, for
//! the connection to that server is others' next.

use std::{sync::Arc, time::Duration};

use ::client::kit::now_ns;
use bytes::{Buf, Bytes, BytesMut};
use memcached::{Class, CommandSubject, Exchange, Front, Limits, NO_OP_ANSWER, RequestParser};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::yield_now,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    joint,
    links::Link,
    memory::HeldMemory,
    own_stats::own_stats,
    state::{CopiesOfKeys, CopyCoverage, SideState},
};

/// How long a client may read nothing of its last answers.
const LINGERS: Duration = Duration::from_secs(2);
/// How long a client may take to read half of what waits for it while a server answers it.
const READS_WITHIN: Duration = Duration::from_secs(5);
/// How long what a client has sent may be on its way when the gateway is stopped.
const COMES_WITHIN: Duration = Duration::from_millis(20);
/// Bytes of commands that are taken from a client before earlier ones have been carried out.
const INPUT_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for a client; beyond them nothing is carried out for it.
const OUTPUT_BYTES: usize = 1 << 20;
/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// A buffer that has grown beyond this is not kept: a client's two together are not counted.
const KEEP_BYTES: usize = 16 << 10;
/// Commands and bytes that go to a server together.
const COMMANDS: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// Keys of one command that are asked for at once at first, for values may have a megabyte each;
/// and at most, where they turn out to be short.
const KEYS: usize = 16;
const KEYS_MOST: usize = 256;
/// Longest answer of a server to a command for all of them.
const ANSWER_BYTES: usize = 4096;
/// What it answers when it has carried it out.
const DONE: &[u8] = b"OK\r\n";
/// What a client is told that holds too much.
const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory\r\n";
const STATS: &[u8] =
    b"CLIENT_ERROR this is not possible by a gateway of several stores: ask their memcached ports\r\n";
const TENANTS: &[u8] =
    b"CLIENT_ERROR the key is a tenant's, which a gateway of several stores does not find: ask its store's memcached port\r\n";

/// What is to be done next.
enum Step {
    /// More has to come from the client, or to leave.
    Wait,
    /// These commands go to one server.
    Forward(Batch),
    /// A command of values that several servers have, or that are here in part; what there is of
    /// the first of them.
    Joint(Bytes, CopiesOfKeys),
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
    /// The server has ended the connection before it said anything: it may have been of a port that
    /// was started again.
    may_be_old: bool,
    /// Nothing is to be said of it.
    is_explained: bool,
}

/// A client.
pub(super) struct Client {
    state: Arc<SideState>,
    stream: TcpStream,
    input: BytesMut,
    /// Bytes that `input` was given room for: what has been taken off it is there still.
    input_room: usize,
    out: BytesMut,
    /// Bytes that `out` has room for, what has left of them included.
    out_room: usize,
    parser: RequestParser,
    limits: Limits,
    held: HeldMemory,
    /// The client sends nothing more.
    has_ended: bool,
}

impl Client {
    /// One that has been taken in.
    pub fn new(state: Arc<SideState>, stream: TcpStream) -> Client {
        let held = HeldMemory::new(state.memory.clone(), state.shared.clone());
        Client {
            state,
            stream,
            input: BytesMut::new(),
            input_room: 0,
            out: BytesMut::new(),
            out_room: 0,
            parser: RequestParser::default(),
            limits: Limits::default(),
            held,
            has_ended: false,
        }
    }

    /// Serves it until it has gone, or until everything is answered that it had sent when
    /// `stopping` came true.
    pub async fn serve(mut self, mut stopping: watch::Receiver<bool>) {
        let sent_away = self.held.sent_away();
        let ended = tokio::select! {
            biased;
            () = sent_away => {
                self.held.refuse();
                return;
            }
            ended = self.runs(&mut stopping) => ended,
        };
        if ended.is_ok() {
            self.ends().await;
        }
    }

    /// Sends what is left, for as long as the client reads.
    async fn ends(mut self) {
        (self.input, self.input_room) = (BytesMut::new(), 0);
        self.count();
        let sent_away = self.held.sent_away();
        let sends = async {
            while !self.out.is_empty() {
                let sent = timeout(LINGERS, self.stream.write_buf(&mut self.out)).await;
                if !matches!(sent, Ok(Ok(1..))) {
                    return;
                }
            }
            let _ = self.stream.shutdown().await;
        };
        tokio::select! {
            () = sent_away => {}
            () = sends => {}
        }
    }

    /// Ok: what is left is to be sent.
    async fn runs(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), ConnectionEnd> {
        let mut comes_until = None;
        loop {
            if !self.count() {
                self.held.refuse();
                self.says(OUT_OF_MEMORY);
                return Ok(());
            }
            match self.next() {
                Step::End => return Ok(()),
                Step::Wait if self.has_ended && self.out.len() < OUTPUT_BYTES => return Ok(()),
                Step::Wait => {
                    let stops = *stopping.borrow_and_update();
                    self.gives_back();
                    self.count();
                    let is_idle = self.out.is_empty();
                    if stops && comes_until.is_none() {
                        comes_until = Some(Instant::now() + COMES_WITHIN);
                    }
                    let waits = self.waits(stopping);
                    let Some(until) = comes_until.filter(|_| is_idle) else {
                        waits.await?;
                        continue;
                    };
                    // Later, too, what has come already is read: no client is put off in the midst
                    // of what it had sent, and none that goes on asking keeps the gateway.
                    match timeout_at(until, waits).await {
                        Ok(waited) => waited?,
                        // Of a command that is not whole the rest may never come.
                        Err(_) => return Ok(()),
                    }
                }
                Step::Forward(batch) => {
                    if self.forward(batch).await.is_err() {
                        return Ok(());
                    }
                }
                Step::Joint(command, known) => self.joint(&command, known).await?,
                Step::Everything(command, is_silent) => {
                    self.everything(&command, is_silent).await?;
                }
            }
        }
    }

    /// Counts what it holds, and `more`. False: that is too much for one.
    fn counts(&mut self, more: usize) -> bool {
        self.out_room = self.out_room.max(self.out.capacity());
        self.held.set(self.input_room + self.out_room + more)
    }

    /// Counts what it holds. False: that is too much for one.
    fn count(&mut self) -> bool {
        self.counts(0)
    }

    /// Gives back the memory of buffers that were large and are not any more.
    fn gives_back(&mut self) {
        let large = |room: usize, len: usize| room > KEEP_BYTES && 4 * len < room;
        if large(self.input_room, self.input.len()) {
            self.input = BytesMut::from(&self.input[..]);
            self.input_room = self.input.capacity();
        }
        self.out_room = self.out_room.max(self.out.capacity());
        if large(self.out_room, self.out.len()) {
            self.out = BytesMut::from(&self.out[..]);
            self.out_room = self.out.capacity();
        }
    }

    /// Takes so many bytes off the front. Where there was much room, what is left behind them gets
    /// another: that one goes with what is taken.
    fn take(&mut self, len: usize) -> BytesMut {
        let front = self.input.split_to(len);
        if self.input_room > KEEP_BYTES {
            self.input = BytesMut::from(&self.input[..]);
            self.input_room = self.input.capacity();
        }
        front
    }

    /// Room for the next read: as much as the command at the front needs, or twice what is there
    /// of it.
    fn reserve(&mut self) {
        let needed = self.input.len() + READ_BYTES;
        if needed <= self.input.capacity() {
            return;
        }
        let room = (self.parser.wanted() + READ_BYTES).clamp(needed, 2 * needed);
        let mut larger = BytesMut::with_capacity(room);
        larger.extend_from_slice(&self.input);
        self.input = larger;
        self.input_room = room;
    }

    /// Sends what is there, or reads what comes.
    async fn waits(&mut self, stopping: &mut watch::Receiver<bool>) -> Result<(), ConnectionEnd> {
        let has_room = self.out.len() < OUTPUT_BYTES
            && self.input.len() < INPUT_BYTES.max(self.parser.wanted() + READ_BYTES);
        let may_read = has_room && !self.has_ended;
        if may_read {
            self.reserve();
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
            stops = stopping.changed() => {
                if stops.is_err() {
                    return Err(ConnectionEnd);
                }
            }
        }
        Ok(())
    }

    /// Sends what is there while something else goes on.
    async fn while_sending<T>(
        stream: &mut TcpStream,
        out: &mut BytesMut,
        what: impl Future<Output = T>,
    ) -> Result<T, ConnectionEnd> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Ok(done),
                sent = stream.write_buf(out), if !out.is_empty() => {
                    if matches!(sent, Ok(0) | Err(_)) {
                        return Err(ConnectionEnd);
                    }
                }
            }
        }
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
                    self.says(NO_OP_ANSWER.as_bytes());
                    continue;
                }
                // That is asked of stores, and is no command to anybody else.
                Front::PortQuestion(len) => {
                    self.input.advance(len);
                    self.says(b"ERROR\r\n");
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
            let subject = memcached::subject(command);
            if servers.do_not_find(&subject) {
                self.input.advance(len);
                self.out.extend_from_slice(if is_silent { b"" } else { TENANTS });
                continue;
            }
            match &subject {
                CommandSubject::Item(item) if self.state.item(item, read_ns, &mut self.out) => {
                    self.input.advance(len);
                    continue;
                }
                CommandSubject::Values(asked) => {
                    match self.state.values(asked, read_ns, &mut self.out) {
                        CopyCoverage::All => {
                            self.input.advance(len);
                            continue;
                        }
                        CopyCoverage::None if servers.of_all(&subject).is_some() => {}
                        CopyCoverage::None => {
                            let known = CopiesOfKeys::from([None]);
                            return Step::Joint(self.take(len).freeze(), known);
                        }
                        CopyCoverage::Some(known) => {
                            return Step::Joint(self.take(len).freeze(), known);
                        }
                    }
                }
                CommandSubject::Everything if servers.count() > 1 => {
                    return Step::Everything(self.take(len).freeze(), is_silent);
                }
                CommandSubject::Server if servers.count() > 1 && command.starts_with(b"stats") => {
                    let is_plain = command.trim_ascii() == b"stats";
                    self.input.advance(len);
                    match is_plain {
                        true => self.says(own_stats(&self.state.shared).as_bytes()),
                        false => self.says(STATS),
                    }
                    continue;
                }
                _ => {}
            }
            // What names no key is any server's.
            let server = servers.of_all(&subject).unwrap_or(0);
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
            let subject = memcached::subject(command);
            if servers.do_not_find(&subject) || servers.of_all(&subject) != Some(server) {
                break;
            }
            batch.answered += usize::from(!request.is_silent);
            batch.changes |= request.class != Class::Read;
            (len, count) = (len + request.len, count + 1);
        }
        self.state.shared.counters.total_commands_processed.add(count as u64 - 1);
        batch.bytes = self.take(len);
        batch
    }

    /// Has a batch carried out, and passes on what is answered.
    ///
    /// # Errors
    /// Nothing more can be said to the client than there is.
    async fn forward(&mut self, mut batch: Batch) -> Result<(), ConnectionEnd> {
        let state = self.state.clone();
        let links = state.servers.links(batch.server);
        loop {
            let taken = Client::while_sending(&mut self.stream, &mut self.out, links.take());
            let (link, was_kept) = match taken.await? {
                Ok(taken) => taken,
                Err(why) => {
                    let line = format!("SERVER_ERROR nothing was done: {why:#}\r\n");
                    self.says(line.repeat(batch.answered).as_bytes());
                    return Ok(());
                }
            };
            let may_repeat = was_kept && !batch.changes;
            let commands = match may_repeat {
                true => batch.bytes.clone(),
                false => std::mem::take(&mut batch.bytes),
            };
            let failure = match self.exchanges(link, commands).await {
                Ok(link) => {
                    links.keep(link);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if may_repeat && failure.may_be_old {
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
            if !failure.is_explained {
                self.says(line.as_bytes());
            }
            return Err(ConnectionEnd);
        }
    }

    /// Carries an exchange on as far as the client reads; the connection on which it was.
    async fn exchanges(&mut self, link: Link, commands: BytesMut) -> Result<Link, Failure> {
        let asked = commands.capacity();
        let mut exchange = Exchange::new(link, commands);
        let (mut has_answered, mut explains, mut has_ended) = (false, false, false);
        let within = self.state.servers.answers_within;
        let mut late = std::pin::pin!(sleep(within));
        let mut has_room = true;
        while !exchange.is_over() {
            // What is too much has to be read by half, not a little of it again and again.
            let most = if has_room { OUTPUT_BYTES } else { OUTPUT_BYTES / 2 };
            if has_room != (self.out.len() < most) {
                has_room = !has_room;
                let next = if has_room { within } else { READS_WITHIN };
                late.as_mut().reset(Instant::now() + next);
            }
            let out = &mut self.out;
            let failed = tokio::select! {
                biased;
                moved = exchange.moves(has_room) => {
                    if has_room {
                        late.as_mut().reset(Instant::now() + within);
                    }
                    has_ended = moved.is_err();
                    let taken = moved.and_then(|()| {
                        exchange.take(|answers| {
                            if !answers.is_empty() {
                                has_answered = true;
                                explains = ends_with_error(answers);
                                out.extend_from_slice(answers);
                            }
                        })
                    });
                    taken.err().map(Some)
                }
                sent = self.stream.write_buf(out), if !out.is_empty() => {
                    // The client has gone.
                    matches!(sent, Ok(0) | Err(_)).then_some(None)
                }
                // The client does not read, or the server says nothing.
                () = &mut late => {
                    Some(has_room.then(|| format!("does not answer within {within:?}")))
                }
            };
            let is_too_much = !self.counts(asked);
            if is_too_much {
                self.held.refuse();
            }
            if failed.is_some() || is_too_much {
                // In the midst of a value it would be taken for the rest of that, and where the
                // server has said why it ends the connection nobody need say so again.
                let is_explained = exchange.is_within_answer() || explains;
                let why = failed.flatten();
                let may_be_old = has_ended && !has_answered;
                return Err(Failure { why, may_be_old, is_explained });
            }
        }
        Ok(exchange.into_link())
    }

    /// Answers a command of values that several servers have, or that are here in part: some of
    /// its keys at a time, and what they have has left before the next.
    async fn joint(
        &mut self,
        command: &[u8],
        mut known: CopiesOfKeys,
    ) -> Result<(), ConnectionEnd> {
        let CommandSubject::Values(asked) = memcached::subject(command) else { return Ok(()) };
        let state = self.state.clone();
        let asks = command.len() + asked.names.len() * size_of::<&[u8]>();
        let (mut left, mut at_once) = (&asked.names[..], KEYS);
        while !left.is_empty() {
            let waits: usize = known.iter().flatten().map(Vec::len).sum();
            // What is put together counts beside what waits to leave.
            while self.out.len() >= OUTPUT_BYTES / 4 {
                let sent = timeout(READS_WITHIN, self.stream.write_buf(&mut self.out)).await;
                if !matches!(sent, Ok(Ok(1..))) {
                    return Err(ConnectionEnd);
                }
            }
            self.gives_back();
            self.counts(asks + waits);
            // Many keys that are here take no time of anybody else's.
            yield_now().await;
            let read_ns = now_ns();
            let (mut here, mut size) = (vec![], 0);
            // A value that is too much beside those before it comes with the next.
            let mut is_much = false;
            for name in left.iter().take(at_once) {
                let value = known.pop_front().unwrap_or_else(|| {
                    let mut value = vec![];
                    state.value(&asked, name, read_ns, &mut value).then_some(value)
                });
                let len = value.as_ref().map_or(0, Vec::len);
                is_much = size > 0 && size + len > OUTPUT_BYTES;
                if is_much {
                    known.push_front(value);
                    break;
                }
                size += len;
                here.push(value);
            }
            state.shared.counters.local_hits.add(here.iter().flatten().count() as u64);
            let names;
            (names, left) = left.split_at(here.len());
            // What comes is there twice for a moment.
            if !self.held.add(2 * size) {
                self.held.refuse();
                self.says(OUT_OF_MEMORY);
                return Ok(());
            }
            let grows = |more: usize| self.held.add(2 * more);
            let values = joint::values(&state.servers, &asked, names, here, grows);
            match Client::while_sending(&mut self.stream, &mut self.out, values).await? {
                Ok(values) => {
                    at_once = match values.len() > OUTPUT_BYTES {
                        true => (at_once / 4).max(1),
                        false if is_much => names.len(),
                        false => (at_once * 2).min(KEYS_MOST),
                    };
                    self.says(&values);
                    drop(values);
                    let waits: usize = known.iter().flatten().map(Vec::len).sum();
                    if !self.counts(asks + waits) {
                        self.held.refuse();
                        return Err(ConnectionEnd);
                    }
                }
                Err(line) => {
                    self.says(format!("{line}\r\n").as_bytes());
                    return Ok(());
                }
            }
        }
        self.says(b"END\r\n");
        Ok(())
    }

    /// Has every server carry a command out. Where all say the same that is the answer; where some
    /// have done it and some have not, that nobody knows what has become of it.
    async fn everything(&mut self, command: &[u8], is_silent: bool) -> Result<(), ConnectionEnd> {
        let state = self.state.clone();
        let mut said: Vec<Vec<u8>> = vec![];
        for server in 0..state.servers.count() {
            let asked = state.servers.asked_once(server, command, ANSWER_BYTES);
            let answer = Client::while_sending(&mut self.stream, &mut self.out, asked).await?;
            let line = |why| format!("SERVER_ERROR {why}\r\n").into_bytes();
            said.push(answer.unwrap_or_else(line));
        }
        let failed = said.iter().find(|answer| *answer != DONE && !answer.is_empty());
        match failed {
            None => self.says(if is_silent { b"" } else { DONE }),
            Some(_) if is_silent => {}
            Some(why) => {
                let why = String::from_utf8_lossy(why);
                let why = why.trim_end();
                let why = why.strip_prefix("SERVER_ERROR ").unwrap_or(why);
                let line = format!(
                    "SERVER_ERROR outcome unknown: some stores may have done it, and of another: {why}\r\n"
                );
                self.says(line.as_bytes());
            }
        }
        Ok(())
    }
}

/// Whether answers end with what a store says before it ends a connection.
fn ends_with_error(answers: &[u8]) -> bool {
    let Some(line) = answers.strip_suffix(b"\r\n") else { return false };
    let from = memchr::memrchr(b'\n', line).map_or(0, |at| at + 1);
    line[from..].starts_with(b"SERVER_ERROR ")
}
