//! One call from its first datagram to its answer: when to send, what, and when to give up.
//!
//! A state machine without sockets or clocks. Whoever drives it carries out each [`Step`] and comes back with what
//! happened: the reply that [`Waiting`](crate::waiting::Waiting) found for it, or that the time has come. [`Client`](crate::Client)
//! drives it with sockets and tokio's clock, [`Machine`](crate::Machine) with whatever its owner says the time is.
//!
//! Nothing is sent at or after the deadline, however late the driver comes: a store that restarted meanwhile would take an
//! old write for a new one (rule 7 of `docs/coherence.md`). [`Call::send`] is the only place that sends, and looks first.

use std::{borrow::Cow, io, mem, net::SocketAddr, time::Duration};

use bytes::Bytes;
use wire::{HEADER_LEN, Header, LIFE_UNKNOWN, Op, Status};

use crate::{
    Answer, Error, Operation,
    operation::check_key,
    routes::Range,
    rules::{Id, Rules, max_payload},
    timing::Backoff,
    waiting::Reply,
};

/// Times that a read is asked again because its answer needs more room: values may grow meanwhile.
const MAX_PADDINGS: u32 = 4;
/// First wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT: Duration = Duration::from_millis(20);
/// Longest wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT_MAX: Duration = Duration::from_millis(200);

/// What is to be done for a call. Times are nanoseconds of the driver's clock.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send [`Call::datagram`] to [`Call::store`], then wait for its answer until then.
    Send { until_ns: u64 },
    /// Nothing until then.
    Wait { until_ns: u64 },
    /// It is over.
    Done(Result<Answer, Error>),
}

/// A call. It is begun with [`Call::new`], then needs a place among the calls in flight and, if it is a write, one in its
/// store's [window](crate::window); then it is started.
pub(crate) struct Call {
    store: SocketAddr,
    window: usize,
    header: Header,
    /// Header, key and value; padded. The key stands here as it travels.
    datagram: Bytes,
    asked_len: usize,
    limit: Duration,
    deadline_ns: u64,
    tries: u32,
    /// It was sent to another life of the store than at first.
    moved: bool,
    /// When it was first sent to a life of the store that might have carried it out.
    risked_ns: Option<u64>,
    put_off: bool,
    denied: bool,
    paddings: u32,
    puts_off: Backoff,
    /// Waits of the request that is under way.
    waits: Backoff,
    state: State,
    /// When the last step's time is over.
    until_ns: u64,
}

#[derive(Clone, Copy)]
enum State {
    /// Its request is under way; since when, if it was sent only once: else it would be ambiguous which datagram was answered.
    Asked { once_ns: Option<u64> },
    /// The store said `TryAgain`.
    PutOff,
}

impl Call {
    /// # Errors
    /// What is asked for fits no packet.
    pub fn new(rules: &Rules, operation: &Operation<'_>, now_ns: u64) -> Result<Call, Error> {
        let header = operation.header()?;
        let limit = if header.op.is_write() {
            rules.write_deadline
        } else {
            rules.options.deadline
        };
        check_key(operation.key())?;
        let name = rules.envelope.name(operation.key());
        let key = name.as_ref();
        let key_hash = rules.secrets.hash.key_hash(rules.tenant, key);
        let Range { store, window, .. } = *rules.routes.store_of(key_hash);
        let (asked, overhead) = (operation.value(), rules.envelope.overhead());
        let max = max_payload(store) - HEADER_LEN - key.len() - overhead;
        if asked.len() > max {
            return Err(Error::ValueLength {
                len: asked.len(),
                max,
                sealed: overhead > 0,
            });
        }
        // Once for all its datagrams: under one id a store must see one write.
        let value = match header.op {
            Op::WriteRequest => rules.envelope.close(&name, asked),
            _ => Cow::Borrowed(asked),
        };
        let header = Header {
            tenant: rules.tenant,
            key_hash,
            key_len: key.len() as u8,
            value_len: value.len() as u16,
            ..header
        };
        let len = HEADER_LEN + key.len() + value.len();
        let len = len.max(room(rules, &header, store));
        let mut datagram = Vec::with_capacity(len);
        datagram.extend_from_slice(&[0; HEADER_LEN]);
        datagram.extend_from_slice(key);
        datagram.extend_from_slice(&value);
        datagram.resize(len, 0);
        Ok(Call {
            store,
            window,
            header,
            datagram: datagram.into(),
            asked_len: asked.len(),
            limit,
            deadline_ns: now_ns + limit.as_nanos() as u64,
            tries: 0,
            moved: false,
            risked_ns: None,
            put_off: false,
            denied: false,
            paddings: 0,
            puts_off: Backoff::new(TRY_AGAIN_WAIT, TRY_AGAIN_WAIT_MAX),
            waits: Backoff::new(Duration::ZERO, Duration::ZERO),
            state: State::Asked { once_ns: None },
            until_ns: now_ns,
        })
    }

