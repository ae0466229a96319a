//! How agents and stores keep a stream to the controller that leads: as `api::follow` does, with its pauses.

use crate::process::{Io, Message, ProcessId, StreamEvent, StreamId};

const RETRY_FIRST_NS: u64 = 100_000_000;
const RETRY_MOST_NS: u64 = 1_000_000_000;

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
    /// There.
    Open(StreamId),
}

/// A stream to one of several controllers, made again whenever it ends.
#[derive(Debug)]
pub struct Following {
    controllers: Vec<ProcessId>,
    /// The one that is tried next.
    turn: usize,
    pause_ns: u64,
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
            pause_ns: RETRY_FIRST_NS,
            at,
        }
    }

    /// The stream, while there is one.
    pub fn stream(&self) -> Option<StreamId> {
        match self.at {
            At::Open(stream) => Some(stream),
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
                self.at = At::Open(stream);
                self.pause_ns = RETRY_FIRST_NS;
                Followed::Began(stream)
            }
            (At::Open(at), StreamEvent::Message(message)) if at == stream => {
                Followed::Message(message)
            }
            (At::Open(at) | At::Opening(at), StreamEvent::Closed) if at == stream => {
                self.turn += 1;
                // Each one is tried once before the next pause.
                let pause_ns = match self.turn % self.controllers.len() {
                    0 => self.pause_ns,
                    _ => 1,
                };
                self.at = At::Waiting(io.now_ns() + pause_ns);
                if pause_ns > 1 {
                    self.pause_ns = (self.pause_ns * 2).min(RETRY_MOST_NS);
                }
                Followed::Nothing
            }
            _ => Followed::Nothing,
        }
    }
}
