//! What a read costs that a holder answers from its own memory, over a look-up in a hash map.
//!
//! A holder keeps every key, granted by a store that is played here. Both sides read the same keys
//! in the same order and copy each value into one buffer.

use std::{hint::black_box, sync::Arc, time::Instant};

use anyhow::{Context, ensure};
use holder::{Cache, Holder, HolderOptions, Miss};
use wire::{
    Cluster, Epoch, Flags, Header, HolderProof, NODE_HOLDER, Op, Packet, Secret, Status,
    TENANT_OPEN, maps::HashMap, mixed,
};

use crate::{
    Options,
    report::{Report, Side, Target::AtMost},
};

/// Its row.
const ROW: &str = "local_hit_over_hashmap_get";
const MOST: f64 = 4.0;
const KEYS: usize = 10_000;
const VALUE_LEN: usize = 128;
const READS: usize = 200_000;
const BYTES: usize = 64 << 20;
/// A time at which the lease holds that is lent at 1 s.
const NOW_NS: u64 = 1_000_000_000;
const CLIENT: u64 = 1;

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|number| format!("key:{number:012}").into_bytes()).collect()
}

/// What a store answers that grants everything.
fn answer(asked: &Header) -> Option<Header> {
    let reply = Header { client: CLIENT, request: asked.request, ..Header::new(asked.op.reply()?) };
    match asked.op {
        Op::HolderLeaseRequest => Some(Header {
            epoch: Epoch::new(NODE_HOLDER, 0),
            version: asked.version,
            key_hash: HolderProof { token: 1, term: 1 }.to_hash(),
            expiry_ms: 60_000,
            ..reply
        }),
        Op::HolderFetch => Some(Header {
            epoch: asked.epoch,
            key_hash: asked.key_hash,
            flags: Flags::GRANT,
            status: Status::Ok,
            version: 1,
            ..reply
        }),
        _ => None,
    }
}

/// A cache that has every key.
fn filled(keys: &[Vec<u8>], value: &[u8]) -> anyhow::Result<Arc<Cache>> {
    let cluster = Cluster::single(([127, 0, 0, 1], wire::PORT).into(), 1);
    let store = cluster.stores[0].address;
    let cache = Arc::new(Cache::new(BYTES, Holder::stores(&cluster)));
    let options = HolderOptions { tenant: TENANT_OPEN, client: CLIENT, first_epoch: 1 };
    let holder = Holder::new(&cluster, options, cache.clone(), NOW_NS);
    let mut holder = holder.context("the open tenant")?;
    for key in keys {
        let hash = cache.hash(key);
        for _ in 0..100 {
            match cache.read(hash, key, NOW_NS, |_| ()) {
                Ok(()) => break,
                Err(Miss::Elsewhere | Miss::AtStore) => {}
                Err(Miss::Wanted) => holder.want(hash, key, NOW_NS),
            }
            while let Some((_, bytes)) = holder.next_datagram() {
                let asked = Packet::decode(&bytes)?;
                let Some(header) = answer(&asked.header) else { continue };
                let value = if header.op == Op::HolderGrant { value } else { &[] };
                let reply = Packet::new(header, asked.key, value).to_bytes(&Secret::NONE)?;
                holder.take(&reply, store, NOW_NS);
            }
        }
    }
    ensure!(cache.kept().1 == keys.len(), "of {KEYS} keys {} are kept", cache.kept().1);
    Ok(cache)
}

/// Nanoseconds of each read.
fn timed(mut read: impl FnMut(usize)) -> f64 {
    let began = Instant::now();
    (0..READS).for_each(|at| read(mixed(at as u64) as usize % KEYS));
    began.elapsed().as_secs_f64() * 1e9 / READS as f64
}

/// Measures the row and adds it to the report.
///
/// # Errors
/// A key is not kept.
pub fn measure(options: &Options, report: &mut Report, say: &impl Fn(&str)) -> anyhow::Result<()> {
    if !options.wants(&[ROW]) {
        return Ok(());
    }
    say("reading a holder's copies");
    let (keys, value) = (keys(), vec![b'v'; VALUE_LEN]);
    let cache = filled(&keys, &value)?;
    let pairs = keys.iter().map(|key| (key.clone(), value.clone().into_boxed_slice()));
    let map: HashMap<Vec<u8>, Box<[u8]>> = pairs.collect();
    let mut buffer = Vec::with_capacity(VALUE_LEN);
    let (mut ours, mut theirs) = (vec![], vec![]);
    for _ in 0..options.batches {
        let mut copy = |value: &[u8]| {
            buffer.clear();
            buffer.extend_from_slice(value);
            black_box(&buffer);
        };
        ours.push(timed(|at| {
            let key = &keys[at];
            _ = cache.read(cache.hash(key), key, NOW_NS, &mut copy);
        }));
        theirs.push(timed(|at| map.get(&keys[at]).map_or((), |value| copy(value))));
    }
    let sides = [Side::new("a hit", &ours), Side::new("a look-up", &theirs)];
    report.ratio(ROW, AtMost(MOST), "ns", sides);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_is_read_is_a_hit() {
        let (keys, value) = (keys(), [b'v'; VALUE_LEN]);
        let cache = filled(&keys, &value).unwrap();
        let is_hit = |key: &Vec<u8>| {
            cache.read(cache.hash(key), key, NOW_NS, |copy| assert_eq!(copy, value)).is_ok()
        };
        assert!(keys.iter().all(is_hit));
    }
}
