//! Phases that go through every key once: writing it, or reading it to see who answers.

use std::collections::VecDeque;

use anyhow::anyhow;
use wire::{Packet, Status};

use super::{Arrivals, window::SentRequest};

/// A request without an answer is sent again after so long.
pub(super) const AGAIN_NS: u64 = 100_000_000;
/// A request that was refused (the store does not know the tenant yet, or takes no writes yet) is
/// sent again after so long.
const REFUSED_NS: u64 = 20_000_000;
/// Most requests under way.
const OUTSTANDING: usize = 256;

/// Keys that are still to be asked for, as (index of the tenant, key): tenant by tenant, then those
/// that need another try.
pub(super) struct EachKey {
    outstanding: usize,
    keys: u64,
    /// Requests in all, and how many of them were sent once.
    all: u64,
    begun: u64,
    again: VecDeque<(u16, u32)>,
    /// Refused ones and when they may go again, in order of time.
    later: VecDeque<(u64, u16, u32)>,
    last_refusal: Option<Status>,
}

impl EachKey {
    /// # Errors
    /// Arrivals do not say how many may be under way.
    pub fn new(arrivals: Arrivals, tenants: usize, keys: usize) -> anyhow::Result<EachKey> {
        let Arrivals::Closed(outstanding) = arrivals else {
            anyhow::bail!(
                "load: going through all keys needs closed arrivals: how many requests are under way"
            );
        };
        Ok(EachKey {
            outstanding: outstanding.clamp(1, OUTSTANDING),
            keys: keys as u64,
            all: tenants as u64 * keys as u64,
            begun: 0,
            again: VecDeque::new(),
            later: VecDeque::new(),
            last_refusal: None,
        })
    }

    /// How many are neither answered nor under way.
    pub fn left(&self) -> u64 {
        self.all - self.begun + (self.again.len() + self.later.len()) as u64
    }

    /// When the next may be asked for, with so many under way.
    pub fn next_ns(&self, open: usize) -> u64 {
        if open >= self.outstanding {
            u64::MAX
        } else if self.begun < self.all || !self.again.is_empty() {
            0
        } else {
            self.later.front().map_or(u64::MAX, |(at, ..)| *at)
        }
    }

    /// The next to be asked for, with so many under way.
    pub fn next(&mut self, open: usize, now_ns: u64) -> Option<(u16, u32)> {
        while self.later.front().is_some_and(|(at, ..)| *at <= now_ns) {
            let ready = self.later.pop_front();
            self.again.extend(ready.map(|(_, tenant, key)| (tenant, key)));
        }
        if open >= self.outstanding {
            return None;
        }
        if self.begun == self.all {
            return self.again.pop_front();
        }
        let at = self.begun;
        self.begun += 1;
        Some(((at / self.keys) as u16, (at % self.keys) as u32))
    }

    /// One that was lost is to be asked for again.
    pub fn again(&mut self, tenant: u16, key: u32) {
        self.again.push_back((tenant, key));
    }

    /// Whether this answer refuses; then it is to be asked for again, a little later.
    pub fn is_refused(&mut self, packet: &Packet, sent: &SentRequest, now_ns: u64) -> bool {
        let status = packet.header.status;
        if matches!(status, Status::Ok | Status::NotFound) {
            return false;
        }
        self.last_refusal = Some(status);
        self.later.push_back((now_ns + REFUSED_NS, sent.tenant, sent.key));
        true
    }

    /// The error when `left` requests were not answered in time.
    pub fn not_answered(&self, left: u64, seconds: f64) -> anyhow::Error {
        let refusal = match self.last_refusal {
            Some(status) => format!("{status:?}"),
            None => "none".into(),
        };
        anyhow!(
            "load: {left} of {} requests were not answered within {seconds} s (last refusal: {refusal})",
            self.all
        )
    }
}