    pub fn store(&self) -> SocketAddr {
        self.store
    }

    /// The window that a write must enter: its store's number in the routes.
    pub fn window(&self) -> Option<usize> {
        self.header.op.is_write().then_some(self.window)
    }

    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    pub fn datagram(&self) -> &Bytes {
        &self.datagram
    }

    /// The id of the request that is under way.
    pub fn request(&self) -> u64 {
        self.header.request
    }

    /// The first step. `random` is uniform in 0..1, here and below.
    pub fn start(&mut self, rules: &Rules, id: Id, now_ns: u64, random: f64) -> Step {
        self.sign(rules, id);
        self.ask(rules, now_ns, random)
    }

    /// The step after an answer to the request that is under way.
    pub fn reply(&mut self, rules: &Rules, reply: Reply, now_ns: u64, random: f64) -> Step {
        if let State::Asked {
            once_ns: Some(sent_ns),
        } = self.state
        {
            let time = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
            rules.round_trip.measured(time);
        }
        let store = self.store;
        let bad = |what| Step::Done(Err(Error::BadReply { store, what }));
        let (header, value) = match reply {
            Reply::WrongKey if self.header.op == Op::CorrectionRequest => {
                return bad("another key, even past the caches");
            }
            Reply::WrongKey => {
                rules.counters.corrected.add_one();
                self.header.op = Op::CorrectionRequest;
                // A new id: a late copy of the wrong answer must not answer the correction.
                self.sign(rules, rules.new_id());
                return self.ask(rules, now_ns, random);
            }
            Reply::Answer(header, value) => (header, value),
        };
        let write = self.header.op.is_write();
        rules.heard(self.window, &header);
        match header.status {
            Status::OtherLife if write => {
                if self.may_have_been_applied_before(&header, now_ns) {
                    return Step::Done(Err(self.timed_out()));
                }
                // The id stays: copies of the first datagram are this write too.
                let Header {
                    client, request, ..
                } = self.header;
                self.sign(rules, Id { client, request });
                if mem::replace(&mut self.moved, true) {
                    // Two stores at one address would have us ask in turns, as fast as they answer.
                    return self.pause(now_ns, random);
                }
                self.ask(rules, now_ns, random)
            }
            Status::NeedPadding if !write && self.paddings < MAX_PADDINGS => {
                rules.counters.padded.add_one();
                self.paddings += 1;
                rules.saw_value(header.total as usize);
                self.sign(rules, rules.new_id());
                self.ask(rules, now_ns, random)
            }
            // The id stays: a late copy of this request must count as the same write.
            Status::TryAgain => {
                rules.counters.put_off.add_one();
                self.put_off = true;
                self.pause(now_ns, random)
            }
            _ if header.is_part() => bad("a part of a value"),
            _ => Step::Done(self.answer(rules, header, value)),
        }
    }

    /// The step once the time of the last one has come, or a little before or long after it. `denied`: somebody who cannot
    /// sign in the tenant's name denied the request.
    pub fn timer(&mut self, rules: &Rules, denied: bool, now_ns: u64, random: f64) -> Step {
        self.denied |= denied;
        if now_ns < self.until_ns {
            return Step::Wait {
                until_ns: self.until_ns,
            };
        }
        match self.state {
            State::PutOff => self.ask(rules, now_ns, random),
            State::Asked { .. } => {
                self.state = State::Asked { once_ns: None };
                self.send(rules, now_ns, random)
            }
        }
    }

    /// The system refused to send the datagram of the last step.
    ///
    /// # Errors
    /// It was the first one: nothing has left, and the caller may know that for certain. Any other is as good as lost.
    pub fn not_sent(&self, source: io::Error) -> Result<(), Error> {
        if self.tries > 1 {
            tracing::debug!(store = %self.store, error = %source, "sending again failed");
            return Ok(());
        }
        Err(self.cannot_send(source))
    }

