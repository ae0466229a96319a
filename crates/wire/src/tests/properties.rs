//! Properties of encoding and decoding over generated packets and bytes: the part of fuzzing that
//! runs on stable Rust with every `cargo test`. `fuzz/` has the unbounded part.

use crate::{
    Cluster, Epoch, Flags, HEADER_LEN, Header, KeyHash, MAX_KEY, Op, Packet, Secret, Status,
    max_value, partition_of,
};
use proptest::{collection::vec, prelude::*, sample::select};

fn any_header() -> impl Strategy<Value = Header> {
    let marks = (select(Op::ALL), 0u8..16, 0u8..15, any::<[u16; 3]>());
    let numbers = (any::<[u32; 2]>(), any::<[u8; 16]>(), any::<[u64; 4]>());
    let total = prop_oneof![Just(0u32), 20_000_000u32..];
    (marks, numbers, total).prop_map(
        |((op, flags, status, halves), (words, hash, longs), total)| Header {
            flags: Flags::from_bits(flags),
            status: Status::from_bits(status).expect("0 to 9 are assigned"),
            life: halves[0],
            node: halves[1],
            part: if total > 0 { halves[2] } else { 0 },
            total,
            tenant: words[0],
            expiry_ms: words[1],
            client: longs[2],
            request: longs[3],
            key_hash: KeyHash(hash),
            epoch: Epoch(longs[0]),
            version: longs[1],
            ..Header::new(op)
        },
    )
}

/// A packet that can be encoded: header, key, value.
fn any_packet() -> impl Strategy<Value = (Header, Vec<u8>, Vec<u8>)> {
    any_header().prop_flat_map(|header| {
        let key = if header.op.has_key() { 1..=MAX_KEY } else { 0..=0 };
        let value = if header.op.may_have_value() { 0..=max_value(MAX_KEY) } else { 0..=0 };
        (Just(header), vec(any::<u8>(), key), vec(any::<u8>(), value))
    })
}

