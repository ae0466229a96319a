//! What a connection to Redis is in the middle of, as far as it matters where answers end: what was
//! sent and is not answered, whether a transaction is open, what is subscribed to. Commands and
//! answers go in; what to do with each comes out. Nothing is sent here.

use std::collections::VecDeque;

use bytes::Bytes;
use resp::{Class, Command, KeyWord, Reply, Words, did_write, tells_of_writes};

use super::{
    answers::{kind_of, last_number},
    greeting::Greeting,
};
use crate::engine::HoldRequest;
use holder::mutants::{Mutant, mutant};

/// Bytes of a transaction that are remembered.
const QUEUED_BYTES: usize = 1 << 20;

/// What was sent and is not answered.
#[derive(Debug, PartialEq, Eq)]
enum ExpectedAnswer {
    /// An answer of one reply.
    Plain,
    /// Of a command that may wait until others do something.
    Blocking,
    Multi,
    Exec,
    Discard,
    Reset,
    Watch,
    Unwatch,
    Auth,
    /// HELLO, with the protocol that it names.
    Hello(Option<u8>),
    Monitor,
    Select,
    /// So many confirmations.
    Subscription(usize),
    /// Of a question of the port's own: the client is not told.
    Own,
    /// Likewise, of what the client has said of itself, which is said again.
    Greeting,
    /// The port answers it.
    Local(Vec<u8>),
}

struct Unanswered {
    expected: ExpectedAnswer,
    /// The client has said that it wants no answer.
    is_unwanted: bool,
    /// It is the last command of a hold.
    ends_hold: bool,
    /// What follows is not looked at before this is answered.
    bars: bool,
    /// The command, where it may have to be sent once more.
    kept: Option<KeptCommand>,
    /// It may have changed something if no answer comes.
    writes: bool,
    /// Its answer tells whether it has written something of which replicas are told.
    tells_of_writes: bool,
}

/// A command that may have to be sent once more, to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCommand {
    /// As it was sent.
    pub bytes: Bytes,
    /// It may change something.
    pub writes: bool,
    /// It may wait until others do something.
    pub waits: bool,
}

/// What may be done where a command's slot is at another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Movable {
    /// It may be carried out there by itself.
    Alone(KeptCommand),
    /// Whatever the connection has had carried out is of no account: all of it goes there, with
    /// these commands before what is not answered.
    Whole(Vec<Bytes>),
    /// The client has to begin anew.
    No,
}

/// What is to be done with a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send it.
    Send,
    /// Hold these keys, and then send it.
    Hold(HoldRequest),
    /// It waits until some of what was sent is answered.
    Wait,
    /// It waits until Redis has said who asks: that is to be asked now.
    AskWho,
    /// It is not for Redis: the port has an answer to it, in its turn, or none.
    Answered,
    /// The connection is a replica's from here on: it is passed through.
    BecomesReplica,
}

/// What a reply is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The client gets it.
    pub is_wanted: bool,
    /// It answers a question of the port's own.
    pub is_own: bool,
    /// With it a hold is over.
    pub ends_hold: bool,
    /// It refuses what the client has said of itself: on this connection it would be somebody else.
    pub is_stranger: bool,
    /// Which database the connection is in is the server's choice again, or may be told now.
    pub is_undirected: bool,
}

/// Whether Redis carries out what a client asks before that has logged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LogIn {
    /// It does, or the client has.
    #[default]
    Done,
    /// It has just refused that, and the next command is refused with it. Its operator may decide
    /// otherwise at any time.
    Missing,
    /// It is to be asked.
    Unknown,
}

/// Which replies a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wants {
    #[default]
    All,
    None,
    /// Not that to the next command.
    AllButNext,
}

/// What is subscribed to: channels, patterns, channels of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Subscriptions {
    channels: i64,
    patterns: i64,
    of_shards: i64,
}

