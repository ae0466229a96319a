//! On which switches a tenant's guaranteed pages are placed.
//!
//! Three policies go by the shortest path from the client to the store:
//! as near to the client as there is room, as near to the store, or evenly over all of the path.
//! With several clients and stores the switches of all paths count, each at its least distance from
//! a client (or store).
//!
//! The fourth goes by measured traffic. A hit on a switch saves its request the hops from there to
//! the store. The first page of a tenant has its hottest items; with requests spread over keys as
//! Zipf's law says, the page of rank `r` gets about `1/r` of what the first gets. A flow that is
//! served by `n` pages on its way gets `1/(n+1)` of that from the next page, and pages go one by
//! one where they save most. Pages on another switch of the same path count as much as those on
//! this one, because an item is cached on one switch only.
//!
//! Cost: a path for each pair of client and store, or each flow; then for `measured` a step for
//! each page, switch and way. Pairs and flows are bounded by [`FLOWS_MAX`], the ways that they take
//! by [`WAYS_MAX`], pages that are placed one by one by [`STEPS_MAX`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api::types::Policy;
use decide::SwitchId;

use crate::topology::{NodeId, Topology};

/// Pairs of client and store, or flows, that are considered; of more flows, those with the
/// highest rates.
pub const FLOWS_MAX: usize = 4096;
/// Steps in which `measured` places pages; of more pages, several at a time.
pub const STEPS_MAX: u32 = 256;
/// Different ways through the switches that are considered; of more, those with the highest rates.
pub const WAYS_MAX: usize = 256;
/// Less than this share of hops saved in addition, and pages stay where they are.
const GAIN_MIN: f64 = 0.1;

/// Measured requests of a tenant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// From where.
    pub client: IpAddr,
    /// To which store.
    pub store: IpAddr,
    /// Requests per second.
    pub rate: f64,
}

/// What a placement goes by.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// How.
    pub policy: Policy,
    /// Pages to place.
    pub quota: u32,
    /// Where the tenant's clients are; none declared: those of its traffic.
    pub clients: &'a [IpAddr],
    /// The stores that hold its keys.
    pub stores: &'a [IpAddr],
    /// Its traffic, as far as it is measured.
    pub traffic: &'a [Flow],
    /// Whether any was measured since this controller leads, of which there may be none now.
    pub had_traffic: bool,
    /// Where its pages are placed now.
    pub now: &'a BTreeMap<SwitchId, u32>,
}

/// Where pages are to be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Switches with pages, in the order in which they are to be filled.
    pub rooms: Vec<(SwitchId, u32)>,
    /// Pages for which there is no room.
    pub unplaced: u32,
}

/// Places a tenant's guaranteed pages. `capacity`: pages of each switch that are not promised to
/// other tenants, with those that are promised to this one.
pub fn place(
    wish: &Wish<'_>,
    topology: &Topology,
    capacity: &BTreeMap<SwitchId, u32>,
) -> Placement {
    let paths = paths(wish, topology);
    if paths.is_empty() {
        return place_blindly(wish, topology, capacity);
    }
    let rooms = match wish.policy {
        Policy::NearClient => fill(wish.quota, &by_distance(&paths, false, wish.now), capacity),
        Policy::NearStore => fill(wish.quota, &by_distance(&paths, true, wish.now), capacity),
        Policy::EvenSplit => split(wish.quota, &by_distance(&paths, false, wish.now), capacity),
        Policy::Measured => measured(wish, &paths, capacity),
    };
    finish(wish.quota, rooms)
}

/// A way that requests go.
struct Path {
    /// From client to store.
    switches: Vec<SwitchId>,
    /// Requests per second; 1 if nothing is measured.
    rate: f64,
    /// Links from each of the switches to the store.
    hops: Vec<u32>,
}

