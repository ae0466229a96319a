//! What clients have sent: parsed in place, and each command put on its way, in order.
//!
//! A command may be on its way beside those before it that go the same way, which keeps them in
//! their order, and reads beside reads of other keys. Whatever else differs in its way waits until
//! those before it are answered. A read behind a write goes to the store with it, and so need
//! not wait.

use client::kit;
use resp::{ProtocolError, RequestParser, Words};

use super::{
    EventLoop, READ_BYTES,
    client::{Transition, Way, is_printable},
    commands::{Act, Command},
    hello::Hello,
    speaker::Speaker,
    upstream::{PendingCommand, Waiter},
    users::Login,
    words::encode,
};
use crate::info;

/// A client is not read while so many bytes of it wait for its own connection to take them.
const RAW_AHEAD: usize = 256 << 10;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next one may come.
    On,
    /// It has to wait for answers, and is not taken.
    Wait,
    /// No more commands are taken from this connection.
    Stop,
}

/// A command where it lies.
#[derive(Clone, Copy)]
pub(super) struct CommandText<'a> {
    /// All of it, as it goes on.
    pub bytes: &'a [u8],
    pub words: Words<'a>,
}

impl<'a> CommandText<'a> {
    /// One of its words.
    pub fn word(&self, at: usize) -> Option<&'a [u8]> {
        self.words.get(at)
    }

    /// Whether a SELECT is of the first database.
    pub fn selects_first(&self) -> bool {
        self.words.len() == 2 && self.word(1) == Some(b"0")
    }

    /// Whether a word is this one, in whatever case.
    pub fn is(&self, at: usize, word: &str) -> bool {
        self.word(at).is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes()))
    }
}

