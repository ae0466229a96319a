//! Connections to the store that belong to one client: transactions, blocking commands, other
//! databases and users, and everything in which answers and commands do not belong together.
//!
//! Such a connection is made when it is needed first and stays with its client; while nothing ties
//! the client to it, its commands go by the connections that all share.

use super::{
    EventLoop,
    client::{Ties, Transition, Way},
    commands::{Act, Command},
    dispatch::{CommandText, Next},
    hello::Hello,
    publishing::OpenSubscription,
    speaker::NOBODY,
    spread::is_subscription,
    upstream::{Kind, Upstream, Waiter},
    users::Login,
};

impl EventLoop {
    /// Puts a command on the client's own connection, once nothing is under way by another; whether
    /// it was taken.
    pub(super) fn by_own_connection(
        &mut self,
        at: usize,
        command: Command,
        said: CommandText<'_>,
    ) -> bool {
        let client = &mut self.clients[at];
        let raw = is_raw(command, said);
        // The answers to those before are counted; nothing is after this.
        if !client.is_by_own() || (needs_quiet(command) || raw) && client.waiting() > 0 {
            return false;
        }
        if command.act == Act::Select && said.selects_first() && self.is_back_in_first(at) {
            return self.ends_own(at, command);
        }
        let store = self.own_store(at, said);
        let Some(own) = self.own(at, store) else { return false };
        let client = &mut self.clients[at];
        let number = client.number;
        let tells_of_writes = match command.act {
            Act::Exec => client.ties.queued_write && said.words.len() == 1 && said.is(0, "exec"),
            _ => command.tells_of_writes && !client.ties.transaction,
        };
        client.ties.queued_write |= client.ties.transaction && command.tells_of_writes;
        match command.act {
            Act::Multi => client.ties.transaction = true,
            // With more words it is an error, and the transaction goes on.
            Act::Exec if said.words.len() == 1 => client.ties = client.ties.after_transaction(),
            Act::Watch => client.ties.watches = true,
            Act::Unwatch if !client.ties.transaction => client.ties.watches = false,
            // What is queued may be given up.
            Act::Select => {
                client.ties.database = client.ties.transaction || !said.selects_first();
            }
            // What is queued is not answered yet: only this connection will know the user.
            Act::Auth | Act::Hello if client.ties.transaction => client.ties.user = true,
            Act::Auth => {
                let login = Login::of(said.words, 1, said.words.len() - 1);
                client.ties.user |= login.is_none();
                let user = login.map(|login| self.users.enter(login));
                client.then = Some(Transition { protocol: None, user, by_own: true });
            }
            Act::Client if said.words.len() == 3 && said.is(1, "setname") => {
                client.be_named(said.word(2));
            }
            // With AUTH, a name, or not understood: Redis says what of it.
            Act::Hello => {
                let hello = Hello::of(said.words);
                client.be_named(hello.as_ref().and_then(|hello| hello.name));
                client.ties.user |= hello.is_none() && said.words.len() > 4;
                let protocol = hello.as_ref().and_then(|hello| hello.version);
                let login = hello.and_then(|hello| hello.login);
                let user = login.map(|login| self.users.enter(login));
                client.then = Some(Transition { protocol, user, by_own: true });
            }
            Act::Reset | Act::Quit => return self.ends_own(at, command),
            _ => {}
        }
        if raw && let Some(out) = self.upstreams[own].out() {
            out.extend_from_slice(said.bytes);
            self.upstreams[own].raw = true;
            if is_subscription(said) {
                let all = &self.shared.subscriptions;
                self.upstreams[own].subscribing = Some(OpenSubscription::begin(all));
            }
            self.clients[at].ties.raw = true;
            self.touch_upstream(own);
            // What came behind it goes the same way.
            self.make_ready(at);
            return true;
        }
        let client = &mut self.clients[at];
        client.blocks = client.is_blocked() || command.may_block && says_to_block(said);
        let answer = client.place(Way::Own, 0, command.writes);
        if tells_of_writes {
            client.last_tells_of_writes();
        }
        let waiter = Waiter::Client { place: at, number, answer };
        let pending = self.pending(waiter, command);
        self.ask(own, said.bytes, pending);
        // It was refused at once, and what follows does not belong to anything.
        if self.upstreams.get(own).is_none_or(|own| own.stream.is_none())
            && let Some(client) = self.clients.get_mut(at)
            && client.ties.any()
        {
            client.closing = true;
            self.touch_client(at);
        }
        true
    }

    /// WAIT counts replicas that have what its own connection has written last: from now on that is
    /// what the client writes. Of what it has written by connections that clients share nobody can
    /// tell, and so no replica is said to have it, before its own connection has written something
    /// behind that. `None`: its own connection answers.
    pub(super) fn wait(&mut self, at: usize, said: CommandText<'_>) -> Option<Next> {
        if self.stores.len() > 1 {
            let line = b"-ERR WAIT: not where keys are in several stores\r\n";
            return Some(self.refuse_command(at, line));
        }
        let client = &mut self.clients[at];
        if !client.is_by_own() {
            return Some(Next::Wait);
        }
        client.ties.waits = true;
        if !client.wrote_beside_own || client.ties.transaction || said.words.len() < 3 {
            return None;
        }
        // One of those under way may be a write by its own connection.
        if client.waiting() > 0 {
            return Some(Next::Wait);
        }
        client.answer(if said.is(0, "wait") { b":0\r\n" } else { b"*2\r\n:0\r\n:0\r\n" });
        self.touch_client(at);
        Some(Next::On)
    }

