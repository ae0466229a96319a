//! `shortstop coord` as people use it, with the switches that it is about.

mod bad_input;
mod coordination;
mod help;

// The programs as native code need what runs them.
use dataplane as _;
