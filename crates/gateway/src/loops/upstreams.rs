//! Connections to Redis servers: made when they are needed, lost, and tried again.

use std::time::{Duration, Instant};

use mio::Token;

use super::{
    EventLoop, FIRST, Target,
    client::Way,
    jobs::Jobs,
    speaker::{NOBODY, Speaker},
    stream::{Place, Stream},
    upstream::{Kind, PendingCommand, Phase, Question, Upstream, Waiter},
    words::encode,
};
use crate::names::LOOK_AGAIN;

/// Connections to a store that all clients of a protocol share: those by which reads go first, and
/// as many by which writes do.
const LANES: u8 = 16;
/// A store that takes longer for a command has something to wait for.
const USUAL: Duration = Duration::from_millis(5);
/// How long a server may take to let a connection in.
const CONNECTS_WITHIN: Duration = Duration::from_secs(1);
/// How long a server may say nothing while the gateway itself waits for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How often connections that are kept for clients are looked at, and for how long nothing was
/// heard by one when it is made to say something: servers close those that are silent (`timeout`),
/// and a client that asks by another would be closed with it.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// While a server is away, it is tried so often, and commands are refused meanwhile.
const TRIED_EVERY: Duration = Duration::from_millis(100);

impl EventLoop {
    /// The connection that clients who speak so share by this way.
    pub(super) fn common(&mut self, target: usize, speaker: Speaker, lane: u8) -> usize {
        let kind = Kind { target, speaker, lane };
        if let Some(at) = self.common.get(&kind) {
            return self.let_in_beside(*at).unwrap_or(*at);
        }
        let at = self.upstreams.insert(Upstream::new(kind.clone(), None, &self.shared, self.now));
        self.common.insert(kind, at);
        self.users.get(speaker.user).upstreams.push(at);
        at
    }

    /// The connection by which a client's next command goes, when none of its own are under way:
    /// usually the first, because many commands in one write cost least; but none where somebody
    /// waits for longer than usual. What a store carries out slowly (a key whose copies have to be
    /// called back, from a switch that does not answer) holds up what is behind it. Reads have
    /// lanes of their own, lest they stand behind writes that all wait (CLIENT PAUSE).
    pub(super) fn choose_lane(&mut self, way: Way, speaker: Speaker, writes: bool) -> u8 {
        if way != Way::Store {
            return direct_lane(writes);
        }
        let mut lanes = if writes { LANES..2 * LANES } else { 0..LANES };
        let first = lanes.start;
        let is_free = |target, lane| {
            let at = self.common.get(&Kind { target, speaker, lane });
            let oldest = at.and_then(|at| self.upstreams[*at].pending.front());
            oldest.is_none_or(|pending| self.now - pending.asked < USUAL)
        };
        // Where there are several stores, the next command may go to any of them.
        let stores = 0..self.stores.len();
        let free = lanes.find(|lane| stores.clone().all(|store| is_free(store, *lane)));
        free.unwrap_or(first)
    }

    /// Puts a command behind those that went by this connection, in the name of a client.
    pub(super) fn ask(&mut self, at: usize, bytes: &[u8], pending: PendingCommand) {
        self.revive(at);
        if self.is_too_much(&self.upstreams[at], bytes.len()) {
            return self.refuse_for_backlog(at, pending);
        }
        let upstream = &mut self.upstreams[at];
        let Some(out) = upstream.out() else {
            let role = self.targets[upstream.kind.target].role;
            let line = format!("-TRYAGAIN nothing was done: {role} is away\r\n");
            return self.refuse(pending, &line);
        };
        out.extend_from_slice(bytes);
        upstream.pending.push_back(pending);
        self.touch_upstream(at);
    }

