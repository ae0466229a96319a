//! What one key must look like to clients whatever the network does: the specification that every
//! history of the model is compared with.

use stateright::semantics::SequentialSpec;

/// One key as a client sees it: a value or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(pub Option<u8>);

/// An operation. Every write of a model writes another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Reads.
    Read,
    /// Writes this value.
    Write(u8),
    /// Removes the key.
    Delete,
    /// Writes `to` if the key still has the version under which the client knew the value `from`;
    /// as a client's first operation, the value that the key begins with.
    CompareAndSet {
        /// The value expected.
        from: u8,
        /// The new value.
        to: u8,
    },
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Return {
    /// To a read.
    Value(Option<u8>),
    /// Written, or removed.
    Done,
    /// There was nothing to remove.
    NotFound,
    /// The version was another.
    Mismatch,
}

impl SequentialSpec for Register {
    type Op = Call;
    type Ret = Return;

    fn invoke(&mut self, call: &Call) -> Return {
        match *call {
            Call::Read => Return::Value(self.0),
            Call::Write(value) => {
                self.0 = Some(value);
                Return::Done
            }
            Call::Delete => match self.0.take() {
                Some(_) => Return::Done,
                None => Return::NotFound,
            },
            Call::CompareAndSet { from, to } if self.0 == Some(from) => {
                self.0 = Some(to);
                Return::Done
            }
            Call::CompareAndSet { .. } => Return::Mismatch,
        }
    }

    /// A mismatch is always allowed: versions rise when a store restarts, so a client may hold an
    /// old version of the value that is still there. It must have changed nothing.
    fn is_valid_step(&mut self, call: &Call, said: &Return) -> bool {
        matches!((call, said), (Call::CompareAndSet { .. }, Return::Mismatch))
            || self.invoke(call) == *said
    }
}
