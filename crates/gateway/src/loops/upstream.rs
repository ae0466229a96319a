//! A connection to a Redis, or to a store's RESP port: what was asked by it, in order, and whose
//! the answers are.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use resp::ReplyScanner;

use super::{
    backlog::Backlog, publishing::OpenSubscription, server_facts::ServerFacts, speaker::Speaker,
    stream::Stream,
};
use crate::shared::GatewayState;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A client: its place and its number, which no later client at that place has; and which of
    /// its answers it is.
    Client { place: usize, number: u64, answer: u64 },
    /// A command of several stores, of which this is a part.
    Part { joint: usize, part: usize },
    /// A client of several own connections whose subscription a message confirms, as above.
    Subscription { place: usize, number: u64, answer: u64 },
    /// A job, by the number of its errand.
    Errand(usize),
    /// A client whose transaction begins: its place and number.
    Begin { place: usize, number: u64 },
    /// Nobody: it was said to make the connection ready.
    Nobody,
    /// Nobody: it was said to say something.
    Life,
    /// The connection itself, which sends nothing else before.
    Login,
    /// The gateway itself, which wants to know whether a user may read every key of a store, since
    /// this time on the clock of leases.
    Right { user: u32, store: usize, asked_ns: u64 },
    /// The gateway itself, which wants to know this, since then.
    Check { question: Question, asked_ns: u64 },
}

impl Waiter {
    /// Whether it is the gateway itself, which wants to know this.
    pub fn checks(&self, what: Question) -> bool {
        matches!(self, Waiter::Check { question, .. } if *question == what)
    }
}

/// What a server is asked about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Which server it is.
    Server,
    /// Whether it is a master.
    Role,
    /// Which commands it has.
    Commands,
    /// Whether it can be used at all.
    Use,
}

/// A command that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCommand {
    pub waiter: Waiter,
    /// Row of the table of commands.
    pub command: u16,
    pub asked: Instant,
    /// Whether it may have changed something when no answer comes.
    pub writes: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Until when it has to be there.
    Connecting(Instant),
    Up,
    /// It is tried again at the first command after this.
    Down(Instant),
}

/// What all who share a connection have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    /// Index of where it goes.
    pub target: usize,
    pub speaker: Speaker,
    /// Which of several that go there.
    pub lane: u8,
}

/// One connection.
pub(super) struct Upstream {
    pub kind: Kind,
    /// The one client whose it is: its place and number.
    pub owner: Option<(usize, u64)>,
    /// `None` while it is down.
    pub stream: Option<Stream>,
    pub phase: Phase,
    /// What waits until the user is let in.
    pub held: Option<Vec<u8>>,
    /// What it has not taken when a round was over.
    pub backlog: Backlog,
    pub pending: VecDeque<PendingCommand>,
    pub scanner: ReplyScanner,
    /// When something came last.
    pub heard: Instant,
    /// What the server has said of itself by this connection.
    pub known: ServerFacts,
    /// Everything that comes is the owner's, as it is.
    pub raw: bool,
    /// Its owner has subscribed to something by it, and does not know that yet.
    pub subscribing: Option<OpenSubscription>,
    /// Nothing more is said by it once all has left.
    pub ends: bool,
    /// What has come of a message for a client of several own connections.
    pub push: Vec<u8>,
    /// Whether it has something to send in this round.
    pub is_dirty: bool,
    /// Whether its user may not say anything just to say it.
    pub is_mute: bool,
    /// Whether its user was not let in by it.
    pub is_refused: bool,
}

impl Upstream {
    /// One that is not there yet, and can be tried at once.
    pub fn new(
        kind: Kind,
        owner: Option<(usize, u64)>,
        shared: &Arc<GatewayState>,
        now: Instant,
    ) -> Upstream {
        Upstream {
            kind,
            owner,
            stream: None,
            phase: Phase::Down(now),
            held: None,
            backlog: Backlog::new(shared.clone()),
            pending: VecDeque::new(),
            scanner: ReplyScanner::default(),
            heard: now,
            known: ServerFacts::default(),
            raw: false,
            subscribing: None,
            ends: false,
            push: vec![],
            is_dirty: false,
            is_mute: false,
            is_refused: false,
        }
    }

    /// Bytes that have not left for it.
    pub fn unsent(&self) -> usize {
        let held = self.held.as_ref().map_or(0, Vec::len);
        held + self.stream.as_ref().map_or(0, |stream| stream.waiting())
    }

    /// It is down, and not tried again before then. What was asked and not answered.
    pub fn goes_down(&mut self, until: Instant) -> VecDeque<PendingCommand> {
        self.stream = None;
        self.backlog.clear();
        self.scanner = ReplyScanner::default();
        self.phase = Phase::Down(until);
        std::mem::take(&mut self.pending)
    }

    /// What is to be said goes here; `None` while it is down.
    pub fn out(&mut self) -> Option<&mut Vec<u8>> {
        match (&mut self.stream, &mut self.held) {
            (Some(_), Some(held)) => Some(held),
            (Some(stream), None) => Some(stream.out()),
            (None, _) => None,
        }
    }
}
