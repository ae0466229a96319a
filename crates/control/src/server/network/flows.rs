//! Who sends how much to which store, as the switches on the way count it.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
};

use api::proto::Traffic;
use decide::SwitchId;

use crate::pages::policy::Flow;

/// Flows that are remembered, over all tenants.
const FLOWS_MAX: usize = 16_384;
/// How much of a flow's rate stays from one window to the next.
const KEPT: f64 = 0.5;
/// A flow of fewer requests per window is forgotten.
const RATE_MIN: f64 = 1.0;

/// Tenant, client, store.
type FlowKey = (u32, Ipv6Addr, Ipv6Addr);

/// The flows of all tenants.
#[derive(Debug, Default)]
pub struct Flows {
    /// Requests per window of each flow, as each switch on its way counts them.
    rates: HashMap<FlowKey, BTreeMap<SwitchId, f64>>,
}

impl Flows {
    /// What a switch counted in the window that ended, of tenants that are known.
    pub fn count(&mut self, id: SwitchId, traffic: &Traffic, is_known: impl Fn(u32) -> bool) {
        for flow in &traffic.flows {
            let address = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).ok();
            let (Some(client), Some(store)) = (address(&flow.client), address(&flow.store)) else {
                continue;
            };
            let key = (flow.tenant, client, store);
            let is_full = self.rates.len() >= FLOWS_MAX && !self.rates.contains_key(&key);
            if is_full || !is_known(flow.tenant) {
                continue;
            }
            let by_switch = self.rates.entry(key).or_default();
            *by_switch.entry(id).or_default() += (1.0 - KEPT) * flow.requests as f64;
        }
    }

    /// A window of a switch ended: what it counted before counts less.
    pub fn age(&mut self, id: SwitchId) {
        self.rates.retain(|_, by_switch| {
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
        self.rates.retain(|_, by_switch| {
            by_switch.remove(&id);
            !by_switch.is_empty()
        });
    }

    /// A tenant's: a flow is seen by each switch on its way until one answers, so the first sees
    /// all of it.
    pub fn of(&self, tenant: u32) -> Vec<Flow> {
        let of = |(key, by_switch): (&FlowKey, &BTreeMap<SwitchId, f64>)| Flow {
            client: IpAddr::V6(key.1).to_canonical(),
            store: IpAddr::V6(key.2).to_canonical(),
            rate: by_switch.values().copied().fold(0.0, f64::max),
        };
        let its = self.rates.iter().filter(|(key, _)| key.0 == tenant);
        let mut flows: Vec<Flow> = its.map(of).collect();
        flows.sort_by_key(|flow| (flow.client, flow.store));
        flows
    }
}
