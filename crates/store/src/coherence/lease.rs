//! Rule 6: leases and their terms, one per switch.

use std::collections::BTreeMap;

use super::{Nanos, SwitchId};
use holder::mutants::{Mutant, mutant};

/// How much later than expected a request comes at the most from a switch whose clock did not stand
/// still: as much as the clock of its programs may be late, and more than a packet takes.
const ON_TIME_NS: Nanos = 100_000_000;

/// What a switch has been lent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease<A> {
    /// Another whenever the switch's lease had lapsed.
    pub term: u64,
    /// The store counts on nothing served from a copy after this.
    pub until_ns: Nanos,
    /// When the last request came that was answered.
    asked: LeaseRequest,
    /// A request has come since that was dated before it.
    went_back: bool,
    /// Where the switch's last request came from, the caller's own notion of it.
    pub address: A,
    /// The switch leaves invalidations unanswered: this lease is left to lapse.
    renewal_stopped: bool,
    /// The switch goes: it is lent nothing besides until this time, when it has gone or stays.
    leaves_until_ns: Nanos,
    /// The lease was given back: it asks for none that its clock dates before this.
    given_back: Option<LeaseRequest>,
}

/// One moment on two clocks, as far as a packet can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LeaseRequest {
    theirs_ns: Nanos,
    ours_ns: Nanos,
}

/// What two clocks did between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ElapsedTimes {
    /// As much on both, but for what packets were on their way.
    Alike,
    /// Less on theirs: they were paused.
    Paused,
    /// The earlier request came after the later one, or programs on two CPUs read a clock that one
    /// of them is late with.
    Overtaken,
    /// Theirs went back: to a snapshot, or they were started anew.
    Back,
    /// Theirs got ahead of ours by more than the first request can have been on its way for, whose
    /// answer was of use: ours stood still, or went back. It may also be another machine.
    Ahead,
}

impl LeaseRequest {
    fn passed(self, next: LeaseRequest, length_ns: Nanos) -> ElapsedTimes {
        let theirs_ns = next.theirs_ns.wrapping_sub(self.theirs_ns);
        let ours_ns = next.ours_ns.saturating_sub(self.ours_ns);
        if (1..ON_TIME_NS).contains(&theirs_ns.wrapping_neg()) {
            ElapsedTimes::Overtaken
        } else if theirs_ns.cast_signed() < 0 {
            ElapsedTimes::Back
        } else if theirs_ns > ours_ns + length_ns {
            ElapsedTimes::Ahead
        } else if theirs_ns + ON_TIME_NS < ours_ns {
            ElapsedTimes::Paused
        } else {
            ElapsedTimes::Alike
        }
    }
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
    /// No answer, for the switch is mute: it must lapse first.
    Refused,
    /// No answer: a later request was answered already.
    Overtaken,
    /// No answer: it was sent before the switch gave its lease back.
    GivenBack,
    /// No answer, for its clock or ours jumped since it last asked: it must lapse first, or what
    /// was granted and served before the jump would go on in the same term.
    OtherClock,
}

impl<A> Lease<A> {
    /// Why this request is not to be answered in the lease's term, if so. Of one that comes late
    /// nothing more comes of it: the switch's next one is on time. A switch that went back is late
    /// for ever, also when its clock has passed the last request again. One that is late and did
    /// not go back was paused, and needs its renewal the sooner.
    fn refuses(&mut self, asked: LeaseRequest, length_ns: Nanos) -> Option<LeaseAnswer> {
        let passed = self.asked.passed(asked, length_ns);
        self.went_back = match passed {
            ElapsedTimes::Alike => false,
            ElapsedTimes::Back => true,
            ElapsedTimes::Overtaken | ElapsedTimes::Paused | ElapsedTimes::Ahead => self.went_back,
        };
        match passed {
            ElapsedTimes::Overtaken => Some(LeaseAnswer::Overtaken),
            _ if mutant(Mutant::AnyClockRenewed) => None,
            ElapsedTimes::Ahead => Some(LeaseAnswer::OtherClock),
            _ => self.went_back.then_some(LeaseAnswer::OtherClock),
        }
    }

