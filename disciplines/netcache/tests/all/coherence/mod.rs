//! The coherence rules in every state of small worlds whose switches run this discipline's C and whose store makes the real
//! decisions (`crates/model`); and each rule broken, which must be noticed.

mod exhaust;
mod mutants;