    /// The error of a call whose time is over.
    pub fn timed_out(&self) -> Error {
        let Call { store, tries, .. } = *self;
        let after_ms = self.limit.as_millis() as u64;
        let try_again = self.put_off;
        let denied = self.denied.then_some(self.header.tenant);
        if tries == 0 {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the deadline had passed before");
            self.cannot_send(late)
        } else if self.header.op.is_write() {
            Error::OutcomeUnknown {
                store,
                after_ms,
                tries,
                try_again,
                denied,
            }
        } else {
            Error::Timeout {
                store,
                after_ms,
                tries,
                try_again,
                denied,
            }
        }
    }

    fn cannot_send(&self, source: io::Error) -> Error {
        Error::Socket {
            what: format!("cannot send to {}", self.store),
            source,
        }
    }

    /// Sends the request as it stands for the first time, or for the first time after it was put off.
    fn ask(&mut self, rules: &Rules, now_ns: u64, random: f64) -> Step {
        let first = rules.round_trip.timeout();
        self.waits = Backoff::new(first, rules.options.max_timeout);
        self.state = State::Asked {
            once_ns: Some(now_ns),
        };
        self.send(rules, now_ns, random)
    }

    fn send(&mut self, rules: &Rules, now_ns: u64, random: f64) -> Step {
        if now_ns >= self.deadline_ns {
            return Step::Done(Err(self.timed_out()));
        }
        if matches!(self.state, State::Asked { once_ns: None }) {
            rules.counters.retransmitted.add_one();
        }
        self.tries += 1;
        if self.header.life != LIFE_UNKNOWN {
            self.risked_ns.get_or_insert(now_ns);
        }
        let until_ns = now_ns + self.waits.next(random).as_nanos() as u64;
        self.until_ns = until_ns.min(self.deadline_ns);
        Step::Send {
            until_ns: self.until_ns,
        }
    }

    fn answer(&self, rules: &Rules, header: Header, value: Bytes) -> Result<Answer, Error> {
        rules.saw_value(value.len());
        let value = match header.status {
            Status::Ok if header.op == Op::ReadReply => {
                let name = &self.datagram[HEADER_LEN..][..usize::from(self.header.key_len)];
                rules.envelope.open(name, value, self.store, header.flags)?
            }
            _ => value,
        };
        if header.op == Op::WriteReply && header.status == Status::Ok {
            rules.saw_value(self.header.value_len.into());
        }
        Ok(Answer {
            store: self.store,
            tenant: self.header.tenant,
            asked_len: self.asked_len,
            write: self.header.op.is_write(),
            header,
            value,
        })
    }

    /// Asks again later.
    fn pause(&mut self, now_ns: u64, random: f64) -> Step {
        self.state = State::PutOff;
        let until_ns = now_ns + self.puts_off.next(random).as_nanos() as u64;
        self.until_ns = until_ns.min(self.deadline_ns);
        Step::Wait {
            until_ns: self.until_ns,
        }
    }

    /// Whether an earlier life of the store than the one that answers so can have had this write: unless that has lived for
    /// longer than this write was under way. The two clocks' rates differ by less than a 64th.
    fn may_have_been_applied_before(&self, other_life: &Header, now_ns: u64) -> bool {
        let age_ns = u64::from(other_life.expiry_ms) * 1_000_000;
        self.risked_ns.is_some_and(|risked_ns| {
            let under_way_ns = now_ns.saturating_sub(risked_ns);
            age_ns <= under_way_ns + under_way_ns / 64
        })
    }

    /// Gives the request an id and the datagram its header, tag and padding.
    fn sign(&mut self, rules: &Rules, id: Id) {
        self.header.life = rules.life(self.window);
        self.header.client = id.client;
        self.header.request = id.request;
        let key_len = usize::from(self.header.key_len);
        let mut datagram = Vec::from(mem::take(&mut self.datagram));
        // What was seen meanwhile needs more room; never less.
        let len = datagram.len().max(room(rules, &self.header, self.store));
        datagram.resize(len, 0);
        let mut head = self.header.to_bytes();
        let tag = rules
            .secrets
            .tag
            .tag(&head, &datagram[HEADER_LEN..][..key_len]);
        head[HEADER_LEN - 8..].copy_from_slice(&tag.to_be_bytes());
        datagram[..HEADER_LEN].copy_from_slice(&head);
        self.datagram = datagram.into();
    }
}

/// Bytes that a request's datagram takes at least, so that its answer fits where it stood.
fn room(rules: &Rules, header: &Header, store: SocketAddr) -> usize {
    if header.op.is_write() {
        return 0;
    }
    let len = HEADER_LEN + usize::from(header.key_len) + rules.largest_value();
    len.min(max_payload(store))
}