/// The ways of all that is known: declared clients to stores, else those of the traffic.
fn paths(wish: &Wish<'_>, topology: &Topology) -> Vec<Path> {
    let mut rates: BTreeMap<(IpAddr, IpAddr), f64> = BTreeMap::new();
    for flow in wish.traffic.iter().filter(|f| f.rate > 0.0 && f.rate.is_finite()) {
        let pair = (flow.client.to_canonical(), flow.store.to_canonical());
        *rates.entry(pair).or_default() += flow.rate;
    }
    let traffic = !rates.is_empty() && (wish.policy == Policy::Measured || wish.clients.is_empty());
    if !traffic {
        let pairs = wish.clients.iter().flat_map(|c| wish.stores.iter().map(move |s| (*c, *s)));
        rates = pairs.take(FLOWS_MAX).map(|pair| (pair, 1.0)).collect();
    }
    let mut flows: Vec<_> = rates.into_iter().collect();
    flows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    flows.truncate(FLOWS_MAX);
    // Flows between the same places go the same way.
    let mut by_way: BTreeMap<Vec<SwitchId>, f64> = BTreeMap::new();
    let mut known = BTreeMap::new();
    for ((client, store), rate) in flows {
        let (Some(from), Some(to)) = (topology.attachment(client), topology.attachment(store))
        else {
            continue;
        };
        let way = known.entry((from.clone(), to.clone())).or_insert_with(|| {
            let path = topology.path(&from, &to)?;
            let switches = path.iter().filter_map(NodeId::switch);
            Some(switches.collect::<Vec<_>>()).filter(|way| !way.is_empty())
        });
        if let Some(way) = way {
            *by_way.entry(way.clone()).or_default() += rate;
        }
    }
    let path = |(switches, rate): (Vec<SwitchId>, f64)| Path {
        hops: (1..=switches.len() as u32).rev().collect(),
        switches,
        rate,
    };
    let mut ways: Vec<_> = by_way.into_iter().collect();
    ways.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ways.truncate(WAYS_MAX);
    ways.into_iter().map(path).collect()
}

/// Switches of all paths by their least distance from an end; of equal ones, those with pages now,
/// then those of more paths, then the lower: a way more or less moves nothing.
fn by_distance(paths: &[Path], from_store: bool, now: &BTreeMap<SwitchId, u32>) -> Vec<SwitchId> {
    let mut found: BTreeMap<SwitchId, (usize, usize)> = BTreeMap::new();
    for path in paths {
        for (i, switch) in path.switches.iter().enumerate() {
            let distance = if from_store { path.switches.len() - 1 - i } else { i };
            let (least, paths) = found.entry(*switch).or_insert((distance, 0));
            *least = distance.min(*least);
            *paths += 1;
        }
    }
    let mut order: Vec<_> = found.into_iter().collect();
    let is_empty = |id: &SwitchId| now.get(id).is_none_or(|pages| *pages == 0);
    order.sort_by_key(|(id, (distance, paths))| (*distance, is_empty(id), Reverse(*paths), *id));
    order.into_iter().map(|(id, _)| id).collect()
}

/// One switch after the other.
fn fill(
    quota: u32,
    order: &[SwitchId],
    capacity: &BTreeMap<SwitchId, u32>,
) -> Vec<(SwitchId, u32)> {
    let mut left = quota;
    let rooms = order.iter().map(|id| {
        let pages = left.min(capacity.get(id).copied().unwrap_or(0));
        left -= pages;
        (*id, pages)
    });
    rooms.filter(|(_, pages)| *pages > 0).collect()
}

/// Evenly; what a switch has no room for goes to the others. If it does not go up, the first ones
/// get a page more.
fn split(
    quota: u32,
    order: &[SwitchId],
    capacity: &BTreeMap<SwitchId, u32>,
) -> Vec<(SwitchId, u32)> {
    let room = |i: usize| capacity.get(&order[i]).copied().unwrap_or(0);
    let mut smallest: Vec<usize> = (0..order.len()).collect();
    smallest.sort_by_key(|i| (room(*i), Reverse(*i)));
    let mut left = quota;
    let mut pages = vec![0; order.len()];
    for (done, i) in smallest.into_iter().enumerate() {
        // Those that follow have at least as much room, so nothing is left over but what
        // fits nowhere.
        let share = left / (order.len() - done) as u32;
        pages[i] = share.min(room(i));
        left -= pages[i];
    }
    let rooms = order.iter().copied().zip(pages);
    rooms.filter(|(_, pages)| *pages > 0).collect()
}

/// Page by page where it saves most; where the pages are now, if that is nearly as good.
fn measured(
    wish: &Wish<'_>,
    paths: &[Path],
    capacity: &BTreeMap<SwitchId, u32>,
) -> Vec<(SwitchId, u32)> {
    let best = greedy(wish.quota, paths, capacity);
    let stay = fits(wish.now, capacity)
        && sum(wish.now) == sum(&best)
        && saved(&best, paths) < (1.0 + GAIN_MIN) * saved(wish.now, paths);
    let chosen = if stay { wish.now.clone() } else { best };
    // The switch where a page is worth most is filled first.
    let mut rooms: Vec<_> = chosen.into_iter().filter(|(_, pages)| *pages > 0).collect();
    let value = |id: SwitchId| saved(&BTreeMap::from([(id, 1)]), paths);
    rooms.sort_by(|a, b| value(b.0).total_cmp(&value(a.0)).then(a.0.cmp(&b.0)));
    rooms
}