fn encoded(header: Header, key: &[u8], value: &[u8], secret: &Secret, padding: usize) -> Vec<u8> {
    let mut bytes = vec![];
    Packet::new(header, key, value).encode(secret, &mut bytes).expect("lengths are possible");
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        (header, key, value) in any_packet(), secret: [u8; 16], padding in 0usize..200,
    ) {
        let secret = Secret(secret);
        let bytes = encoded(header, &key, &value, &secret, padding);
        let packet = Packet::decode(&bytes).unwrap();
        prop_assert!(packet.tag_is_valid(&secret));
        prop_assert_eq!((packet.key, packet.value), (&key[..], &value[..]));
        let Header { key_len, value_len, tag, .. } = packet.header;
        prop_assert_eq!((key_len as usize, value_len as usize), (key.len(), value.len()));
        prop_assert_eq!(packet.header, Header { key_len, value_len, tag, ..header });
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(bytes in vec(any::<u8>(), 0..2000)) {
        let _ = Packet::decode(&bytes);
    }

    /// Random bytes hardly pass the magic; these have plausible heads, so that every check
    /// is reached.
    #[test]
    fn any_plausible_bytes_are_a_packet_or_an_error(
        op in select(Op::ALL), marks: u8, lengths: [u8; 3], whole: bool, bytes in vec(any::<u8>(), 80..1600),
    ) {
        let mut packet = bytes;
        packet[..2].copy_from_slice(&[0xA2, lengths[0]]);
        packet[40..44].copy_from_slice(&[op as u8, marks, lengths[1] % 8, lengths[2]]);
        if whole {
            packet[50..56].fill(0);
        }
        if let Ok(decoded) = Packet::decode(&packet) {
            let end = HEADER_LEN + decoded.key.len() + decoded.value.len();
            prop_assert!(end <= packet.len());
            let again = encoded(decoded.header, decoded.key, decoded.value, &Secret::NONE, 0);
            // All but the tag: the header holds nothing that decoding forgets.
            prop_assert_eq!(&again[..72], &packet[..72]);
            prop_assert_eq!(&again[80..], &packet[80..end]);
        }
    }

    #[test]
    fn cut_off_bytes_are_an_error((header, key, value) in any_packet(), at: prop::sample::Index) {
        let bytes = encoded(header, &key, &value, &Secret::NONE, 0);
        prop_assert!(Packet::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn a_flipped_bit_before_the_value_is_noticed(
        (header, key, value) in any_packet(), first: u8, at: prop::sample::Index, bit in 0u8..8,
    ) {
        let secret = Secret([first | 1; 16]);
        let mut bytes = encoded(header, &key, &value, &secret, 0);
        let at = at.index(HEADER_LEN + key.len());
        bytes[at] ^= 1 << bit;
        if let Ok(packet) = Packet::decode(&bytes) {
            prop_assert!(!packet.tag_is_valid(&secret), "bit {bit} of byte {at}");
        }
    }

    #[test]
    fn a_value_or_padding_is_not_signed(
        (header, key, value) in any_packet(), at: prop::sample::Index, padding in 1usize..50,
    ) {
        let secret = Secret([7; 16]);
        let mut bytes = encoded(header, &key, &value, &secret, padding);
        let signed = HEADER_LEN + key.len();
        let len = bytes.len();
        bytes[signed + at.index(len - signed)] ^= 0xff;
        prop_assert!(Packet::decode(&bytes).unwrap().tag_is_valid(&secret));
    }

    #[test]
    fn partitions_are_in_range_and_rise_with_the_hash(a: [u8; 16], b: [u8; 16], partitions in 1u32..) {
        let (a, b) = (KeyHash(a), KeyHash(b));
        let (of_a, of_b) = (partition_of(a, partitions), partition_of(b, partitions));
        prop_assert!(of_a < partitions && of_b < partitions);
        prop_assert!(a.high() > b.high() || of_a <= of_b);
    }

    #[test]
    fn any_text_is_a_cluster_or_an_error(text in "\\PC{0,200}") {
        let _ = Cluster::parse(&text);
    }

    #[test]
    fn a_cluster_survives_its_text(counts in vec(1u32..50, 1..20), secret: [u8; 16]) {
        let mut cluster = Cluster::single(([10, 0, 0, 1], 7117).into(), counts.iter().sum());
        cluster.stores.clear();
        let mut first = 0;
        for count in counts {
            let last = first + count - 1;
            cluster.stores.push(crate::Store { address: ([10, 0, 0, 1], 7117).into(), first, last, rack: first as u16 % 3, resp: (first % 2 == 0).then(|| "redis+unix:///run/s".into()), memcached: (first % 3 == 0).then(|| "memcacheds://h:1".into()) });
            first = last + 1;
        }
        let secret = hex::encode(secret.map(|byte| byte | 1));
        cluster.tenants.push(crate::Tenant { rate: 5, ..crate::Tenant::new(7, secret) });
        prop_assert_eq!(Cluster::parse(&cluster.to_toml()).unwrap(), cluster);
    }

    #[test]
    fn a_tenants_keys_stay_when_its_secret_changes(key in vec(any::<u8>(), 1..250), old: [u8; 16], new: [u8; 16]) {
        let [old, new] = [old, new].map(|secret| hex::encode(secret.map(|byte| byte | 1)));
        let mut cluster = Cluster::single(([10, 0, 0, 1], 7117).into(), 1);
        cluster.tenants.push(crate::Tenant::new(7, old.clone()));
        let before = cluster.secrets_of(7).unwrap();
        cluster.tenants[0] = crate::Tenant {
            also_secret: Some(old.clone()),
            hash_secret: Some(old),
            ..crate::Tenant::new(7, new)
        };
        let after = cluster.secrets_of(7).unwrap();
        prop_assert_eq!(before.hash.key_hash(7, &key), after.hash.key_hash(7, &key));
        prop_assert_eq!(before.tag, after.also);
        let mut bytes = vec![];
        Packet::new(Header::new(Op::ReadRequest), &key, &[]).encode(&before.tag, &mut bytes).unwrap();
        let packet = Packet::decode(&bytes).unwrap();
        prop_assert_eq!(after.that_signed(&packet), Some(before.tag));
        let over = crate::Secrets { also: Secret::NONE, ..after };
        prop_assert_eq!(over.that_signed(&packet).is_some(), before.tag == after.tag);
    }

    #[test]
    fn a_tenants_keys_are_on_its_stores_only(counts in vec(1u32..50, 1..20), mask: u32, partition: u32) {
        let mut cluster = Cluster::single(([10, 0, 0, 1], 7117).into(), counts.iter().sum());
        cluster.stores.clear();
        let mut first = 0;
        for (port, count) in (1..).zip(counts) {
            let last = first + count - 1;
            cluster.stores.push(crate::Store::new(([10, 0, 0, 1], port).into(), first, last));
            first = last + 1;
        }
        let all = cluster.stores.iter().map(|store| store.address);
        let stores: Vec<_> = all.filter(|address| mask >> address.port() & 1 == 1).collect();
        let some = !stores.is_empty();
        cluster.tenants.push(crate::Tenant { stores: stores.clone(), ..crate::Tenant::new(7, "09".repeat(16)) });
        cluster.check().unwrap();
        let partition = partition % cluster.partitions;
        let owner = cluster.store_of_partition(0, partition);
        prop_assert!((owner.first..=owner.last).contains(&partition));
        let store = cluster.store_of_partition(7, partition);
        prop_assert!(!some || stores.contains(&store.address));
        // Whoever may be at the owner is at the owner: its keys need not move when others'
        // stores change.
        prop_assert!(store == owner || (some && !stores.contains(&owner.address)));
    }
}

#[test]
fn lengths_that_no_packet_has_are_refused_and_nothing_is_written() {
    use crate::EncodeError::{KeyLength, ValueLength};
    let long = vec![0; 70_000];
    for (op, key, value, error) in [
        (Op::ReadRequest, 0, 0, KeyLength(0)),
        (Op::ReadRequest, 251, 0, KeyLength(251)),
        (Op::LeaseOffer, 1, 0, KeyLength(1)),
        (Op::ReadRequest, 1, 1, ValueLength(1)),
        (Op::WriteRequest, 1, 65_536, ValueLength(65_536)),
    ] {
        let mut out = vec![9];
        let packet = Packet::new(Header::new(op), &long[..key], &long[..value]);
        assert_eq!(packet.encode(&Secret::NONE, &mut out), Err(error));
        assert_eq!(out, [9]);
    }
}
