//! Reads that the switch answers, and those that it could answer but must not.

use harness::{Case, Expectation::*, Message, message::secret_of};

use super::world::*;

const LONG_KEY: &[u8] = &[b'k'; 250];
const ODD: &[u8] = b"odd";
const V1: &[u8] = b"x";
const V7: &[u8] = b"seven b";
const V1025: &[u8] = &[b'o'; 1025];
const LARGEST_16: &[u8] = &[b'l'; 1376];
const LARGEST_1: &[u8] = &[b'l'; 1391];
const LARGEST_250: &[u8] = &[b'l'; 1142];
const LARGEST_16_V6: &[u8] = &[b'l'; 1356];

/// Ethernet, IPv4 and UDP headers before one of ours, the key and the value.
const FRAME_OF_LARGEST_16: u64 = (14 + 20 + 8 + wire::HEADER_LEN + 16 + LARGEST_16.len()) as u64;

/// Has the switch's links carry frames of so many bytes.
fn carry(w: &World, most: u64) {
    let table = dataplane::Table::open(w.switch.backing()).expect("a table");
    table.limit_frames(most);
}

#[test]
fn answered() {
    check(&[
        Case::of("a 16-byte key and a 128-byte value, padded, without a secret")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::read(OPEN, KEY).padded(128))
            .then(Answered(V128), &["hit"]),
        cached("the same with a secret: the reply is signed")
            .packet(|_| Message::read(SIGNED, KEY).padded(128))
            .then(Answered(V128), &["hit"]),
        Case::of("more padding than needed: the reply is cut to its length")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::read(OPEN, KEY).padded(1000))
            .then(Answered(V128), &["hit"]),
        cached("no padding, with a secret: the packet grows")
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(V128), &["hit"]),
        cached("some padding, with a secret: the packet grows by the rest")
            .packet(|_| Message::read(SIGNED, KEY).padded(127))
            .then(Answered(V128), &["hit"]),
        cached("the request had no UDP checksum")
            .packet(|_| Message::read(SIGNED, KEY).without_checksum())
            .then(Answered(V128), &["hit"]),
        cached("hop limit 1: the answer starts its own way")
            .packet(|_| Message::read(SIGNED, KEY).hop_limit(1))
            .then(Answered(V128), &["hit"]),
        cached("a VLAN tag is kept")
            .packet(|_| Message::read(SIGNED, KEY).vlan(0x6005))
            .then(Answered(V128), &["hit"]),
        cached("a VLAN tag and IPv6")
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6().vlan(0x6005))
            .then(Answered(V128), &["hit"]),
    ]);
}

#[test]
fn lengths_over_ipv4() {
    check(&[
        Case::of("a 250-byte key")
            .given(|w| w.cached(SIGNED, LONG_KEY, V128))
            .packet(|_| Message::read(SIGNED, LONG_KEY))
            .then(Answered(V128), &["hit"]),
        Case::of("a 1-byte key")
            .given(|w| w.cached(SIGNED, b"k", V128))
            .packet(|_| Message::read(SIGNED, b"k"))
            .then(Answered(V128), &["hit"]),
        Case::of("odd lengths of key and value")
            .given(|w| w.cached(SIGNED, ODD, V7))
            .packet(|_| Message::read(SIGNED, ODD))
            .then(Answered(V7), &["hit"]),
        Case::of("the answer grows to the longest frame that the links carry")
            .given(|w| w.cached(SIGNED, KEY, LARGEST_16))
            .and(|w| carry(w, FRAME_OF_LARGEST_16))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Answered(LARGEST_16), &["hit"]),
        Case::of("an empty value")
            .given(|w| w.cached(OPEN, KEY, b""))
            .packet(|_| Message::read(OPEN, KEY))
            .then(Answered(b""), &["hit"]),
        Case::of("the largest value beside a 16-byte key, padded")
            .given(|w| w.cached(OPEN, KEY, LARGEST_16))
            .packet(|_| Message::read(OPEN, KEY).padded(LARGEST_16.len()))
            .then(Answered(LARGEST_16), &["hit"]),
        Case::of("the largest value beside a 1-byte key, not padded")
            .given(|w| w.cached(SIGNED, b"k", LARGEST_1))
            .packet(|_| Message::read(SIGNED, b"k"))
            .then(Answered(LARGEST_1), &["hit"]),
        Case::of("the largest value beside the largest key")
            .given(|w| w.cached(SIGNED, LONG_KEY, LARGEST_250))
            .packet(|_| Message::read(SIGNED, LONG_KEY))
            .then(Answered(LARGEST_250), &["hit"]),
    ]);
}

