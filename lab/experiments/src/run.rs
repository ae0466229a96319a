//! One run of an experiment: what `Experiment::run` hands to the code that measures, and that code
//! to each rig that it builds.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use hunt::ForbiddenCounts;
use lab::progress::Progress;

use crate::{Options, parts::Parts};

/// What all rigs and generators of a run have seen of what must never be.
pub(crate) type NeverCounts = Rc<RefCell<ForbiddenCounts>>;

/// Searches of a run for what a rack carries.
#[derive(Clone, Default)]
pub(crate) struct Searches(Rc<Cell<[u64; 2]>>);

impl Searches {
    /// Takes note of one, and whether the rate that it found passed twice.
    pub fn found(&self, is_confirmed: bool) {
        let [all, unconfirmed] = self.0.get();
        self.0.set([all + 1, unconfirmed + u64::from(!is_confirmed)]);
    }

    /// How many found a rate that passed once or never; none: nothing was searched.
    pub fn unconfirmed(&self) -> Option<u64> {
        let [all, unconfirmed] = self.0.get();
        (all > 0).then_some(unconfirmed)
    }
}

/// What a run knows beside its parameters.
pub struct Run<'a> {
    /// The experiment's name: of plots and files.
    pub name: &'a str,
    /// The discipline that is compared with `none`.
    pub discipline: &'a str,
    /// How to run it.
    pub options: &'a Options,
    /// Where to say what is being done.
    pub progress: &'a Progress,
    /// What its file says that it runs.
    pub(crate) parts: Parts,
    /// What must never have been counted, and was.
    pub(crate) seen: NeverCounts,
    /// What was searched for.
    pub(crate) searches: Searches,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use load::search::{self, Limits};

    use super::*;

    #[test]
    fn a_rate_that_never_passed_is_counted() {
        let searches = Searches::default();
        assert_eq!(searches.unconfirmed(), None);
        let limits = Limits {
            loss: 0.01,
            precision: 0.02,
            steps: 6,
            time: Duration::from_secs(60),
            max_rate: 1e6,
        };
        for (loss, expected) in [(0.0, 0), (0.5, 1)] {
            let found = search::saturation(400.0, &limits, |_| Ok((loss, Duration::ZERO, ())));
            searches.found(found.unwrap().is_confirmed);
            assert_eq!(searches.unconfirmed(), Some(expected));
        }
    }
}
