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

/// The switches that are in the chain, the head first, and whether the last one is still to be
/// filled.
pub type Arrangement = (&'static [u8], bool);

/// How much of everything happens at most, and who does what.
#[derive(Clone)]
pub struct Bounds {
    pub protocol: Protocol,
    /// One after the other. Whoever is not in the first joins with empty tables.
    pub arrangements: &'static [Arrangement],
    /// The slot of each switch; of those that are not named it is their number. Two in no
    /// arrangement together may have one.
    pub slots: &'static [u8],
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
    /// How many runs stop in the midst of a packet, while other CPUs of the switch go on.
    pub stops: u8,
    /// The key has no item at first.
    pub absent: bool,
}

impl Bounds {
    /// How many switches take part.
    pub fn switches(&self) -> u8 {
        let all = self.arrangements.iter().flat_map(|(switches, _)| *switches);
        all.max().expect("somebody") + 1
    }

    fn slot_of(&self, switch: u8) -> u8 {
        self.slots.get(usize::from(switch)).copied().unwrap_or(switch)
    }

    /// Every switch that has a slot beside these, which are in the chain.
    fn members(&self, chain: &[u8]) -> [Option<Member>; SLOTS] {
        let mut members = [None; SLOTS];
        for switch in (0..self.switches()).chain(chain.iter().copied()) {
            members[usize::from(self.slot_of(switch))] = Some(Member {
                address: packets::host(switch.into()),
                switch: switch.into(),
                life: LIFE + u64::from(switch),
            });
        }
        members
    }

    /// How many clients have sessions: those up to the last that writes.
    pub fn sessions(&self) -> usize {
        let writes = |script: &&[Call]| script.iter().any(|call| !call.is_read());
        self.scripts.iter().rposition(writes).map_or(0, |at| at + 1)
    }

    /// Whether some client reads what may not be committed.
    pub fn has_relaxed_reads(&self) -> bool {
        self.scripts.iter().any(|script| script.contains(&Call::Relaxed))
    }

    /// Whether some client writes this value.
    pub fn writes(&self, value: u8) -> bool {
        let is_it = |call: &Call| match *call {
            Call::Put(it) | Call::Create(it) | Call::Swap(_, it) => it == value,
            Call::Read | Call::Relaxed | Call::Delete => false,
        };
        self.scripts.iter().any(|script| script.iter().any(is_it))
    }

    /// The arrangements as rows have them.
    pub fn views(&self) -> Vec<View> {
        let view = |(number, (switches, filling)): (u64, &Arrangement)| View {
            number,
            tenant: TENANT,
            slot: None,
            protocol: self.protocol,
            is_relaxed: self.has_relaxed_reads(),
            life: 0,
            purge_below: 0,
            lease_ms: LEASE_MS,
            members: self.members(switches),
            chains: vec![Chain {
                slots: switches.iter().map(|switch| self.slot_of(*switch)).collect(),
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
        for (switches, filling) in self.arrangements {
            write!(f, ", {switches:?}{}", if *filling { " filling" } else { "" })?;
        }
        if !self.slots.is_empty() {
            write!(f, " in slots {:?}", self.slots)?;
        }
        let asks = if self.asks { ", agents ask" } else { "" };
        let (retries, steps) = (self.retries, self.steps);
        let versions = 1 << self.shift;
        write!(f, ", {retries:?} retries, {steps} steps{asks}, {versions} versions")?;
        if self.stops > 0 {
            write!(f, ", {} runs stop", self.stops)?;
        }
        f.write_str(if self.absent { ", no item" } else { "" })
    }
}