impl Subscriptions {
    fn any(&self) -> bool {
        self.channels + self.patterns + self.of_shards > 0
    }

    /// A confirmation of this kind says that so many are left: of channels and patterns together,
    /// or of shards.
    fn confirmed(&mut self, kind: &[u8], left: i64) {
        match kind {
            b"subscribe" | b"unsubscribe" => self.channels = left - self.patterns,
            b"psubscribe" | b"punsubscribe" => self.patterns = left - self.channels,
            _ => self.of_shards = left,
        }
    }

    fn of(&self, name: &str) -> i64 {
        match name {
            "unsubscribe" => self.channels,
            "punsubscribe" => self.patterns,
            _ => self.of_shards,
        }
    }
}

/// The state of one connection.
#[derive(Default)]
pub struct Session {
    unanswered: VecDeque<Unanswered>,
    wants: Wants,
    /// In a transaction: what its commands may change.
    in_multi: Option<HoldRequest>,
    is_resp3: bool,
    subscriptions: Subscriptions,
    is_monitor: bool,
    /// Commands at the end of `unanswered` that bar what follows.
    bars: usize,
    blocking: usize,
    /// A script may change what it likes and nobody would tell.
    scripts_change_anything: bool,
    /// Words of a command that are keys; empty between uses.
    keys: Vec<KeyWord>,
    /// What was queued of an open transaction, MULTI first; none if that is not known.
    queued: Option<Vec<Bytes>>,
    /// Keys may be watched.
    watches: bool,
    /// Redis was told something of this connection that cannot be told it again.
    is_tied: bool,
    /// The client keeps what it reads until it is told that it has changed.
    has_cache: bool,
    /// It has chosen a database.
    has_selected: bool,
    /// It has written by this connection.
    has_written: bool,
    /// It has written by another, and nothing since by this one that replicas are told behind that:
    /// this one's server cannot tell which of them have it.
    wrote_elsewhere: bool,
    /// It has written at another node, of whose replicas this one's server knows nothing.
    wrote_at_other_node: bool,
    /// The answer to what was asked last tells whether it has written anything.
    tells_of_writes: bool,
    /// So does something that the open transaction has queued.
    queued_write: bool,
    /// What of this connection the next one is told again.
    greeting: Greeting,
    log_in: LogIn,
}

impl Unanswered {
    /// The client has not asked for it.
    fn is_of_the_port(&self) -> bool {
        matches!(self.expected, ExpectedAnswer::Own | ExpectedAnswer::Greeting)
    }
}

impl Session {
    /// One on which nothing was said. `is_tracked`: the store is told of what a script has changed
    /// under keys that it did not declare.
    pub fn new(is_tracked: bool) -> Session {
        Session { scripts_change_anything: !is_tracked, ..Session::default() }
    }

    /// How many answers are still to come.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Whether an answer is still to come that may not come for as long as others do nothing.
    pub fn is_blocked(&self) -> bool {
        self.blocking > 0
    }

    /// Whether a transaction is open.
    pub fn is_in_multi(&self) -> bool {
        self.in_multi.is_some()
    }

