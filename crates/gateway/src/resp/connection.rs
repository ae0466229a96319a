//! One connection: commands in, answers out in the same order, as many under way at once as
//! is safe.
//!
//! Commands start in the order they came. One that names a key which an earlier one is still busy
//! with waits until that one is answered, and those behind it wait too; so a client sees its own
//! writes, and its reads of a key never go back in time. All answers that are ready go out in
//! one write.
//!
//! What a client can make grow: the buffer of its bytes and its commands at work
//! (`Limits::connection_bytes`, beyond that from the memory that all share), their number
//! (`Limits::pipeline`), and answers not yet read (`Limits::output_bytes`, and the shared memory):
//! at each limit nothing more of it is read.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, StreamExt, stream::FuturesOrdered};
use hashbrown::HashMap;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::watch,
    time::timeout,
};

use super::frame::{Framer, ProtocolError, Words};
use crate::{
    shared::GatewayState,
    strings::{
        data::Data,
        job::Job,
        reply::{Protocol, Reply},
        session::{Session, unknown_command, wrong_arity},
        table::{self, Spec},
    },
};
use client::Reservation;

/// Room for one read.
const READ_BYTES: usize = 16 << 10;
/// A buffer of answers that has grown beyond this is not kept.
const KEEP_BYTES: usize = 64 << 10;
/// How long a client may take to close its half after ours.
const LINGERS: Duration = Duration::from_secs(1);

const NO_MEMORY: &str =
    "OOM command not allowed: the gateway's memory for large requests (--max-memory) is in use";

pub(crate) struct Connection<D> {
    session: Session,
    data: Arc<D>,
    shared: Arc<GatewayState>,
    framer: Framer,
    /// Bytes that came and are no command yet.
    input: BytesMut,
    /// For what the command in `input` needs beyond the connection's own share.
    input_memory: Option<(usize, Reservation)>,
    /// A command that waits for its keys, or for room.
    next: Option<Command>,
    /// Answers to come, in order.
    answers: FuturesOrdered<PendingAnswer>,
    /// How many commands at work name a key.
    busy: HashMap<Bytes, usize>,
    /// Bytes of the commands at work, without those that reserved memory.
    working_bytes: usize,
    output: BytesMut,
    /// Memory of the answers in `output`.
    output_memory: Vec<Reservation>,
    /// Large values in `output`: they keep their own memory reserved.
    output_values: Vec<Bytes>,
}

/// A command that is not started.
struct Command {
    words: Vec<Bytes>,
    spec: Option<&'static Spec>,
    /// Bytes that count towards the connection's share.
    bytes: usize,
    memory: Option<Reservation>,
}

/// An answer with what must be cleaned up once it is given.
struct Answer {
    reply: Reply,
    protocol: Protocol,
    keys: Vec<Bytes>,
    bytes: usize,
    memory: [Option<Reservation>; 2],
}

/// An answer to come. Most are: the others do not pay for a box.
enum PendingAnswer {
    Ready(Option<Answer>),
    Running(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Future for PendingAnswer {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        match &mut *self {
            PendingAnswer::Ready(answer) => match answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            },
            PendingAnswer::Running(future) => future.as_mut().poll(context),
        }
    }
}

impl<D: Data> Connection<D> {
    pub fn new(session: Session, data: Arc<D>, shared: Arc<GatewayState>) -> Connection<D> {
        Connection {
            session,
            data,
            shared,
            framer: Framer::default(),
            input: BytesMut::new(),
            input_memory: None,
            next: None,
            answers: FuturesOrdered::new(),
            busy: HashMap::new(),
            working_bytes: 0,
            output: BytesMut::new(),
            output_memory: Vec::new(),
            output_values: Vec::new(),
        }
    }