    /// Begins to connect where there is no connection, unless that was tried just now.
    pub(super) fn revive(&mut self, at: usize) {
        let upstream = &mut self.upstreams[at];
        match upstream.phase {
            Phase::Down(until) if self.now >= until => {}
            _ => return,
        }
        let target = &self.targets[upstream.kind.target];
        let token = Token(FIRST + 2 * at + 1);
        let stream =
            Stream::connect(&target.place, target.trust.as_ref()).and_then(|mut stream| {
                stream.register(self.poll.registry(), token)?;
                Ok(stream)
            });
        match stream {
            Ok(mut stream) => {
                let mut greetings = vec![];
                upstream.held = None;
                if let Some(login) = self.users.login(upstream.kind.speaker.user) {
                    encode(&login.command(), stream.out());
                    let waiter = Waiter::Login;
                    upstream.pending.push_back(PendingCommand { waiter, ..greeting(self.now) });
                    upstream.held = Some(vec![]);
                } else if let Some((user, password)) = &target.login {
                    let mut words: Vec<&[u8]> = vec![b"AUTH"];
                    words.extend(user.iter().map(String::as_bytes));
                    words.push(password.as_bytes());
                    greetings.push(words);
                }
                if upstream.kind.speaker.protocol == 3 {
                    greetings.push(vec![b"HELLO", b"3"]);
                }
                let database = target.database.to_string();
                if target.database != 0 {
                    greetings.push(vec![b"SELECT", database.as_bytes()]);
                }
                for words in greetings {
                    let out = upstream.held.as_mut().unwrap_or(stream.out());
                    encode(&words, out);
                    upstream.pending.push_back(greeting(self.now));
                }
                upstream.stream = Some(stream);
                upstream.phase = Phase::Connecting(self.now + CONNECTS_WITHIN);
                upstream.known = Default::default();
                if upstream.owner.is_none() {
                    self.greet(at);
                }
            }
            Err(error) => {
                upstream.phase = Phase::Down(self.now + TRIED_EVERY);
                tracing::warn!("{}: {error}", target.name);
            }
        }
    }

    /// Gives up connections to addresses that names do not mean any more.
    pub(super) fn follow_names(&mut self) {
        let Some(seen) = &mut self.names_seen else { return };
        let changes = self.shared.names.changes();
        if changes == std::mem::replace(seen, changes) {
            return;
        }
        for number in 0..self.targets.len() {
            let target = &mut self.targets[number];
            let Some(now) = target.named.as_ref().map(|named| Place::Tcp(named.now())) else {
                continue;
            };
            if target.place == now {
                continue;
            }
            target.place = now;
            let there = self.upstreams.iter().filter(|(_, upstream)| {
                upstream.kind.target == number && upstream.stream.is_some()
            });
            for at in there.map(|(at, _)| at).collect::<Vec<_>>() {
                self.upstream_lost(at, "its name means another address");
            }
        }
    }

    /// Says something that makes an own connection ready, behind what was said by it before.
    pub(super) fn say(&mut self, at: usize, words: &[&[u8]]) {
        self.ask_for(Waiter::Nobody, at, words);
    }

    /// Asks something of the gateway's own, behind what was said by this connection before.
    pub(super) fn ask_for(&mut self, waiter: Waiter, at: usize, words: &[&[u8]]) {
        let mut bytes = vec![];
        encode(words, &mut bytes);
        self.ask(at, &bytes, PendingCommand { waiter, ..greeting(self.now) });
    }

