//! What a client has sent and nobody has taken yet.

use bytes::{Buf, BytesMut};
use memcached::{Front, Limits, Refusal, RequestParser};

use super::batch::Batch;
use crate::ports::shrink;

/// Bytes of commands that are taken from a client before earlier ones have been carried out.
const INPUT_BYTES: usize = 64 << 10;
/// The answer to a no-op, when everything before it is answered.
pub(super) const NO_OP: &str = "MN\r\n";
/// Room for one read.
const READ_BYTES: usize = 16 << 10;

/// What is to be done next.
pub(super) enum Next {
    /// These commands are to be carried out.
    Batch(Batch),
    /// The client is told this, and nothing is carried out.
    Answer(String),
    /// The client has said that it goes, or is sent away; before that it is told this.
    Close(String),
    /// There is no whole command.
    Nothing,
}

/// Bytes of a client, in the order in which they came.
#[derive(Default)]
pub(super) struct Input {
    pub bytes: BytesMut,
    parser: RequestParser,
    limits: Limits,
    /// What stands at the front, and was found behind commands that have been taken.
    refusal: Option<Refusal>,
}

impl Input {
    /// What is to be done next; it is taken off.
    pub fn next(&mut self) -> Next {
        let mut batch = Batch::default();
        while self.refusal.is_none() && !batch.is_full() {
            match self.parser.next(&self.bytes[batch.len()..], &self.limits) {
                Front::Partial => break,
                // What was refused before was at the front, and so is this.
                Front::Skipped(len) => self.bytes.advance(len),
                Front::Command(request) => {
                    if !batch.add(&request) {
                        break;
                    }
                }
                Front::NoOp(len) if batch.is_empty() => {
                    self.bytes.advance(len);
                    return Next::Answer(NO_OP.into());
                }
                Front::NoOp(len) => {
                    batch.has_no_op = true;
                    batch.bytes = self.bytes.split_to(batch.len());
                    self.bytes.advance(len);
                    return Next::Batch(batch);
                }
                Front::Quit(_) if batch.is_empty() => return Next::Close(String::new()),
                Front::Quit(_) => break,
                Front::Refused(refusal) => self.refusal = Some(refusal),
            }
        }
        if !batch.is_empty() {
            batch.bytes = self.bytes.split_to(batch.len());
            return Next::Batch(batch);
        }
        shrink(&mut self.bytes);
        match self.refusal.take() {
            Some(refusal) => self.refused(refusal),
            None => Next::Nothing,
        }
    }

    fn refused(&mut self, refusal: Refusal) -> Next {
        self.bytes.advance(refusal.len);
        let answer = match refusal.answer.is_empty() {
            true => String::new(),
            false => format!("{}\r\n", refusal.answer),
        };
        if refusal.closes { Next::Close(answer) } else { Next::Answer(answer) }
    }

    /// Whether more of what the client sends is of use: the command at the front may be a long one.
    pub fn has_room(&self) -> bool {
        self.bytes.len() < INPUT_BYTES.max(self.parser.wanted() + READ_BYTES)
    }

    /// Room for the next read.
    pub fn reserve(&mut self) {
        self.bytes.reserve(READ_BYTES);
    }
}
