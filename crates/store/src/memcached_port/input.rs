//! What a client has sent and nobody has taken yet.

use bytes::{Buf, BytesMut};
use memcached::{Front, Limits, NO_OP_ANSWER, PORT_ANSWER, Refusal, RequestParser};

use super::batch::Batch;
use crate::ports::shrink;

/// Bytes of commands that are taken from a client before earlier ones have been carried out.
const INPUT_BYTES: usize = 64 << 10;
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
                    return Next::Answer(NO_OP_ANSWER.into());
                }
                Front::NoOp(len) => {
                    batch.has_no_op = true;
                    batch.bytes = self.bytes.split_to(batch.len());
                    self.bytes.advance(len);
                    return Next::Batch(batch);
                }
                Front::PortQuestion(len) if batch.is_empty() => {
                    self.bytes.advance(len);
                    return Next::Answer(PORT_ANSWER.into());
                }
                Front::Quit(_) if batch.is_empty() => return Next::Close(String::new()),
                Front::Quit(_) | Front::PortQuestion(_) => break,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is to be done for a client that sends this, one after the other: a batch as its bytes,
    /// with `*` before them if it needs a hold and `MN` behind them if a no-op stands there.
    fn done(bytes: &str) -> Vec<String> {
        let (mut input, mut all) = (Input::default(), vec![]);
        input.bytes.extend_from_slice(bytes.as_bytes());
        loop {
            all.push(match input.next() {
                Next::Nothing => return all,
                Next::Batch(batch) => {
                    let held = if batch.needs_hold() { "*" } else { "" };
                    let no_op = if batch.has_no_op { "MN" } else { "" };
                    format!("{held}{}{no_op}", batch.bytes.escape_ascii())
                }
                Next::Answer(answer) => format!("={}", answer.trim_end()),
                Next::Close(answer) => {
                    all.push(format!("!{}", answer.trim_end()));
                    return all;
                }
            });
        }
    }

    #[test]
    fn what_waits_for_nobody_goes_before_what_does() {
        let rows: [(&str, &[&str]); 7] = [
            ("get a\nget b\nge", &["get a\\nget b\\n"]),
            ("get a\ntouch k 1\nget b\n", &["get a\\n", "*touch k 1\\nget b\\n"]),
            ("mn\nmg a\nmn\nmg b\n", &["=MN", "mg a\\nMN", "mg b\\n"]),
            ("touch k 1\nflush_all\nget k\n", &["*touch k 1\\nflush_all\\n", "get k\\n"]),
            ("get a\nwrong\nget b\nquit\n", &["get a\\n", "=ERROR", "get b\\n", "!"]),
            ("md a q\nms k 1 y\nv\r\nmn\n", &["*md a q\\n", "=CLIENT_ERROR invalid flag", "=MN"]),
            ("set k 0 0 x noreply\nget a\n", &["=", "get a\\n"]),
        ];
        for (bytes, expected) in rows {
            assert_eq!(done(bytes)[..expected.len()], *expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_batch_has_a_bound_and_a_long_command_is_one() {
        let many = done(&"touch k 1\n".repeat(300));
        assert_eq!(many.len(), 2);
        assert_eq!(many[1].matches("touch").count(), 300 - 256);
        let long = format!("set k 0 0 300000\r\n{}\r\n", "v".repeat(300_000));
        assert_eq!(done(&format!("{long}{long}")).len(), 2);
        let mut input = Input::default();
        input.bytes.extend_from_slice(&long.as_bytes()[..200_000]);
        assert!(matches!(input.next(), Next::Nothing) && input.has_room());
    }

    #[test]
    fn who_has_nothing_done_is_told_so_for_each_command_that_is_answered() {
        let mut input = Input::default();
        input.bytes.extend_from_slice(b"touch k 1\ntouch k 1 noreply\nmd k q\nmn\n");
        let Next::Batch(batch) = input.next() else { panic!("a batch") };
        let line = "SERVER_ERROR nothing was done: why\r\n";
        assert_eq!(batch.refusal("why"), [line, line, NO_OP_ANSWER].concat());
    }
}
