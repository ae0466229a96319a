//! The coherence rules in every state of small worlds whose switches run this discipline's C and
//! whose store makes the real decisions (`lab/model`); and each rule broken, which must be noticed.
//!
//! One of the slow tests: millions of states, each reached by a packet through the C. Fewer would
//! not be all.

mod exhaust;
mod mutants;