    /// A client's command. `None`: the server has none of that name.
    pub fn asked(&mut self, command: Option<&Command>, words: Words<'_>) -> Step {
        if self.bars > 0 {
            return Step::Wait;
        }
        self.tells_of_writes = command.is_some_and(|command| tells_of_writes(&command.name));
        let Some(command) = command else {
            self.sent(ExpectedAnswer::Plain);
            return Step::Send;
        };
        // Its answers would not be Redis's: nobody could tell when a command is over.
        if command.name == "script|debug" && !is(words, 2, b"no") {
            self.local(b"-ERR SCRIPT DEBUG is not possible by a store\r\n");
            return Step::Answered;
        }
        if (self.wrote_elsewhere || self.wrote_at_other_node) && self.in_multi.is_none() {
            // No replica is known to have it, until something is written behind it.
            let none: Option<&[u8]> = match &command.name[..] {
                "wait" => Some(b":0\r\n"),
                "waitaof" => Some(b"*2\r\n:0\r\n:0\r\n"),
                _ => None,
            };
            if let Some(none) = none {
                let is_known = self.wrote_at_other_node;
                if !is_known && self.unanswered.iter().any(|command| command.tells_of_writes) {
                    return Step::Wait;
                }
                self.local(none);
                return Step::Answered;
            }
        }
        if self.in_multi.is_some() && changes_session(&command.name) {
            let name = command.name.to_ascii_uppercase();
            let line = format!("-ERR {name} is not possible in a transaction here\r\n");
            self.local(line.as_bytes());
            return Step::Answered;
        }
        match command.class {
            Class::StringRead | Class::OtherType => {
                let blocks = command.is_blocking && self.in_multi.is_none();
                self.sent(if blocks { ExpectedAnswer::Blocking } else { ExpectedAnswer::Plain });
                Step::Send
            }
            Class::Write | Class::WholeDatabase => self.write(command, words),
            Class::Connection => self.connection(command, words),
        }
    }

    /// A client's command that the server has under another name than it tells: it may change
    /// anything.
    pub fn asked_renamed(&mut self) -> Step {
        if self.bars > 0 {
            return Step::Wait;
        }
        self.tells_of_writes = false;
        self.wants(HoldRequest { names: vec![], everything: true })
    }

    fn write(&mut self, command: &Command, words: Words<'_>) -> Step {
        let mut wanted = HoldRequest::default();
        self.add_keys(command, words, &mut wanted);
        self.wants(wanted)
    }

    /// A command that needs this hold: its own, or a part of its transaction's.
    fn wants(&mut self, mut wanted: HoldRequest) -> Step {
        if let Some(queued) = &mut self.in_multi {
            if mutant(Mutant::ExecKeyForgotten) {
                queued.names.clear();
            }
            queued.names.append(&mut wanted.names);
            queued.everything |= wanted.everything;
            self.sent(ExpectedAnswer::Plain);
            return Step::Send;
        }
        self.held(wanted)
    }

    fn add_keys(&mut self, command: &Command, words: Words<'_>, wanted: &mut HoldRequest) {
        let is_vague = self.scripts_change_anything && command.runs_script();
        if command.class == Class::WholeDatabase || is_vague {
            wanted.everything = true;
            return;
        }
        command.keys(words, &mut self.keys);
        let changed = self.keys.drain(..).filter(|key| key.may_change);
        let name = |key: KeyWord| words.get(key.index).map(<[u8]>::to_vec);
        wanted.names.extend(changed.filter_map(name));
    }

    /// A command that needs a hold, if it does.
    fn held(&mut self, wanted: HoldRequest) -> Step {
        if !needs_hold(&wanted) {
            self.sent(ExpectedAnswer::Plain);
            return Step::Send;
        }
        // It would be carried out who knows when, and its keys be held until then.
        if self.blocking > 0 {
            return Step::Wait;
        }
        // Whoever reaches the port could have copies called back, of all keys even, by what Redis
        // refuses.
        match self.log_in {
            LogIn::Done => Step::Hold(wanted),
            LogIn::Unknown => Step::AskWho,
            LogIn::Missing => {
                self.log_in = LogIn::Unknown;
                self.local(b"-NOAUTH Authentication required.\r\n");
                Step::Answered
            }
        }
    }

