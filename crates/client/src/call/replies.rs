//! What answers do to a call: it ends, goes on with what is missing, or is asked again.

use std::{mem, time::Duration};

use bytes::Bytes;
use wire::{Flags, GoesOn, HEADER_LEN, Header, LIFE_UNKNOWN, Op, PART_BYTES, Status};

use super::{Call, MAX_CHANGES, MAX_PADDINGS, Parts, State, Step};
use crate::{
    Error,
    pull::{Progress, Pull},
    rules::Rules,
    waiting::Reply,
};

impl Call {
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
        if self.is_refused_unseen(&header) {
            self.denied |= header.status == Status::Denied;
            return Step::Done(Err(self.timed_out(rules)));
        }
        match &mut self.parts {
            Parts::None { .. } => self.answered(rules, header, value, now_ns, random),
            Parts::Pull(_) => self.part_came(rules, header, value, now_ns),
            Parts::Push(_) => self.part_taken(rules, header, value, now_ns, random),
        }
    }

    /// Whether a store refuses a write without having looked whether it did it before, which an
    /// earlier copy of it may have come to: its partitions, its tenants or its longest value were
    /// others then.
    fn is_refused_unseen(&self, header: &Header) -> bool {
        let is_unseen = match header.status {
            Status::WrongPartition | Status::Denied => true,
            // Otherwise it is the key that is too long, for whichever copy.
            Status::TooLarge => header.version == 0,
            _ => false,
        };
        is_unseen && self.header.op.is_write() && self.met_silence && self.risked_ns.is_some()
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
            // It was refused, and why has no room. The id stays: it is answered so again.
            Status::NeedPadding if write && self.paddings < MAX_PADDINGS => {
                rules.counters.padded.add_one();
                self.paddings += 1;
                self.fit.needs(header.total as usize);
                self.sign_again(rules, now_ns);
                self.ask(rules, now_ns)
            }
            // The id stays: a late copy of this request must count as the same write.
            Status::TryAgain => {
                rules.counters.put_off.add_one();
                self.put_off = true;
                self.pause(rules, now_ns, random)
            }
            // Of parts that come unasked the first was lost, or is overtaken.
            Status::Ok if header.part > 0 && header.op == Op::ReadReply => self.go(rules, now_ns),
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
}
