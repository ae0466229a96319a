//! Tenants as experiments create them on a rig, and what a cluster file then says of them for their
//! clients.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::Context;
use api::types;
pub use api::types::{Policy, TenantChange};
use serde_json::Value;
use wire::Tenant;

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
    /// Write-back: the bound in milliseconds; 0: none.
    pub write_back_ms: u32,
    /// Options of its discipline.
    pub options: BTreeMap<String, u32>,
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
            write_back_ms: 0,
            options: BTreeMap::new(),
        }
    }

    /// Its terms, with clients at these addresses.
    pub(super) fn terms(&self, clients: &[Ipv4Addr]) -> TenantChange {
        TenantChange {
            quota: Some(self.quota),
            policy: Some(self.policy),
            rate: Some(self.rate),
            over_rate: Some(types::OverRate::Drop),
            discipline: Some(self.discipline.clone()),
            clients: Some(clients.iter().map(|at| IpAddr::from(*at).into()).collect()),
            borrow: Some(self.borrows),
            write_back_ms: Some(self.write_back_ms),
            options: Some(self.options.clone()),
            ..TenantChange::default()
        }
    }
}

/// The entry of a tenant in a cluster file, as its clients need it, from what the controller said
/// of it.
pub(super) fn entry_of(id: u32, said: &Value) -> anyhow::Result<Tenant> {
    let text = |name: &str| said[name].as_str().map(String::from);
    let secret = text("secret")
        .with_context(|| format!("tenant {id}: the controller says no secret: {said}"))?;
    Ok(Tenant { hash_secret: text("hash_secret"), ..Tenant::new(id, secret) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_has_what_clients_need() {
        let said = json!({"id": 7, "quota": 3, "secret": "ab", "hash_secret": "cd"});
        let entry = entry_of(7, &said).unwrap();
        assert_eq!((entry.secret.as_str(), entry.hash_secret.as_deref()), ("ab", Some("cd")));
        let error = entry_of(7, &json!({"id": 7})).unwrap_err().to_string();
        assert!(error.contains("tenant 7: the controller says no secret"));
    }
}
