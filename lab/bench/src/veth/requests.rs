//! What the client asks, and what a right answer is.

use wire::{Flags, Header, Op, Packet, Secret};

use super::rack::{CACHED, KEYS, VALUE_LEN, key};
use crate::packet;

const KEY_LEN: usize = 16;
/// Where memcached's value begins behind its key: ` 0 128\r\n`.
const VALUE_AT: usize = 8;

/// A read request, padded to its reply.
fn our_request(number: usize) -> anyhow::Result<Vec<u8>> {
    let key = key(number);
    let header = Header {
        client: 0xbe7c_0001,
        request: number as u64,
        key_hash: Secret::NONE.key_hash(wire::TENANT_OPEN, &key),
        ..Header::new(Op::ReadRequest)
    };
    packet::payload(header, &key, b"", VALUE_LEN, &Secret::NONE)
}

/// Whether it is the right value: each is its key again and again.
fn is_right(packet: &Packet) -> bool {
    let mut parts = packet.value.chunks(KEY_LEN);
    packet.value.len() == VALUE_LEN && parts.all(|part| part == &*packet.key)
}

fn is_reply(answer: &[u8], is_from_cache: bool) -> bool {
    Packet::decode(answer).is_ok_and(|p| {
        p.header.op == Op::ReadReply
            && p.header.flags.has(Flags::CACHED) == is_from_cache
            && is_right(&p)
    })
}

/// An answer of the switch.
pub fn is_hit(answer: &[u8]) -> bool {
    is_reply(answer, true)
}

/// An answer of a store.
pub fn is_from_store(answer: &[u8]) -> bool {
    is_reply(answer, false)
}

/// A request that came back. The client looks at its room for a value as it does at a value.
pub fn is_reflected(answer: &[u8]) -> bool {
    const ZEROS: [u8; KEY_LEN] = [0; KEY_LEN];
    let Some(room) = answer.get(wire::HEADER_LEN + KEY_LEN..) else { return false };
    Packet::decode(answer).is_ok_and(|p| p.header.op == Op::ReadRequest)
        && room.len() == VALUE_LEN
        && room.chunks(KEY_LEN).all(|part| part == ZEROS)
}

/// memcached's UDP frame header: request id, index and number of datagrams, nothing.
fn memcached_request(number: usize) -> Vec<u8> {
    let mut bytes = (number as u16).to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0]);
    bytes.extend(b"get ");
    bytes.extend(key(number));
    bytes.extend(b"\r\n");
    bytes
}

/// A value that memcached had, and the right one.
pub fn is_memcached_value(answer: &[u8]) -> bool {
    let text = answer.get(8..).and_then(|text| text.strip_prefix(b"VALUE "));
    let (Some(key), Some(value)) = (
        text.and_then(|text| text.get(..KEY_LEN)),
        text.and_then(|text| text.get(KEY_LEN + VALUE_AT..KEY_LEN + VALUE_AT + VALUE_LEN)),
    ) else {
        return false;
    };
    value.chunks(KEY_LEN).all(|part| part == key)
}

/// The same order everywhere, and not the order in memory.
fn shuffled(mut numbers: Vec<usize>) -> Vec<usize> {
    let mut random = 7u64;
    for i in (1..numbers.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        numbers.swap(i, ((random >> 33) as usize) % (i + 1));
    }
    numbers
}

/// Keys that only the store has.
pub fn missing() -> Vec<usize> {
    (CACHED..KEYS).collect()
}

/// Reads of these keys.
///
/// # Errors
/// Never for these keys.
pub fn our_requests(numbers: &[usize]) -> anyhow::Result<Vec<Vec<u8>>> {
    shuffled(numbers.to_vec()).into_iter().map(our_request).collect()
}

/// The same keys, of memcached.
pub fn memcached_requests() -> Vec<Vec<u8>> {
    shuffled((0..CACHED).collect()).into_iter().map(memcached_request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::veth::rack::value;

    #[test]
    fn only_the_right_value_is_an_answer() {
        let reply = |value: &[u8], flags| {
            let header = Header { flags, ..Header::new(Op::ReadReply) };
            packet::payload(header, &key(7), value, 0, &Secret::NONE).unwrap()
        };
        let hit = reply(&value(7), Flags::CACHED);
        assert!(is_hit(&hit) && !is_from_store(&hit) && !is_reflected(&hit));
        assert!(!is_hit(&reply(&value(8), Flags::CACHED)));
        assert!(is_from_store(&reply(&value(7), Flags::NONE)));
        assert!(is_reflected(&our_request(7).unwrap()));
        let of_memcached = |number| {
            let mut text = b"\0\x01\0\0\0\x01\0\0VALUE ".to_vec();
            text.extend([&key(7)[..], b" 0 128\r\n", &value(number), b"\r\nEND\r\n"].concat());
            text
        };
        assert!(is_memcached_value(&of_memcached(7)));
        assert!(!is_memcached_value(&of_memcached(8)));
        assert!(!is_memcached_value(b"\0\x01\0\0\0\x01\0\0END\r\n"));
    }
}
