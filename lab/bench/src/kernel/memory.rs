//! What a full switch's tables take of the kernel's memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::{AsFd, AsRawFd},
};

use anyhow::{Context, ensure};
use libbpf_rs::{MapCore, MapHandle, query};

use super::{
    MANY, Rig,
    hits::{KEY_LEN, Stock},
};
use crate::{
    cache::Cache,
    report::{Figure, Report, Side, Target::AtMost},
};

const VALUE_LEN: usize = 128;
/// Maps below this part of the whole are told together.
const LEAST_TOLD: f64 = 0.01;

/// What the kernel charges for a map, in bytes.
fn bytes_of(map: &MapHandle) -> anyhow::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    charged(&fs::read_to_string(&path).with_context(|| format!("reading {path}"))?)
        .with_context(|| format!("{path}: no line `memlock`"))
}

fn charged(fdinfo: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix("memlock:")?.trim().parse().ok();
    fdinfo.lines().find_map(line)
}

/// All maps that a switch's programs use or that it has pinned, each once: name and bytes.
fn maps_of(cache: &Cache) -> anyhow::Result<BTreeMap<String, u64>> {
    let programs = cache.programs()?;
    let options = query::ProgInfoQueryOptions::default().include_map_ids(true);
    let used = query::ProgInfoIter::with_query_opts(options)
        .filter(|program| programs.contains(&program.id))
        .flat_map(|program| program.map_ids);
    let mut ids: BTreeSet<u32> = used.collect();
    ensure!(!ids.is_empty(), "the kernel names no maps of the programs");
    for map in cache.pinned_maps()? {
        ids.insert(map.info()?.info.id);
    }
    let mut maps = BTreeMap::new();
    for id in ids {
        let map = MapHandle::from_map_id(id)?;
        let name = map.name().to_string_lossy().into_owned();
        *maps.entry(name).or_default() += bytes_of(&map)?;
    }
    Ok(maps)
}

/// The largest first, and the small ones together.
fn told(maps: &BTreeMap<String, u64>) -> Vec<Figure> {
    let all: u64 = maps.values().sum();
    let mut maps: Vec<_> = maps.iter().collect();
    maps.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let (large, small): (Vec<_>, Vec<_>) =
        maps.into_iter().partition(|(_, bytes)| **bytes as f64 >= LEAST_TOLD * all as f64);
    let rest: u64 = small.iter().map(|(_, bytes)| **bytes).sum();
    let per_item = |bytes: u64| bytes as f64 / f64::from(MANY);
    let mut figures: Vec<Figure> = large
        .into_iter()
        .map(|(name, bytes)| Figure::of(name, vec![per_item(*bytes)], "bytes per item"))
        .collect();
    figures.push(Figure::of(
        &format!("{} others", small.len()),
        vec![per_item(rest)],
        "bytes per item",
    ));
    figures
}

/// Everything that a full switch of that size has in the kernel, over the bytes of its keys
/// and values.
///
/// # Errors
/// The kernel refuses.
pub fn per_item(rig: &Rig, report: &mut Report, key: &str) -> anyhow::Result<()> {
    let (cache, _) = Stock::open(MANY, VALUE_LEN).load(rig, vec![])?;
    let maps = maps_of(&cache)?;
    let all: u64 = maps.values().sum();
    let payload = (KEY_LEN + VALUE_LEN) as f64;
    let sides = [
        Side::new("all maps, per item", &[all as f64 / f64::from(MANY)]),
        Side::new("key and value", &[payload]),
    ];
    report.ratio(key, AtMost(2.5), "bytes", sides);
    report.memory = told(&maps);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_charges_is_read_and_small_maps_are_told_together() {
        let fdinfo = "pos:\t0\nmap_type:\t2\nmemlock:\t4096\nmap_id:\t7\n";
        assert_eq!(charged(fdinfo), Some(4096));
        assert_eq!(charged("pos:\t0\n"), None);
        let maps = [("a", 65_536u64), ("b", 655_360), ("c", 100), ("d", 200)];
        let maps = maps.map(|(name, bytes)| (name.to_string(), bytes)).into();
        let told: Vec<_> = told(&maps).into_iter().map(|f| (f.what, f.value.median)).collect();
        assert_eq!(told[0], ("b".into(), 10.0));
        assert_eq!(told[1], ("a".into(), 1.0));
        assert_eq!(told[2], ("2 others".into(), 300.0 / 65_536.0));
    }
}
