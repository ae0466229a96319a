//! Commands where there is no store's RESP port, or where it must not be used: those on strings, by
//! packets. A GET is a read like any other by the network; everything else that names keys is a
//! job ([`jobs`](super::jobs)).
//!
//! A command waits until those before it of the same client are answered that name one of its keys,
//! but for reads behind reads of the same key, which are in order anyway.

use std::hash::BuildHasher;

use ::client::Error;
use bytes::Bytes;

use super::{
    EventLoop, READ_BYTES,
    client::Way,
    dispatch::{CommandText, Next},
    jobs::{JobOwner, Jobs},
    reads::EndedRead,
    speaker::{NOBODY, Speaker},
    upstream::{PendingCommand, Waiter},
};
use crate::strings::{
    errands::{BackendCommand, Errand},
    job::Job,
    network::FailedRead,
    reply::Reply,
    session::{no_transaction, unknown_command, wrong_arity},
    table,
};

/// Commands that are longer take their memory from what large ones share.
const SMALL_BYTES: usize = 4 << 10;
/// Answers that may be longer, likewise.
const SMALL_ANSWER_BYTES: usize = 64 << 10;
/// A command of more keys waits until its client has nothing under way.
const FEW_KEYS: usize = 64;

const NO_MEMORY: &str =
    "OOM command not allowed: the gateway's memory for large requests (--max-memory) is in use";

impl EventLoop {
    /// Puts a command on its way that is one of those on strings, or answers it.
    pub(super) fn dispatch_string(&mut self, at: usize, said: CommandText<'_>) -> Next {
        let Some(jobs) = &mut self.jobs else { return Next::Stop };
        let called = said.word(0).unwrap_or_default();
        let Some(found) = table::place_of(called) else {
            let refusal = unknown_command(called, &jobs.others);
            return self.refuse_string(at, refusal, 0);
        };
        let (spec, command) = (&table::ALL[found], jobs.rows[found]);
        if !spec.takes(said.words.len()) {
            return self.refuse_string(at, wrong_arity(spec.name), command);
        }
        if self.clients[at].session.as_ref().is_some_and(|session| session.queues(spec.name)) {
            let refusal = no_transaction(&jobs.others);
            return self.refuse_string(at, refusal, command);
        }
        let positions = spec.key_positions(said.words.len());
        let keys = positions.filter_map(|at| said.word(at));
        let keys: Vec<u64> = keys.map(|key| self.hasher.hash_one(key) | 1).collect();
        let client = &self.clients[at];
        let is_read = spec.name == "get";
        let is_behind = match keys.len() {
            0 => false,
            1..=FEW_KEYS => {
                client.names(&keys) || !is_read && client.reads_any(Way::Network, &keys)
            }
            _ => client.waiting() > 0,
        };
        if is_behind {
            return Next::Wait;
        }
        let name = said.word(1).unwrap_or_default();
        if is_read && jobs.network.goes_by_packet(name) {
            return self.read_string(at, name, keys[0], command);
        }
        if !keys.is_empty() && !jobs.has_room(at) {
            return Next::Wait;
        }
        let words: Vec<Bytes> = said.words.iter().map(Bytes::copy_from_slice).collect();
        match Job::new(spec.name, &words) {
            Some(Ok(job)) => self.start_job(at, said, job, keys, command),
            Some(Err(line)) => self.reply(at, Reply::error(line), command),
            None if spec.name == "info" && said.is(1, "gateway") => self.info(at),
            None => {
                let client = &mut self.clients[at];
                let Some(session) = &mut client.session else { return Next::Stop };
                let reply = session.answer(spec, &words, &self.shared);
                // The answer to HELLO is in the protocol that it chose.
                client.protocol = session.protocol;
                client.closing |= session.closing;
                match (self.reply(at, reply, command), self.clients[at].closing) {
                    (_, true) => Next::Stop,
                    (next, false) => next,
                }
            }
        }
    }

    /// A command that is not even tried; nor is the transaction that it is part of.
    fn refuse_string(&mut self, at: usize, line: String, command: u16) -> Next {
        if let Some(session) = &mut self.clients[at].session {
            session.refused();
        }
        self.reply(at, Reply::error(line), command)
    }

    /// An answer that is known already.
    fn reply(&mut self, at: usize, reply: Reply, command: u16) -> Next {
        let is_error = matches!(reply, Reply::Error(_));
        self.shared.counters.total_error_replies.add(u64::from(is_error));
        self.shared.stats.note(command, Default::default(), is_error);
        let client = &mut self.clients[at];
        let mut bytes = vec![];
        reply.encode(client.protocol, &mut bytes);
        client.answer(&bytes);
        self.touch_client(at);
        Next::On
    }

    fn read_string(&mut self, at: usize, name: &[u8], key: u64, command: u16) -> Next {
        let client = &mut self.clients[at];
        let answer = client.place(Way::Network, key, false);
        let waiter = Waiter::Client { place: at, number: client.number, answer };
        let pending = PendingCommand { waiter, command, asked: self.now, writes: false };
        if let Some(reads) = &mut self.reads {
            reads.ask(name, (key, 0), pending, client.protocol);
        }
        Next::On
    }

