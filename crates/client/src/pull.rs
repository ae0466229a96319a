//! A value that comes in parts: which are here, which were asked for, which are asked for next.
//!
//! Invariant: all parts that are joined have the version and the length of the first one. So what
//! is whole is what the key held when the first part was read: there the read takes place.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use wire::{Flags, Header, PART, PART_BYTES, Status};

use crate::{flow::Flow, rules::Rules, timing::Backoff};

/// Waits after a store's `TryAgain` to a part: the first, the longest.
const PUT_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));

/// The parts of one version of a value.
pub(crate) struct Pull {
    /// The answer that brought the first part.
    first: Header,
    /// The bytes from the first on without a gap. They grow with what arrives, not with what a
    /// header claims.
    joined: Vec<u8>,
    /// Parts behind a gap, by their number.
    apart: BTreeMap<usize, Bytes>,
    /// Whether switches sent all so far.
    from_switch: bool,
    /// The lowest part that was never asked for.
    next: usize,
    /// By request id.
    asked: BTreeMap<u64, PartRequest>,
    flow: Flow,
    /// A switch sends parts unasked.
    stream: Option<Stream>,
}

/// Parts that come without being asked for.
struct Stream {
    /// Until when the next one is waited for.
    until_ns: u64,
    /// So many are to come, counted from the first; the one that says so is the last.
    parts: usize,
}

/// A request for a part.
struct PartRequest {
    part: usize,
    datagram: Bytes,
    /// When it was sent, if that was only once.
    once_ns: Option<u64>,
    waits: Backoff,
    until_ns: u64,
}

/// What an answer was.
pub(crate) enum Progress {
    /// One of the parts, or nothing of meaning; others are missing.
    More,
    /// The last part that was missing.
    Whole(Header, Vec<u8>),
    /// The first part of another version.
    Changed,
    /// Nothing that can go on with these parts: the whole value is to be read again.
    Begin,
    /// An answer to the whole read.
    Final,
}

