//! What a call sends, in which form, and when again.

use std::{io, mem};

use bytes::Bytes;
use nix::libc::EMSGSIZE;
use wire::{Flags, HEADER_LEN, Header, LIFE_UNKNOWN, Op, PART_BYTES, Secret, Status};

use super::{Call, Outgoing, Parts, State, Step};
use crate::{
    Error,
    push::Push,
    rules::{Id, Rules},
    timing::Backoff,
};

impl Call {
    /// No answer came to the one request that is under way.
    pub(super) fn silence(&mut self, rules: &Rules, now_ns: u64) -> Step {
        let (op, len) = (self.header.op, self.datagram.len());
        if self.fit.is_silent(rules, op, len, now_ns) {
            if op != Op::DisciplineRequest {
                return self.begin(rules, now_ns);
            }
            self.sign_again(rules, now_ns);
        }
        let value_len = usize::from(self.header.value_len);
        if self.header.life == LIFE_UNKNOWN && self.fit.is_doubtful(rules, len, value_len, now_ns) {
            match self.goes_in_parts(rules) {
                Ok(true) => {
                    self.fit.falls_back();
                    return self.go(rules, now_ns);
                }
                Ok(false) => {}
                Err(error) => return Step::Done(Err(error)),
            }
        }
        self.state = State::Asked { once_ns: None };
        self.parts = Parts::None { due: true };
        if op == Op::ReadRequest && self.header.status == Status::Ok {
            // A switch may have sent it to another store, whose answer NAT or a filter drops.
            self.header.status = Status::TryAgain;
            self.write_head(rules);
        }
        self.go(rules, now_ns)
    }

    /// The next datagram to send now, if there is one.
    pub fn next(&mut self, rules: &Rules, now_ns: u64, random: f64) -> Option<Outgoing> {
        if now_ns >= self.deadline_ns {
            return None;
        }
        let key_len = usize::from(self.header.key_len);
        let key = &self.datagram[HEADER_LEN..][..key_len];
        let known = self.header.life != LIFE_UNKNOWN;
        let (outgoing, again, all) = match &mut self.parts {
            Parts::None { due } => {
                if !mem::take(due) {
                    return None;
                }
                self.until_ns = now_ns + self.waits.next(random).as_nanos() as u64;
                let outgoing = Outgoing {
                    request: self.header.request,
                    datagram: self.datagram.clone(),
                    // What was said to copies that named another life still comes.
                    many: self.moved || self.header.flags.has(Flags::ALL),
                };
                let again = matches!(self.state, State::Asked { once_ns: None });
                (outgoing, again, true)
            }
            Parts::Pull(pull) => {
                let of_part = |part: Header| {
                    let Id { client, request } = rules.new_id(None);
                    let header = Header {
                        client,
                        request,
                        flags: Flags::NONE,
                        part: part.part,
                        total: part.total,
                        version: part.version,
                        ..self.header
                    };
                    let len = HEADER_LEN + key_len + PART_BYTES;
                    (request, write(&rules.secrets.tag, header, key, &[], len))
                };
                let (request, datagram, again) = pull.next(rules, now_ns, random, of_part)?;
                let outgoing = Outgoing { request, datagram, many: false };
                (outgoing, again, true)
            }
            Parts::Push(push) => {
                let (number, again) = push.next(known, now_ns, random)?;
                let (part, value) = push.part(number);
                let header = Header {
                    part,
                    total: push.total(),
                    value_len: value.len() as u16,
                    ..self.header
                };
                let outgoing = Outgoing {
                    request: header.request,
                    datagram: write(&rules.secrets.tag, header, key, value, 0),
                    many: true,
                };
                (outgoing, again, push.sent() == push.parts())
            }
        };
        if again {
            rules.counters.retransmitted.add_one();
            self.met_silence = true;
        }
        self.tries += 1;
        self.fit.sent(outgoing.request, outgoing.datagram.len(), now_ns);
        if known && all {
            self.risked_ns.get_or_insert(now_ns);
        }
        Some(outgoing)
    }

    /// The system refused to send this datagram, which was the last that [`Call::next`] gave.
    ///
    /// # Errors
    /// It was the first one: nothing has left, and the caller may know that for certain. Any other
    /// is as good as lost.
    pub fn not_sent(
        &mut self,
        rules: &Rules,
        outgoing: &Outgoing,
        source: io::Error,
        now_ns: u64,
    ) -> Result<(), Error> {
        let len = outgoing.datagram.len();
        self.tries -= 1;
        if source.raw_os_error() == Some(EMSGSIZE) && self.fit.is_long(len) {
            self.fit.refused(rules, now_ns);
            if self.shorten(rules, len, now_ns)? {
                self.fit.was_shortened();
                return Ok(());
            }
        }
        if self.tries > 0 {
            tracing::debug!(store = %self.store, error = %source, "sending again failed");
            return Ok(());
        }
        let what = match source.raw_os_error() {
            Some(EMSGSIZE) => format!(
                "cannot send {len} bytes to {}, more than the MTU on the way there carries, see docs/operations/short-paths.md",
                self.store
            ),
            _ => return Err(self.cannot_send(source)),
        };
        Err(Error::Socket { what, source })
    }

