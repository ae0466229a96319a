//! One call from its first datagram to its answer: when to send, what, and when to give up.
//!
//! A state machine without sockets or clocks. Whoever drives it sends what [`Call::next`] gives and
//! comes back with what happened: a reply that [`RequestTable`](crate::waiting::RequestTable) found
//! for it, or that the time has come. [`Client`](crate::Client) drives it with sockets and tokio's
//! clock, [`Machine`](crate::Machine) with whatever its owner says the time is.
//!
//! A value that no packet holds goes in parts: those of a read are [`Pull`]'s affair, those of a
//! write [`Push`]'s. Deadline, life, refusals and outcome are the call's, whatever the length. How
//! long its requests are is [`Fit`]'s.
//!
//! Nothing is sent at or after the deadline, however late the driver comes: a store that restarted
//! meanwhile would take an old write for a new one (rule 7 of `docs/coherence.md`). [`Call::next`]
//! is the only place that sends, and looks first.

use std::{borrow::Cow, io, mem, net::SocketAddr, time::Duration};

use bytes::Bytes;
use nix::libc::EMSGSIZE;
use wire::{Flags, GoesOn, HEADER_LEN, Header, LIFE_UNKNOWN, Op, PART_BYTES, Secret, Status};

use crate::{
    Answer, Error, Operation, Reservation,
    answer::Request,
    fit::Fit,
    operation::check_key,
    payload::{max_payload, short_payload},
    pull::{Progress, Pull},
    push::Push,
    routes::Range,
    rules::{Id, Rules},
    timing::Backoff,
    waiting::Reply,
};

/// Times that a read is asked again because its answer needs more room: values may grow meanwhile.
const MAX_PADDINGS: u32 = 4;
/// Times that a read of parts begins again because the value has changed. Each takes a round trip
/// at least; a value that changes more often than that within the deadline is not read by
/// this client.
const MAX_CHANGES: u32 = 1000;
/// First wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT: Duration = Duration::from_millis(20);
/// Longest wait after a store's `TryAgain`.
const TRY_AGAIN_WAIT_MAX: Duration = Duration::from_millis(200);

/// What is to be done for a call. Times are nanoseconds of the driver's clock.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send what [`Call::next`] gives, until it gives nothing; then wait for answers until
    /// [`Call::until_ns`].
    Go,
    /// It is over.
    Done(Result<Answer, Error>),
}

/// A datagram to send to [`Call::store`].
pub(crate) struct Outgoing {
    pub request: u64,
    pub datagram: Bytes,
    /// Whether it may have several answers.
    pub many: bool,
}

/// A call. It is begun with [`Call::new`], then needs a place among the calls in flight and, if it
/// is a write, one in its store's [window](crate::window); then it is started.
pub(crate) struct Call {
    store: SocketAddr,
    window: usize,
    header: Header,
    /// Header, key and value; padded. The key stands here as it travels. Of a write in parts,
    /// without the value.
    datagram: Bytes,
    asked_len: usize,
    /// Of a value in parts the first is enough.
    first_only: bool,
    limit: Duration,
    deadline_ns: u64,
    tries: u32,
    /// It was refused in the life that it named, and sent again since.
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
    parts: Parts,
    fit: Fit,
    /// For the value that is read or written in parts.
    reserved: Option<Reservation>,
    /// Times that the value changed while its parts were read.
    changes: u32,
    /// When the request that is under way is to be sent again, or for the first time after it was
    /// put off.
    until_ns: u64,
}

/// What goes in parts.
enum Parts {
    /// Nothing: one request, one answer. Whether it is to be sent now.
    None {
        due: bool,
    },
    Pull(Box<Pull>),
    Push(Box<Push>),
}

#[derive(Clone, Copy)]
enum State {
    /// Its request is under way; since when, if it was sent only once: else it would be ambiguous
    /// which datagram was answered.
    Asked { once_ns: Option<u64> },
    /// The store said `TryAgain`.
    PutOff,
}