    fn connection(&mut self, command: &Command, words: Words<'_>) -> Step {
        match &command.name[..] {
            "multi" => self.sent_and_bars(ExpectedAnswer::Multi),
            "exec" => match self.in_multi.as_ref().filter(|wanted| needs_hold(wanted)) {
                Some(_) if self.blocking > 0 => Step::Wait,
                Some(wanted) => Step::Hold(wanted.clone()),
                None => self.sent_and_bars(ExpectedAnswer::Exec),
            },
            "discard" => self.sent_and_bars(ExpectedAnswer::Discard),
            "reset" => self.sent_and_bars(ExpectedAnswer::Reset),
            "watch" => self.sent_and_bars(ExpectedAnswer::Watch),
            "unwatch" if self.in_multi.is_none() => self.sent_and_bars(ExpectedAnswer::Unwatch),
            "monitor" => self.sent_and_bars(ExpectedAnswer::Monitor),
            "hello" => {
                let protocol = match words.get(1) {
                    Some(b"2") => Some(2),
                    Some(b"3") => Some(3),
                    _ => None,
                };
                self.sent_and_bars(ExpectedAnswer::Hello(protocol))
            }
            "subscribe" | "psubscribe" | "ssubscribe" => {
                self.subscribed(words.len().saturating_sub(1))
            }
            name @ ("unsubscribe" | "punsubscribe" | "sunsubscribe") => {
                let all = self.subscriptions.of(name).max(1) as usize;
                self.subscribed(if words.len() > 1 { words.len() - 1 } else { all })
            }
            "sync" | "psync" => {
                if self.unanswered.is_empty() {
                    Step::BecomesReplica
                } else {
                    Step::Wait
                }
            }
            name if name.starts_with("client") && is_client_reply(words) => {
                self.client_reply(words)
            }
            "auth" => self.sent_and_bars(ExpectedAnswer::Auth),
            "replconf" if has_no_answer(words) => Step::Answered,
            name => {
                self.is_tied = true;
                self.has_cache |= name.starts_with("client") && is(words, 1, b"tracking");
                let is_select = name == "select";
                self.sent(if is_select { ExpectedAnswer::Select } else { ExpectedAnswer::Plain });
                Step::Send
            }
        }
    }

    fn subscribed(&mut self, confirmations: usize) -> Step {
        // Without a channel it is an error.
        match confirmations {
            0 => self.sent_and_bars(ExpectedAnswer::Plain),
            _ => self.sent_and_bars(ExpectedAnswer::Subscription(confirmations)),
        }
    }

    /// CLIENT REPLY: Redis goes on answering, or nobody could tell when a command is over.
    fn client_reply(&mut self, words: Words<'_>) -> Step {
        if self.in_multi.is_some() {
            self.local(b"-ERR CLIENT REPLY is not possible in a transaction here\r\n");
        } else if is(words, 2, b"on") {
            self.wants = Wants::All;
            self.local(b"+OK\r\n");
        } else if is(words, 2, b"off") {
            self.wants = Wants::None;
        } else if self.wants == Wants::All {
            self.wants = Wants::AllButNext;
        }
        Step::Answered
    }

    fn local(&mut self, bytes: &[u8]) {
        self.sent(ExpectedAnswer::Local(bytes.to_vec()));
    }

    /// The hold of the command that was asked last is had: it is sent.
    pub fn sent_held(&mut self, is_exec: bool) {
        match is_exec {
            true => {
                self.sent_and_bars(ExpectedAnswer::Exec);
            }
            false => self.sent(ExpectedAnswer::Plain),
        }
    }

    /// Of what is not answered, this one is the last that needs a hold.
    pub fn ends_hold(&mut self, index: usize) {
        if let Some(last) = self.unanswered.get_mut(index) {
            last.ends_hold = true;
        }
    }

    /// Whether the command that was sent last may change something; and the command, in case that
    /// it has to be sent once more.
    pub fn keeps(&mut self, writes: bool, command: Option<&[u8]>) {
        let Some(last) = self.unanswered.back_mut() else { return };
        last.writes = writes;
        last.tells_of_writes = match (&last.expected, &self.in_multi) {
            (ExpectedAnswer::Exec, _) => self.queued_write,
            (_, None) => self.tells_of_writes,
            (_, Some(_)) => false,
        };
        self.queued_write |= self.in_multi.is_some() && self.tells_of_writes;
        self.has_written |= writes;
        let waits = last.expected == ExpectedAnswer::Blocking;
        let kept = |bytes| KeptCommand { bytes: Bytes::copy_from_slice(bytes), writes, waits };
        last.kept = command.map(kept);
    }

