//! A trace that is played: whose turn it is.

use super::{Trace, TraceRequest};

/// Where in its trace a source is.
pub(crate) struct Player {
    trace: Trace,
    at: usize,
}

impl Player {
    /// From its beginning. A trace has one request at least.
    pub fn new(trace: Trace) -> Player {
        Player { trace, at: 0 }
    }

    /// How many keys it asks for.
    pub fn keys(&self) -> usize {
        self.trace.keys()
    }

    /// The length of a key's value before anything is played, in bytes; none: it asks for no such
    /// key.
    pub fn value_len(&self, key: u32) -> Option<usize> {
        self.trace.lengths.get(key as usize).map(|len| usize::from(*len))
    }

    /// The next request: after the last comes the first.
    pub fn next(&mut self) -> TraceRequest {
        let request = self.trace.requests[self.at];
        self.at = (self.at + 1) % self.trace.requests.len();
        request
    }
}
