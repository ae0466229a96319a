//! Users of Redis: who has logged in with the same words shares connections that have.
//!
//! Redis decides each time: what a client says of itself is asked by a connection of that user, and
//! such a connection sends nothing before Redis has let it in. When Redis ends one, it is made
//! anew at once. If Redis does not let it in any more, all who are logged in by those words are
//! sent away, as Redis sends them away whose user it deletes.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use resp::Words;
use slab::Slab;

use super::{EventLoop, speaker::NOBODY, upstream::Upstream};

/// Longer names and passwords are not remembered: who says them has a connection of his own.
const LONGEST_WORD: usize = 512;
/// For so long connections are kept of a user who has no client.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Of so many of them at most: one who says another password each time, where any will do, would
/// take all connections that Redis has.
const IDLE_MOST: usize = 64;
/// Reads of a user that all go to the store.
const FEW_READS: u32 = 32;
/// A connection that Redis refuses for another reason than its user, or that the Redis of
/// `--backend` refuses, is tried again so much later.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// What somebody says to log in: the password, or the user's name and the password.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login(Box<[Box<[u8]>]>);

impl Login {
    /// From so many words of a command, from this one on. `None`: they are not there, or longer
    /// than what is remembered.
    pub fn of(words: Words<'_>, from: usize, count: usize) -> Option<Login> {
        let short = |at| words.get(at).filter(|word| word.len() <= LONGEST_WORD);
        let words: Option<Box<[Box<[u8]>]>> =
            (from..from + count).map(|at| short(at).map(Box::from)).collect();
        Some(Login(words?))
    }

    /// The command that says it.
    pub fn command(&self) -> Vec<&[u8]> {
        [&b"AUTH"[..]].into_iter().chain(self.0.iter().map(|word| &**word)).collect()
    }
}

/// What Redis says to somebody who is not who he says.
const NOT_LET_IN: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// One of them.
#[derive(Default)]
pub(super) struct User {
    login: Option<Login>,
    /// Clients that are logged in so, or have asked for it.
    clients: u32,
    /// The connections that its clients share.
    pub upstreams: Vec<usize>,
    /// What it may read, by store.
    reads: Vec<ReadRight>,
    /// Reads of its clients so far, up to [`FEW_READS`].
    read: u32,
}

impl User {
    /// What it may read of a store.
    pub fn reads(&mut self, store: usize) -> &mut ReadRight {
        if self.reads.len() <= store {
            self.reads.resize_with(store + 1, ReadRight::default);
        }
        &mut self.reads[store]
    }
}

/// Whether a user may read every key of a store. Times are on the clock of leases.
#[derive(Default)]
pub(super) struct ReadRight {
    /// If it may: when Redis was asked that has said so last.
    pub granted: Option<u64>,
    /// When it was asked last.
    pub asked: Option<u64>,
}

/// All who are logged in at a loop.
pub(super) struct Users {
    all: Slab<User>,
    by_login: HashMap<Login, u32>,
    /// Those who had no client any more: when to look whether that is so still.
    idle: VecDeque<(Instant, u32)>,
}

impl Users {
    /// Nobody.
    pub fn new() -> Users {
        let mut all = Slab::new();
        all.insert(User { clients: 1, ..User::default() });
        Users { all, by_login: HashMap::new(), idle: VecDeque::new() }
    }

    /// The user who says this, with one more client.
    pub fn enter(&mut self, login: Login) -> u32 {
        let Users { all, by_login, .. } = self;
        let user = *by_login.entry_ref(&login).or_insert_with(|| {
            all.insert(User { login: Some(login.clone()), ..User::default() }) as u32
        });
        all[user as usize].clients += 1;
        user
    }

    /// One client less.
    pub fn leave(&mut self, user: u32, now: Instant) {
        if user == NOBODY {
            return;
        }
        let Some(left) = self.all.get_mut(user as usize) else { return };
        left.clients -= 1;
        if left.clients == 0 {
            self.idle.push_back((now + KEPT_FOR, user));
        }
    }

    pub fn get(&mut self, user: u32) -> &mut User {
        &mut self.all[user as usize]
    }

    /// Whether the gateway asks in this user's name what a server is, and what the user may. Of
    /// whoever may not ask that Redis makes a note (ACL LOG), so nobody is asked for few reads.
    pub fn is_asked_for(&self, user: u32) -> bool {
        let known = self.all.get(user as usize);
        user == NOBODY || known.is_some_and(|user| user.read >= FEW_READS)
    }

    /// Whether somebody is logged in so; of all who have not logged in nobody keeps count.
    pub fn have_clients(&self, user: u32) -> bool {
        user != NOBODY && self.all.get(user as usize).is_some_and(|user| user.clients > 0)
    }

    /// One read more.
    pub fn count_read(&mut self, user: u32) {
        let user = &mut self.all[user as usize];
        user.read = FEW_READS.min(user.read + 1);
    }

    /// What a new connection of this user says first.
    pub fn login(&self, user: u32) -> Option<&Login> {
        self.all.get(user as usize)?.login.as_ref()
    }

    /// When somebody has to be looked at.
    pub fn next_timer(&self) -> Option<Instant> {
        self.idle.front().map(|(at, _)| *at)
    }
}

