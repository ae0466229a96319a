//! Whose turn it is, and for how long.
//!
//! Most clients ask for something and wait for the answer: theirs are short turns, and come first.
//! Whoever sends much at once has long turns, which share what is left of a round. Whoever begins a
//! command and does not end it, or has not been seen to read what it asked for, comes last. While
//! others are there, only so many commands of long turns are with servers at a time: what waits
//! there is in front of everybody.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::EventLoop;

/// Commands of one client that are taken in one turn.
const COMMANDS: usize = 32;
/// For how long turns that are not short go on in a round while there are no others.
const ALONE: Duration = Duration::from_micros(500);
/// Turns that are held up come after this time, however many commands are with servers.
const STARVED_AFTER: Duration = Duration::from_millis(1);
/// Others are taken to be there for so long after their last command.
const OTHERS_FOR: Duration = Duration::from_millis(10);

/// The kinds of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Short,
    Long,
    Last,
}

/// Clients that wait for turns of one kind, in their order.
struct Queue {
    waiting: VecDeque<usize>,
    /// Those who had a turn beside others, and may wait for answers.
    unanswered: Vec<usize>,
    /// When there was a turn last.
    at: Instant,
    /// Answers are waited for first.
    is_held_up: bool,
    beside: TurnBounds,
}

/// What bounds turns that are not short while there are others.
#[derive(Clone, Copy)]
struct TurnBounds {
    /// Commands that are with servers at a time.
    with_servers: u32,
    /// Commands of one turn.
    commands: usize,
    /// For how long turns go on in a round.
    time: Duration,
}

/// Of those who were seen to read.
const LONG: TurnBounds =
    TurnBounds { with_servers: 256, commands: COMMANDS, time: Duration::from_micros(100) };
const LAST: TurnBounds =
    TurnBounds { with_servers: 16, commands: 8, time: Duration::from_micros(20) };

impl Queue {
    fn new(beside: TurnBounds) -> Queue {
        let at = Instant::now();
        Queue { waiting: VecDeque::new(), unanswered: vec![], at, is_held_up: false, beside }
    }

    fn next(&self) -> Option<Instant> {
        let held_up = if self.is_held_up { STARVED_AFTER } else { Duration::ZERO };
        (!self.waiting.is_empty()).then(|| self.at + held_up)
    }
}

/// Clients that wait for a turn.
pub(super) struct Turns {
    short: Vec<usize>,
    long: Queue,
    last: Queue,
    /// When there was a short turn last.
    short_at: Option<Instant>,
    /// How many commands the present turn has.
    pub commands: usize,
}

impl Turns {
    /// Nobody waits.
    pub fn new() -> Turns {
        Turns {
            short: vec![],
            long: Queue::new(LONG),
            last: Queue::new(LAST),
            short_at: None,
            commands: COMMANDS,
        }
    }

    /// When the next round has to begin, if nothing happens before.
    pub fn next(&self) -> Option<Instant> {
        if !self.short.is_empty() {
            return Some(self.last.at);
        }
        self.long.next().into_iter().chain(self.last.next()).min()
    }

    fn queue(&mut self, turn: Turn) -> &mut Queue {
        if turn == Turn::Long { &mut self.long } else { &mut self.last }
    }
}

impl EventLoop {
    /// Has the client looked at once more at the end of this round, or in the next.
    pub(super) fn make_ready(&mut self, at: usize) {
        let Some(client) = self.clients.get_mut(at) else { return };
        if !std::mem::replace(&mut client.is_ready, true) {
            match client.turn(self.now) {
                Turn::Short => self.turns.short.push(at),
                turn => self.turns.queue(turn).waiting.push_back(at),
            }
        }
    }

    /// A client's turn is over, and there is more of it.
    pub(super) fn go_on_later(&mut self, at: usize) {
        if let Some(client) = self.clients.get_mut(at) {
            client.went_on_at = Some(self.now);
            self.make_ready(at);
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
        let beside_others = self.turns.short_at.is_some_and(is_recent);
        for turn in [Turn::Long, Turn::Last] {
            match beside_others {
                true => self.take_turns_beside_others(turn),
                false => self.take_turns_alone(turn),
            }
        }
    }

    fn take_turn(&mut self, at: usize) {
        if let Some(client) = self.clients.get_mut(at) {
            client.is_ready = false;
            self.serve(at);
            self.relieve(at);
        }
    }

    fn take_turns_alone(&mut self, turn: Turn) {
        let queue = self.turns.queue(turn);
        queue.unanswered.clear();
        queue.is_held_up = false;
        let until = Instant::now() + ALONE;
        while let Some(at) = self.turns.queue(turn).waiting.pop_front() {
            self.take_turn(at);
            if Instant::now() >= until {
                break;
            }
        }
    }

    fn take_turns_beside_others(&mut self, turn: Turn) {
        let with_servers_of = |event_loop: &EventLoop, at: usize| {
            event_loop.clients.get(at).map_or(0, |client| client.before_others())
        };
        let mut unanswered = std::mem::take(&mut self.turns.queue(turn).unanswered);
        let mut with_servers = 0;
        unanswered.retain(|at| {
            let count = with_servers_of(self, *at);
            with_servers += count;
            count > 0
        });
        let now = Instant::now();
        let queue = self.turns.queue(turn);
        let TurnBounds { with_servers: most, commands, time } = queue.beside;
        let mut is_due = now.saturating_duration_since(queue.at) >= STARVED_AFTER;
        self.turns.commands = commands;
        while (with_servers < most || is_due)
            && let Some(at) = self.turns.queue(turn).waiting.pop_front()
        {
            let before = with_servers_of(self, at);
            self.take_turn(at);
            let after = with_servers_of(self, at);
            with_servers += after.saturating_sub(before);
            if before == 0 && after > 0 {
                unanswered.push(at);
            }
            is_due = false;
            let queue = self.turns.queue(turn);
            queue.at = Instant::now();
            if queue.at >= now + time {
                break;
            }
        }
        let queue = self.turns.queue(turn);
        queue.is_held_up = with_servers >= most;
        queue.unanswered = unanswered;
    }
}
