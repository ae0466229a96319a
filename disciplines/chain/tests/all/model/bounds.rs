//! How large a world is.

use std::fmt;

use chain::view::{Chain, Member, Protocol, SLOTS, View};

use super::{
    key::Call,
    packets::{self, LIFE, TENANT},
};

const MS: u64 = 1_000_000;
const LEASE_MS: u32 = 250;
/// A lease outlives one step of time, not two.
const STEP_NS: u64 = 150 * MS;
const BEGIN_NS: u64 = 1_000 * MS;
/// When the first members confirmed their view to each other: they hold nothing any more at the
/// beginning.
pub const SETTLED_NS: u64 = BEGIN_NS - 20 * MS;
const FIRST: u64 = 1 << 48 | 5;

/// What the clocks show at a step of time.
pub fn now_ns(step: u8) -> u64 {
    BEGIN_NS + u64::from(step) * STEP_NS
}

/// Who is in the chain, the head first, and whether the last one is still to be filled.
pub type Arrangement = (&'static [u8], bool);

/// How much of everything happens at most, and who does what.
#[derive(Clone)]
pub struct Bounds {
    pub protocol: Protocol,
    /// One after the other. Whoever is not in the first joins with empty tables.
    pub arrangements: &'static [Arrangement],
    /// Each client's operations, in order.
    pub scripts: &'static [&'static [Call]],
    /// How often each client sends an operation again.
    pub retries: &'static [u8],
    /// Steps of time: a lease ends between the first and the second after it was confirmed.
    pub steps: u8,
    /// Agents ask about what is not known to be committed. They copy in any case.
    pub asks: bool,
    /// There is room for `1 << shift` versions of the key.
    pub shift: u8,
}

impl Bounds {
    /// How many switches take part.
    pub fn switches(&self) -> u8 {
        let slots = self.arrangements.iter().flat_map(|(slots, _)| *slots);
        slots.max().expect("somebody") + 1
    }

    /// How many clients have sessions: those up to the last that writes.
    pub fn sessions(&self) -> usize {
        let writes = |script: &&[Call]| script.iter().any(|call| *call != Call::Read);
        self.scripts.iter().rposition(writes).map_or(0, |at| at + 1)
    }

    /// The arrangements as rows have them.
    pub fn views(&self) -> Vec<View> {
        let mut members = [None; SLOTS];
        for (slot, member) in (0..self.switches()).zip(&mut members) {
            *member = Some(Member {
                address: packets::host(slot.into()),
                switch: 100 + u16::from(slot),
                life: LIFE,
            });
        }
        let view = |(number, (slots, filling)): (u64, &Arrangement)| View {
            number,
            tenant: TENANT,
            slot: None,
            protocol: self.protocol,
            life: LIFE,
            purge_below: 0,
            lease_ms: LEASE_MS,
            members,
            chains: vec![Chain {
                slots: slots.to_vec(),
                filling: *filling,
                fill_number: if *filling { number } else { 0 },
            }],
        };
        (FIRST..).zip(self.arrangements).map(view).collect()
    }
}

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.protocol, self.scripts)?;
        for (slots, filling) in self.arrangements {
            write!(f, ", {slots:?}{}", if *filling { " filling" } else { "" })?;
        }
        let asks = if self.asks { ", agents ask" } else { "" };
        let (retries, steps) = (self.retries, self.steps);
        let versions = 1 << self.shift;
        write!(f, ", {retries:?} retries, {steps} steps{asks}, {versions} versions")
    }
}
