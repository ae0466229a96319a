//! Rule 4: the copies that a write waits for, until each is known to be invalid; and how often
//! their switches are asked.

use wire::Epoch;

use super::{
    Copy, Leases, Nanos, SwitchId,
    inquiry::{BACKOFF_FIRST_NS, Inquiry},
    untold::UntoldStores,
};
use holder::mutants::{Mutant, mutant};

/// An INVALIDATE to send: to this switch, with this epoch number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invalidate {
    /// The switch.
    pub switch: SwitchId,
    /// granted(X): an acknowledgement must carry a higher number.
    pub granted: u64,
}

/// One switch whose copy is not yet known to be invalid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wait {
    copy: Copy,
    asking: Inquiry,
    /// Its acknowledgement is on its way, unasked, by what the write says.
    is_told: bool,
}

/// All that are waited for, in the order of their switches' numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    /// Begins to wait for copies. What `is_told` says of a switch: its acknowledgement is on its
    /// way, unasked.
    pub fn begin<'a>(
        copies: impl Iterator<Item = &'a Copy>,
        is_told: impl Fn(SwitchId) -> bool,
        now_ns: Nanos,
    ) -> Waits {
        let wait = |copy: &Copy| {
            let is_told = is_told(copy.switch);
            let first_ns = now_ns + if is_told { BACKOFF_FIRST_NS } else { 0 };
            Wait { copy: copy.clone(), asking: Inquiry::new(now_ns, first_ns), is_told }
        };
        Waits(copies.map(wait).collect())
    }

    /// Whether every copy is gone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for none any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Ends the wait for a switch, if its copy is such a one.
    pub fn end(&mut self, switch: SwitchId, is_over: impl Fn(&Copy) -> bool) {
        if let Ok(at) = self.0.binary_search_by_key(&switch, |wait| wait.copy.switch)
            && is_over(&self.0[at].copy)
        {
            self.0.remove(at);
        }
    }

    /// Keeps those for copies that are alive.
    pub fn retain(&mut self, alive: impl Fn(&Copy) -> bool) {
        self.0.retain(|wait| alive(&wait.copy));
    }

    /// Gives up after a while, as a mutant does.
    pub fn time_out(&mut self, now_ns: Nanos) {
        if mutant(Mutant::WaitTimesOut) {
            let timeout_ns = 10 * BACKOFF_FIRST_NS;
            self.0.retain(|wait| now_ns < wait.asking.since_ns + timeout_ns);
        }
    }

    /// How many are for such copies.
    pub fn count(&self, is_dead: impl Fn(&Copy) -> bool) -> usize {
        self.0.iter().filter(|wait| is_dead(&wait.copy)).count()
    }

    /// Stores that have to be asked after all: of the next write that comes by the same way they
    /// are asked at once.
    pub fn note_untold(&mut self, write: Epoch, untold: &mut UntoldStores, now_ns: Nanos) {
        let via = write.switch();
        for wait in &mut self.0 {
            if wait.is_told && wait.asking.next_ns <= now_ns {
                wait.is_told = false;
                untold.note((via, wait.copy.switch));
            }
        }
    }

    /// Sends what is due and returns when something is due next. A switch that has not answered for
    /// half a lease gets no further one (rule 6), so that a mute switch cannot block a write
    /// for ever.
    pub fn repeat<A>(
        &mut self,
        leases: &mut Leases<A>,
        now_ns: Nanos,
        out: &mut Vec<Invalidate>,
    ) -> Nanos {
        let mut next_ns = Nanos::MAX;
        for wait in &mut self.0 {
            let Copy { switch, granted, term } = wait.copy;
            if now_ns.saturating_sub(wait.asking.since_ns) > leases.length_ns() / 2 {
                leases.stop_renewing(switch, term);
            }
            if wait.asking.is_due(now_ns) {
                out.push(Invalidate { switch, granted });
            }
            let until_ns = leases.until_ns(switch).unwrap_or(now_ns);
            next_ns = next_ns.min(wait.asking.next_ns).min(until_ns);
        }
        next_ns
    }
}
