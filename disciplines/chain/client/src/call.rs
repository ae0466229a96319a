//! One call at a chain: what it asks, and what it has come to so far.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use chain_wire::{Ask, ROUTE_MOST, encode_list};
use client::{
    Answer, Condition, Error, Operation,
    kit::{Backoff, Request, max_payload, short_payload},
};
use wire::{Flags, HEADER_LEN, Header, KeyHash, Op, Packet, Secret};

use crate::{Options, names::Names, paths::Paths, watch::WatchMemory};

/// First wait after a switch put a request off; then it doubles.
const PUT_OFF: Duration = Duration::from_millis(1);
/// Bytes that a write has beside header, key and value on its way down a chain, at most: the list
/// of a chain's members not counted.
const PEER_BYTES: usize = 40;
/// Times that a switch may say that it has no room before the call is given up.
const FULL_TRIES: u32 = 8;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum CallKind {
    Read,
    Write,
    Delete,
    Watch(WatchMemory),
}

/// A call under way.
pub(super) struct Call {
    pub what: CallKind,
    /// As it travels.
    pub key: Bytes,
    pub hash: KeyHash,
    value: Bytes,
    condition: Condition,
    asked_len: usize,
    limit: Duration,
    begun_ns: u64,
    pub deadline_ns: u64,
    /// When something is to be done, if no answer comes before.
    pub until_ns: u64,
    /// When its timer is set to go off.
    pub timer_ns: u64,
    /// Ids that its answers have; none: it waits for its turn. Only a watch has several, the newest
    /// behind.
    pub requests: Vec<u64>,
    /// Whom it asked last.
    pub to: SocketAddr,
    /// When that was, unless it has asked more than once.
    pub once_ns: Option<u64>,
    /// Times in a row that no answer came.
    pub silent: u32,
    /// Whether it waits because a switch put it off.
    pub paused: bool,
    /// Whether it is a watch that has what it asked for.
    resting: bool,
    /// How many members were asked in vain.
    pub skip: usize,
    /// When it first sent a datagram that a short path does not carry; none: all were short.
    long_ns: Option<u64>,
    /// Whether it sent short ones, too: then nobody can tell which of them is answered.
    sent_short: bool,
    /// Whether whom it asks answered something else meanwhile.
    alive: bool,
    /// Whether it reads whatever is newest where it is asked, committed or not.
    is_relaxed: bool,
    /// Whether its datagrams leave no more room for the answer than a short path carries.
    capped: Cap,
    full: u32,
    tries: u32,
    put_off: bool,
    pub denied: bool,
    waits: Backoff,
    puts_off: Backoff,
}

/// Whether a read leaves as much room for its answer as the answer may need.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cap {
    /// As much as it may need.
    Whole,
    /// No more than a short path carries, for longer ones were not answered.
    Short,
    /// As much as it needs: a short one was answered, and did not suffice.
    Needed,
}

/// Something that chains do not do.
pub(super) fn unsupported(what: &'static str) -> Error {
    Error::Unsupported { holders: "chains of switches", what }
}

impl Call {
    /// # Errors
    /// What is asked for fits no packet, or chains do not do it.
    pub fn new(
        names: &Names,
        options: &Options,
        operation: &Operation<'_>,
        now_ns: u64,
    ) -> Result<Call, Error> {
        let (what, condition) = match *operation {
            Operation::Get { .. } | Operation::About { .. } => (CallKind::Read, Condition::Always),
            Operation::Set { ttl: None, condition, .. } => (CallKind::Write, condition),
            Operation::Delete { condition, .. } => (CallKind::Delete, condition),
            Operation::Set { .. } => return Err(unsupported("a time to live")),
            Operation::Ask { .. } => return Err(unsupported("a discipline's request")),
        };
        let name = names.name(operation.key())?;
        let value = names.envelope.close(&name, operation.value());
        let key = Bytes::copy_from_slice(name.as_ref());
        let mut call = Call::of(names, options, what, key, now_ns);
        call.value = Bytes::copy_from_slice(&value);
        call.condition = condition;
        call.asked_len = operation.value().len();
        call.check_len(names, 0, options.switches[0])?;
        Ok(call)
    }

    /// A read of whatever is newest where it is asked, committed or not.
    ///
    /// # Errors
    /// The key is not possible.
    pub fn relaxed(
        names: &Names,
        options: &Options,
        key: &[u8],
        now_ns: u64,
    ) -> Result<Call, Error> {
        let call = Call::new(names, options, &Operation::Get { key }, now_ns)?;
        Ok(Call { is_relaxed: true, ..call })
    }

    /// A watch of a key.
    pub fn watch(names: &Names, options: &Options, key: &[u8], now_ns: u64) -> Result<Call, Error> {
        let name = names.name(key)?;
        let key = Bytes::copy_from_slice(name.as_ref());
        let what = CallKind::Watch(WatchMemory::default());
        let mut call = Call::of(names, options, what, key, now_ns);
        call.deadline_ns = u64::MAX;
        Ok(call)
    }

