//! The discipline `kvswitch`: hot keys are replicated at servers, and the switch chooses among them.
mod control;