impl Call {
    /// # Errors
    /// What is asked for fits no packet.
    pub fn new(rules: &Rules, operation: &Operation<'_>, now_ns: u64) -> Result<Call, Error> {
        let header = operation.header()?;
        let limit =
            if header.op.is_write() { rules.write_deadline } else { rules.options.deadline };
        check_key(operation.key())?;
        let name = rules.envelope.name(operation.key());
        let key = name.as_ref();
        let key_hash = rules.secrets.hash.key_hash(rules.tenant, key);
        let Range { store, window, .. } = *rules.routes.store_of(key_hash);
        let (asked, overhead) = (operation.value(), rules.envelope.overhead());
        let one_packet = max_payload(store) - HEADER_LEN - key.len();
        let write = header.op == Op::WriteRequest;
        let (max, overhead) = match write {
            true => (rules.max_value - overhead, overhead),
            false => (one_packet, 0),
        };
        if asked.len() > max {
            return Err(Error::ValueLength {
                len: asked.len(),
                max,
                in_parts: write,
                sealed: overhead > 0,
            });
        }
        // What fits a packet, but not the path, goes in parts too, if that makes it shorter.
        let in_a_packet = match rules.paths.was_short(window) {
            true => (short_payload(store) - HEADER_LEN - key.len()).max(PART_BYTES),
            false => one_packet,
        };
        let large = write && asked.len() + overhead > in_a_packet.min(one_packet);
        let reserved = match large {
            true => rules.reserve(asked.len() + overhead)?,
            false => None,
        };
        // Once for all its datagrams: under one id a store must see one write.
        let value = match write {
            true => rules.envelope.close(&name, asked),
            false => Cow::Borrowed(asked),
        };
        let (value, parts) = if large {
            let push = Push::new(rules, Bytes::from(value.into_owned()));
            (Cow::Borrowed(&[][..]), Parts::Push(Box::new(push)))
        } else {
            (value, Parts::None { due: false })
        };
        let mut header = Header {
            tenant: rules.tenant,
            key_hash,
            key_len: key.len() as u8,
            value_len: value.len() as u16,
            ..header
        };
        let mut fit = Fit::new(store, window);
        let len = HEADER_LEN + key.len() + value.len();
        let len = len.max(fit.prepare(rules, &mut header, now_ns));
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
            first_only: matches!(operation, Operation::About { .. }),
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
            parts,
            fit,
            reserved,
            changes: 0,
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

    /// Bytes of a value that have come so far.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        match &self.parts {
            Parts::Pull(pull) => pull.held_bytes(),
            _ => 0,
        }
    }

    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// When [`Call::timer`] is to be called, if no answer comes before.
    pub fn until_ns(&self) -> u64 {
        let until_ns = match &self.parts {
            Parts::None { .. } => self.until_ns,
            Parts::Pull(pull) => pull.until_ns(),
            Parts::Push(push) => push.until_ns(),
        };
        until_ns.min(self.deadline_ns)
    }

    /// The first step. `random` is uniform in 0..1, here and below.
    pub fn start(&mut self, rules: &Rules, id: Id, now_ns: u64) -> Step {
        let (len, value_len) = (self.datagram.len(), usize::from(self.header.value_len));
        let is_doubtful = self.fit.is_doubtful(rules, len, value_len, now_ns);
        self.header.life = match self.header.op.is_write() {
            // No store takes it so, whatever becomes of it; its answer says what life to name.
            true if is_doubtful => LIFE_UNKNOWN,
            true => rules.lives.of_key(self.window, &self.header.key_hash),
            false => rules.lives.of_store(self.window),
        };
        self.sign(rules, id, now_ns);
        self.ask(rules, now_ns)
    }

    /// The step after an answer to a request that is under way.
    pub fn reply(&mut self, rules: &Rules, reply: Reply, now_ns: u64, random: f64) -> Step {
        let write = self.header.op.is_write();
        let (header, value) = match reply {
            Reply::WrongKey if self.header.op == Op::CorrectionRequest => {
                return self.bad("another key, even past the caches");
            }
            Reply::WrongKey => {
                rules.counters.corrected.add_one();
                self.header.op = Op::CorrectionRequest;
                return self.begin(rules, now_ns);
            }
            Reply::Answer(header, value) => (header, value),
        };
        let part_len = HEADER_LEN + usize::from(self.header.key_len) + PART_BYTES;
        let parts = !matches!(self.parts, Parts::None { .. });
        let long = parts && self.fit.is_long(part_len);
        self.fit.heard(rules, &header, long, now_ns);
        let Header { life, key_hash, .. } = self.header;
        rules.lives.heard(self.window, &key_hash, life, &header);
        if write && header.status == Status::OtherLife && header.life == life {
            // Of a copy that named another one: the request has gone on since.
            return self.go(rules, now_ns);
        }
        match &mut self.parts {
            Parts::None { .. } => self.answered(rules, header, value, now_ns, random),
            Parts::Pull(_) => self.part_came(rules, header, value, now_ns),
            Parts::Push(_) => self.part_taken(rules, header, value, now_ns, random),
        }
    }

    /// An answer to a request that is no part of anything came.
    fn answered(
        &mut self,
        rules: &Rules,
        header: Header,
        value: Bytes,
        now_ns: u64,
        random: f64,
    ) -> Step {
        if let State::Asked { once_ns: Some(sent_ns) } = self.state
            && header.request == self.header.request
        {
            let time = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
            rules.round_trip.measured(time);
        }
        let write = self.header.op.is_write();
        match header.status {
            Status::OtherLife if write => self.other_life(rules, &header, now_ns, random),
            Status::NeedPadding if !write && self.paddings < MAX_PADDINGS => {
                rules.counters.padded.add_one();
                self.paddings += 1;
                self.saw(rules, header.total as usize);
                self.fit.needs(header.total as usize);
                self.begin(rules, now_ns)
            }
            // The id stays: a late copy of this request must count as the same write.
            Status::TryAgain => {
                rules.counters.put_off.add_one();
                self.put_off = true;
                self.pause(rules, now_ns, random)
            }
            Status::Ok if header.is_part() && header.op == Op::ReadReply => {
                self.pull(rules, header, &value, now_ns)
            }
            // The answer to a write may bring a switch the first part of what was written after it.
            _ if header.is_part() && !write => self.bad("a part of a value"),
            _ => Step::Done(self.answer(rules, header, value)),
        }
    }

    /// The first part of a value came: the others are to be read.
    fn pull(&mut self, rules: &Rules, header: Header, value: &Bytes, now_ns: u64) -> Step {
        if header.total as usize > rules.max_value {
            return Step::Done(Err(Error::ValueLength {
                len: header.total as usize,
                max: rules.max_value,
                in_parts: true,
                sealed: false,
            }));
        }
        self.saw(rules, header.total as usize);
        if self.first_only {
            let len = header.total as usize - rules.envelope.overhead().min(header.total as usize);
            return Step::Done(Ok(self.answered_with(header, value.clone(), len)));
        }
        // What the version before had is given back first.
        self.reserved = None;
        match rules.reserve(header.total as usize) {
            Ok(reserved) => self.reserved = reserved,
            Err(error) => return Step::Done(Err(error)),
        }
        match Pull::new(rules, header, value, now_ns) {
            Some(pull) => self.parts = Parts::Pull(Box::new(pull)),
            None => return self.bad("a part of a value that is none"),
        }
        self.go(rules, now_ns)
    }

    /// Something came while the parts of a value are read.
    fn part_came(&mut self, rules: &Rules, header: Header, value: Bytes, now_ns: u64) -> Step {
        let Parts::Pull(pull) = &mut self.parts else {
            unreachable!("a read in parts");
        };
        let pulled = pull.take(rules, &header, value.clone(), now_ns);
        if header.status == Status::TryAgain {
            rules.counters.put_off.add_one();
            self.put_off = true;
        }
        if matches!(pulled, Progress::Changed | Progress::Begin) {
            rules.counters.changed.add_one();
            self.changes += 1;
            if self.changes > MAX_CHANGES {
                return Step::Done(Err(self.timed_out(rules)));
            }
        }
        match pulled {
            Progress::More => self.go(rules, now_ns),
            Progress::Whole(header, value) => {
                let answer = self.answer(rules, header, Bytes::from(value));
                Step::Done(answer.map(|answer| answer.holding(self.reserved.take())))
            }
            Progress::Changed => self.pull(rules, header, &value, now_ns),
            Progress::Begin => self.begin(rules, now_ns),
            Progress::Final => Step::Done(self.answer(rules, header, value)),
        }
    }

    /// Something came while the parts of a write go up.
    fn part_taken(
        &mut self,
        rules: &Rules,
        header: Header,
        value: Bytes,
        now_ns: u64,
        random: f64,
    ) -> Step {
        let Parts::Push(push) = &mut self.parts else {
            unreachable!("a write in parts");
        };
        let late = match header.status {
            // What an earlier life answered.
            Status::Taken | Status::TryAgain => push.is_paused() || header.life != self.header.life,
            _ => false,
        };
        match header.status {
            _ if late => self.go(rules, now_ns),
            Status::Taken => match push.taken(rules, header.part, now_ns, random) {
                Some(()) => self.go(rules, now_ns),
                None => self.bad("a missing part that was never sent"),
            },
            Status::OtherLife => self.other_life(rules, &header, now_ns, random),
            // The id stays: a late copy of a part must count as one of the same write.
            Status::TryAgain => {
                rules.counters.put_off.add_one();
                self.put_off = true;
                self.pause(rules, now_ns, random)
            }
            _ => Step::Done(self.answer(rules, header, value)),
        }
    }

    /// The key lives another life than the one that the write named. If only this key does, it is
    /// lent to a switch, or was: the store itself still knows what it did with the write, so it is
    /// asked past that switch.
    fn other_life(&mut self, rules: &Rules, header: &Header, now_ns: u64, random: f64) -> Step {
        if header.life <= LIFE_UNKNOWN {
            return self.bad("another life without a name");
        }
        let risked_ns = self.risked_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
        match wire::goes_on(header, self.past_owner(), risked_ns) {
            GoesOn::PastOwner => self.header.flags = self.header.flags.with(Flags::ALL),
            GoesOn::Unknown => return Step::Done(Err(self.timed_out(rules))),
            GoesOn::In(life) => {
                self.header.life = life;
                if self.past_owner() {
                    self.header.flags = self.header.flags.without(Flags::ALL);
                }
            }
        }
        // The id stays: copies of the first datagram are this write too.
        self.sign_again(rules, now_ns);
        if let Parts::Push(push) = &mut self.parts {
            push.begin_again(rules);
        }
        if mem::replace(&mut self.moved, true) {
            // Two stores at one address would have us ask in turns, as fast as they answer.
            return self.pause(rules, now_ns, random);
        }
        self.ask(rules, now_ns)
    }

    /// The step once the time has come, or a little before or long after it. `denied`: somebody who
    /// cannot sign in the tenant's name denied the request.
    pub fn timer(&mut self, rules: &Rules, denied: bool, now_ns: u64) -> Step {
        self.denied |= denied;
        match &mut self.parts {
            Parts::None { .. } if now_ns < self.until_ns => {}
            Parts::None { .. } => match self.state {
                State::PutOff => return self.ask(rules, now_ns),
                State::Asked { .. } => return self.silence(rules, now_ns),
            },
            Parts::Pull(_) => {}
            Parts::Push(push) => push.timer(rules, now_ns),
        }
        self.go(rules, now_ns)
    }

    /// No answer came to the one request that is under way.
    fn silence(&mut self, rules: &Rules, now_ns: u64) -> Step {
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
        let Parts::None { .. } = self.parts else {
            return Ok(false);
        };
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
            _ if self.header.op.is_write() => {
                let no_room = false;
                Error::OutcomeUnknown {
                    store,
                    after_ms,
                    tries,
                    no_room,
                    try_again,
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

    fn cannot_send(&self, source: io::Error) -> Error {
        Error::Socket { what: format!("cannot send to {}", self.store), source }
    }

    fn bad(&self, what: &'static str) -> Step {
        let store = self.store;
        Step::Done(Err(Error::BadReply { store, what }))
    }

    /// Reads the whole value under a new id: a late copy of an answer that did not do must not
    /// answer this.
    fn begin(&mut self, rules: &Rules, now_ns: u64) -> Step {
        self.parts = Parts::None { due: false };
        self.reserved = None;
        self.header.life = rules.lives.of_store(self.window);
        self.sign(rules, rules.new_id(self.window()), now_ns);
        self.ask(rules, now_ns)
    }

    /// Sends the request as it stands for the first time, or for the first time after it was
    /// put off.
    fn ask(&mut self, rules: &Rules, now_ns: u64) -> Step {
        let first = rules.round_trip.timeout();
        self.waits = Backoff::new(first, rules.options.max_timeout);
        self.state = State::Asked { once_ns: Some(now_ns) };
        if let Parts::None { due } = &mut self.parts {
            *due = true;
        }
        self.go(rules, now_ns)
    }

    /// Sends what is to be sent, unless it is too late.
    fn go(&self, rules: &Rules, now_ns: u64) -> Step {
        if now_ns >= self.deadline_ns {
            return Step::Done(Err(self.timed_out(rules)));
        }
        Step::Go
    }

    fn answer(&self, rules: &Rules, header: Header, value: Bytes) -> Result<Answer, Error> {
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
    fn answered_with(&self, header: Header, value: Bytes, len: usize) -> Answer {
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
        }
    }

    /// Asks again later.
    fn pause(&mut self, rules: &Rules, now_ns: u64, random: f64) -> Step {
        self.state = State::PutOff;
        self.until_ns = now_ns + self.puts_off.next(random).as_nanos() as u64;
        if let Parts::Push(push) = &mut self.parts {
            push.pause(self.until_ns);
        }
        self.go(rules, now_ns)
    }

    /// Whether this write passes the switch that its key is lent to. It names one life only then,
    /// in which it may be under way; until the store says that it has given it up there.
    fn past_owner(&self) -> bool {
        self.header.op.is_write() && self.header.flags.has(Flags::ALL)
    }

    /// The key's value has this length, as it travels.
    fn saw(&self, rules: &Rules, len: usize) {
        let most = max_payload(self.store) - HEADER_LEN - usize::from(self.header.key_len);
        rules.sizes.saw(&self.header.key_hash, len, most);
    }

    /// Makes the request's datagram anew under its id: stores must see copies of the one before as
    /// the same request.
    fn sign_again(&mut self, rules: &Rules, now_ns: u64) {
        let Header { client, request, .. } = self.header;
        self.sign(rules, Id { client, request }, now_ns);
    }

    /// Gives the request an id and the datagram its header, tag and padding.
    fn sign(&mut self, rules: &Rules, id: Id, now_ns: u64) {
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