    fn start_job(
        &mut self,
        at: usize,
        said: CommandText<'_>,
        job: Job,
        keys: Vec<u64>,
        command: u16,
    ) -> Next {
        let mut memory = [None, None];
        let bounds = [(said.bytes.len(), SMALL_BYTES), (job.answer_bytes(), SMALL_ANSWER_BYTES)];
        for ((bytes, small), reserved) in bounds.into_iter().zip(&mut memory) {
            if bytes > small {
                *reserved = self.shared.memory.reserve(bytes);
                if reserved.is_none() {
                    self.shared.counters.memory_refusals.add_one();
                    return self.reply(at, Reply::error(NO_MEMORY), command);
                }
            }
        }
        let client = &mut self.clients[at];
        let answer = client.place(Way::Job, 0, false);
        client.name_keys(&keys);
        let owner = JobOwner {
            place: at,
            number: client.number,
            answer,
            protocol: client.protocol,
            command,
            asked: self.now,
            keys,
            memory,
        };
        if let Some(jobs) = &mut self.jobs {
            jobs.start(owner, job);
        }
        Next::On
    }

    /// A read that failed; those who asked while it was on its way are asked for anew.
    pub(super) fn string_read_failed(&mut self, read: EndedRead, error: Error) {
        let EndedRead { waiters, later, name, hash, .. } = read;
        for (pending, protocol) in later {
            if let Some(reads) = &mut self.reads {
                reads.ask(&name, (hash, 0), pending, protocol);
            }
        }
        let Some(jobs) = &self.jobs else { return };
        match jobs.network.failed_read(error) {
            FailedRead::Refused(line) => {
                let mut bytes = vec![];
                Reply::error(line.0).encode(2, &mut bytes);
                for (pending, _) in waiters {
                    let Waiter::Client { place, number, answer } = pending.waiter else { continue };
                    self.shared.stats.note(pending.command, self.now - pending.asked, true);
                    self.give(place, number, answer, &bytes, true, true);
                }
            }
            FailedRead::PastTheStore => {
                let name = Bytes::from(name);
                for (pending, protocol) in waiters {
                    self.read_past_the_store(pending, protocol, &name, hash);
                }
            }
        }
    }

    /// A read that only the Redis behind the store can answer, as a job: it is asked for once more.
    fn read_past_the_store(
        &mut self,
        pending: PendingCommand,
        protocol: u8,
        name: &Bytes,
        hash: u64,
    ) {
        let Waiter::Client { place, number, answer } = pending.waiter else { return };
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.number != number {
            return;
        }
        client.reroute(answer, Way::Job);
        client.name_keys(&[hash]);
        let (command, asked) = (pending.command, pending.asked);
        let (keys, memory) = (vec![hash], [None, None]);
        let owner = JobOwner { place, number, answer, protocol, command, asked, keys, memory };
        if let Some(jobs) = &mut self.jobs {
            jobs.start(owner, Job::Get(name.clone()));
        }
    }

    /// Runs jobs as far as they come, and has done what they want done.
    pub(super) fn run_jobs(&mut self) {
        loop {
            self.take_reads();
            let mut moved = false;
            while let Some((owner, reply)) = self.jobs.as_mut().and_then(Jobs::next_ended) {
                moved = true;
                self.end_job(owner, reply);
            }
            while let Some(errand) = self.jobs.as_mut().and_then(Jobs::next_errand) {
                moved = true;
                self.run_errand(errand);
            }
            if !moved {
                break;
            }
        }
        self.wake_crowded();
    }

    fn end_job(&mut self, owner: JobOwner, reply: Reply) {
        let JobOwner { place, number, answer, protocol, command, asked, keys, memory } = owner;
        let is_error = matches!(reply, Reply::Error(_));
        self.shared.stats.note(command, self.now - asked, is_error);
        if let Some(client) = self.clients.get_mut(place)
            && client.number == number
        {
            client.release_keys(&keys);
            let mut bytes = std::mem::take(&mut self.answer);
            bytes.clear();
            reply.encode(protocol, &mut bytes);
            self.give(place, number, answer, &bytes, true, is_error);
            if bytes.capacity() <= READ_BYTES {
                self.answer = bytes;
            }
        }
        drop(memory);
    }

    /// Has as many of those tried again whose commands wait for room as there is room for. Where
    /// one does not use it, it is free in the next round still, which begins at once.
    fn wake_crowded(&mut self) {
        let mut free = self.jobs.as_ref().map_or(0, Jobs::free);
        while free > 0
            && let Some(next) = self.jobs.as_mut().and_then(Jobs::next_crowded)
        {
            if self.clients.get(next).is_some_and(|client| client.waits) {
                self.make_ready(next);
                free -= 1;
            }
        }
    }

    fn run_errand(&mut self, errand: Errand) {
        let (Some(jobs), Some(reads)) = (&mut self.jobs, &mut self.reads) else { return };
        match errand {
            Errand::Call(operation, tell) => {
                let call = reads.packets.begin(&operation.operation());
                jobs.await_call(call, tell);
            }
            Errand::Pause(how_long, tell) => jobs.pause(self.now + how_long, tell),
            Errand::Ask(BackendCommand { backend, bytes, writes }, tell) => {
                let waiter = Waiter::Errand(jobs.await_backend(tell));
                let upstream = self.common(backend, GATEWAY_ITSELF, 0);
                let pending = PendingCommand { waiter, command: 0, asked: self.now, writes };
                self.ask(upstream, &bytes, pending);
            }
        }
    }

    /// Connects to the Redis servers behind the stores, so that it is said at once which of them
    /// cannot be used.
    pub(super) fn check_backends(&mut self) {
        let Some(jobs) = &self.jobs else { return };
        for backend in 0..jobs.backends {
            let upstream = self.common(backend, GATEWAY_ITSELF, 0);
            self.revive(upstream);
        }
    }
}

/// By whose connections jobs speak with a Redis.
const GATEWAY_ITSELF: Speaker = Speaker { protocol: 2, user: NOBODY };
