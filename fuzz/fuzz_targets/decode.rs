//! Any bytes are a packet or an error; a packet that is written again is the same bytes, but for tag and padding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Packet, Secret};

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::decode(bytes) else {
        return;
    };
    packet.tag_is_valid(&Secret([1; 16]));
    let mut again = vec![];
    packet
        .encode(&Secret::NONE, &mut again)
        .expect("it was decoded");
    assert_eq!(again[..56], bytes[..56]);
    assert_eq!(again[64..], bytes[64..again.len()]);
});
