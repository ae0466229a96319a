//! How agents and stores keep a stream to the controller that leads: as `api::follow` does.

use std::time::Duration;

use api::Pauses;

use crate::process::{Io, Message, ProcessId, StreamEvent, StreamId};

/// What became of something that happened on a stream.
pub enum Followed {
    /// It begins: say hello.
    Began(StreamId),
    /// The controller said something.
    Message(Message),
    /// Nothing that matters, or the stream has ended.
    Nothing,
}

/// Where it stands.
#[derive(Clone, Copy, Debug)]
enum At {
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
pub struct Following {
    controllers: Vec<ProcessId>,
    /// The one that is tried next.
    turn: usize,
    pauses: Pauses,
    at: At,
}

impl Following {
    /// Follows one of these, from the first wake on.
    pub fn new(controllers: Vec<ProcessId>) -> Following {
        let at = match controllers.is_empty() {
            true => At::Nowhere,
            false => At::Waiting(0),
        };
        Following {
            controllers,
            turn: 0,
            pauses: Pauses::default(),
            at,
        }
    }

    /// The stream, while there is one.
    pub fn stream(&self) -> Option<StreamId> {
        match self.at {
            At::Open(stream, _) => Some(stream),
            _ => None,
        }
    }

    /// When it has to be woken.
    pub fn next_wake_ns(&self) -> Option<u64> {
        match self.at {
            At::Waiting(at_ns) => Some(at_ns),
            _ => None,
        }
    }

    /// Tries again, if it is time to.
    pub fn wake(&mut self, io: &mut Io<'_>) {
        if let At::Waiting(at_ns) = self.at
            && at_ns <= io.now_ns()
        {
            let turn = self.turn % self.controllers.len();
            self.at = At::Opening(io.open(self.controllers[turn]));
        }
    }

    /// Something happened on a stream.
    pub fn take(&mut self, stream: StreamId, event: StreamEvent, io: &mut Io<'_>) -> Followed {
        match (self.at, event) {
            (At::Opening(at), StreamEvent::Opened(_)) if at == stream => {
                self.at = At::Open(stream, io.now_ns());
                Followed::Began(stream)
            }
            (At::Open(at, _), StreamEvent::Message(message)) if at == stream => {
                Followed::Message(message)
            }
            (At::Open(at, _) | At::Opening(at), StreamEvent::Closed) if at == stream => {
                if let At::Open(_, since_ns) = self.at {
                    let lasted_ns = io.now_ns() - since_ns;
                    self.pauses.lasted(Duration::from_nanos(lasted_ns));
                }
                self.turn += 1;
                // Each one is tried once before the next pause.
                let pause_ns = match self.turn % self.controllers.len() {
                    0 => self.pauses.next_pause().as_nanos() as u64,
                    _ => 1,
                };
                self.at = At::Waiting(io.now_ns() + pause_ns);
                Followed::Nothing
            }
            _ => Followed::Nothing,
        }
    }
}