    fn of(names: &Names, options: &Options, what: CallKind, key: Bytes, now_ns: u64) -> Call {
        Call {
            what,
            hash: names.hash(&key),
            key,
            value: Bytes::new(),
            condition: Condition::Always,
            asked_len: 0,
            limit: options.deadline,
            begun_ns: now_ns,
            deadline_ns: now_ns + options.deadline.as_nanos() as u64,
            until_ns: now_ns,
            timer_ns: now_ns,
            is_relaxed: false,
            requests: vec![],
            to: options.switches[0],
            once_ns: None,
            silent: 0,
            paused: false,
            resting: false,
            skip: 0,
            long_ns: None,
            sent_short: false,
            alive: false,
            capped: Cap::Whole,
            full: 0,
            tries: 0,
            put_off: false,
            denied: false,
            waits: Backoff::new(options.first_timeout, options.max_timeout),
            puts_off: Backoff::new(PUT_OFF, options.max_timeout),
        }
    }

    /// Whether it may change its key.
    pub fn is_write(&self) -> bool {
        matches!(self.what, CallKind::Write | CallKind::Delete)
    }

    pub fn is_watch(&self) -> bool {
        matches!(self.what, CallKind::Watch(_))
    }

    /// The op that its answers have.
    pub fn reply_op(&self) -> Op {
        match self.is_write() {
            true => Op::ChainWriteReply,
            false => Op::ChainReadReply,
        }
    }

    fn check_len(&self, names: &Names, list: usize, to: SocketAddr) -> Result<(), Error> {
        let beside = HEADER_LEN + self.key.len() + PEER_BYTES + list;
        let max = max_payload(to) - beside;
        if self.value.len() <= max {
            return Ok(());
        }
        let overhead = names.envelope.overhead();
        Err(Error::ValueLength {
            len: self.asked_len,
            max: max.saturating_sub(overhead),
            in_parts: false,
            sealed: overhead > 0,
        })
    }

    /// The datagram that asks `self.to`.
    ///
    /// # Errors
    /// As [`Call::datagram_to`].
    pub fn datagram(
        &mut self,
        names: &Names,
        number: u64,
        behind: &[SocketAddr],
        expected: usize,
    ) -> Result<Bytes, Error> {
        self.datagram_to(self.to, names, number, behind, expected)
    }

    /// The datagram that asks this address. `behind`: the members that the request names.
    /// `expected`: bytes of the value that the answer to a read has room for.
    ///
    /// # Errors
    /// The value does not fit beside the members.
    pub fn datagram_to(
        &mut self,
        to: SocketAddr,
        names: &Names,
        number: u64,
        behind: &[SocketAddr],
        expected: usize,
    ) -> Result<Bytes, Error> {
        let behind: Vec<_> = behind.iter().map(SocketAddr::ip).collect();
        let list = encode_list(&behind);
        self.check_len(names, list.len(), to)?;
        // Who is only asked for the chain needs no value, and a short datagram has a way
        // everywhere.
        let carried = if number == 0 { &[][..] } else { &self.value[..] };
        let (condition_flag, condition) = self.condition.in_header();
        let (flags, value) = match self.what {
            CallKind::Read if self.is_relaxed => (Flags::COMPARE, list),
            CallKind::Read => (Flags::NONE, list),
            CallKind::Watch(_) => (Flags::GRANT, list),
            CallKind::Write | CallKind::Delete => {
                let ask = Ask { session: names.session, condition };
                (condition_flag, [&ask.encode()[..], &list, carried].concat())
            }
        };
        let flags = match self.what {
            CallKind::Delete => flags.with(Flags::ALL),
            _ => flags,
        };
        let header = Header {
            flags,
            tenant: names.tenant,
            client: names.client,
            request: self.requests.last().copied().unwrap_or_default(),
            key_hash: self.hash,
            expiry_ms: behind.len() as u32,
            epoch: wire::Epoch(number),
            ..Header::new(match self.is_write() {
                true => Op::ChainWrite,
                false => Op::ChainRead,
            })
        };
        let mut out = Vec::with_capacity(HEADER_LEN + self.key.len() + expected.max(value.len()));
        Packet::new(header, &self.key, &value)
            .encode(&names.secrets.tag, &mut out)
            .map_err(|_| Error::KeyLength(self.key.len()))?;
        self.pad(names, expected, to, &mut out);
        self.tries += 1;
        Ok(out.into())
    }

    /// Makes room for the answer: for any chain, and for the value that a read expects where nobody
    /// is answered with more than he sent.
    fn pad(&self, names: &Names, expected: usize, to: SocketAddr, out: &mut Vec<u8>) {
        let expected = match !self.is_write() && names.secrets.tag == Secret::NONE {
            true => expected.max(ROUTE_MOST),
            false => ROUTE_MOST,
        };
        let most = match self.capped {
            Cap::Short => short_payload(to),
            Cap::Whole | Cap::Needed => max_payload(to),
        };
        let len = (HEADER_LEN + self.key.len() + expected).min(most);
        if out.len() < len {
            out.resize(len, 0);
        }
    }

