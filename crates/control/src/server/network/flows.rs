//! Who sends how much to which store, as the switches on the way count it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};

use api::proto::Traffic;
use decide::SwitchId;

use crate::pages::policy::Flow;

/// Flows that are remembered, over all tenants. Half of them is divided among the tenants, an equal
/// share each; the rest is whoever's comes.
const FLOWS_MAX: usize = 16_384;
/// How much of a flow's rate stays from one window to the next.
const KEPT: f64 = 0.5;
/// A flow of fewer requests per window is forgotten.
const RATE_MIN: f64 = 1.0;

/// Requests per window from a client to a store, as each switch on the way counts them.
type FlowRates = BTreeMap<(Ipv6Addr, Ipv6Addr), BTreeMap<SwitchId, f64>>;

/// The flows of all tenants.
#[derive(Debug, Default)]
pub struct Flows {
    by_tenant: BTreeMap<u32, FlowRates>,
    /// Tenants that had some, since the beginning.
    seen: BTreeSet<u32>,
}

impl Flows {
    /// What a switch counted in the window that ended, of tenants that are known, which are so
    /// many.
    pub fn count(
        &mut self,
        id: SwitchId,
        traffic: &Traffic,
        tenants: usize,
        is_known: impl Fn(u32) -> bool,
    ) {
        let share = FLOWS_MAX / 2 / tenants.max(1);
        let counts = self.by_tenant.values().map(BTreeMap::len);
        let mut all: usize = counts.clone().sum();
        let mut beyond_shares: usize = counts.map(|count| count.saturating_sub(share)).sum();
        for flow in &traffic.flows {
            let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok();
            let (Some(client), Some(store)) = (address(&flow.client), address(&flow.store)) else {
                continue;
            };
            if !is_known(flow.tenant) {
                continue;
            }
            let own = self.by_tenant.get(&flow.tenant);
            if own.is_none_or(|own| !own.contains_key(&(client, store))) {
                if own.map_or(0, BTreeMap::len) < share {
                    // Others took what nobody kept for a tenant that came later.
                    if all >= FLOWS_MAX {
                        self.take_one_of_most();
                        (all, beyond_shares) = (all - 1, beyond_shares.saturating_sub(1));
                    }
                } else if beyond_shares + share * tenants < FLOWS_MAX {
                    beyond_shares += 1;
                } else {
                    continue;
                }
                all += 1;
            }
            self.seen.insert(flow.tenant);
            let own = self.by_tenant.entry(flow.tenant).or_default();
            let by_switch = own.entry((client, store)).or_default();
            *by_switch.entry(id).or_default() += (1.0 - KEPT) * flow.requests as f64;
        }
    }

    /// Forgets a flow of the tenant that has most.
    fn take_one_of_most(&mut self) {
        let most = self.by_tenant.values_mut().max_by_key(|flows| flows.len());
        most.and_then(BTreeMap::pop_first);
    }

    /// A window of a switch ended: what it counted before counts less.
    pub fn age(&mut self, id: SwitchId) {
        self.keep_where(|by_switch| {
            if let Some(rate) = by_switch.get_mut(&id) {
                *rate *= KEPT;
                if *rate < RATE_MIN {
                    by_switch.remove(&id);
                }
            }
            !by_switch.is_empty()
        });
    }

    /// A switch is gone for good.
    pub fn forget(&mut self, id: SwitchId) {
        self.keep_where(|by_switch| {
            by_switch.remove(&id);
            !by_switch.is_empty()
        });
    }

    fn keep_where(&mut self, keep: impl Fn(&mut BTreeMap<SwitchId, f64>) -> bool) {
        self.by_tenant.retain(|_, flows| {
            flows.retain(|_, by_switch| keep(by_switch));
            !flows.is_empty()
        });
    }

    /// Whether a tenant had any since the beginning.
    pub fn had(&self, tenant: u32) -> bool {
        self.seen.contains(&tenant)
    }

    /// A tenant's: a flow is seen by each switch on its way until one answers, so the first sees
    /// all of it.
    pub fn of(&self, tenant: u32) -> Vec<Flow> {
        let its = self.by_tenant.get(&tenant).into_iter().flatten();
        let flows = its.map(|((client, store), by_switch)| Flow {
            client: IpAddr::V6(*client).to_canonical(),
            store: IpAddr::V6(*store).to_canonical(),
            rate: by_switch.values().copied().fold(0.0, f64::max),
        });
        let mut flows: Vec<Flow> = flows.collect();
        flows.sort_by_key(|flow| (flow.client, flow.store));
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many clients of a tenant, each with one store, from this number on.
    fn traffic(tenant: u32, clients: std::ops::Range<usize>) -> Traffic {
        let address = |n: usize| Ipv6Addr::from(n as u128).octets().to_vec().into();
        let flow =
            |n| api::proto::Flow { tenant, client: address(n), store: address(1), requests: 100 };
        Traffic { flows: clients.map(flow).collect() }
    }

    #[test]
    fn a_tenant_with_many_clients_leaves_the_others_their_shares() {
        let mut flows = Flows::default();
        let mut count = |tenant, clients, tenants| {
            flows.count(1, &traffic(tenant, clients), tenants, |id| id < 9);
            (flows.of(tenant).len(), flows.by_tenant.values().map(BTreeMap::len).sum::<usize>())
        };
        let share = FLOWS_MAX / 2 / 4;
        let most = FLOWS_MAX - 3 * share;
        assert_eq!(count(1, 0..2 * FLOWS_MAX, 4), (most, most));
        assert_eq!(count(2, 0..2 * FLOWS_MAX, 4), (share, most + share));
        assert_eq!(count(1, 0..9, 4).0, most, "those that are there are counted on");
        count(3, 0..share, 4);
        assert_eq!(count(4, 0..share, 4), (share, FLOWS_MAX));
        assert_eq!(count(9, 0..1, 4), (0, FLOWS_MAX), "of no tenant");
        // One that comes later has its share of what others took before, and no more.
        let share = FLOWS_MAX / 2 / 5;
        assert_eq!(count(5, 0..2 * share, 5), (share, FLOWS_MAX));
        assert_eq!(count(1, 0..FLOWS_MAX, 5), (most - share, FLOWS_MAX));
    }

    #[test]
    fn who_is_alone_has_all_places_until_nothing_is_counted() {
        let mut flows = Flows::default();
        flows.count(1, &traffic(1, 0..2 * FLOWS_MAX), 1, |_| true);
        assert_eq!(flows.of(1).len(), FLOWS_MAX);
        flows.count(2, &traffic(1, 0..1), 1, |_| true);
        flows.forget(1);
        assert_eq!(flows.of(1).len(), 1);
        (0..9).for_each(|_| flows.age(2));
        assert!(flows.by_tenant.is_empty());
    }
}