/// The checksum covers all of the reply; reading the packet back verifies it.
#[test]
fn lengths_over_ipv6() {
    check(&[
        Case::of("even lengths, padded")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::read(OPEN, KEY).padded(128).over_ipv6())
            .then(Answered(V128), &["hit"]),
        cached("even lengths, grown")
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
            .then(Answered(V128), &["hit"]),
        Case::of("odd key, odd value")
            .given(|w| w.cached(SIGNED, ODD, V7))
            .packet(|_| Message::read(SIGNED, ODD).over_ipv6())
            .then(Answered(V7), &["hit"]),
        Case::of("odd key, even value")
            .given(|w| w.cached(SIGNED, ODD, V128))
            .packet(|_| Message::read(SIGNED, ODD).padded(400).over_ipv6())
            .then(Answered(V128), &["hit"]),
        Case::of("even key, odd value that ends in the third sum")
            .given(|w| w.cached(SIGNED, KEY, V1025))
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
            .then(Answered(V1025), &["hit"]),
        Case::of("a 1-byte key and a 1-byte value")
            .given(|w| w.cached(SIGNED, b"k", V1))
            .packet(|_| Message::read(SIGNED, b"k").over_ipv6())
            .then(Answered(V1), &["hit"]),
        Case::of("a 250-byte key")
            .given(|w| w.cached(SIGNED, LONG_KEY, V7))
            .packet(|_| Message::read(SIGNED, LONG_KEY).over_ipv6())
            .then(Answered(V7), &["hit"]),
        Case::of("an empty value")
            .given(|w| w.cached(SIGNED, ODD, b""))
            .packet(|_| Message::read(SIGNED, ODD).padded(33).over_ipv6())
            .then(Answered(b""), &["hit"]),
        Case::of("the largest value")
            .given(|w| w.cached(SIGNED, KEY, LARGEST_16_V6))
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
            .then(Answered(LARGEST_16_V6), &["hit"]),
        Case::of("a shorter value over a longer one's bytes")
            .given(|w| {
                w.cached(SIGNED, ODD, V128);
                w.send_as("write_invalidated", Message::write(SIGNED, ODD, V7));
                w.send_as("grant_installed", w.grant(SIGNED, ODD, V7));
            })
            .packet(|_| Message::read(SIGNED, ODD).over_ipv6())
            .then(Answered(V7), &["hit"]),
    ]);
}

