use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::{OverRate, Tenant};

use super::Console;
use crate::interrupt;

/// Where a tenant's guaranteed pages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// As close to the clients as possible.
    #[default]
    NearClient,
    /// As close to the stores as possible.
    NearStore,
    /// Evenly along the way.
    EvenSplit,
    /// Where traffic shows that a page saves most hops.
    Measured,
}

impl Policy {
    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::NearClient => "near-client",
            Policy::NearStore => "near-store",
            Policy::EvenSplit => "even-split",
            Policy::Measured => "measured",
        }
    }
}

/// A tenant as an experiment creates it.
#[derive(Clone, Debug)]
pub struct TenantSpec {
    /// Its number; its secret follows from it.
    pub id: u32,
    /// Guaranteed pages.
    pub quota: u32,
    /// Where they go.
    pub policy: Policy,
    /// Requests per second that a switch admits, and what is above it dropped; 0: unlimited.
    pub rate: u64,
    /// Whether it may borrow idle memory.
    pub borrows: bool,
    /// What switches do with its requests.
    pub discipline: String,
}

impl TenantSpec {
    /// A tenant near its clients, without a limit, that borrows.
    pub fn new(id: u32, quota: u32, discipline: &str) -> TenantSpec {
        TenantSpec {
            id,
            quota,
            policy: Policy::NearClient,
            rate: 0,
            borrows: true,
            discipline: discipline.into(),
        }
    }
}

/// The secret of a tenant of the lab: 32 hex digits, never all zero.
pub fn secret_of(id: u32) -> String {
    // Multiples of an odd number differ from one another and, below 2^128, from zero.
    let number = (u128::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{number:032x}")
}

impl Console<'_> {
    /// Creates a tenant of these client hosts.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn create_tenant(&self, tenant: &TenantSpec, clients: &[String]) -> anyhow::Result<()> {
        let (id, quota, rate) = (
            tenant.id.to_string(),
            tenant.quota.to_string(),
            tenant.rate.to_string(),
        );
        let secret = secret_of(tenant.id);
        let topology = self.lab().topology();
        let clients: Vec<String> = clients
            .iter()
            .filter_map(|host| topology.address_of(host))
            .map(|address| address.to_string())
            .collect();
        let clients = clients.join(",");
        let mut words = vec!["tenant", "create", "--id", &id, "--secret", &secret];
        words.extend(["--quota", &quota, "--policy", tenant.policy.name()]);
        words.extend(["--rate", &rate, "--over-rate", "drop"]);
        words.extend(["--discipline", &tenant.discipline, "--clients", &clients]);
        if !tenant.borrows {
            words.extend(["--borrow", "false"]);
        }
        self.ask(&words).map(drop)
    }

    /// Gives a tenant another quota and another policy: its pages move.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn change_tenant(&self, id: u32, quota: u32, policy: Policy) -> anyhow::Result<()> {
        let (id, quota) = (id.to_string(), quota.to_string());
        let policy = policy.name();
        self.ask(&[
            "tenant", "change", &id, "--quota", &quota, "--policy", policy,
        ])
        .map(drop)
    }

    /// Removes tenants and waits until their pages are free.
    ///
    /// # Errors
    /// The controller refuses, or a switch does not give the pages back within ten seconds.
    pub fn remove_tenants(&self, tenants: &[TenantSpec]) -> anyhow::Result<()> {
        for tenant in tenants {
            let id = tenant.id.to_string();
            self.ask(&["tenant", "remove", &id])?;
        }
        let is_gone = |id: Option<u32>| id.is_none_or(|id| tenants.iter().all(|t| t.id != id));
        interrupt::wait_for(
            "pages of removed tenants to be free",
            Duration::from_secs(10),
            || {
                let pages = self.pages()?;
                let gone = pages.iter().all(|page| is_gone(page.tenant));
                Ok(gone.then_some(()))
            },
        )
    }
}

/// The cluster's entry of a tenant of the lab, as its clients need it.
pub fn entry_of(id: u32) -> Tenant {
    Tenant {
        id,
        secret: secret_of(id),
        also_secret: None,
        hash_secret: None,
        rate: 0,
        over_rate: OverRate::Forward,
        stores: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_usable_and_differ() {
        let all: std::collections::HashSet<String> = (1..1000).map(secret_of).collect();
        assert_eq!(all.len(), 999);
        assert!(
            all.iter()
                .all(|s| s.len() == 32 && s.as_bytes() != [b'0'; 32])
        );
    }
}
