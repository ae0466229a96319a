//! What a fuzzer and the tests of `wire` ask of any bytes: if they are a packet, it is encoded to
//! the same bytes again.

use wire::{Packet, Secret};

pub fn decode(bytes: &[u8]) {
    let Ok(packet) = Packet::decode(bytes) else { return };
    packet.tag_is_valid(&Secret([1; 16]));
    let mut again = vec![];
    packet.encode(&Secret::NONE, &mut again).expect("it was decoded");
    assert_eq!(again[..56], bytes[..56]);
    assert_eq!(again[64..], bytes[64..again.len()]);
}