    /// Whether a client that selects the first database is tied to its own connection by nothing
    /// else than another one. That connection may not go on: to it the first is Redis's, and to a
    /// new one the store's, which may be another.
    fn is_back_in_first(&self, at: usize) -> bool {
        let client = &self.clients[at];
        let others = Ties { database: false, ..client.ties };
        client.ties.database && !others.any() && client.tracking.is_none()
    }

    /// RESET, QUIT and a SELECT of the first database: nothing ties the client any more, and a
    /// connection of its own goes. Whether the command was taken.
    pub(super) fn ends_own(&mut self, at: usize, command: Command) -> bool {
        let client = &mut self.clients[at];
        if client.waiting() > 0 {
            return false;
        }
        client.ties = Default::default();
        client.wrote_beside_own |= std::mem::take(&mut client.wrote_by_own);
        let tracking = client.tracking.take();
        let tracking = tracking.iter().flat_map(|tracking| &tracking.owns);
        for own in client.own.take().iter().chain(tracking) {
            self.drop_own(*own);
        }
        let client = &mut self.clients[at];
        match command.act {
            Act::Select => client.answer(b"+OK\r\n"),
            Act::Quit => {
                client.closing = true;
                client.answer(b"+OK\r\n");
            }
            _ => {
                client.protocol = 2;
                client.names = None;
                client.answer(b"+RESET\r\n");
                self.become_user(at, NOBODY);
            }
        }
        self.touch_client(at);
        true
    }

    /// The client's own connection to a store, which speaks its protocol and knows its name.
    /// `None`: that to another store is in use still.
    pub(super) fn own(&mut self, at: usize, store: usize) -> Option<usize> {
        if let Some(own) = self.tracked(at, store) {
            self.chosen(at);
            self.clients[at].own = Some(own);
            return Some(own);
        }
        let client = &mut self.clients[at];
        if let Some(other) = client.own.filter(|own| self.upstreams[*own].kind.target != store) {
            if client.waiting() > 0 {
                return None;
            }
            client.own = None;
            self.drop_own(other);
        }
        let client = &self.clients[at];
        let (number, speaker) = (client.number, client.speaker());
        let own = match client.own {
            Some(own) => own,
            None => {
                let kind = Kind { target: store, speaker, lane: 0 };
                let upstream = Upstream::new(kind, Some((at, number)), &self.shared, self.now);
                let own = self.upstreams.insert(upstream);
                self.clients[at].own = Some(own);
                self.tell_names(at, own);
                own
            }
        };
        self.revive(own);
        if self.upstreams[own].kind.speaker.protocol != speaker.protocol {
            self.upstreams[own].kind.speaker.protocol = speaker.protocol;
            self.say(own, &[b"HELLO", speaker.protocol.to_string().as_bytes()]);
        }
        Some(own)
    }

    /// Tells a client's own connection what the client and its library are called.
    pub(super) fn tell_names(&mut self, at: usize, own: usize) {
        let Some(names) = self.clients.get_mut(at).and_then(|client| client.names.take()) else {
            return;
        };
        let told: [(&[&[u8]], &[u8]); 3] = [
            (&[b"CLIENT", b"SETNAME"], &names.own),
            (&[b"CLIENT", b"SETINFO", b"LIB-NAME"], &names.library),
            (&[b"CLIENT", b"SETINFO", b"LIB-VER"], &names.library_version),
        ];
        for (words, name) in told {
            if !name.is_empty() {
                self.say(own, &[words, &[name]].concat());
            }
        }
        if let Some(client) = self.clients.get_mut(at) {
            client.names = Some(names);
        }
    }
}

/// Whether no command may be looked at any more after this one.
fn is_raw(command: Command, said: CommandText<'_>) -> bool {
    match command.act {
        Act::Raw => true,
        Act::Client => ["reply", "tracking", "caching", "no-touch", "no-evict"]
            .iter()
            .any(|name| said.is(1, name)),
        _ => false,
    }
}

/// Whether a command that may wait is told to: XREAD and XREADGROUP are by a word of their own,
/// which stands before the keys.
fn says_to_block(said: CommandText<'_>) -> bool {
    let is_told = || {
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let mut options = said.words.iter().take_while(|word| !is(word, "streams"));
        options.any(|word| is(word, "block"))
    };
    !said.is(0, "xread") && !said.is(0, "xreadgroup") || is_told()
}

/// Whether what its answer says decides about what comes next.
fn needs_quiet(command: Command) -> bool {
    matches!(command.act, Act::Auth | Act::Hello | Act::Reset | Act::Quit)
}