    /// A datagram of this length was sent.
    pub fn sent(&mut self, to: SocketAddr, len: usize, now_ns: u64) {
        match len > short_payload(to) {
            true => self.long_ns = self.long_ns.or(Some(now_ns)),
            false => self.sent_short = true,
        }
    }

    /// Whether an answer of this length shows that the path carries long datagrams, or at least
    /// short ones; none: nobody can tell which datagram it answers.
    pub fn shows_long(&self, from: SocketAddr, len: usize) -> Option<bool> {
        match (len > short_payload(from), self.long_ns) {
            (true, _) => Some(true),
            (false, None) => Some(false),
            (false, Some(_)) => (!self.sent_short).then_some(true),
        }
    }

    /// This switch is there: it said which chain the key has.
    pub fn heard_of(&mut self, from: SocketAddr) {
        self.alive |= from == self.to;
    }

    /// No answer came in time. A long read is a short one from then on: its length is room for the
    /// answer, and who needs more says so.
    pub fn is_silent(&mut self) {
        self.silent += 1;
        self.skip += 1;
        if !self.is_write() && self.long_ns.is_some() && self.capped == Cap::Whole {
            self.capped = Cap::Short;
        }
    }

    /// A short read was answered by who needs more room. Whether it was one.
    pub fn needs_more(&mut self) -> bool {
        let was_short = self.capped == Cap::Short;
        if was_short {
            self.capped = Cap::Needed;
        }
        was_short
    }

    /// Whether nothing that it has asked is unanswered.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// Whether it is to be sent under an id that no answer has yet.
    pub fn needs_request(&self) -> bool {
        self.requests.is_empty() || self.resting
    }

    /// Asks nothing until then.
    pub fn rest(&mut self, until_ns: u64, options: &Options) {
        self.begin_waits(options);
        self.resting = true;
        self.until_ns = until_ns;
    }

    /// Waits for an answer to what was just sent.
    pub fn wait(&mut self, now_ns: u64, random: f64) {
        (self.paused, self.resting) = (false, false);
        self.until_ns = now_ns + self.waits.next(random).as_nanos() as u64;
    }

    /// Waits before it asks again, because a switch said so.
    pub fn pause(&mut self, now_ns: u64, random: f64) {
        (self.paused, self.put_off) = (true, true);
        (self.silent, self.once_ns) = (0, None);
        self.until_ns = now_ns + self.puts_off.next(random).as_nanos() as u64;
    }

    /// A switch has no room for it. If it said so often enough, how the call ends: nobody notes
    /// whom there is no room for, so whether a copy that is still on its way finds some is unknown.
    pub fn no_room(&mut self, now_ns: u64) -> Option<Error> {
        self.full += 1;
        (self.full >= FULL_TRIES).then(|| Error::OutcomeUnknown {
            store: self.to,
            after_ms: now_ns.saturating_sub(self.begun_ns) / 1_000_000,
            tries: self.tries,
            no_room: true,
            try_again: false,
            each_put_off: false,
            denied: None,
            short_path: false,
        })
    }

    /// Begins its waits anew: whom it asks next has not kept it waiting.
    pub fn begin_waits(&mut self, options: &Options) {
        (self.silent, self.once_ns) = (0, None);
        self.waits = Backoff::new(options.first_timeout, options.max_timeout);
    }

    /// The answer that this packet is.
    ///
    /// # Errors
    /// [`Error::NotOpened`].
    pub fn answer(
        &self,
        names: &Names,
        header: Header,
        value: Bytes,
        from: SocketAddr,
    ) -> Result<Answer, Error> {
        let read = header.op == Op::ChainReadReply && header.status == wire::Status::Ok;
        let value = match read {
            true => names.envelope.open(&self.key, value, from, header.flags)?,
            false => Bytes::new(),
        };
        let request =
            Request { tenant: names.tenant, value_len: self.asked_len, is_write: self.is_write() };
        Ok(Answer::new(from, request, header, value))
    }

    /// The error of a call that nobody answered for good.
    pub fn timed_out(&self, names: &Names, options: &Options, paths: &Paths) -> Error {
        let after_ms = self.limit.as_millis() as u64;
        let (store, tries, try_again) = (self.to, self.tries, self.put_off);
        let denied = self.denied.then_some(names.tenant);
        let lost = self.long_ns.is_some_and(|since_ns| paths.loses_long(store, since_ns));
        // Whoever is there answers a read, if the answer has a way.
        let short_path = lost || self.alive && !self.is_write();
        if self.tries == 0 {
            return Error::TooManyInFlight { limit: options.max_in_flight };
        }
        match self.is_write() {
            true => Error::OutcomeUnknown {
                store,
                after_ms,
                tries,
                no_room: false,
                try_again,
                each_put_off: false,
                denied,
                short_path,
            },
            false => {
                Error::Timeout { store, after_ms, tries, changes: 0, try_again, denied, short_path }
            }
        }
    }
}
