//! What comes from upstreams: whose it is, and what follows from it.

use super::{
    EventLoop,
    client::Transition,
    upstream::{Phase, Waiter},
};

/// A client of a connection of its own that does not read is read for no longer.
const RAW_AHEAD: usize = 256 << 10;

impl EventLoop {
    pub(super) fn upstream_event(&mut self, at: usize, event: &mio::event::Event) {
        let Some(upstream) = self.upstreams.get_mut(at) else { return };
        let Some(stream) = &mut upstream.stream else { return };
        if event.is_writable() || event.is_error() {
            if let Phase::Connecting(_) = upstream.phase {
                if let Some(error) = stream.failure() {
                    return self.upstream_lost(at, &error.to_string());
                }
                stream.may_write();
                // By TLS it is there when both sides believe each other.
                match stream.is_shaking() {
                    true => {
                        if let Err(error) = stream.flush() {
                            return self.upstream_lost(at, &error.to_string());
                        }
                    }
                    false if event.is_writable() => upstream.phase = Phase::Up,
                    false => {}
                }
            }
            stream.may_write();
            self.touch_upstream(at);
        }
        let Some(upstream) = self.upstreams.get_mut(at) else { return };
        let Some(stream) = &mut upstream.stream else { return };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            stream.may_read(event.is_read_closed() || event.is_error());
            self.read_upstream(at);
        }
    }

    /// Takes what an upstream has said, all of it: nobody's answer waits for another's client.
    pub(super) fn read_upstream(&mut self, at: usize) {
        let mut buffer = std::mem::take(&mut self.scratch);
        while let Some(upstream) = self.upstreams.get_mut(at) {
            if upstream.raw && !self.has_room(at) {
                break;
            }
            let upstream = &mut self.upstreams[at];
            let Some(stream) = upstream.stream.as_mut().filter(|stream| stream.readable) else {
                break;
            };
            match stream.read(&mut buffer) {
                Ok(None) => {
                    if !stream.is_shaking()
                        && let Phase::Connecting(_) = upstream.phase
                    {
                        upstream.phase = Phase::Up;
                        self.touch_upstream(at);
                    }
                    if !self.upstreams[at].stream.as_ref().is_some_and(|stream| stream.readable) {
                        break;
                    }
                }
                Ok(Some(0)) => {
                    self.upstream_lost(at, "it closed the connection");
                    break;
                }
                Ok(Some(len)) => self.take_answers(at, &buffer[..len]),
                Err(error) => {
                    self.upstream_lost(at, &error.to_string());
                    break;
                }
            }
        }
        self.scratch = buffer;
    }

    /// Whether the owner of a raw connection has read enough to be sent more.
    fn has_room(&self, at: usize) -> bool {
        let owner = self.upstreams[at].owner.and_then(|(place, _)| self.clients.get(place));
        owner.is_none_or(|client| client.stream.waiting() < RAW_AHEAD)
    }

    /// More may be read for a client that has read.
    pub(super) fn pump_back(&mut self, client: usize) {
        let Some(own) = self.clients.get(client).and_then(|client| client.own) else { return };
        let upstream = self.upstreams.get(own);
        if upstream.is_some_and(|u| u.stream.as_ref().is_some_and(|stream| stream.readable)) {
            self.read_upstream(own);
        }
    }

    /// Gives answers, and parts of one, to those who wait for them.
    fn take_answers(&mut self, at: usize, bytes: &[u8]) {
        self.upstreams[at].heard = self.now;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(upstream) = self.upstreams.get_mut(at) else { return };
            if upstream.raw && upstream.pending.is_empty() {
                return self.pass(at, rest);
            }
            let scanned = match upstream.scanner.scan(rest) {
                Ok(scanned) => scanned,
                Err(error) => return self.upstream_lost(at, &error.to_string()),
            };
            let (piece, marker) = match scanned {
                Some(reply) => (&rest[..reply.len], Some(reply.marker)),
                None => (rest, upstream.scanner.marker()),
            };
            rest = &rest[piece.len()..];
            if marker == Some(b'>') {
                // By a connection that is shared nobody has asked for any.
                let owner = self.upstreams[at].owner.map(|(place, _)| place);
                let has_several = |place: &usize| {
                    self.clients.get(*place).is_some_and(|client| client.tracking.is_some())
                };
                match owner.filter(has_several) {
                    Some(place) => self.pushed(at, place, piece, scanned.is_some()),
                    None => self.pass(at, piece),
                }
                continue;
            }
            let waiter = match scanned {
                Some(_) => upstream.pending.pop_front(),
                None => upstream.pending.front().copied(),
            };
            let Some(pending) = waiter else {
                return self.upstream_lost(at, "it says what nobody asked for");
            };
            let is_error = scanned.is_some_and(|reply| reply.is_error());
            let is_part = matches!(pending.waiter, Waiter::Part { .. });
            if scanned.is_some() && !is_part {
                self.shared.stats.note(pending.command, self.now - pending.asked, is_error);
            }
            match pending.waiter {
                Waiter::Client { place, number, answer }
                | Waiter::Subscription { place, number, answer } => {
                    self.give(place, number, answer, piece, scanned.is_some(), is_error);
                    // What it reads in time is not held meanwhile.
                    self.relieve(place);
                }
                Waiter::Part { joint, part } => {
                    self.give_part(joint, part, piece, scanned.is_some());
                }
                Waiter::Errand(number) => {
                    if let Some(jobs) = &mut self.jobs {
                        jobs.hear_backend(number, piece, scanned.is_some());
                    }
                }
                Waiter::Begin { place, number } if scanned.is_some() => {
                    self.begun(place, number, piece, is_error);
                }
                Waiter::Begin { .. } => {}
                Waiter::Nobody if is_error => {
                    let words = String::from_utf8_lossy(piece).trim().to_string();
                    let name = &self.targets[self.upstreams[at].kind.target].name;
                    tracing::debug!("{name} answers {words:?} to a new connection");
                }
                Waiter::Nobody => {}
                // Redis would make a note of it each time (ACL LOG).
                Waiter::Life if is_error => self.upstreams[at].is_mute = true,
                Waiter::Life => {}
                Waiter::Login if is_error => return self.not_let_in(at, piece),
                Waiter::Login if scanned.is_some() => self.let_in(at),
                Waiter::Login => {}
                Waiter::Right { user, store, asked_ns } if scanned.is_some() => {
                    self.hear_right((user, store), asked_ns, piece, is_error);
                }
                Waiter::Right { .. } => {}
                Waiter::Check { question, asked_ns } => {
                    self.hear(at, question, asked_ns, piece, scanned.is_some());
                }
            }
        }
    }

    /// Passes on what belongs to no command, to whose connection it is.
    fn pass(&mut self, at: usize, bytes: &[u8]) {
        self.upstreams[at].subscribing = None;
        let Some((place, _)) = self.upstreams[at].owner else { return };
        if let Some(client) = self.clients.get_mut(place) {
            client.stream.out().extend_from_slice(bytes);
            self.touch_client(place);
        }
    }

    /// What follows from an answer that something depended on.
    fn change(&mut self, place: usize, then: Transition, is_error: bool) {
        if is_error {
            if let Some(user) = then.user {
                self.users.leave(user, self.now);
            }
            return;
        }
        if let Some(user) = then.user {
            self.become_user(place, user);
        }
        let Some(client) = self.clients.get_mut(place) else { return };
        client.protocol = then.protocol.unwrap_or(client.protocol);
        if then.by_own
            && let Some(own) = client.own.and_then(|own| self.upstreams.get_mut(own))
        {
            own.kind.speaker = client.speaker();
        }
    }

    /// Gives a client a part of an answer, if it is still there.
    pub(super) fn give(
        &mut self,
        place: usize,
        number: u64,
        answer: u64,
        bytes: &[u8],
        ended: bool,
        is_error: bool,
    ) {
        let most_owed = self.most_owed();
        let Some(client) = self.clients.get_mut(place) else { return };
        if client.number != number {
            return;
        }
        let is_behind = client.owed() > most_owed;
        client.give(answer, bytes, ended);
        if ended {
            client.reading.answered(is_behind, self.shared.limits.pipeline);
            if is_error {
                self.shared.counters.total_error_replies.add_one();
            }
            if let Some(then) = client.then.take() {
                self.change(place, then, is_error);
            }
            if self.clients.get(place).is_some_and(|client| client.waits) {
                self.make_ready(place);
            }
        }
        self.touch_client(place);
    }
}
