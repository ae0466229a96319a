//! How a call ends: with an answer, or with what is known when none came.

use std::io;

use bytes::Bytes;
use wire::{HEADER_LEN, Header, Op, Status};

use super::{Call, Parts, State, Step};
use crate::{Answer, Error, answer::Request, payload::max_payload, rules::Rules};

impl Call {
    /// The error of a call whose time is over.
    pub fn timed_out(&self, rules: &Rules) -> Error {
        let Call { store, tries, .. } = *self;
        let after_ms = self.limit.as_millis() as u64;
        let try_again = self.put_off;
        let denied = self.denied.then_some(self.header.tenant);
        let short_path = self.fit.is_to_blame(rules);
        match &self.parts {
            _ if tries == 0 => {
                let late =
                    io::Error::new(io::ErrorKind::TimedOut, "the deadline had passed before");
                self.cannot_send(late)
            }
            // No life of the store was sent all of it.
            Parts::Push(push) if self.risked_ns.is_none() => Error::NotWhole {
                store,
                after_ms,
                sent: push.sent(),
                parts: push.parts(),
                try_again,
                denied,
                short_path,
            },
            // A store that does not know the secret cannot sign that it denies the write: whoever
            // said so, no life of it was named that could have done the write.
            _ if self.header.op.is_write() && self.denied && self.risked_ns.is_none() => {
                Error::Denied { store, tenant: self.header.tenant }
            }
            _ if self.header.op.is_write() => {
                let no_room = false;
                Error::OutcomeUnknown {
                    store,
                    after_ms,
                    tries,
                    no_room,
                    try_again,
                    each_put_off: self.is_each_put_off(),
                    denied,
                    short_path,
                }
            }
            _ => Error::Timeout {
                store,
                after_ms,
                tries,
                changes: self.changes,
                try_again,
                denied,
                short_path,
            },
        }
    }

    /// Whether each try of a write in one packet was refused for now: none met silence, and none is
    /// under way.
    fn is_each_put_off(&self) -> bool {
        let Parts::None { due } = self.parts else { return false };
        let is_answered = match self.state {
            State::PutOff => true,
            // It was to be sent once more, and the time was over.
            State::Asked { once_ns } => due && once_ns.is_some(),
        };
        self.put_off && is_answered && !self.met_silence
    }

    pub(super) fn cannot_send(&self, source: io::Error) -> Error {
        Error::Socket { what: format!("cannot send to {}", self.store), source }
    }

    pub(super) fn bad(&self, what: &'static str) -> Step {
        let store = self.store;
        Step::Done(Err(Error::BadReply { store, what }))
    }

    pub(super) fn answer(
        &self,
        rules: &Rules,
        header: Header,
        value: Bytes,
    ) -> Result<Answer, Error> {
        if header.status == Status::Ok && !self.header.op.is_write() {
            self.saw(rules, value.len());
        }
        let value = match header.status {
            Status::Ok if header.op == Op::ReadReply => {
                let name = &self.datagram[HEADER_LEN..][..usize::from(self.header.key_len)];
                rules.envelope.open(name, value, self.store, header.flags)?
            }
            _ => value,
        };
        if header.op == Op::WriteReply && header.status == Status::Ok {
            self.saw(rules, self.asked_len + rules.envelope.overhead());
        }
        let len = value.len();
        Ok(self.answered_with(header, value, len))
    }

    /// `len`: of the whole value in bytes.
    pub(super) fn answered_with(&self, header: Header, value: Bytes, len: usize) -> Answer {
        Answer {
            store: self.store,
            request: Request {
                tenant: self.header.tenant,
                value_len: self.asked_len,
                is_write: self.header.op.is_write(),
            },
            header,
            value,
            len,
            from_copy: false,
        }
    }

    /// The key's value has this length, as it travels.
    pub(super) fn saw(&self, rules: &Rules, len: usize) {
        let most = max_payload(self.store) - HEADER_LEN - usize::from(self.header.key_len);
        rules.sizes.saw(&self.header.key_hash, len, most);
    }
}