    /// Runs until the client goes, or is sent away; or until `leaves`: then what the client has
    /// sent is answered, and nothing more is taken from it.
    pub async fn serve(
        mut self,
        mut read: impl AsyncRead + Unpin,
        mut write: impl AsyncWrite + Unpin,
        mut leaves: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut leaving = false;
        loop {
            self.start_commands();
            let done = self.answers.is_empty() && self.output.is_empty();
            if self.session.closing && done {
                return write.shutdown().await;
            }
            if leaving && done && self.next.is_none() {
                write.shutdown().await?;
                return until_gone(read).await;
            }
            let may_answer =
                !self.answers.is_empty() && self.output.len() < self.shared.limits.output_bytes;
            let may_read = !self.session.closing && self.next.is_none() && !leaving;
            if may_read {
                self.input.reserve(READ_BYTES);
            }
            tokio::select! {
                // In this order: answers gather as long as more are ready.
                biased;
                _ = leaves.changed(), if !leaving => {
                    leaving = true;
                    self.read_what_came(&mut read);
                }
                Some(answer) = self.answers.next(), if may_answer => {
                    self.give(answer);
                    self.give_ready();
                }
                result = write.write_buf(&mut self.output), if !self.output.is_empty() => {
                    self.shared.counters.total_net_output_bytes.add(result? as u64);
                    self.written();
                }
                result = read.read_buf(&mut self.input), if may_read => {
                    let len = result?;
                    self.shared.counters.total_net_input_bytes.add(len as u64);
                    // What is under way may still be waited for: `echo ... | nc` closes its
                    // half first.
                    self.session.closing |= len == 0;
                }
            }
        }
    }

    /// Reads what the client has sent by now, as far as there is room for it.
    fn read_what_came(&mut self, read: &mut (impl AsyncRead + Unpin)) {
        while !self.session.closing && self.input.len() < self.shared.limits.connection_bytes {
            self.input.reserve(READ_BYTES);
            match read.read_buf(&mut self.input).now_or_never() {
                Some(Ok(len)) if len > 0 => {
                    self.shared.counters.total_net_input_bytes.add(len as u64);
                }
                _ => return,
            }
        }
    }

    /// Takes commands from the input and starts them, until one must wait or no more is there.
    fn start_commands(&mut self) {
        let limits = self.shared.limits;
        loop {
            let Some(command) = self.next.take().or_else(|| self.take_command()) else { return };
            let room = self.answers.len() < limits.pipeline
                && (self.working_bytes == 0
                    || self.working_bytes + command.bytes <= limits.connection_bytes)
                && self.output.len() < limits.output_bytes;
            if !room || self.names_busy_key(&command) {
                self.next = Some(command);
                return;
            }
            self.start(command);
        }
    }

    /// The next complete command in the input.
    fn take_command(&mut self) -> Option<Command> {
        if self.session.closing {
            return None;
        }
        let share = self.shared.limits.connection_bytes;
        match self.framer.next(&mut self.input, &self.shared.limits) {
            Ok(Some(Words { words, wire_len })) => {
                let memory = self.input_memory.take().map(|(_, memory)| memory);
                self.shared.counters.total_commands_processed.add_one();
                let bytes = if memory.is_some() { 0 } else { wire_len };
                let spec = table::find(&words[0]);
                Some(Command { words, spec, bytes, memory })
            }
            Ok(None) => {
                // Not what a length line promises: only bytes that came.
                let wanted = self.input.len();
                let has = self.input_memory.as_ref().map_or(share, |(bytes, _)| *bytes);
                if wanted > has {
                    // Doubled, so that a command of many words does not come back for each.
                    let bytes = wanted.max(2 * has);
                    self.input_memory = None;
                    match self.shared.memory.reserve(bytes) {
                        Some(reserved) => self.input_memory = Some((bytes, reserved)),
                        None => {
                            self.shared.counters.memory_refusals.add_one();
                            self.end_with(NO_MEMORY.into());
                        }
                    }
                }
                None
            }
            Err(ProtocolError::Foreign) => {
                self.shared.foreign(Some(self.session.peer));
                self.end();
                None
            }
            Err(error) => {
                self.shared.counters.protocol_errors.add_one();
                self.end_with(format!("ERR {error}"));
                None
            }
        }
    }

    /// A last error after the answers under way.
    fn end_with(&mut self, line: String) {
        self.ready(Reply::error(line), 0, None);
        self.end();
    }

    /// Takes no more commands; the connection ends after the answers under way.
    fn end(&mut self) {
        self.session.closing = true;
        self.input = BytesMut::new();
        self.input_memory = None;
    }

    fn names_busy_key(&self, command: &Command) -> bool {
        let Some(spec) = command.spec.filter(|_| !self.busy.is_empty()) else { return false };
        let mut keys = spec.key_positions(command.words.len());
        keys.any(|at| self.busy.contains_key(&command.words[at]))
    }