impl Pull {
    /// `first` is the answer to a read that brought the first part only. None: it is no such thing.
    pub fn new(rules: &Rules, first: Header, value: &Bytes, now_ns: u64) -> Option<Pull> {
        let total = first.total as usize;
        if first.part != 0 || value.len() != PART_BYTES || total <= PART_BYTES {
            return None;
        }
        let follows = first.flags.has(Flags::CACHED.with(Flags::ALL));
        let stream = Stream {
            until_ns: now_ns + rules.round_trip.timeout().as_nanos() as u64,
            parts: usize::MAX,
        };
        Some(Pull {
            first,
            joined: value.to_vec(),
            apart: BTreeMap::new(),
            from_switch: first.flags.has(Flags::CACHED),
            next: 1,
            asked: BTreeMap::new(),
            flow: Flow::new(),
            stream: follows.then_some(stream),
        })
    }

    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.joined.capacity() + self.apart.values().map(Bytes::len).sum::<usize>()
    }

    fn parts(&self) -> usize {
        (self.first.total as usize).div_ceil(PART_BYTES)
    }

    fn has(&self, part: usize) -> bool {
        part * PART_BYTES < self.joined.len() || self.apart.contains_key(&part)
    }

    /// An answer about the right key came.
    pub fn take(&mut self, rules: &Rules, header: &Header, value: Bytes, now_ns: u64) -> Progress {
        let asked = self.asked.get(&header.request);
        if let Some(sent_ns) = asked.and_then(|asked| asked.once_ns) {
            let time = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
            rules.round_trip.measured(time);
        }
        #[cfg(test)]
        let header = &rules.any_version(header, &self.first);
        let same = header.status == Status::Ok
            && (header.version, header.total) == (self.first.version, self.first.total);
        if same {
            return self.part_came(rules, header, value, now_ns);
        }
        // What is late, or comes unasked, says nothing that counts.
        if asked.is_none() {
            return Progress::More;
        }
        match header.status {
            Status::TryAgain => {
                self.put_off(header.request, now_ns);
                Progress::More
            }
            Status::Ok if header.part > 0 => Progress::Begin,
            Status::Ok if header.is_part() => Progress::Changed,
            Status::NeedPadding => Progress::Begin,
            _ => Progress::Final,
        }
    }

    fn part_came(&mut self, rules: &Rules, header: &Header, value: Bytes, now_ns: u64) -> Progress {
        let from = usize::from(header.part) * PART;
        let part = from / PART_BYTES;
        let len = (self.first.total as usize - from.min(self.first.total as usize)).min(PART_BYTES);
        if !from.is_multiple_of(PART_BYTES) || value.len() != len || len == 0 {
            return Progress::Begin;
        }
        self.asked.retain(|_, asked| asked.part != part);
        if self.has(part) {
            return Progress::More;
        }
        self.from_switch &= header.flags.has(Flags::CACHED);
        self.flow.came();
        if let Some(stream) = &mut self.stream {
            stream.until_ns = now_ns + rules.round_trip.timeout().as_nanos() as u64;
            if header.flags.has(Flags::CACHED) && !header.flags.has(Flags::ALL) {
                stream.parts = part + 1;
            }
        }
        self.apart.insert(part, value);
        while let Some(value) = self.apart.remove(&(self.joined.len() / PART_BYTES)) {
            self.joined.extend_from_slice(&value);
            if self.joined.len() == self.first.total as usize {
                let flags = match self.from_switch {
                    true => self.first.flags,
                    false => self.first.flags.without(Flags::CACHED),
                };
                let header = Header { flags, total: 0, ..self.first };
                return Progress::Whole(header, std::mem::take(&mut self.joined));
            }
        }
        let joined = self.joined.len() / PART_BYTES;
        self.stream.take_if(|stream| joined >= stream.parts);
        Progress::More
    }

    fn put_off(&mut self, request: u64, now_ns: u64) {
        if let Some(asked) = self.asked.get_mut(&request) {
            if asked.once_ns.take().is_some() {
                asked.waits = Backoff::new(PUT_OFF.0, PUT_OFF.1);
            }
            asked.until_ns = now_ns + asked.waits.next(0.5).as_nanos() as u64;
        }
    }

    /// The next datagram to send, with its request id, and whether it was sent before. `request`
    /// makes one for a part.
    pub fn next(
        &mut self,
        rules: &Rules,
        now_ns: u64,
        random: f64,
        request: impl FnOnce(Header) -> (u64, Bytes),
    ) -> Option<(u64, Bytes, bool)> {
        let due = self.asked.iter_mut().find(|(_, a)| a.until_ns <= now_ns);
        if let Some((id, asked)) = due {
            asked.once_ns = None;
            asked.until_ns = now_ns + asked.waits.next(random).as_nanos() as u64;
            self.flow.lost(now_ns, rules.round_trip.timeout());
            return Some((*id, asked.datagram.clone(), true));
        }
        self.stream.take_if(|stream| now_ns >= stream.until_ns);
        if self.stream.is_some() {
            return None;
        }
        while self.next < self.parts() && self.has(self.next) {
            self.next += 1;
        }
        if self.next == self.parts() || self.asked.len() >= self.flow.window() {
            return None;
        }
        let part = self.next;
        self.next += 1;
        let mut waits = Backoff::new(rules.round_trip.timeout(), rules.options.max_timeout);
        let until_ns = now_ns + waits.next(random).as_nanos() as u64;
        let (id, datagram) = request(Header {
            part: (part * PART_BYTES / PART) as u16,
            total: self.first.total,
            version: self.first.version,
            ..Header::new(wire::Op::ReadRequest)
        });
        let asked = PartRequest {
            part,
            datagram: datagram.clone(),
            once_ns: Some(now_ns),
            waits,
            until_ns,
        };
        self.asked.insert(id, asked);
        Some((id, datagram, false))
    }

    /// When the next request is to be sent again, if there is one.
    pub fn until_ns(&self) -> u64 {
        let asked = self.asked.values().map(|asked| asked.until_ns);
        let stream = self.stream.as_ref().map(|stream| stream.until_ns);
        asked.chain(stream).min().unwrap_or(u64::MAX)
    }
}
