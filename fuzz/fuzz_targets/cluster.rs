//! Any text is a cluster file or an error; a cluster survives its own text.
#![no_main]

#[path = "../checks/cluster.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::cluster(bytes));
