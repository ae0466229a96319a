//! What a discipline's folder has for whoever measures.

use lab::steered::Program;
use rmt::{Pipeline, PublishedUsage};

use crate::{Definition, tenants::Neighbour};

/// What is measured of a discipline, and what its paper says.
pub struct Paper {
    /// The discipline that it is about, or the first of several.
    pub discipline: &'static str,
    /// Its experiments, in the order in which they are listed.
    pub experiments: &'static [Definition],
    /// The processes that these start beside those of the lab.
    pub programs: &'static [Program],
    /// The discipline's tables as a switch chip would have them, if it declares them.
    pub pipeline: Option<Pipeline>,
    /// What the paper says that its authors' system takes of a chip, and others that they built.
    pub published: &'static [PublishedUsage],
    /// What puts one of its tenants beside others, if their keys are not at stores.
    pub neighbour: Option<Neighbour>,
}
