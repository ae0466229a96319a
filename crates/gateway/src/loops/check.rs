//! What the gateway asks servers about themselves: what commands they have, and whether the Redis
//! that reads go to directly is the one behind the store, and still its master.
//!
//! Both are asked for their run ids at each connection, and again while the Redis is read from: the
//! store for that of its Redis, and the Redis for its role. Where it is another one, or was made a
//! replica, or did not say so for a while, reads go to the store, which knows. A store is asked for
//! its commands before the first command of a client goes anywhere, and again when there is another
//! Redis behind it; all stores are taken to have the same. One that does not tell is not asked
//! again before the others.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use client::kit;
use resp::CommandTable;

use super::{
    EventLoop, StoreState,
    client::Way,
    commands::Commands,
    speaker::{NOBODY, Speaker},
    upstream::{Kind, PendingCommand, Question, Waiter},
    upstreams::direct_lane,
    validity::Validity,
    words::encode,
};
use crate::shared::ToldCommands;

/// What a Redis said of its role, and a store of its Redis, counts from when it was asked. A store
/// that follows its master has nothing written at the next one before that is over, so what is
/// asked directly until then is asked before.
pub(super) const ROLE: Validity = Validity {
    holds_ns: resp::MASTER_HOLDS.as_nanos() as u64,
    asked_every_ns: resp::MASTER_HOLDS.as_nanos() as u64 / 2,
};
/// A server that does not say what commands it has is asked again after this.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl EventLoop {
    /// By which way commands go that touch no copy of a store's keys, and that no switch answers,
    /// of a client who speaks so.
    pub(super) fn direct_way(&mut self, store: usize, speaker: Speaker, writes: bool) -> Way {
        self.users.count_read(speaker.user);
        let Some(direct) = self.stores[store].direct else { return Way::Store };
        if !self.users.is_asked_for(speaker.user) {
            return Way::Store;
        }
        let at = self.common(direct, speaker, direct_lane(writes));
        self.revive(at);
        // That of the round's beginning is too early: the machine may have been suspended since,
        // and the client have asked after that.
        let now_ns = kit::now_ns();
        let is_due = |asked_ns| ROLE.is_due(asked_ns, now_ns);
        let holds = |asked_ns| ROLE.holds(asked_ns, now_ns);
        // The store may have followed its master to another Redis, and this one does not know.
        if is_due(self.stores[store].run_id_asked) {
            let at = self.common(store, speaker, 0);
            self.revive(at);
            if is_due(self.upstreams[at].known.asked) {
                self.ask_about(at, Question::Server);
            }
        }
        let known = &self.upstreams[at].known;
        let StoreState { run_id, run_id_asked, .. } = &self.stores[store];
        let is_store_s = known.run_id.is_some() && known.run_id == *run_id && holds(*run_id_asked);
        let is_direct = is_store_s && holds(known.master);
        if is_due(known.master) && is_due(known.asked) {
            self.ask_about(at, Question::Role);
        }
        if is_direct { Way::Direct } else { Way::Store }
    }

    /// What a connection that clients share is asked when it is new.
    pub(super) fn greet(&mut self, at: usize) {
        if self.jobs.is_some() {
            return self.ask_about(at, Question::Use);
        }
        let user = self.upstreams[at].kind.speaker.user;
        let is_told = self.takes_commands();
        if self.users.is_asked_for(user) || !is_told {
            self.ask_about(at, Question::Server);
        }
        match self.upstreams[at].kind.target {
            target if self.is_direct(target) => self.ask_about(at, Question::Role),
            store if store == self.commands_store && !is_told => {
                self.ask_about(at, Question::Commands);
            }
            _ => {}
        }
    }

    /// Whether the Redis behind the first store carries out nothing for a client before it logs in,
    /// as far as is known: it was asked at the connection by which such clients' commands go. Where
    /// it said so it is asked again, since it may not be so any more.
    pub(super) fn has_to_log_in(&mut self, at: usize) -> bool {
        let speaker = self.clients[at].speaker();
        let has_to = speaker.user == NOBODY && self.shared.asks_login.load(Relaxed);
        if has_to {
            let store = self.common(0, speaker, 0);
            self.revive(store);
            self.ask_about(store, Question::Server);
        }
        has_to
    }

    /// Whether it is known what commands there are: to this loop by now, if another was told.
    fn takes_commands(&mut self) -> bool {
        if !self.commands.are_known()
            && let Some(told) = self.shared.told_commands()
        {
            self.are_told(told);
        }
        self.commands.are_known()
    }

    /// A server has told what commands there are, here or in another loop.
    fn are_told(&mut self, told: ToldCommands) {
        self.commands = Commands::new(told.table, &self.shared.stats);
        (self.commands_store, self.commands_of) = (told.store, told.of);
    }

    /// Whether it will be known in a moment what commands there are. Without it nobody could tell
    /// which of them wait for others, and which keys they name.
    pub(super) fn awaits_commands(&mut self, speaker: Speaker) -> bool {
        if self.takes_commands() {
            return false;
        }
        let failed = self.commands_failed.filter(|(_, who)| *who == speaker);
        if failed.is_some_and(|(at, _)| self.now < at + ASKED_AGAIN_AFTER) {
            return false;
        }
        let at = self.common(self.commands_store, speaker, 0);
        self.revive(at);
        let upstream = &self.upstreams[at];
        if upstream.stream.is_none() {
            if self.stores.len() > 1 {
                self.commands_untold(speaker);
            }
            return false;
        }
        if !upstream.pending.iter().any(|pending| pending.waiter.checks(Question::Commands)) {
            self.ask_about(at, Question::Commands);
        }
        true
    }

    /// Those who waited to know what commands there are go on without: somebody who speaks so is
    /// not told.
    pub(super) fn commands_untold(&mut self, speaker: Speaker) {
        self.commands_failed = Some((self.now, speaker));
        if !self.commands.are_known() {
            self.commands_store = (self.commands_store + 1) % self.stores.len().max(1);
        }
        self.wake_awaiting();
    }

    fn wake_awaiting(&mut self) {
        for at in std::mem::take(&mut self.awaiting) {
            self.make_ready(at);
        }
    }

    fn ask_about(&mut self, at: usize, question: Question) {
        let upstream = &mut self.upstreams[at];
        let known = &mut upstream.known;
        let words: &[&[u8]] = match question {
            Question::Server => &[b"INFO", b"server"],
            Question::Role => &[b"INFO", b"replication"],
            Question::Commands => &[b"COMMAND"],
            Question::Use => &[b"PING"],
        };
        if question != Question::Commands {
            known.asked = Some(self.now_ns);
        }
        let Some(out) = upstream.out() else { return };
        encode(words, out);
        let waiter = Waiter::Check { question, asked_ns: self.now_ns };
        let pending = PendingCommand { waiter, command: 0, asked: self.now, writes: false };
        upstream.pending.push_back(pending);
        self.touch_upstream(at);
    }

    /// A part of what a server says of itself.
    pub(super) fn hear(
        &mut self,
        at: usize,
        question: Question,
        asked_ns: u64,
        piece: &[u8],
        ended: bool,
    ) {
        let known = &mut self.upstreams[at].known;
        known.heard.extend_from_slice(piece);
        if !ended {
            return;
        }
        let heard = std::mem::take(&mut known.heard);
        match question {
            Question::Commands => self.hear_commands(at, &heard),
            Question::Server => self.hear_run_id(at, asked_ns, &heard),
            Question::Role => self.hear_role(at, asked_ns, &heard),
            Question::Use => self.hear_use(at, &heard),
        }
    }

    /// Whether one of the Redis servers behind the stores can be used.
    fn hear_use(&mut self, at: usize, heard: &[u8]) {
        let upstream = &mut self.upstreams[at];
        let refusal = heard.strip_prefix(b"-");
        let refusal = refusal.map(|line| String::from_utf8_lossy(line).trim_end().to_string());
        upstream.known.refusal = refusal.clone();
        let target = upstream.kind.target;
        let jobs = self.jobs.as_mut();
        if !jobs.is_some_and(|jobs| jobs.is_news(target, refusal.is_some())) {
            return;
        }
        let name = &self.targets[target].name;
        match refusal {
            None => tracing::info!("{name}: it answers again"),
            Some(line) => {
                let hint = match line.starts_with("NOAUTH") {
                    true => "; name a file with its password: --backend-password-file",
                    false => "",
                };
                tracing::warn!("{name}: it answers {line:?}{hint}");
            }
        }
    }

    fn hear_commands(&mut self, at: usize, heard: &[u8]) {
        match CommandTable::parse(heard) {
            Ok(table) => {
                let store = self.upstreams[at].kind.target;
                let of = self.stores[store].run_id.clone();
                let told = ToldCommands { store, of, table: Arc::new(table) };
                self.shared.tell_commands(told.clone());
                self.are_told(told);
                self.wake_awaiting();
            }
            Err(error) => {
                let name = &self.targets[self.upstreams[at].kind.target].name;
                tracing::warn!("{name}: {error}");
                self.commands_untold(self.upstreams[at].kind.speaker);
            }
        }
    }

    fn hear_run_id(&mut self, at: usize, asked_ns: u64, heard: &[u8]) {
        let Kind { target, speaker, .. } = &self.upstreams[at].kind;
        let is_refused = heard.starts_with(b"-NOAUTH ");
        // Other errors, as of a store without its Redis, say nothing of that.
        if (*target, speaker.user) == (0, NOBODY) && (is_refused || !heard.starts_with(b"-")) {
            self.shared.asks_login.store(is_refused, Relaxed);
        }
        let Some(run_id) = field(heard, "run_id") else { return };
        let upstream = &mut self.upstreams[at];
        let target = upstream.kind.target;
        if target >= self.stores.len() {
            upstream.known.run_id = Some(run_id);
            return;
        }
        let is_new = self.commands_of.as_ref().is_some_and(|of| *of != run_id);
        let store = &mut self.stores[target];
        (store.run_id, store.run_id_asked) = (Some(run_id), Some(asked_ns));
        if is_new && target == self.commands_store {
            self.ask_about(at, Question::Commands);
        }
    }

    fn hear_role(&mut self, at: usize, asked_ns: u64, heard: &[u8]) {
        let upstream = &mut self.upstreams[at];
        let (target, known) = (upstream.kind.target, &mut upstream.known);
        let Some(role) = field(heard, "role") else { return };
        known.master = (role == "master").then_some(asked_ns);
        let store = self.stores.iter_mut().find(|store| store.direct == Some(target));
        let Some(store) = store else { return };
        let is_another = store.run_id.is_some() && known.run_id != store.run_id;
        let refused = is_another || role != "master";
        if std::mem::replace(&mut store.said_other, refused) != refused && refused {
            let what = if is_another { "not the Redis behind the store" } else { "a replica" };
            let name = &self.targets[target].name;
            tracing::warn!("{name}: it is {what}: reads go to the store");
        }
    }
}

/// A field of what INFO says.
fn field(info: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(info);
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::to_string))
}
