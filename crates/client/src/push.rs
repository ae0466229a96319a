//! A value that goes up in parts: which the store has, which are under way, which go next.
//!
//! The store says with each Taken which part it misses first, as TCP acknowledges bytes, and the
//! same is made of it: a part that it goes on missing while later ones arrive is sent again at
//! once, and after a silence the first that is missing.

use std::time::Duration;

use bytes::Bytes;
use wire::{PART, PART_BYTES};

use crate::{flow::Flow, rules::Rules, timing::Backoff};

/// Parts that arrive after one that is missing, before it is taken for lost: fewer are taken for
/// reordered.
const REORDERED: usize = 3;

/// The parts of a write. Part numbers count from 0.
pub(crate) struct Push {
    value: Bytes,
    /// The first part that the store misses, as far as it said.
    missing: usize,
    /// The lowest part that was not sent since the store was last believed to have nothing from
    /// there on.
    next: usize,
    /// Parts that were sent at least once to this life of the store.
    sent: usize,
    /// The part to send again next.
    again: Option<usize>,
    /// Parts below this one that turn out to be missing were lost with one that was sent again.
    recovering: usize,
    /// Answers since, that name the same missing part.
    repeated: usize,
    /// After a silence: one part asks what the store has, and the answer is believed even if it
    /// names an earlier part than those before.
    humble: bool,
    /// A part and when it was sent; none: a loss has made it ambiguous which datagram will be
    /// answered.
    timed: Option<(usize, u64)>,
    flow: Flow,
    waits: Backoff,
    until_ns: u64,
    /// Nothing is sent until then.
    paused_until_ns: Option<u64>,
}

impl Push {
    /// Of a value that no packet holds.
    pub fn new(rules: &Rules, value: Bytes) -> Push {
        Push {
            value,
            missing: 0,
            next: 0,
            sent: 0,
            again: None,
            recovering: 0,
            repeated: 0,
            humble: false,
            timed: None,
            flow: Flow::new(),
            waits: Backoff::new(rules.round_trip.timeout(), rules.options.max_timeout),
            until_ns: 0,
            paused_until_ns: None,
        }
    }

    pub fn parts(&self) -> usize {
        self.value.len().div_ceil(PART_BYTES)
    }

    /// Parts that were sent to the store's present life.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Length of the whole in bytes.
    pub fn total(&self) -> u32 {
        self.value.len() as u32
    }

    /// A part: its field in the header, and its bytes.
    pub fn part(&self, number: usize) -> (u16, &[u8]) {
        let from = number * PART_BYTES;
        let to = self.value.len().min(from + PART_BYTES);
        ((from / PART) as u16, &self.value[from..to])
    }

    /// The store has nothing, and lives another life than those before.
    pub fn begin_again(&mut self, rules: &Rules) {
        self.sent = 0;
        self.go_back(rules, 0);
    }

    /// Everything from this part on is sent again.
    fn go_back(&mut self, rules: &Rules, part: usize) {
        self.missing = part;
        self.next = part;
        self.again = None;
        self.recovering = 0;
        self.repeated = 0;
        self.humble = false;
        self.timed = None;
        self.wait_afresh(rules);
    }

    fn wait_afresh(&mut self, rules: &Rules) {
        self.waits = Backoff::new(rules.round_trip.timeout(), rules.options.max_timeout);
        self.until_ns = 0;
    }

    /// The store put the write off.
    pub fn pause(&mut self, until_ns: u64) {
        self.paused_until_ns = Some(until_ns);
    }

    /// Whether it did, and the time is not yet over.
    pub fn is_paused(&self) -> bool {
        self.paused_until_ns.is_some()
    }

    /// The store took a part and says which it misses first, as its field in the header. None: no
    /// such part is there.
    pub fn taken(&mut self, rules: &Rules, part: u16, now_ns: u64, random: f64) -> Option<()> {
        let part = usize::from(part) * PART / PART_BYTES;
        if part >= self.parts() || part > self.sent {
            return None;
        }
        if part > self.missing {
            self.advance(rules, part, now_ns, random);
        } else if part < self.missing {
            // It is late; or, as a silence shows, the store has forgotten what it had taken.
            if self.humble {
                self.go_back(rules, part);
            }
        } else {
            self.repeated += 1;
            let behind = self.next.saturating_sub(part + 1).max(1);
            if self.repeated >= REORDERED.min(behind) && part >= self.recovering {
                self.recovering = self.next;
                self.lost(rules, now_ns);
            }
        }
        self.humble = false;
        Some(())
    }

    fn advance(&mut self, rules: &Rules, part: usize, now_ns: u64, random: f64) {
        (self.missing..part).for_each(|_| self.flow.came());
        self.missing = part;
        self.next = self.next.max(part);
        self.repeated = 0;
        self.again = None;
        if let Some((_, sent_ns)) = self.timed.take_if(|(timed, _)| *timed < part) {
            let time = Duration::from_nanos(now_ns.saturating_sub(sent_ns));
            rules.round_trip.measured(time);
        }
        self.wait_afresh(rules);
        self.until_ns = now_ns + self.waits.next(random).as_nanos() as u64;
        if part < self.recovering {
            self.again = Some(part);
        }
    }

    /// The first missing part is to be sent again.
    fn lost(&mut self, rules: &Rules, now_ns: u64) {
        self.again = Some(self.missing);
        self.timed = None;
        self.flow.lost(now_ns, rules.round_trip.timeout());
    }

    /// The time has come, or not yet.
    pub fn timer(&mut self, rules: &Rules, now_ns: u64) {
        if let Some(until_ns) = self.paused_until_ns {
            if now_ns >= until_ns {
                self.paused_until_ns = None;
                self.wait_afresh(rules);
                self.probe(rules, now_ns);
            }
        } else if now_ns >= self.until_ns {
            self.probe(rules, now_ns);
        }
    }

    /// One part alone asks what the store has.
    fn probe(&mut self, rules: &Rules, now_ns: u64) {
        self.lost(rules, now_ns);
        self.recovering = self.next;
        self.humble = true;
    }

    /// The part to send next, and whether it was sent before. `known`: the store's life is; else
    /// one part asks for it.
    pub fn next(&mut self, known: bool, now_ns: u64, random: f64) -> Option<(usize, bool)> {
        if self.is_paused() {
            return None;
        }
        let window = if known { self.flow.window() } else { 1 };
        let (part, again) = match self.again.take() {
            Some(part) => (part, true),
            None if self.humble => return None,
            None if self.next < self.parts() && self.next - self.missing < window => {
                self.next += 1;
                (self.next - 1, self.next - 1 < self.sent)
            }
            None => return None,
        };
        self.sent = self.sent.max(part + 1);
        if !again {
            self.timed.get_or_insert((part, now_ns));
        }
        if part == self.missing {
            self.until_ns = now_ns + self.waits.next(random).as_nanos() as u64;
        }
        Some((part, again))
    }

    /// When [`Push::timer`] is to be called.
    pub fn until_ns(&self) -> u64 {
        self.paused_until_ns.unwrap_or(self.until_ns)
    }
}
