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
//! is the only place that makes datagrams, and looks first; who sends them later than that looks
//! again ([`Machine::drop_late`](crate::Machine::drop_late)).

mod outcome;
mod replies;
mod sending;

use std::{borrow::Cow, net::SocketAddr, time::Duration};

use bytes::Bytes;
use wire::{HEADER_LEN, Header, LIFE_UNKNOWN, Op, PART_BYTES};

use crate::{
    Answer, Error, Operation, Reservation,
    fit::Fit,
    operation::check_key,
    payload::{max_payload, short_payload},
    pull::Pull,
    push::Push,
    routes::Range,
    rules::{Id, Rules},
    timing::Backoff,
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
    /// Something was sent again because no answer came.
    met_silence: bool,
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
            met_silence: false,
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
}