fn sum(pages: &BTreeMap<SwitchId, u32>) -> u64 {
    pages.values().map(|n| u64::from(*n)).sum()
}

fn fits(pages: &BTreeMap<SwitchId, u32>, capacity: &BTreeMap<SwitchId, u32>) -> bool {
    pages.iter().all(|(id, n)| capacity.get(id).is_some_and(|room| n <= room))
}

fn greedy(
    quota: u32,
    paths: &[Path],
    capacity: &BTreeMap<SwitchId, u32>,
) -> BTreeMap<SwitchId, u32> {
    let switches: BTreeSet<SwitchId> = paths.iter().flat_map(|p| p.switches.clone()).collect();
    let room = |id: SwitchId| capacity.get(&id).copied().unwrap_or(0);
    let mut pages: BTreeMap<SwitchId, u32> = BTreeMap::new();
    let mut left = quota;
    let step = quota.div_ceil(STEPS_MAX).max(1);
    while left > 0 {
        // Pages that each path has on its way: the rank of the next one.
        let gain = |id: SwitchId| -> f64 {
            let gain = |path: &Path| {
                let at = path.switches.iter().position(|s| *s == id)?;
                let on_path = path.switches.iter().filter_map(|s| pages.get(s)).sum::<u32>();
                Some(path.rate * f64::from(path.hops[at]) / f64::from(on_path + 1))
            };
            paths.iter().filter_map(gain).sum()
        };
        let open = switches
            .iter()
            .filter(|id| pages.get(id).copied().unwrap_or(0) < room(**id))
            .map(|id| (gain(*id), *id));
        // Of equal ones the lower id.
        let Some((_, id)) = open.reduce(|a, b| if b.0 > a.0 { b } else { a }) else { break };
        let has = pages.entry(id).or_default();
        let n = step.min(left).min(room(id) - *has);
        *has += n;
        left -= n;
    }
    pages
}

/// Hops saved per second, but for a factor: the hottest items of each path are on the switches
/// nearest to its client.
fn saved(pages: &BTreeMap<SwitchId, u32>, paths: &[Path]) -> f64 {
    let of_path = |path: &Path| {
        let mut rank = 0;
        let mut sum = 0.0;
        for (id, hops) in path.switches.iter().zip(&path.hops) {
            let n = pages.get(id).copied().unwrap_or(0);
            sum += (harmonic(rank + n) - harmonic(rank)) * f64::from(*hops);
            rank += n;
        }
        path.rate * sum
    };
    paths.iter().map(of_path).sum()
}

/// 1 + 1/2 + ... + 1/n, within a thousandth.
fn harmonic(n: u32) -> f64 {
    if n < 32 {
        return (1..=n).map(|i| 1.0 / f64::from(i)).sum();
    }
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    f64::from(n).ln() + GAMMA + 0.5 / f64::from(n)
}

/// Evenly over all switches, but for those that no path to a store could cross. Where clients are
/// known by their traffic, they may only be silent for a while: what has a place there keeps it.
fn place_blindly(
    wish: &Wish<'_>,
    topology: &Topology,
    capacity: &BTreeMap<SwitchId, u32>,
) -> Placement {
    let stores = wish.stores.iter().filter_map(|s| topology.attachment(*s));
    let stores: BTreeSet<_> = stores.collect();
    let all_known =
        !stores.is_empty() && wish.stores.iter().all(|s| topology.attachment(*s).is_some());
    let reaches = |id: &SwitchId| {
        let from = NodeId::Switch(*id);
        stores.iter().any(|store| topology.path(&from, store).is_some())
    };
    let order: Vec<SwitchId> =
        capacity.keys().copied().filter(|id| !all_known || reaches(id)).collect();
    let stay = wish.clients.is_empty()
        && wish.had_traffic
        && wish.traffic.is_empty()
        && fits(wish.now, capacity)
        && sum(wish.now) == u64::from(wish.quota)
        && wish.now.keys().all(|id| order.contains(id));
    if stay {
        let rooms = wish.now.iter().map(|(id, pages)| (*id, *pages));
        return finish(wish.quota, rooms.filter(|(_, pages)| *pages > 0).collect());
    }
    finish(wish.quota, split(wish.quota, &order, capacity))
}

fn finish(quota: u32, rooms: Vec<(SwitchId, u32)>) -> Placement {
    let placed: u32 = rooms.iter().map(|(_, pages)| pages).sum();
    Placement { rooms, unplaced: quota - placed }
}

#[cfg(test)]
mod tests;