    /// What the client has said of itself.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Whether nothing is lost with the connection to Redis but answers: what was said on it can be
    /// said again on another.
    pub fn can_go_on(&self) -> bool {
        let plain = |command: &Unanswered| {
            use ExpectedAnswer::*;
            matches!(command.expected, Plain | Blocking | Own | Greeting | Local(_))
        };
        !self.is_tied
            && !self.watches
            && !self.is_monitor
            && self.in_multi.is_none()
            && !self.subscriptions.any()
            && self.wants == Wants::All
            && self.unanswered.iter().all(plain)
    }

    /// Whether it hears of something.
    pub fn has_subscribed(&self) -> bool {
        self.subscriptions.any()
    }

    /// The connection to Redis is lost: what the client is told of each command that is not
    /// answered, of which the last so many were not sent. There is another connection, on which
    /// nothing has been said.
    pub fn begins_anew(&mut self, unsent: usize, why: &str) -> Vec<u8> {
        let mut lines = vec![];
        let sent = self.unanswered.len().saturating_sub(unsent);
        for (number, command) in self.unanswered.drain(..).enumerate() {
            if command.is_unwanted {
                continue;
            }
            let code = match (number < sent, command.writes) {
                (true, true) => "ERR outcome unknown",
                (true, false) => "TRYAGAIN no answer",
                (false, _) => "TRYAGAIN nothing was done",
            };
            match command.expected {
                ExpectedAnswer::Own | ExpectedAnswer::Greeting => {}
                ExpectedAnswer::Local(bytes) => lines.extend_from_slice(&bytes),
                _ => lines.extend_from_slice(format!("-{code}: {why}\r\n").as_bytes()),
            }
        }
        *self = Session {
            is_resp3: self.is_resp3,
            scripts_change_anything: self.scripts_change_anything,
            greeting: std::mem::take(&mut self.greeting),
            wrote_elsewhere: self.wrote_elsewhere || self.has_written,
            wrote_at_other_node: self.wrote_at_other_node,
            ..Session::default()
        };
        lines
    }

    /// What may be done about the command whose answer is next, which says that its slot is
    /// elsewhere.
    pub fn movable(&self) -> Movable {
        let Some(front) = self.unanswered.front() else { return Movable::No };
        // Another node would tell nobody when a key changes that was read there, and be asked for
        // that of its first database.
        if self.has_cache || self.has_selected {
            return Movable::No;
        }
        let Some(kept) = &front.kept else { return Movable::No };
        let plain = matches!(front.expected, ExpectedAnswer::Plain | ExpectedAnswer::Blocking);
        let begins = match front.expected {
            ExpectedAnswer::Watch => !self.watches,
            ExpectedAnswer::Subscription(_) => true,
            _ => false,
        };
        match &self.in_multi {
            None if plain => Movable::Alone(kept.clone()),
            // What a client is told unasked it is told by this node alone.
            _ if self.is_monitor || self.subscriptions.any() => Movable::No,
            None if begins && self.unanswered.len() == 1 => Movable::Whole(vec![]),
            // A key that was watched may have been written meanwhile.
            Some(_) if !self.watches && front.expected != ExpectedAnswer::Watch => {
                let all_kept = self.unanswered.iter().all(|command| command.kept.is_some());
                let queued = self.queued.clone().filter(|_| all_kept);
                queued.map_or(Movable::No, Movable::Whole)
            }
            _ => Movable::No,
        }
    }