impl EventLoop {
    /// Ends the connections of users who have had no client for a while.
    pub(super) fn expire_users(&mut self) {
        for _ in 0..self.users.idle.len() {
            let Some((at, user)) = self.users.idle.front().copied() else { return };
            if self.now < at && self.users.idle.len() <= IDLE_MOST {
                return;
            }
            self.users.idle.pop_front();
            let Some(idle) = self.users.all.get(user as usize) else { continue };
            if idle.clients > 0 {
                continue;
            }
            // What was sent and not answered is carried out still, as for a client who goes.
            let under_way = |at: &usize| {
                self.upstreams.get(*at).is_some_and(|upstream| !upstream.pending.is_empty())
            };
            if idle.upstreams.iter().any(under_way) {
                self.users.idle.push_back((self.now + KEPT_FOR, user));
                continue;
            }
            self.forget(user);
        }
    }

    /// Ends the connections of a user who has no client.
    fn forget(&mut self, user: u32) {
        let Some(gone) = self.users.all.try_remove(user as usize) else { return };
        if let Some(login) = &gone.login {
            self.users.by_login.remove(login);
        }
        for upstream in gone.upstreams {
            if let Some(upstream) = self.upstreams.try_remove(upstream) {
                self.common.remove(&upstream.kind);
            }
        }
    }

    /// A client is from now on whom it has said to be.
    pub(super) fn become_user(&mut self, place: usize, user: u32) {
        let Some(client) = self.clients.get_mut(place) else { return };
        let before = std::mem::replace(&mut client.user, user);
        self.users.leave(before, self.now);
    }

    /// A connection of a user is let in: what waited for that leaves.
    pub(super) fn let_in(&mut self, at: usize) {
        let Some(upstream) = self.upstreams.get_mut(at) else { return };
        upstream.is_refused = false;
        let Some(held) = upstream.held.take() else { return };
        if let Some(stream) = &mut upstream.stream {
            stream.out().extend_from_slice(&held);
        }
        self.touch_upstream(at);
    }

    /// A connection that a user's clients share is lost. When none is left they are sent away, as
    /// Redis would have closed their own: it was told to (CLIENT KILL), or the user is no more. One
    /// of several may have been idle for too long.
    pub(super) fn shared_connection_lost(&mut self, user: u32) {
        let is_there = |at: &usize| self.upstreams.get(*at).is_some_and(|at| at.stream.is_some());
        if !self.users.get(user).upstreams.iter().any(is_there) {
            self.send_away(user);
        }
    }

    fn send_away(&mut self, user: u32) {
        let of_user = self.clients.iter().filter(|(_, client)| client.user == user);
        for place in of_user.map(|(place, _)| place).collect::<Vec<_>>() {
            self.clients[place].closing = true;
            self.touch_client(place);
        }
    }

    /// Another connection of a user by which he is let in, where this one was not: whatever his
    /// password is now, Redis has him logged in by it.
    pub(super) fn let_in_beside(&self, at: usize) -> Option<usize> {
        let Upstream { kind, is_refused: true, .. } = &self.upstreams[at] else { return None };
        let is_such = |other: &&usize| {
            self.upstreams.get(**other).is_some_and(|other| {
                let is_let_in = other.stream.is_some() && other.held.is_none();
                let is_of = other.kind.target == kind.target && other.kind.speaker == kind.speaker;
                is_let_in && is_of
            })
        };
        self.users.all.get(kind.speaker.user as usize)?.upstreams.iter().find(is_such).copied()
    }

    /// What waited at a connection that was not let in goes by another.
    fn goes_beside(&mut self, at: usize, other: usize) {
        let upstream = &mut self.upstreams[at];
        let held = upstream.held.take().unwrap_or_default();
        let pending = upstream.goes_down(self.now + REFUSED_FOR);
        let other_upstream = &mut self.upstreams[other];
        if let Some(out) = other_upstream.out() {
            out.extend_from_slice(&held);
        }
        other_upstream.pending.extend(pending);
        self.touch_upstream(other);
    }

    /// A connection of a user is not let in. If he is by another, what waits goes by that.
    /// Otherwise who waits hears what Redis says; all who are logged in so are sent away.
    pub(super) fn not_let_in(&mut self, at: usize, said: &[u8]) {
        let upstream = &mut self.upstreams[at];
        upstream.is_refused = upstream.owner.is_none();
        if let Some(other) = self.let_in_beside(at) {
            return self.goes_beside(at, other);
        }
        let upstream = &mut self.upstreams[at];
        let speaker = upstream.kind.speaker;
        let user = speaker.user;
        let said = match said.first() {
            Some(b'-') => String::from_utf8_lossy(said).into_owned(),
            // Its beginning came before.
            _ => NOT_LET_IN.into(),
        };
        let is_full = said.starts_with("-ERR max number of clients");
        // The store's Redis is the one whose word counts.
        let counts = upstream.kind.target < self.stores.len() && !is_full;
        upstream.held = None;
        let until = if counts { self.now } else { self.now + REFUSED_FOR };
        for pending in upstream.goes_down(until) {
            self.refuse(pending, &said);
        }
        self.commands_untold(speaker);
        if !counts {
            return;
        }
        self.send_away(user);
        // Of somebody who was never let in nothing is kept.
        if self.users.get(user).clients == 0 {
            self.forget(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_say_the_same_are_one_user() {
        let login =
            |words: &[&str]| Login(words.iter().map(|word| Box::from(word.as_bytes())).collect());
        let mut users = Users::new();
        let one = users.enter(login(&["ada", "secret"]));
        assert_eq!(users.enter(login(&["ada", "secret"])), one);
        let other = users.enter(login(&["ada", "other"]));
        let named = users.enter(login(&["secret"]));
        assert!(one != other && one != named && other != named && one != NOBODY);
        let now = Instant::now();
        users.leave(one, now);
        assert!(users.next_timer().is_none());
        users.leave(one, now);
        assert_eq!(users.next_timer(), Some(now + KEPT_FOR));
    }
}
