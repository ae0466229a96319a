//! Commands that go to memcached together, under one hold if they need one.

use bytes::BytesMut;
use memcached::{Class, NO_OP_ANSWER, Request};

use crate::engine::HoldRequest;
use holder::mutants::{Mutant, mutant};

/// Commands and bytes that go together.
const COMMANDS: usize = 256;
const BYTES: usize = 256 << 10;

/// Commands in the order in which they came.
#[derive(Default)]
pub(super) struct Batch {
    /// As the client has sent them.
    pub bytes: BytesMut,
    /// What they are to have for themselves.
    pub wanted: HoldRequest,
    /// Keys whose values may live for another time and be the same, by their names.
    pub touched: Vec<Vec<u8>>,
    /// Behind them the client has sent a no-op.
    pub has_no_op: bool,
    /// They may change something.
    pub writes: bool,
    len: usize,
    count: usize,
    /// Those to which the client wants an answer.
    answered: usize,
}

impl Batch {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes they have.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they need a hold.
    pub fn needs_hold(&self) -> bool {
        (self.wanted.everything || !self.wanted.names.is_empty()) && !mutant(Mutant::NotHeld)
    }

    /// One more. False: it is not one of these, for they wait for nobody, and it does.
    pub fn add(&mut self, request: &Request<'_>) -> bool {
        let changes = request.class != Class::Read;
        if changes && !self.writes && !self.is_empty() {
            return false;
        }
        self.writes |= changes;
        self.wanted.everything |= request.class == Class::Everything;
        let names = request.changed.iter().map(|name| name.to_vec());
        self.wanted.names.extend(names.clone());
        if request.may_touch {
            self.touched.extend(names);
        }
        self.len += request.len;
        self.count += 1;
        self.answered += usize::from(!request.is_silent);
        true
    }

    /// Whether no other may join them.
    pub fn is_full(&self) -> bool {
        self.wanted.everything || self.count >= COMMANDS || self.len >= BYTES
    }

    /// What the client is told when none of them was sent, for this reason.
    pub fn refusal(&self, why: &str) -> String {
        let mut lines = format!("SERVER_ERROR nothing was done: {why}\r\n").repeat(self.answered);
        if self.has_no_op {
            lines.push_str(NO_OP_ANSWER);
        }
        lines
    }
}