    fn start(&mut self, command: Command) {
        let Command { words, spec, bytes, memory } = command;
        let Some(spec) = spec else {
            return self.ready(Reply::error(unknown_command(&words)), bytes, None);
        };
        if !spec.takes(words.len()) {
            return self.ready(Reply::error(wrong_arity(spec.name)), bytes, None);
        }
        let job = match Job::new(spec.name, &words) {
            None => {
                let reply = self.session.answer(spec, &words, &self.shared);
                return self.ready(reply, bytes, memory);
            }
            Some(Err(line)) => return self.ready(Reply::error(line), bytes, None),
            Some(Ok(job)) => job,
        };
        let mut for_answer = None;
        if job.answer_bytes() > self.shared.limits.output_bytes {
            for_answer = self.shared.memory.reserve(job.answer_bytes());
            if for_answer.is_none() {
                self.shared.counters.memory_refusals.add_one();
                return self.ready(Reply::error(NO_MEMORY), bytes, None);
            }
        }
        let positions = spec.key_positions(words.len());
        let keys: Vec<Bytes> = positions.map(|at| words[at].clone()).collect();
        for key in &keys {
            *self.busy.entry(key.clone()).or_insert(0) += 1;
        }
        self.working_bytes += bytes;
        let (data, protocol) = (self.data.clone(), self.session.protocol);
        let running = async move {
            Answer {
                reply: job.run(&*data).await,
                protocol,
                keys,
                bytes,
                memory: [memory, for_answer],
            }
        };
        self.answers.push_back(PendingAnswer::Running(Box::pin(running)));
    }

    /// An answer that is known already; in its place behind those to come. It counts until it has
    /// left: a small one towards the connection's share, a large one in the memory of all. `memory`
    /// is what its command holds.
    fn ready(&mut self, reply: Reply, bytes: usize, memory: Option<Reservation>) {
        let len = reply.size_bytes();
        if len <= self.shared.limits.output_bytes {
            return self.ready_within(reply, bytes.max(len), None);
        }
        // What it quotes of its command counts once.
        drop(memory);
        match self.shared.memory.reserve(len) {
            Some(memory) => self.ready_within(reply, bytes, Some(memory)),
            None => {
                self.shared.counters.memory_refusals.add_one();
                self.ready_within(Reply::error(NO_MEMORY), bytes, None);
            }
        }
    }

    fn ready_within(&mut self, reply: Reply, bytes: usize, memory: Option<Reservation>) {
        let answer = Answer {
            reply,
            protocol: self.session.protocol,
            keys: vec![],
            bytes,
            memory: [memory, None],
        };
        self.working_bytes += bytes;
        if self.answers.is_empty() {
            return self.give(answer);
        }
        self.answers.push_back(PendingAnswer::Ready(Some(answer)));
    }

    /// All answers that are there, without waiting.
    fn give_ready(&mut self) {
        while self.output.len() < self.shared.limits.output_bytes {
            match self.answers.next().now_or_never() {
                Some(Some(answer)) => self.give(answer),
                _ => return,
            }
        }
    }

    fn give(&mut self, answer: Answer) {
        let Answer { reply, protocol, keys, bytes, memory } = answer;
        for key in keys {
            if let hashbrown::hash_map::Entry::Occupied(mut entry) = self.busy.entry(key) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        self.working_bytes -= bytes;
        if let Reply::Error(_) = reply {
            self.shared.counters.total_error_replies.add_one();
        }
        // All that came in parts: what is shorter counts with its command, or is little.
        reply.large_values(wire::MAX_PAYLOAD, &mut self.output_values);
        reply.encode(protocol, &mut self.output);
        self.output_memory.extend(memory.into_iter().flatten());
    }

    /// Some bytes have left.
    fn written(&mut self) {
        if self.output.is_empty() {
            self.output_memory.clear();
            self.output_values.clear();
            if self.output.capacity() > KEEP_BYTES {
                self.output = BytesMut::new();
            }
        }
    }
}

/// Waits until the client has closed its half, too, for a second at most. What it has sent
/// meanwhile is not carried out; a socket that is closed before it is read would take answers with
/// it that are still on their way.
async fn until_gone(mut read: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut unread = [0; 4096];
    let gone = async {
        while read.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    timeout(LINGERS, gone).await.unwrap_or(Ok(()))
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
