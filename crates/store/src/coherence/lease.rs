//! Rule 6: leases and their terms, one per switch.

use std::collections::BTreeMap;

use super::{Nanos, SwitchId};
use crate::mutants::{Mutant, mutant};

/// What a switch has been lent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<A> {
    /// Another whenever the switch's lease had lapsed.
    pub term: u64,
    /// The store counts on nothing served from a copy after this.
    pub until_ns: Nanos,
    /// Where the switch's last request came from, the caller's own notion of it.
    pub address: A,
    /// The switch leaves invalidations unanswered: this lease is left to lapse.
    renewal_stopped: bool,
}

/// The answer to a switch that asks for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// Lent, or renewed in the term it had.
    Lent {
        /// The term.
        term: u64,
        /// Whether the term is new.
        new_term: bool,
    },
    /// No answer: the switch must lapse first.
    Refused,
}

/// Every switch's lease. There are at most 65,535 switches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leases<A> {
    by_switch: BTreeMap<SwitchId, Lease<A>>,
    length_ns: Nanos,
    first_term: u64,
}

/// How long a granter counts a lease of this length, from when it answers: 1/64 longer than the holder, which is far more than two
/// clocks drift apart in that time and than the time between reading the clock and sending.
pub fn counted_ns(lent_ns: Nanos) -> Nanos {
    lent_ns + lent_ns / 64
}

impl<A> Leases<A> {
    /// Leases of this length. Each switch's first term is this one, which no other life of the store comes near.
    pub fn new(length_ns: Nanos, first_term: u64) -> Leases<A> {
        Leases {
            by_switch: BTreeMap::new(),
            length_ns,
            first_term,
        }
    }

    /// How long the granter counts, from when it answers.
    pub fn length_ns(&self) -> Nanos {
        counted_ns(self.length_ns)
    }

    /// A switch asks for a lease. While its lease holds, it is renewed in the same term. Otherwise a new term
    /// begins, which this switch never had. Terms have no order: a switch only asks whether it is the one it knows. An answer of an
    /// earlier term that comes late does not bring it back: the lease in it ended before the next term began.
    pub fn request(&mut self, switch: SwitchId, address: A, now_ns: Nanos) -> LeaseAnswer {
        let parts = if mutant(Mutant::LeaseCutShort) { 2 } else { 1 };
        let until_ns = now_ns + self.length_ns() / parts;
        let previous = self.by_switch.get_mut(&switch);
        if let Some(lease) = previous.filter(|lease| now_ns < lease.until_ns) {
            if lease.renewal_stopped {
                return LeaseAnswer::Refused;
            }
            lease.until_ns = until_ns;
            lease.address = address;
            return LeaseAnswer::Lent {
                term: lease.term,
                new_term: false,
            };
        }
        let last = self.by_switch.get(&switch).map(|lease| lease.term);
        let raised = u64::from(!mutant(Mutant::TermNotRaised));
        let term = last.map_or(self.first_term, |term| term.wrapping_add(raised));
        self.by_switch.insert(
            switch,
            Lease {
                term,
                until_ns,
                address,
                renewal_stopped: false,
            },
        );
        LeaseAnswer::Lent {
            term,
            new_term: true,
        }
    }

    /// The term of a switch's lease, if it holds one now.
    pub fn term(&self, switch: SwitchId, now_ns: Nanos) -> Option<u64> {
        self.by_switch
            .get(&switch)
            .filter(|lease| now_ns < lease.until_ns)
            .map(|lease| lease.term)
    }

    /// Whether a switch holds a lease of this very term now. Otherwise copies granted in the term are dead.
    pub fn holds(&self, switch: SwitchId, term: u64, now_ns: Nanos) -> bool {
        self.term(switch, now_ns) == Some(term)
    }

    /// When a switch's lease runs out, or ran out.
    pub fn until_ns(&self, switch: SwitchId) -> Option<Nanos> {
        self.by_switch.get(&switch).map(|lease| lease.until_ns)
    }

    /// Where a switch is.
    pub fn address(&self, switch: SwitchId) -> Option<&A> {
        self.by_switch.get(&switch).map(|lease| &lease.address)
    }

    /// Lets the lease of this term run out: the switch does not answer.
    pub fn stop_renewing(&mut self, switch: SwitchId, term: u64) {
        if let Some(lease) = self
            .by_switch
            .get_mut(&switch)
            .filter(|lease| lease.term == term)
        {
            lease.renewal_stopped = true;
        }
    }

    /// Every switch that ever asked, with its lease.
    pub fn iter(&self) -> impl Iterator<Item = (SwitchId, &Lease<A>)> {
        self.by_switch
            .iter()
            .map(|(switch, lease)| (*switch, lease))
    }
}
