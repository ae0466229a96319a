//! Whose turn it is, and for how long.
//!
//! Most clients ask for something and wait for the answer: theirs are short turns, and come first.
//! Whoever sends much at once, begins a command and does not end it, or does not read its answers
//! takes long turns. Those share what is left of a round, and while others are there only few of
//! their commands are with a server at a time: what waits there is in front of everybody.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::EventLoop;

/// Commands of one client that are taken in one turn.
const COMMANDS: usize = 32;
/// Likewise in a long one, beside others.
const COMMANDS_BESIDE: usize = 8;
/// For how long long turns go on in a round while there are no others.
const LONG: Duration = Duration::from_micros(500);
/// Likewise beside others.
const LONG_BESIDE: Duration = Duration::from_micros(50);
/// Commands of long turns that are with servers at a time, beside others.
const WITH_SERVERS: u32 = 32;
/// One turn more is taken after this time, however many are there.
const STARVED_AFTER: Duration = Duration::from_millis(1);
/// Others are taken to be there for so long after their last command.
const OTHERS_FOR: Duration = Duration::from_millis(10);

/// Clients that wait for a turn.
pub(super) struct Turns {
    /// For short ones.
    short: Vec<usize>,
    /// For long ones, in their order.
    long: VecDeque<usize>,
    /// Those who had a long turn beside others, and may wait for answers.
    answered_later: Vec<usize>,
    /// When there was a short turn last.
    short_at: Option<Instant>,
    /// When there was a long one last.
    long_at: Instant,
    /// What waits for a long turn waits for answers first.
    held_up: bool,
    /// How many commands the present turn has.
    pub commands: usize,
}

impl Turns {
    /// Nobody waits.
    pub fn new() -> Turns {
        Turns {
            short: vec![],
            long: VecDeque::new(),
            answered_later: vec![],
            short_at: None,
            long_at: Instant::now(),
            held_up: false,
            commands: COMMANDS,
        }
    }

    /// When the next round has to begin, if nothing happens before.
    pub fn next(&self) -> Option<Instant> {
        if !self.short.is_empty() {
            return Some(self.long_at);
        }
        let held_up = if self.held_up { STARVED_AFTER } else { Duration::ZERO };
        (!self.long.is_empty()).then(|| self.long_at + held_up)
    }
}

impl EventLoop {
    /// Has the client looked at once more at the end of this round, or in the next.
    pub(super) fn make_ready(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        if !std::mem::replace(&mut client.is_ready, true) {
            match client.is_slow(self.now) {
                true => self.turns.long.push_back(at),
                false => self.turns.short.push(at),
            }
        }
    }

    /// A client's turn is over, and there is more of it.
    pub(super) fn go_on_later(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        client.went_on_at = Some(self.now);
        if !std::mem::replace(&mut client.is_ready, true) {
            self.turns.long.push_back(at);
        }
    }

    /// Serves those whose turn is short, and then of the others as many as there is room for.
    pub(super) fn take_turns(&mut self) {
        self.turns.commands = COMMANDS;
        for at in std::mem::take(&mut self.turns.short) {
            self.turns.short_at = Some(self.now);
            self.take_turn(at);
        }
        let is_recent = |at| self.now.saturating_duration_since(at) < OTHERS_FOR;
        match self.turns.short_at.is_some_and(is_recent) {
            true => self.take_long_turns_beside_others(),
            false => self.take_long_turns(),
        }
    }

    fn take_turn(&mut self, at: usize) {
        if let Some(client) = self.clients.get_mut(at) {
            client.is_ready = false;
            self.serve(at);
        }
    }

    fn take_long_turns(&mut self) {
        self.turns.answered_later.clear();
        self.turns.held_up = false;
        let until = Instant::now() + LONG;
        while let Some(at) = self.turns.long.pop_front() {
            self.take_turn(at);
            if Instant::now() >= until {
                break;
            }
        }
    }

    fn take_long_turns_beside_others(&mut self) {
        let mut with_servers = 0;
        let clients = &self.clients;
        self.turns.answered_later.retain(|at| {
            let count = clients.get(*at).map_or(0, |client| client.before_others());
            with_servers += count;
            count > 0
        });
        self.turns.commands = COMMANDS_BESIDE;
        let now = Instant::now();
        let is_starved = now.saturating_duration_since(self.turns.long_at) >= STARVED_AFTER;
        let mut may = is_starved || with_servers < WITH_SERVERS;
        self.turns.held_up = !may;
        let until = now + LONG_BESIDE;
        while may && let Some(at) = self.turns.long.pop_front() {
            let before = self.clients.get(at).map_or(0, |client| client.before_others());
            self.take_turn(at);
            let after = self.clients.get(at).map_or(0, |client| client.before_others());
            with_servers += after.saturating_sub(before);
            if before == 0 && after > 0 {
                self.turns.answered_later.push(at);
            }
            self.turns.long_at = Instant::now();
            self.turns.held_up = with_servers >= WITH_SERVERS;
            may = !self.turns.held_up && self.turns.long_at < until;
        }
    }
}
