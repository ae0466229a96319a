//! Every state of small worlds in which the coherence rules hold, and in which each is broken.

mod replicas;
mod slot;