    /// What was sent and is not answered, in order; the last so many commands were not sent.
    pub fn kept(&self, unsent: usize) -> impl Iterator<Item = &Bytes> {
        let sent = self.unanswered.len().saturating_sub(unsent);
        let commands = self.unanswered.iter().take(sent);
        commands.filter_map(|command| Some(&command.kept.as_ref()?.bytes))
    }

    /// The port has asked something of its own.
    pub fn asks_own(&mut self) {
        self.push(ExpectedAnswer::Own, false);
    }

    /// The port has said again what the client has said of itself.
    pub fn greets(&mut self) {
        (0..self.greeting.len()).for_each(|_| self.push(ExpectedAnswer::Greeting, false));
    }

    /// The first command that is not answered may have changed something, at another node: nothing
    /// that this connection's server is told is behind that.
    pub fn writes_at_other_node(&mut self) {
        if let Some(front) = self.unanswered.front_mut() {
            front.tells_of_writes = false;
        }
        self.wrote_at_other_node = true;
    }

    /// An answer of the port's own, behind those that are still to come.
    pub fn answers_last(&mut self, bytes: Vec<u8>) {
        self.sent(ExpectedAnswer::Local(bytes));
    }

    /// The last so many commands that are not answered were not sent, and are not going to be: the
    /// client is told so in their turn. Whether a transaction was to be carried out with them.
    pub fn refuses_last(&mut self, count: usize, why: &str) -> bool {
        let first = self.unanswered.len().saturating_sub(count);
        let mut ends_transaction = false;
        for command in self.unanswered.range_mut(first..) {
            ends_transaction |= command.expected == ExpectedAnswer::Exec;
            self.bars -= usize::from(std::mem::take(&mut command.bars));
            self.blocking -= usize::from(command.expected == ExpectedAnswer::Blocking);
            if !matches!(command.expected, ExpectedAnswer::Local(_)) {
                let line = format!("-TRYAGAIN nothing was done: {why}\r\n");
                command.expected = ExpectedAnswer::Local(line.into_bytes());
            }
        }
        ends_transaction
    }

    fn sent(&mut self, expected: ExpectedAnswer) {
        let is_unwanted = match self.wants {
            Wants::All => false,
            Wants::None => true,
            Wants::AllButNext => {
                self.wants = Wants::All;
                true
            }
        };
        self.push(expected, is_unwanted);
    }

    fn sent_and_bars(&mut self, expected: ExpectedAnswer) -> Step {
        self.sent(expected);
        self.bars();
        Step::Send
    }

    /// What follows is not looked at before what was sent last is answered.
    pub fn bars(&mut self) {
        if let Some(last) = self.unanswered.back_mut() {
            last.bars = true;
            self.bars += 1;
        }
    }

    fn push(&mut self, expected: ExpectedAnswer, is_unwanted: bool) {
        self.blocking += usize::from(expected == ExpectedAnswer::Blocking);
        let unanswered = Unanswered {
            expected,
            is_unwanted,
            ends_hold: false,
            bars: false,
            kept: None,
            writes: false,
            tells_of_writes: false,
        };
        self.unanswered.push_back(unanswered);
    }

    /// Whether more of a reply than its end matters: it may be a confirmation, or a message that
    /// looks like an answer.
    pub fn reads_replies(&self) -> bool {
        let is_read = |front: &Unanswered| {
            front.is_of_the_port()
                || matches!(front.expected, ExpectedAnswer::Subscription(_))
                || self.wrote_elsewhere && front.tells_of_writes
        };
        self.is_monitor || self.subscriptions.any() || self.unanswered.front().is_some_and(is_read)
    }

    /// Whether the reply that has begun is for the client, if it is an answer.
    pub fn is_wanted(&self, is_push: bool) -> bool {
        let front = self.unanswered.front();
        is_push || !front.is_some_and(|front| front.is_unwanted || front.is_of_the_port())
    }

