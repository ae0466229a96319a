use std::time::Duration;

use anyhow::Context;
use lab::interrupt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::{OverRate, Tenant};

use super::Console;

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
    /// Its number.
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

impl Console<'_> {
    /// Creates a tenant of these client hosts; returns its entry in a cluster file, with the secret that the controller chose.
    ///
    /// # Errors
    /// The controller refuses.
    pub fn create_tenant(&self, tenant: &TenantSpec, clients: &[String]) -> anyhow::Result<Tenant> {
        let (id, quota, rate) = (
            tenant.id.to_string(),
            tenant.quota.to_string(),
            tenant.rate.to_string(),
        );
        let topology = self.lab().topology();
        let clients: Vec<String> = clients
            .iter()
            .filter_map(|host| topology.address_of(host))
            .map(|address| address.to_string())
            .collect();
        let clients = clients.join(",");
        let borrows = tenant.borrows.to_string();
        let mut words = vec![
            "tenant", "create", "--id", &id, "--reuse", "--quota", &quota,
        ];
        words.extend(["--policy", tenant.policy.name(), "--borrow", &borrows]);
        words.extend(["--rate", &rate, "--over-rate", "drop"]);
        words.extend(["--discipline", &tenant.discipline, "--clients", &clients]);
        entry_of(tenant.id, &self.ask(&words)?)
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

/// The entry of a tenant in a cluster file, as its clients need it, from what the controller said of it.
fn entry_of(id: u32, said: &Value) -> anyhow::Result<Tenant> {
    let text = |name: &str| said[name].as_str().map(String::from);
    Ok(Tenant {
        id,
        secret: text("secret")
            .with_context(|| format!("tenant {id}: the controller says no secret: {said}"))?,
        also_secret: None,
        hash_secret: text("hash_secret"),
        rate: 0,
        over_rate: OverRate::Forward,
        stores: vec![],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_has_what_clients_need() {
        let said = json!({"id": 7, "quota": 3, "secret": "ab", "hash_secret": "cd"});
        let entry = entry_of(7, &said).unwrap();
        assert_eq!(
            (entry.secret.as_str(), entry.hash_secret.as_deref()),
            ("ab", Some("cd"))
        );
        let error = entry_of(7, &json!({"id": 7})).unwrap_err().to_string();
        assert!(error.contains("tenant 7: the controller says no secret"));
    }
}
