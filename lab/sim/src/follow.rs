//! How agents and stores keep a stream to the controller that leads: as `api::follow` does.

use std::time::Duration;

use api::Pauses;

use crate::ids::{ProcessId, StreamId};
use crate::process::Io;
use crate::streams::{Message, StreamEvent};

/// What became of something that happened on a stream.
pub enum FollowEvent {
    /// It begins: say hello.
    Began(StreamId),
    /// The controller said something.
    Message(Message),
    /// Nothing that matters, or the stream has ended.
    Nothing,
}

/// Where it stands.
#[derive(Clone, Copy, Debug)]
enum FollowState {
    /// Nobody is there to follow.
    Nowhere,
    /// Tried again at this time.
    Waiting(u64),
    /// Asked for.
    Opening(StreamId),
    /// There, since this time.
    Open(StreamId, u64),
}

/// A stream to one of several controllers, made again whenever it ends.
#[derive(Debug)]
pub struct Follower {
    controllers: Vec<ProcessId>,
    /// The one that is tried next.
    turn: usize,
    pauses: Pauses,
    at: FollowState,
}

impl Follower {
    /// Follows one of these, from the first wake on.
    pub fn new(controllers: Vec<ProcessId>) -> Follower {
        let at = match controllers.is_empty() {
            true => FollowState::Nowhere,
            false => FollowState::Waiting(0),
        };
        Follower { controllers, turn: 0, pauses: Pauses::default(), at }
    }

    /// The stream, while there is one.
    pub fn stream(&self) -> Option<StreamId> {
        match self.at {
            FollowState::Open(stream, _) => Some(stream),
            _ => None,
        }
    }

    /// When it has to be woken.
    pub fn next_wake_ns(&self) -> Option<u64> {
        match self.at {
            FollowState::Waiting(at_ns) => Some(at_ns),
            _ => None,
        }
    }

    /// Tries again, if it is time to.
    pub fn wake(&mut self, io: &mut Io<'_>) {
        if let FollowState::Waiting(at_ns) = self.at
            && at_ns <= io.now_ns()
        {
            let turn = self.turn % self.controllers.len();
            self.at = FollowState::Opening(io.open(self.controllers[turn]));
        }
    }

    /// Something happened on a stream.
    pub fn take(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) -> FollowEvent {
        match (self.at, event) {
            (FollowState::Opening(at), StreamEvent::Opened(_)) if at == stream => {
                self.at = FollowState::Open(stream, io.now_ns());
                FollowEvent::Began(stream)
            }
            (FollowState::Open(at, _), StreamEvent::Message(message)) if at == stream => {
                FollowEvent::Message(message)
            }
            (FollowState::Open(at, _) | FollowState::Opening(at), StreamEvent::Closed)
                if at == stream =>
            {
                if let FollowState::Open(_, since_ns) = self.at {
                    let lasted_ns = io.now_ns() - since_ns;
                    self.pauses.lasted(Duration::from_nanos(lasted_ns));
                }
                self.turn += 1;
                // Each one is tried once before the next pause.
                let pause_ns = match self.turn % self.controllers.len() {
                    0 => self.pauses.next_pause().as_nanos() as u64,
                    _ => 1,
                };
                self.at = FollowState::Waiting(io.now_ns() + pause_ns);
                FollowEvent::Nothing
            }
            _ => FollowEvent::Nothing,
        }
    }
}