    /// The next answer of the port's own whose turn it is, of those that the client wants.
    pub fn take_local(&mut self) -> Option<Vec<u8>> {
        let is_local = |front: &Unanswered| matches!(front.expected, ExpectedAnswer::Local(_));
        while self.unanswered.front().is_some_and(is_local) {
            let Unanswered { expected, is_unwanted, .. } = self.unanswered.pop_front()?;
            if let ExpectedAnswer::Local(bytes) = expected
                && !is_unwanted
            {
                return Some(bytes);
            }
        }
        None
    }

    /// A reply has come; `bytes` are its own, or its beginning, if [`Session::reads_replies`].
    pub fn replied(&mut self, reply: Reply, bytes: &[u8]) -> Outcome {
        let passed = Outcome { is_wanted: true, ..Outcome::default() };
        if self.is_message(reply, bytes) {
            return passed;
        }
        let Some(front) = self.unanswered.front_mut() else { return passed };
        if let ExpectedAnswer::Subscription(missing) = &mut front.expected
            && !reply.is_error()
        {
            // To Redis what confirms a subscription is a message, which no CLIENT REPLY silences.
            front.is_unwanted = false;
            if *missing > 1 {
                *missing -= 1;
                return passed;
            }
        }
        let Some(front) = self.unanswered.pop_front() else { return passed };
        if front.tells_of_writes && did_write(bytes) {
            self.wrote_elsewhere = false;
        }
        self.bars -= usize::from(front.bars);
        use ExpectedAnswer::{Auth, Greeting, Hello, Own, Reset};
        let is_stranger = front.expected == Greeting && reply.is_error();
        let may_be_told = matches!(front.expected, Auth | Hello(_) | Reset) && !reply.is_error();
        let is_own = front.expected == Own;
        if is_own {
            let is_refused = reply.is_error() && bytes.starts_with(b"-NOAUTH");
            self.log_in = if is_refused { LogIn::Missing } else { LogIn::Done };
        }
        let is_wanted = !front.is_of_the_port() && (reply.is_push() || !front.is_unwanted);
        self.queues(&front, reply);
        self.hears(&front, reply);
        self.answered(front.expected, reply);
        let is_undirected = may_be_told && !self.has_selected;
        Outcome { is_wanted, is_own, ends_hold: front.ends_hold, is_stranger, is_undirected }
    }

    /// Whether a reply answers nothing that was asked. Keeps count of subscriptions.
    fn is_message(&mut self, reply: Reply, bytes: &[u8]) -> bool {
        if self.is_monitor && reply.marker == b'+' && bytes.get(1).is_some_and(u8::is_ascii_digit) {
            return true;
        }
        let front = self.unanswered.front().map(|unanswered| &unanswered.expected);
        let confirms = matches!(front, Some(ExpectedAnswer::Subscription(_)));
        let may = reply.is_push()
            || (!self.is_resp3 && reply.marker == b'*' && (confirms || self.subscriptions.any()));
        if !may {
            return false;
        }
        match kind_of(bytes) {
            Some(b"message" | b"pmessage" | b"smessage") => true,
            Some(
                kind @ (b"subscribe" | b"psubscribe" | b"ssubscribe" | b"unsubscribe"
                | b"punsubscribe" | b"sunsubscribe"),
            ) => {
                if let Some(left) = last_number(bytes) {
                    self.subscriptions.confirmed(kind, left);
                }
                // Unasked where a channel moved away.
                !confirms
            }
            _ => reply.is_push(),
        }
    }

    /// Remembers what Redis has taken of what the client says of itself.
    fn hears(&mut self, command: &Unanswered, reply: Reply) {
        let bytes = command.kept.as_ref().map(|kept| &kept.bytes).filter(|_| !reply.is_error());
        match (&command.expected, bytes) {
            (ExpectedAnswer::Auth, Some(bytes)) => self.greeting.hears("auth", bytes),
            (ExpectedAnswer::Hello(_), Some(bytes)) => self.greeting.hears("hello", bytes),
            (ExpectedAnswer::Reset, Some(_)) => self.greeting.is_reset(),
            _ => {}
        }
    }