impl EventLoop {
    /// Takes what a client has sent as far as that is possible now.
    pub(super) fn serve(&mut self, at: usize) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.serve_with(at, &mut scratch);
        self.scratch = scratch;
    }

    fn serve_with(&mut self, at: usize, scratch: &mut [u8]) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.waits = false;
        if client.ties.raw {
            return self.pump(at, scratch);
        }
        // What waits already comes first.
        self.read_ns = kit::now_ns();
        if !client.input.is_empty() && !client.closing {
            let mut input = std::mem::take(&mut client.input);
            let taken = self.take_commands(at, &input);
            input.drain(..taken);
            let Some(client) = self.clients.get_mut(at) else { return };
            client.input = input;
        }
        let Some(client) = self.clients.get_mut(at) else { return };
        // One who has gone waits for what may never come, whatever else it has sent.
        if client.waits && client.stream.is_over() && client.is_blocked() {
            return self.close(at);
        }
        if client.waits && self.leaving && client.is_blocked() {
            return self.release(at);
        }
        if client.waits || client.ended || client.is_ready {
            return self.touch_client(at);
        }
        if client.ties.raw {
            return self.pump(at, scratch);
        }
        if !client.stream.readable && !self.leaving {
            return self.count(at);
        }
        let at_once = client.bytes_at_once().min(scratch.len());
        let len = match client.stream.read(&mut scratch[..at_once]) {
            Ok(Some(0)) => {
                client.ended = true;
                // One who waits for nothing but what may never come is gone.
                if client.is_blocked() {
                    return self.close(at);
                }
                return self.touch_client(at);
            }
            Ok(Some(len)) => len,
            Ok(None) => {
                if client.stream.readable {
                    self.go_on_later(at);
                } else if self.leaving {
                    client.ended = true;
                    match client.is_blocked() {
                        true => self.release(at),
                        false => self.touch_client(at),
                    }
                }
                return self.count(at);
            }
            Err(error) => {
                self.shared.tls_failed(client.stream.peer(), &error);
                return self.close(at);
            }
        };
        if client.stream.readable || self.leaving {
            self.go_on_later(at);
        }
        self.shared.counters.total_net_input_bytes.add(len as u64);
        self.read_ns = kit::now_ns();
        let bytes = &scratch[..len];
        let Some(client) = self.clients.get_mut(at) else { return };
        if client.closing {
            return;
        }
        if client.input.is_empty() {
            let taken = self.take_commands(at, bytes);
            if taken < len
                && let Some(client) = self.clients.get_mut(at)
            {
                client.keep(&bytes[taken..]);
                self.count(at);
            }
            return;
        }
        client.keep(bytes);
        let mut input = std::mem::take(&mut client.input);
        let taken = self.take_commands(at, &input);
        if taken == input.len() && input.capacity() > READ_BYTES {
            input = vec![];
        } else {
            input.drain(..taken);
        }
        if let Some(client) = self.clients.get_mut(at) {
            client.input = input;
            self.count(at);
        }
    }

    /// Puts commands on their way; how many bytes they took.
    fn take_commands(&mut self, at: usize, bytes: &[u8]) -> usize {
        let Some(client) = self.clients.get_mut(at) else { return 0 };
        self.next_number += 1;
        client.moved = self.next_number;
        let mut parser = match client.part.take() {
            Some(part) => *part,
            None => std::mem::take(&mut self.parser),
        };
        let limits = self.request_limits;
        let mut from = 0;
        let mut left = self.turns.commands;
        let (mut line, mut skipped) = (vec![], 0);
        loop {
            if left == 0 && from < bytes.len() {
                self.go_on_later(at);
                break;
            }
            left = left.saturating_sub(1);
            let request = match parser.next(&bytes[from..], &limits, &mut skipped) {
                Ok(request) => request,
                Err(error) => {
                    match error {
                        // As TLS has, and nobody who types commands.
                        ProtocolError::InlineZero => self.foreign(at),
                        _ => self.protocol_error(at, &error),
                    }
                    // It is in the middle of something, which is nobody else's.
                    parser = RequestParser::default();
                    from = bytes.len();
                    break;
                }
            };
            from += skipped;
            let Some(request) = request else {
                if from < bytes.len()
                    && let Some(client) = self.clients.get_mut(at)
                {
                    client.part = Some(Box::new(std::mem::take(&mut parser)));
                }
                break;
            };
            let words = request.words;
            let said = if request.is_inline {
                if is_foreign(words) {
                    self.foreign(at);
                    from = bytes.len();
                    break;
                }
                line.clear();
                encode(&words.iter().collect::<Vec<_>>(), &mut line);
                CommandText { bytes: &line, words }
            } else {
                CommandText { bytes: request.bytes, words }
            };
            let len = request.bytes.len();
            if !self.carry_out(at, said) {
                break;
            }
            from += len;
            let Some(client) = self.clients.get(at) else { break };
            if client.closing || client.ties.raw {
                break;
            }
            if client.owes_much() {
                left = 0;
            }
        }
        self.parser = parser;
        from
    }

    /// Ends a connection that is another protocol's, without an answer.
    fn foreign(&mut self, at: usize) {
        let peer = self.clients.get(at).and_then(|client| client.stream.peer());
        self.shared.foreign(peer);
        self.close(at);
    }

    fn protocol_error(&mut self, at: usize, error: &ProtocolError) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.closing = true;
        self.shared.counters.protocol_errors.add_one();
        client.answer(format!("-ERR {error}\r\n").as_bytes());
        self.touch_client(at);
    }

    /// Puts one command on its way; whether it was taken.
    fn carry_out(&mut self, at: usize, said: CommandText<'_>) -> bool {
        let Some(client) = self.clients.get(at) else { return false };
        if self.jobs.is_none() && self.awaits_commands(client.speaker()) {
            self.awaiting.push(at);
            if let Some(client) = self.clients.get_mut(at) {
                client.waits = true;
            }
            return false;
        }
        let command = self.commands.find(said.word(0).unwrap_or_default());
        let may_be_ahead = self.may_be_ahead();
        let Some(client) = self.clients.get_mut(at) else { return false };
        let waiting = client.waiting();
        let is_ahead = waiting > 0 && client.asked_bytes > may_be_ahead;
        let is_full = waiting >= self.shared.limits.pipeline.min(client.reading.commands);
        if client.then.is_some() || is_full || is_ahead || self.has_to_read(at) {
            self.clients[at].waits = true;
            return false;
        }
        if command.publishes && self.is_behind_subscriptions(at) {
            self.clients[at].waits = true;
            return false;
        }
        let next = match self.jobs {
            None => self.dispatch(at, command, said),
            Some(_) => self.dispatch_string(at, said),
        };
        if let Some(client) = self.clients.get_mut(at).filter(|client| client.waiting() > waiting) {
            client.asked(said.bytes.len());
        }
        match next {
            Next::Wait => {
                if let Some(client) = self.clients.get_mut(at) {
                    client.waits = true;
                }
                return false;
            }
            Next::On | Next::Stop => self.shared.counters.total_commands_processed.add_one(),
        }
        true
    }

    fn as_cluster(&mut self, at: usize, said: CommandText<'_>) -> Next {
        let words: Vec<&[u8]> = said.words.iter().skip(1).collect();
        let client = &mut self.clients[at];
        let protocol = client.speaker().protocol;
        let line = match client.stream.local_address() {
            Some(address) => {
                let nodes = self.shared.nodes.shown_at(address);
                super::as_cluster::answer(&words, &nodes, protocol)
            }
            None => b"-ERR CLUSTER: not by a Unix socket\r\n".to_vec(),
        };
        client.answer(&line);
        self.touch_client(at);
        Next::On
    }

    fn dispatch(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        let mut line = vec![];
        let mut said = said;
        if self.tenant.is_some() || self.stores.len() > 1 {
            self.commands.keys(said.words, &mut self.keys);
        }
        if let Some(tenant) = &self.tenant {
            if let Some(refusal) = tenant.refusal(&self.commands, said.words, &self.keys) {
                return self.refuse_command(at, refusal.as_bytes());
            }
            if !self.keys.is_empty() {
                encode(&tenant.translate(said.words, &self.keys), &mut line);
                said.bytes = &line;
            }
        }
        if command.act == Act::Reset && said.words.len() != 1 {
            let line = b"-ERR wrong number of arguments for 'reset' command\r\n";
            return self.refuse_command(at, line);
        }
        if self.clients[at].ties.refused && said.is(0, "exec") {
            return self.abort(at);
        }
        if self.ask_local(at, command, said) {
            return Next::On;
        }
        if self.owners.have_slots() && said.is(0, "cluster") {
            // What a node says would lead past the gateway.
            return match self.clients[at].ties.transaction {
                true => self.refuse_command(at, b"-ERR CLUSTER: not in a transaction\r\n"),
                false => self.as_cluster(at, said),
            };
        }
        if command.act == Act::Wait
            && let Some(next) = self.wait(at, said)
        {
            return next;
        }
        let has_several = self.stores.len() > 1 || self.owners.have_slots();
        if has_several && let Some(next) = self.dispatch_tracking(at, command, said) {
            return next;
        }
        if self.stores.len() > 1
            && let Some(next) = self.dispatch_spread(at, command, said)
        {
            return next;
        }
        if self.clients[at].ties.any() {
            return self.by_own(at, command, said);
        }
        let is_answered_here = match command.act {
            Act::Info => said.is(1, "gateway"),
            Act::Select => said.selects_first(),
            _ => false,
        };
        if is_answered_here && self.has_to_log_in(at) {
            return self.refuse_command(at, b"-NOAUTH Authentication required.\r\n");
        }
        let client = &mut self.clients[at];
        match command.act {
            Act::Get if said.words.len() == 2 => self.read(at, command, said),
            Act::Info if said.is(1, "gateway") => self.info(at),
            Act::Get | Act::Plain | Act::Info => {
                let way = self.upstream_way(at, 0, command.writes);
                self.by(at, way, 0, command, said, 0)
            }
            Act::Store | Act::Exec | Act::Unwatch => self.by(at, Way::Store, 0, command, said, 0),
            Act::Hello => self.hello(at, command, said),
            Act::Quit => {
                client.answer(b"+OK\r\n");
                client.closing = true;
                self.touch_client(at);
                Next::Stop
            }
            Act::Reset => match self.ends_own(at, command) {
                true => Next::On,
                false => Next::Wait,
            },
            Act::Select if said.selects_first() => {
                client.answer(b"+OK\r\n");
                self.touch_client(at);
                Next::On
            }
            Act::Client => self.client_command(at, command, said),
            Act::Auth => self.auth(at, command, said),
            Act::Multi | Act::Watch | Act::Own | Act::Wait | Act::Raw | Act::Select => {
                self.by_own(at, command, said)
            }
        }
    }

    /// A read of one key: from a copy, if there is one; by the network, if it is hot, unless it has
    /// to be behind a write, or behind a read of the same key that went another way.
    fn read(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        let name = said.word(1).unwrap_or_default();
        let key = self.key_hash(name);
        let store = self.store_of(name);
        if self.clients[at].tracking.is_some() {
            return self.by(at, Way::Store, store, command, said, key);
        }
        let Err(miss) = self.read_local(at, command, name, (key, store)) else { return Next::On };
        // The store knows the value of such a key, or is asking for it: Redis need not be asked by
        // each gateway that has no copy.
        let hot = self.goes_by_network((key, store), miss == kit::Miss::AtStore);
        let upstream = self.upstream_way(at, store, false);
        let client = &mut self.clients[at];
        if client.writes() > 0 {
            return self.by(at, Way::Store, store, command, said, key);
        }
        if client.under_way(Way::Own) > 0 {
            return Next::Wait;
        }
        // What reads the same key already is not overtaken: it goes the same way.
        let follows = |way| key != 0 && client.reads(way, key);
        let by_network =
            (follows(Way::Network) || hot && !follows(upstream)) && client.reads_single_keys();
        let speaker = client.speaker();
        let by_network = by_network && self.may_read_all(speaker, store);
        let client = &mut self.clients[at];
        let way = if by_network { Way::Network } else { upstream };
        if way != Way::Network {
            return self.by(at, way, store, command, said, key);
        }
        let answer = client.place(Way::Network, key, false);
        let (number, protocol) = (client.number, client.protocol);
        let waiter = Waiter::Client { place: at, number, answer };
        let pending = self.pending(waiter, command);
        if let Some(reads) = &mut self.reads {
            reads.ask(name, (key, store), pending, protocol);
        }
        Next::On
    }

    /// By which way a command goes that touches no copy, and `writes` something else or does not.
    pub(super) fn upstream_way(&mut self, at: usize, store: usize, writes: bool) -> Way {
        let client = &self.clients[at];
        if client.under_way(Way::Store) > 0 || client.tracking.is_some() {
            return Way::Store;
        }
        let speaker = client.speaker();
        self.direct_way(store, speaker, writes)
    }

    /// The store of a key.
    pub(super) fn store_of(&self, key: &[u8]) -> usize {
        if self.stores.len() == 1 { 0 } else { self.owners.port_of(key) }
    }

    /// Whether a command that goes this way would overtake one before it. `key`: the hash of the
    /// one key that it reads, or 0.
    pub(super) fn would_overtake(&self, at: usize, way: Way, command: Command, key: u64) -> bool {
        let client = &self.clients[at];
        let reads_one = reads_only(command) && key != 0;
        [Way::Direct, Way::Store, Way::Own, Way::Network].into_iter().any(|other| {
            // Reads may be beside reads of other keys; what goes the same way stays in order.
            let beside = other == way
                || other == Way::Network && reads_one && !client.reads(Way::Network, key);
            !beside && client.under_way(other) > 0
        })
    }

    /// By a connection that clients share, once nothing is under way that must not be overtaken.
    pub(super) fn by(
        &mut self,
        at: usize,
        way: Way,
        store: usize,
        command: Command,
        said: CommandText<'_>,
        key: u64,
    ) -> Next {
        if self.would_overtake(at, way, command, key) {
            return Next::Wait;
        }
        let client = &mut self.clients[at];
        if way == Way::Direct {
            self.shared.counters.direct_reads.add(u64::from(reads_only(command)));
            self.shared.counters.direct_writes.add(u64::from(command.writes));
        }
        let is_first = client.under_way(way) == 0;
        let answer = client.place(way, key, command.writes);
        let (number, speaker) = (client.number, client.speaker());
        let target = self.target_of(way, store);
        if is_first {
            self.clients[at].lane = self.choose_lane(way, speaker, command.writes);
        }
        let upstream = match self.tracked(at, store) {
            Some(own) => own,
            None => self.common(target, speaker, self.clients[at].lane),
        };
        let waiter = Waiter::Client { place: at, number, answer };
        self.ask(upstream, said.bytes, self.pending(waiter, command));
        self.chosen(at);
        Next::On
    }

    /// What is remembered of a command until it is answered.
    pub(super) fn pending(&self, waiter: Waiter, command: Command) -> PendingCommand {
        PendingCommand { waiter, command: command.row, asked: self.now, writes: command.writes }
    }

    /// Which protocol the connection speaks from now on is Redis's to decide, and whether somebody
    /// is who he says: it is asked by a connection that speaks so already.
    fn hello(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        let client = &mut self.clients[at];
        if client.waiting() > 0 {
            return Next::Wait;
        }
        let Some(Hello { version, login, name }) = Hello::of(said.words) else {
            return self.by_own(at, command, said);
        };
        let is_named = name.is_some_and(|name| !is_printable(name) || login.is_none());
        if is_named || login.is_some() && client.own.is_some() {
            return self.by_own(at, command, said);
        }
        client.be_named(name);
        let speaks = version.unwrap_or(client.protocol);
        let mut words: Vec<&[u8]> = vec![b"HELLO", if speaks == 3 { b"3" } else { b"2" }];
        let login_words = login.as_ref().map(Login::command).unwrap_or_default();
        words.extend(login_words);
        if said.words.len() == 1 {
            words.truncate(1);
        }
        let mut bytes = vec![];
        encode(&words, &mut bytes);
        self.introduce(at, command, speaks, login, &bytes)
    }

    /// Whether somebody is who he says.
    fn auth(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        let client = &self.clients[at];
        if client.waiting() > 0 {
            return Next::Wait;
        }
        let (speaks, count) = (client.protocol, said.words.len() - 1);
        if client.own.is_some() {
            return self.by_own(at, command, said);
        }
        // Redis says that these are no words for it, whoever says them.
        if !(1..=2).contains(&count) {
            return self.by(at, Way::Store, 0, command, said, 0);
        }
        match Login::of(said.words, 1, count) {
            Some(login) => self.introduce(at, command, speaks, Some(login), said.bytes),
            None => self.by_own(at, command, said),
        }
    }

    /// Asks by a connection of whom a client says to be; nothing comes behind it before it is
    /// answered.
    fn introduce(
        &mut self,
        at: usize,
        command: Command,
        protocol: u8,
        login: Option<Login>,
        bytes: &[u8],
    ) -> Next {
        let user = login.map(|login| self.users.enter(login));
        let client = &mut self.clients[at];
        client.then = Some(Transition { protocol: Some(protocol), user, by_own: false });
        let answer = client.place(Way::Store, 0, false);
        let number = client.number;
        let speaker = Speaker { protocol, user: user.unwrap_or(client.user) };
        let upstream = self.common(self.target_of(Way::Store, 0), speaker, 0);
        let waiter = Waiter::Client { place: at, number, answer };
        self.ask(upstream, bytes, self.pending(waiter, command));
        Next::On
    }

    /// What this gateway has done, as INFO would tell it.
    pub(super) fn info(&mut self, at: usize) -> Next {
        self.count_local();
        let text = info::gateway(&self.shared);
        let client = &mut self.clients[at];
        let bytes = match client.protocol {
            3 => format!("={}\r\ntxt:{text}\r\n", text.len() + 4),
            _ => format!("${}\r\n{text}\r\n", text.len()),
        };
        client.answer(bytes.as_bytes());
        self.touch_client(at);
        Next::On
    }

    /// What a client's library is called is remembered, and told where the client gets a connection
    /// of its own. Whoever gives himself a name wants to be found by it.
    fn client_command(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        let client = &mut self.clients[at];
        if client.own.is_some() {
            return self.by_own(at, command, said);
        }
        if said.words.len() != 4 || !said.is(1, "setinfo") {
            return self.by_own(at, command, said);
        }
        // A connection of its own is told as well, once it has one.
        if let Some(text) = said.word(3).filter(|text| is_printable(text)) {
            let names = client.names.get_or_insert_default();
            if said.is(2, "lib-name") {
                names.library = text.to_vec();
            } else if said.is(2, "lib-ver") {
                names.library_version = text.to_vec();
            }
        }
        self.by(at, Way::Store, 0, command, said, 0)
    }

    fn by_own(&mut self, at: usize, command: Command, said: CommandText<'_>) -> Next {
        match self.by_own_connection(at, command, said) {
            true => Next::On,
            false => Next::Wait,
        }
    }

    /// Passes on whatever a client sends whose connection is its own for good.
    fn pump(&mut self, at: usize, scratch: &mut [u8]) {
        loop {
            let raw_ahead = RAW_AHEAD.min(self.may_be_ahead());
            let Some(client) = self.clients.get_mut(at) else { return };
            let Some(own) = client.own else { return };
            let Some(upstream) = self.upstreams.get_mut(own) else { return self.close(at) };
            let waiting = upstream.unsent();
            let Some(out) = upstream.out() else { return self.close(at) };
            if waiting > raw_ahead {
                client.waits = true;
                return;
            }
            let looks = self.stores.len() > 1 || self.owners.have_slots();
            if looks && !client.input.is_empty() {
                if self.pump_commands(at, own) {
                    continue;
                }
            } else if !client.input.is_empty() {
                out.append(&mut client.input);
                self.touch_upstream(own);
                continue;
            }
            let Some(client) = self.clients.get_mut(at) else { return };
            if client.ended || !client.stream.readable && !self.leaving {
                return;
            }
            match client.stream.read(scratch) {
                Ok(Some(0)) => return self.end_raw(at),
                Err(_) => return self.close(at),
                Ok(None) if client.stream.readable => return self.make_ready(at),
                Ok(None) if self.leaving => return self.end_raw(at),
                Ok(None) => return,
                Ok(Some(len)) => {
                    self.shared.counters.total_net_input_bytes.add(len as u64);
                    client.input.extend_from_slice(&scratch[..len]);
                }
            }
        }
    }
}

/// Whether a command changes nothing, and is about nothing but keys and values.
fn reads_only(command: Command) -> bool {
    !command.writes && matches!(command.act, Act::Get | Act::Plain | Act::Info)
}

/// First byte of a TLS connection.
const TLS_HANDSHAKE: u8 = 0x16;

/// Whether a line is the beginning of an HTTP request, one of its headers, or TLS. Whoever reaches
/// this port may write, and browsers reach every port of their own machine in the name of any page:
/// the lines of a request's body would be commands. `POST` and `Host:` are what Redis refuses. A
/// page whose name was made to mean this machine may choose the method too (`SET /key HTTP/1.1`),
/// so the version at the end of a request's first line is refused as well.
fn is_foreign(words: Words<'_>) -> bool {
    let begins = |word: &[u8], with: &[u8]| {
        let start = word.get(..with.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(with))
    };
    let Some(first) = words.get(0) else { return false };
    first.first() == Some(&TLS_HANDSHAKE)
        || first.eq_ignore_ascii_case(b"post")
        || begins(first, b"host:")
        || (words.len() == 3 && words.get(2).is_some_and(|word| begins(word, b"http/")))
}
