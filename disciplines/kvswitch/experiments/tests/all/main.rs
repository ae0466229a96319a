//! What experiments of kvswitch measure without a rack, in one program.

mod cost;
