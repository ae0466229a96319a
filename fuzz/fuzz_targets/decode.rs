//! Any bytes are a packet or an error; a packet that is written again is the same bytes, but for
//! tag and padding.
#![no_main]

#[path = "../checks/decode.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::decode(bytes));