    /// Makes the request shorter than `len`, which the interface does not carry. False: it
    /// cannot be.
    fn shorten(&mut self, rules: &Rules, len: usize, now_ns: u64) -> Result<bool, Error> {
        let Parts::None { .. } = self.parts else { return Ok(false) };
        if self.header.op.is_write() {
            if self.tries == 0 {
                // Nothing has left.
                self.risked_ns = None;
            }
            return self.goes_in_parts(rules);
        }
        self.sign_again(rules, now_ns);
        let is_shorter = self.datagram.len() < len;
        // What cannot be sent waits for its time like what was lost: sent at once it would be
        // refused at once.
        self.parts = Parts::None { due: is_shorter };
        Ok(is_shorter)
    }

    /// Lets a write that was to go in one packet go in parts. False: that would not be shorter, or
    /// a store may have done it by now, and under one id stores see one write of one form.
    fn goes_in_parts(&mut self, rules: &Rules) -> Result<bool, Error> {
        let value_len = usize::from(self.header.value_len);
        if self.risked_ns.is_some() || value_len <= PART_BYTES {
            return Ok(false);
        }
        let value_at = HEADER_LEN + usize::from(self.header.key_len);
        let value = self.datagram.slice(value_at..value_at + value_len);
        self.reserved = rules.reserve(value_len)?;
        self.parts = Parts::Push(Box::new(Push::new(rules, value)));
        self.datagram = self.datagram.slice(..value_at);
        self.header.value_len = 0;
        Ok(true)
    }

    /// Reads the whole value under a new id: a late copy of an answer that did not do must not
    /// answer this.
    pub(super) fn begin(&mut self, rules: &Rules, now_ns: u64) -> Step {
        self.parts = Parts::None { due: false };
        self.reserved = None;
        self.header.life = rules.lives.of_store(self.window);
        self.sign(rules, rules.new_id(self.window()), now_ns);
        self.ask(rules, now_ns)
    }

    /// Sends the request as it stands for the first time, or for the first time after it was
    /// put off.
    pub(super) fn ask(&mut self, rules: &Rules, now_ns: u64) -> Step {
        let first = rules.round_trip.timeout();
        self.waits = Backoff::new(first, rules.options.max_timeout);
        self.state = State::Asked { once_ns: Some(now_ns) };
        if let Parts::None { due } = &mut self.parts {
            *due = true;
        }
        self.go(rules, now_ns)
    }

    /// Sends what is to be sent, unless it is too late.
    pub(super) fn go(&self, rules: &Rules, now_ns: u64) -> Step {
        if now_ns >= self.deadline_ns {
            return Step::Done(Err(self.timed_out(rules)));
        }
        Step::Go
    }

    /// Asks again later.
    pub(super) fn pause(&mut self, rules: &Rules, now_ns: u64, random: f64) -> Step {
        self.state = State::PutOff;
        self.until_ns = now_ns + self.puts_off.next(random).as_nanos() as u64;
        if let Parts::Push(push) = &mut self.parts {
            push.pause(self.until_ns);
        }
        self.go(rules, now_ns)
    }

    /// Whether this write passes the switch that its key is lent to. It names one life only then,
    /// in which it may be under way; until the store says that it has given it up there.
    pub(super) fn past_owner(&self) -> bool {
        self.header.op.is_write() && self.header.flags.has(Flags::ALL)
    }

    /// Makes the request's datagram anew under its id: stores must see copies of the one before as
    /// the same request.
    pub(super) fn sign_again(&mut self, rules: &Rules, now_ns: u64) {
        let Header { client, request, .. } = self.header;
        self.sign(rules, Id { client, request }, now_ns);
    }

    /// Gives the request an id and the datagram its header, tag and padding.
    pub(super) fn sign(&mut self, rules: &Rules, id: Id, now_ns: u64) {
        self.header.client = id.client;
        self.header.request = id.request;
        let room = self.fit.prepare(rules, &mut self.header, now_ns);
        let key_len = usize::from(self.header.key_len);
        let mut datagram = Vec::from(mem::take(&mut self.datagram));
        let len = HEADER_LEN + key_len + usize::from(self.header.value_len);
        datagram.resize(len.max(room), 0);
        self.datagram = datagram.into();
        self.write_head(rules);
    }

    /// Gives the datagram its header as it is now, and its tag.
    fn write_head(&mut self, rules: &Rules) {
        let key_len = usize::from(self.header.key_len);
        let mut datagram = Vec::from(mem::take(&mut self.datagram));
        let head = head(&rules.secrets.tag, self.header, &datagram[HEADER_LEN..][..key_len]);
        datagram[..HEADER_LEN].copy_from_slice(&head);
        self.datagram = datagram.into();
    }
}

/// The signed bytes of a header.
fn head(secret: &Secret, header: Header, key: &[u8]) -> [u8; HEADER_LEN] {
    let mut head = header.to_bytes();
    let tag = secret.tag(&head, key);
    head[HEADER_LEN - 8..].copy_from_slice(&tag.to_be_bytes());
    head
}

/// A signed datagram of at least `len` bytes.
fn write(secret: &Secret, header: Header, key: &[u8], value: &[u8], len: usize) -> Bytes {
    let len = len.max(HEADER_LEN + key.len() + value.len());
    let mut datagram = Vec::with_capacity(len);
    datagram.extend_from_slice(&head(secret, header, key));
    datagram.extend_from_slice(key);
    datagram.extend_from_slice(value);
    datagram.resize(len, 0);
    datagram.into()
}