    /// The earliest moment at which something has waited for too long.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let waits = self.upstreams.iter().filter_map(|(_, upstream)| match upstream.phase {
            Phase::Connecting(until) => Some(until),
            _ => None,
        });
        let reads = self.reads.as_ref().and_then(|reads| reads.packets.next_timer());
        let shaking = self.shaking.front().map(|(until, ..)| *until);
        let may_move = self.names_seen.is_some() && !self.upstreams.is_empty();
        let named = may_move.then(|| self.now + LOOK_AGAIN);
        let silent = (!self.upstreams.is_empty()).then_some(self.looked_at + SILENT_FOR);
        waits
            .chain(reads)
            .chain(silent)
            .chain(named)
            .chain(self.readers.front().map(|(until, _)| *until))
            .chain(shaking)
            .chain(self.accept_again)
            .chain(self.users.next_timer())
            .chain(self.jobs.as_ref().and_then(Jobs::next_timer))
            .chain(self.unanswered().map(|(until, _)| until).min())
            .min()
    }

    /// Gives up what has waited for too long.
    pub(super) fn expire(&mut self) {
        self.expire_shaking();
        self.expire_users();
        if self.accept_again.is_some_and(|at| at <= self.now) {
            self.accept();
        }
        if let Some(reads) = &mut self.reads {
            reads.packets.expire();
        }
        if let Some(jobs) = &mut self.jobs {
            jobs.expire(self.now);
        }
        let silent = self.unanswered().filter(|(until, _)| *until <= self.now);
        for at in silent.map(|(_, at)| at).collect::<Vec<_>>() {
            self.upstream_lost(at, "it does not answer");
        }
        if self.now >= self.looked_at + SILENT_FOR {
            self.looked_at = self.now;
            self.keep_alive();
        }
        let late = self.upstreams.iter().filter(
            |(_, upstream)| matches!(upstream.phase, Phase::Connecting(until) if until <= self.now),
        );
        for at in late.map(|(at, _)| at).collect::<Vec<_>>() {
            self.upstream_lost(at, "it does not answer");
        }
    }

    /// Has connections say something that are silent, and whose end would be that of clients.
    fn keep_alive(&mut self) {
        let is_kept = |upstream: &Upstream| match upstream.owner {
            // What ties a client to it is said by it, or the client is silent itself.
            Some((place, _)) => self.clients.get(place).is_some_and(|client| !client.ties.any()),
            None => self.users.have_clients(upstream.kind.speaker.user),
        };
        let silent = self.upstreams.iter().filter(|(_, upstream)| {
            let is_idle = upstream.pending.is_empty() && upstream.phase == Phase::Up;
            let is_silent = self.now >= upstream.heard + SILENT_FOR;
            is_idle && is_silent && !upstream.is_mute && is_kept(upstream)
        });
        for at in silent.map(|(at, _)| at).collect::<Vec<_>>() {
            self.ask_for(Waiter::Life, at, &[b"PING"]);
        }
    }

    /// Connections by which the gateway itself has asked something that it cannot go on without,
    /// and until when the next answer has to come.
    fn unanswered(&self) -> impl Iterator<Item = (Instant, usize)> {
        let asks = self.jobs.is_some() || !self.commands.are_known();
        let upstreams = self.upstreams.iter().filter(move |_| asks);
        upstreams.filter_map(|(at, upstream)| {
            let is_needed = |pending: &&PendingCommand| {
                let is_errand = matches!(pending.waiter, Waiter::Errand(_));
                is_errand || pending.waiter.checks(Question::Commands)
            };
            let asked = upstream.pending.iter().find(is_needed)?.asked;
            Some((asked.max(upstream.heard) + ANSWERS_WITHIN, at))
        })
    }

    /// A connection has ended, or never came to be: everybody who waits is told, at once.
    pub(super) fn upstream_lost(&mut self, at: usize, why: &str) {
        let Some(upstream) = self.upstreams.get_mut(at) else { return };
        let has_sent = upstream.stream.as_ref().is_some_and(|stream| stream.sent > 0);
        let was_up = upstream.phase == Phase::Up || has_sent;
        let Target { name, role, .. } = &self.targets[upstream.kind.target];
        let role = *role;
        // The next one to listen there may have another Redis behind it.
        if let Some(store) = self.stores.get_mut(upstream.kind.target) {
            store.run_id_asked = None;
        }
        let is_news =
            self.jobs.as_mut().is_none_or(|jobs| jobs.is_news(upstream.kind.target, true));
        match upstream.pending.is_empty() || !is_news {
            true => tracing::debug!("{name}: {why}"),
            false => tracing::warn!("{name}: {why}"),
        }
        // One that was to end has: to its owner, that is no error.
        if self.leaving
            && let Some((place, number)) = upstream.owner
            && let Some(client) = self.clients.get(place)
            && client.number == number
            && client.is_blocked()
        {
            return self.close(place);
        }
        // Lost before its user was let in, it is not tried again at once.
        let was_in = was_up && upstream.held.take().is_none();
        let (is_common, speaker) = (upstream.owner.is_none(), upstream.kind.speaker);
        let partial = upstream.scanner.is_within();
        let owner = upstream.owner;
        let refusal = upstream.known.refusal.take();
        // What was connected may be there again at once: a server that restarted, or closed what
        // was idle.
        let until = if was_in { self.now } else { self.now + TRIED_EVERY };
        let pending = upstream.goes_down(until);
        if pending.iter().any(|pending| pending.waiter.checks(Question::Commands)) {
            self.commands_untold(speaker);
        }
        for (number, pending) in pending.into_iter().enumerate() {
            if number == 0
                && partial
                && let Waiter::Client { place, number, .. }
                | Waiter::Subscription { place, number, .. } = pending.waiter
            {
                // Half an answer cannot be taken back.
                if self.clients.get(place).is_some_and(|client| client.number == number) {
                    self.close(place);
                }
                continue;
            }
            let line = match (was_up, pending.writes) {
                _ if refusal.is_some() => {
                    format!("-{}\r\n", refusal.as_deref().unwrap_or_default())
                }
                (false, _) => format!("-TRYAGAIN nothing was done: {role} is away\r\n"),
                (true, false) => format!("-TRYAGAIN no answer from {role}\r\n"),
                (true, true) => format!("-ERR outcome unknown: no answer from {role}\r\n"),
            };
            self.refuse(pending, &line);
        }
        if let Some((place, number)) = owner
            && let Some(client) = self.clients.get_mut(place)
            && client.number == number
        {
            // What it had there, a transaction, a subscription, a name, is gone: as if Redis had
            // closed it.
            if client.tracking.is_some() {
                return self.close(place);
            }
            client.own = None;
            let tied = was_up || client.ties.any();
            self.upstreams.try_remove(at);
            if tied && let Some(client) = self.clients.get_mut(place) {
                client.closing = true;
                self.touch_client(place);
            }
        }
        if was_in && is_common && speaker.user != NOBODY {
            self.shared_connection_lost(speaker.user);
        }
    }

    pub(super) fn refuse(&mut self, pending: PendingCommand, line: &str) {
        match pending.waiter {
            Waiter::Client { place, number, answer }
            | Waiter::Subscription { place, number, answer } => {
                self.give(place, number, answer, line.as_bytes(), true, true);
            }
            Waiter::Part { joint, part } => {
                self.drop_part(joint, part);
                self.give_part(joint, part, line.as_bytes(), true);
            }
            Waiter::Errand(number) => {
                if let Some(jobs) = &mut self.jobs {
                    jobs.drop_heard(number);
                    jobs.hear_backend(number, line.as_bytes(), true);
                }
            }
            Waiter::Begin { place, number } => self.begun(place, number, line.as_bytes(), true),
            Waiter::Nobody
            | Waiter::Life
            | Waiter::Check { .. }
            | Waiter::Login
            | Waiter::Right { .. } => {}
        }
    }

    /// Which target a way leads to, of a store.
    pub(super) fn target_of(&self, way: Way, store: usize) -> usize {
        self.stores[store].direct.filter(|_| way == Way::Direct).unwrap_or(store)
    }
}

/// Which of the two connections to a Redis a command goes by.
pub(super) fn direct_lane(writes: bool) -> u8 {
    u8::from(writes)
}

fn greeting(now: Instant) -> PendingCommand {
    PendingCommand { waiter: Waiter::Nobody, command: 0, asked: now, writes: false }
}