    /// Whether this request comes from before the lease was given back. When the lease would have
    /// lapsed by itself nothing of that kind is on its way any more, and a clock that is behind is
    /// one that was started anew.
    fn gave_back_since(&self, asked: LeaseRequest, length_ns: Nanos) -> bool {
        self.given_back.is_some_and(|back| {
            let earlier_ns = back.theirs_ns.wrapping_sub(asked.theirs_ns).cast_signed();
            earlier_ns > 0 && asked.ours_ns < back.ours_ns + length_ns
        })
    }

    /// Whether it was given back.
    pub fn is_given_back(&self) -> bool {
        self.given_back.is_some()
    }
}

/// Every switch's lease. There are at most 65,535 switches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leases<A> {
    by_switch: BTreeMap<SwitchId, Lease<A>>,
    length_ns: Nanos,
    first_term: u64,
}

/// How long a granter counts a lease of this length, from when it answers: 1/64 longer than the
/// holder, which is far more than two clocks drift apart in that time and than the time between
/// reading the clock and sending.
pub fn counted_ns(lent_ns: Nanos) -> Nanos {
    lent_ns + lent_ns / 64
}

#[cfg(test)]
thread_local! {
    /// How often a lease was looked at on this thread: what copies cost while they are waited for.
    pub(crate) static LOOKED_UP: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<A> Leases<A> {
    /// Leases of this length. Each switch's first term is this one, which no other life of the
    /// store comes near.
    pub fn new(length_ns: Nanos, first_term: u64) -> Leases<A> {
        Leases { by_switch: BTreeMap::new(), length_ns, first_term }
    }

    /// How long the granter counts, from when it answers.
    pub fn length_ns(&self) -> Nanos {
        counted_ns(self.length_ns)
    }

    /// A switch asks for a lease, at `asked_ns` by its own clock. While its lease holds, it is
    /// renewed in the same term, unless one of the two clocks jumped. Otherwise a new term begins,
    /// which this switch never had. Terms have no order: a switch only asks whether it is the one
    /// it knows. An answer of an earlier term that comes late does not bring it back: the lease in
    /// it ended before the next term began.
    pub fn request(
        &mut self,
        switch: SwitchId,
        address: A,
        asked_ns: Nanos,
        now_ns: Nanos,
    ) -> LeaseAnswer {
        let asked = LeaseRequest { theirs_ns: asked_ns, ours_ns: now_ns };
        let length_ns = self.length_ns();
        let parts = if mutant(Mutant::LeaseCutShort) { 2 } else { 1 };
        let until_ns = now_ns + length_ns / parts;
        let previous = self.by_switch.get_mut(&switch);
        if let Some(lease) = previous.filter(|lease| now_ns < lease.until_ns) {
            if lease.renewal_stopped {
                return LeaseAnswer::Refused;
            }
            if let Some(refusal) = lease.refuses(asked, length_ns) {
                return refusal;
            }
            lease.asked = asked;
            lease.until_ns = until_ns;
            lease.address = address;
            return LeaseAnswer::Lent { term: lease.term, new_term: false };
        }
        let last = self.by_switch.get(&switch);
        if last.is_some_and(|lease| lease.gave_back_since(asked, length_ns)) {
            return LeaseAnswer::GivenBack;
        }
        let last = last.map(|lease| lease.term);
        let raised = u64::from(!mutant(Mutant::TermNotRaised));
        // The switch's clock goes in: were it we who went back to a snapshot, a count alone would
        // come to the same terms again.
        let their_clock = u64::from((asked_ns >> 20) as u32);
        let term = last.map_or(self.first_term, |term| term.wrapping_add(raised));
        let term = term.wrapping_add(raised * their_clock);
        let lease = Lease {
            term,
            until_ns,
            asked,
            went_back: false,
            address,
            renewal_stopped: false,
            leaves_until_ns: 0,
            given_back: None,
        };
        self.by_switch.insert(switch, lease);
        LeaseAnswer::Lent { term, new_term: true }
    }

    /// The term of each switch's first lease.
    pub fn first_term(&self) -> u64 {
        self.first_term
    }

    /// Whether a switch that has no lease asks for one at a time, by its own clock, that is no
    /// later than when it last asked, or before it gave its lease back: that was heard before, or
    /// the switch was started anew.
    pub fn may_be_repeated(&self, switch: SwitchId, asked_ns: Nanos, now_ns: Nanos) -> bool {
        let last = self.by_switch.get(&switch).filter(|lease| now_ns >= lease.until_ns);
        last.is_some_and(|lease| {
            let since_ns = |known: LeaseRequest| asked_ns.wrapping_sub(known.theirs_ns);
            let is_old = since_ns(lease.asked).cast_signed() <= 0
                || lease.given_back.is_some_and(|back| since_ns(back).cast_signed() < 0);
            let asked = LeaseRequest { theirs_ns: asked_ns, ours_ns: now_ns };
            is_old && !lease.gave_back_since(asked, self.length_ns())
        })
    }

    /// The term of a switch's lease, if it holds one now.
    pub fn term(&self, switch: SwitchId, now_ns: Nanos) -> Option<u64> {
        #[cfg(test)]
        LOOKED_UP.with(|count| count.set(count.get() + 1));
        self.by_switch.get(&switch).filter(|lease| now_ns < lease.until_ns).map(|lease| lease.term)
    }

    /// Whether a switch holds a lease of this very term now. Otherwise copies granted in the term
    /// are dead.
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
        if let Some(lease) = self.by_switch.get_mut(&switch).filter(|lease| lease.term == term) {
            lease.renewal_stopped = true;
        }
    }

    /// Whether a switch's lease was let run out, because it did not answer.
    pub fn is_stopped(&self, switch: SwitchId) -> bool {
        self.by_switch.get(&switch).is_some_and(|lease| lease.renewal_stopped)
    }

    /// Whether a switch has asked for its lease of this term at `since_ns` by its own clock, or
    /// later.
    pub fn asked_since(&self, switch: SwitchId, term: u64, since_ns: Nanos) -> bool {
        self.by_switch.get(&switch).is_some_and(|lease| {
            let later_ns = lease.asked.theirs_ns.wrapping_sub(since_ns).cast_signed();
            lease.term == term && later_ns >= 0
        })
    }

    /// Whether the lease that a switch has, or had last, is of another term than this.
    pub fn has_another(&self, switch: SwitchId, term: u64) -> bool {
        self.by_switch.get(&switch).is_some_and(|lease| lease.term != term)
    }

    /// A switch is going to give its lease of this term back, at `gone_by_ns` by its own clock at
    /// the latest; none: it does not say by which time of it. It is a moment of `serves_ns` from
    /// now at the most. What was said comes late perhaps, or once more, and the switch stays, or
    /// has come back: so it is forgotten by then.
    pub fn leaves(
        &mut self,
        switch: SwitchId,
        term: u64,
        gone_by_ns: Option<Nanos>,
        serves_ns: Nanos,
        now_ns: Nanos,
    ) {
        if let Some(lease) = self.by_switch.get_mut(&switch).filter(|lease| lease.term == term) {
            let most_ns = now_ns + serves_ns;
            lease.leaves_until_ns = gone_by_ns.map_or(most_ns, |gone_by_ns| {
                let left_ns = gone_by_ns.wrapping_sub(lease.asked.theirs_ns);
                lease.asked.ours_ns.saturating_add(left_ns).min(most_ns)
            });
        }
    }

    /// Whether a switch has said that it goes, and may be about to.
    pub fn is_leaving(&self, switch: SwitchId, now_ns: Nanos) -> bool {
        self.by_switch.get(&switch).is_some_and(|lease| now_ns < lease.leaves_until_ns)
    }

    /// A switch serves nothing any more under its lease of this term, for good, nor under one that
    /// it asked for before `before_ns` by its own clock: the lease is over now. False, and nothing
    /// is changed, if its lease is of another term, or it has asked for it since: what was said of
    /// an earlier one comes late, and the switch, which began empty, serves under this one again.
    pub fn give_back(
        &mut self,
        switch: SwitchId,
        term: u64,
        before_ns: Nanos,
        now_ns: Nanos,
    ) -> bool {
        if self.asked_since(switch, term, before_ns) {
            return false;
        }
        let lease = self.by_switch.get_mut(&switch).filter(|lease| lease.term == term);
        let Some(lease) = lease else { return false };
        lease.until_ns = lease.until_ns.min(now_ns);
        if lease.given_back.is_none() {
            lease.given_back = Some(LeaseRequest { theirs_ns: before_ns, ours_ns: now_ns });
        }
        true
    }

    /// Every switch that ever asked, with its lease.
    pub fn iter(&self) -> impl Iterator<Item = (SwitchId, &Lease<A>)> {
        self.by_switch.iter().map(|(switch, lease)| (*switch, lease))
    }
}