#[test]
fn not_answered() {
    check(&[
        Case::of("tenant 0 without padding: nobody is amplified")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::read(OPEN, KEY))
            .then(Forwarded, &["bypass_no_room", "pass_local"]),
        Case::of("tenant 0, one byte of padding too few")
            .given(|w| w.cached(OPEN, KEY, V128))
            .packet(|_| Message::read(OPEN, KEY).padded(127))
            .then(Forwarded, &["bypass_no_room", "pass_local"]),
        Case::of("the answer would be longer than what the links carry, the request is not")
            .given(|w| w.cached(SIGNED, KEY, LARGEST_16))
            .and(|w| carry(w, FRAME_OF_LARGEST_16 - 1))
            .packet(|_| Message::read(SIGNED, KEY))
            .then(Forwarded, &["bypass_no_room", "pass_local"]),
        cached("a correction request")
            .packet(|_| Message::from_client(wire::Op::CorrectionRequest, SIGNED, KEY).padded(128))
            .then(Forwarded, &["bypass_correction", "pass_local"]),
        cached("another tenant's read of the same key")
            .packet(|_| Message::read(OTHER, KEY).padded(128))
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("both tenants have the key: each gets its own value")
            .given(|w| {
                w.cached(SIGNED, KEY, V128);
                w.entry(OTHER, KEY, V7.len());
                w.send_as("grant_installed", w.grant(OTHER, KEY, V7));
            })
            .packet(|_| Message::read(OTHER, KEY))
            .then(Answered(V7), &["hit"]),
        cached("an entry whose fingerprint and bucket are right but whose key is another")
            .packet(|_| Message::read(SIGNED, b"key0000000000043").hash_of(KEY))
            .then(Forwarded, &["miss", "pass_local"]),
        cached("likewise, a key that begins with the entry's key")
            .packet(|_| Message::read(SIGNED, b"key00000000000420").hash_of(KEY))
            .then(Forwarded, &["miss", "pass_local"]),
        cached("likewise, a key that the entry's key begins with")
            .packet(|_| Message::read(SIGNED, b"key000000000004").hash_of(KEY))
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("likewise, a key that differs from the entry's by a zero byte at its end")
            .given(|w| w.cached(SIGNED, ODD, V128))
            .packet(|_| Message::read(SIGNED, b"odd\0").hash_of(ODD))
            .then(Forwarded, &["miss", "pass_local"]),
        cached("likewise, the same key of another tenant, who has found a hash that collides")
            .packet(|_| {
                let salt = |tenant: u32| u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let low =
                    secret_of(SIGNED).key_hash(SIGNED, KEY).low() ^ salt(SIGNED) ^ salt(OTHER);
                let mut read = Message::read(OTHER, KEY);
                read.header.key_hash.0[8..].copy_from_slice(&low.to_be_bytes());
                read
            })
            .then(Forwarded, &["miss", "pass_local"]),
        Case::of("likewise, 250 bytes that differ in the last")
            .given(|w| w.cached(SIGNED, LONG_KEY, V128))
            .packet(|_| {
                let other = [&LONG_KEY[..249], b"l"].concat();
                Message::read(SIGNED, &other).hash_of(LONG_KEY)
            })
            .then(Forwarded, &["miss", "pass_local"]),
    ]);
}

/// Another CPU is writing the item while it is read: what is forwarded must still reach the store.
#[test]
fn torn() {
    check(&[
        Case::of("padded, IPv4")
            .given(|w| w.cached(OPEN, KEY, V128))
            .and(|w| w.poke_item(OPEN, KEY, ItemField::Seq, &4_000_001u32.to_ne_bytes()))
            .packet(|_| Message::read(OPEN, KEY).padded(128))
            .then(Forwarded, &["bypass_torn", "pass_local"]),
        Case::of("padded, IPv6")
            .given(|w| w.cached(OPEN, KEY, V128))
            .and(|w| w.poke_item(OPEN, KEY, ItemField::Seq, &4_000_001u32.to_ne_bytes()))
            .packet(|_| Message::read(OPEN, KEY).padded(128).over_ipv6())
            .then(Forwarded, &["bypass_torn", "pass_local"]),
        cached("not padded, IPv6")
            .and(|w| w.poke_item(SIGNED, KEY, ItemField::Seq, &4_000_001u32.to_ne_bytes()))
            .packet(|_| Message::read(SIGNED, KEY).over_ipv6())
            .then(ForwardedInMeaning, &["bypass_torn", "pass_local"]),
    ]);
}

/// What flipped in a read on its way is not made right: the client's host drops the answer, as the
/// store's would have dropped the read.
#[test]
fn a_wrong_checksum_stays_wrong() {
    fn ways(w: &mut World) {
        for (key, value) in [(KEY, V128), (ODD, V7)] {
            w.cached(OPEN, key, value);
            let read = Message::read(OPEN, key).padded(128);
            for sent in [read.clone(), read.clone().over_ipv6(), read.padded(1000)] {
                let seen = |bytes: &[u8]| {
                    let run = w.switch.run(bytes, None);
                    assert_eq!(run.moved.get("hit"), Some(&1), "{:?}", run.moved);
                    harness::SeenFrame::read(&run.frame)
                };
                let frame = sent.frame();
                let mut bytes = frame.bytes();
                assert!(seen(&bytes).expect("right checksums").payload.ends_with(value));
                // A bit of the request's number, which the answer repeats.
                let payload = bytes.len() - frame.payload.len();
                bytes[payload + 20] ^= 4;
                let error = seen(&bytes).expect_err("a wrong checksum");
                assert!(error.contains("UDP checksum"), "{error}");
            }
        }
    }
    ways(&mut world());
    harness::switch::in_this_process(|| ways(&mut world()));
}