    /// Remembers what a transaction has queued, as long as that is little.
    fn queues(&mut self, command: &Unanswered, reply: Reply) {
        if command.expected == ExpectedAnswer::Multi && !reply.is_error() {
            self.queued = Some(vec![]);
        } else if self.in_multi.is_none() || reply.is_error() {
            return;
        }
        let Some(queued) = &mut self.queued else { return };
        let bytes = queued.iter().map(Bytes::len).sum::<usize>();
        match &command.kept {
            Some(kept) if bytes + kept.bytes.len() <= QUEUED_BYTES => {
                queued.push(kept.bytes.clone());
            }
            _ => self.queued = None,
        }
    }

    fn answered(&mut self, expected: ExpectedAnswer, reply: Reply) {
        let is_done = !reply.is_error();
        match expected {
            ExpectedAnswer::Blocking => self.blocking -= 1,
            ExpectedAnswer::Multi if is_done => self.in_multi = Some(HoldRequest::default()),
            // Whatever it was answered: refused, it ends the transaction, too.
            ExpectedAnswer::Exec => self.ends_multi(),
            ExpectedAnswer::Discard if is_done => self.ends_multi(),
            ExpectedAnswer::Watch if is_done => self.watches = true,
            ExpectedAnswer::Unwatch if is_done => self.watches = false,
            // Of who has not logged in Redis takes neither if that is needed.
            ExpectedAnswer::Auth if is_done => self.log_in = LogIn::Done,
            ExpectedAnswer::Hello(protocol) if is_done => {
                self.log_in = LogIn::Done;
                self.is_resp3 = protocol.map_or(self.is_resp3, |protocol| protocol == 3);
            }
            ExpectedAnswer::Select if is_done => self.has_selected = true,
            ExpectedAnswer::Monitor if is_done => self.is_monitor = true,
            ExpectedAnswer::Reset if is_done => {
                self.ends_multi();
                self.wants = Wants::All;
                self.is_tied = false;
                self.has_cache = false;
                self.has_selected = false;
                self.is_resp3 = false;
                self.is_monitor = false;
                self.subscriptions = Subscriptions::default();
                self.log_in = LogIn::Unknown;
            }
            _ => {}
        }
    }
}

impl Session {
    fn ends_multi(&mut self) {
        self.in_multi = None;
        self.queued_write = false;
        self.queued = None;
        self.watches = false;
    }
}

fn needs_hold(wanted: &HoldRequest) -> bool {
    (wanted.everything || !wanted.names.is_empty()) && !mutant(Mutant::NotHeld)
}

/// Whether the word there is this one, in whatever case.
fn is(words: Words<'_>, index: usize, word: &[u8]) -> bool {
    words.get(index).is_some_and(|found| found.eq_ignore_ascii_case(word))
}

/// What a transaction would make of the connection when it is carried out: nobody could tell then
/// how many answers are to come, or who asks.
fn changes_session(name: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "auth",
        "hello",
        "monitor",
        "replconf",
        "subscribe",
        "psubscribe",
        "ssubscribe",
        "unsubscribe",
        "punsubscribe",
        "sunsubscribe",
    ];
    KNOWN.contains(&name)
}

/// Whether Redis answers nothing to a REPLCONF: it looks at each second word until one of these is
/// for replicas.
fn has_no_answer(words: Words<'_>) -> bool {
    let known = [&b"ack"[..], b"getack", b"fack"];
    (1..words.len()).step_by(2).any(|index| known.iter().any(|known| is(words, index, known)))
}

/// Other modes are an error of Redis.
fn is_client_reply(words: Words<'_>) -> bool {
    let known = [&b"on"[..], b"off", b"skip"].iter().any(|mode| is(words, 2, mode));
    words.len() == 3 && is(words, 1, b"reply") && known
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
