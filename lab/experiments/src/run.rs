//! One run of an experiment: what `Experiment::run` hands to the code that measures, and that code
//! to each rig that it builds.

use std::{cell::RefCell, rc::Rc};

use hunt::ForbiddenCounts;
use lab::progress::Progress;

use crate::{Options, parts::Parts};

/// What all rigs and generators of a run have seen of what must never be.
pub(crate) type NeverCounts = Rc<RefCell<ForbiddenCounts>>;

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
}
