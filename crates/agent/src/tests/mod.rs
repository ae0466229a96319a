//! The agent as a simulator drives it, without a process, a socket or a clock of its own.

mod repeat;
