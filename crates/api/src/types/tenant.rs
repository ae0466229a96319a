//! Who shares the cache memory, and on what terms.

use std::{collections::BTreeMap, net::SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Policy;

/// What a switch does with a request above its tenant's rate. Neither touches a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverRate {
    /// Passes it on to the store.
    #[default]
    Forward,
    /// Drops it.
    Drop,
}

/// A tenant to be created. Every field may be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"name": "shop", "quota": 8, "policy": "near-client", "rate": 50000}))]
pub struct TenantSpec {
    /// Number, 1 to 4294967294. Absent: the lowest one that is free.
    #[schema(minimum = 1, maximum = 4294967294_u32)]
    pub id: Option<u32>,
    /// Take a number that a removed tenant had: whoever has it finds what that one left in
    /// the stores.
    pub reuse: bool,
    /// What lists, logs and the audit log call it, at most 64 bytes; unique among the tenants
    /// unless it is empty.
    #[schema(max_length = 64)]
    pub name: String,
    /// 32 hex digits, not all zero: signs what is sent in the tenant's name, and seeds the hashes
    /// of its keys for good. Absent: a random one.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    pub secret: Option<String>,
    /// Pages of cache memory that the tenant is guaranteed, over all switches. Refused if so many
    /// are not to be had.
    pub quota: u32,
    /// In which order these pages fill the switches.
    pub policy: Policy,
    /// Requests per second that each switch admits; 0: unlimited.
    pub rate: u64,
    /// What a switch does with requests above the rate.
    pub over_rate: OverRate,
    /// The discipline that decides what is cached; absent: the controller's default one.
    pub discipline: Option<String>,
    /// The stores that may hold its keys, as `ADDRESS:PORT`; empty: all of the cluster.
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["10.0.2.1:7117"]))]
    pub stores: Vec<SocketAddr>,
    /// Where its clients are, as addresses or prefixes, for policies that look at paths; empty:
    /// where the traffic shows them to be.
    #[serde(deserialize_with = "places::read", serialize_with = "places::write")]
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["10.0.1.0/24", "10.0.3.7"]))]
    pub clients: Vec<IpNet>,
    /// Whether it may use idle pages beyond its quota, until their owners need them.
    pub borrow: bool,
    /// Write-back: switches may answer writes of hot keys, and the stores have them so many
    /// milliseconds later at most, 10 to 60000; 0: stores answer every write.
    pub write_back_ms: u32,
    /// Options of its discipline, by name; the usual numbers where nothing is said.
    pub options: BTreeMap<String, u32>,
}

impl Default for TenantSpec {
    fn default() -> TenantSpec {
        TenantSpec {
            id: None,
            reuse: false,
            name: String::new(),
            secret: None,
            quota: 0,
            policy: Policy::default(),
            rate: 0,
            over_rate: OverRate::default(),
            discipline: None,
            stores: vec![],
            clients: vec![],
            borrow: true,
            write_back_ms: 0,
            options: BTreeMap::new(),
        }
    }
}

/// What is to be changed of a tenant; fields that are left out stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"quota": 12, "over_rate": "drop"}))]
pub struct TenantChange {
    /// New name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub name: Option<String>,
    /// New number of guaranteed pages over all switches. Lower: pages go back, coldest first.
    /// Higher: refused if so many are not to be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u32>,
    /// New order of switches; pages move there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// New number of requests per second that each switch admits; 0: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// What a switch does with requests above the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_rate: Option<OverRate>,
    /// New discipline; what is cached is evicted and learned again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discipline: Option<String>,
    /// The stores that may hold its keys; empty: all. Keys do not move along: they are found at
    /// their new stores only once they are written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    pub stores: Option<Vec<SocketAddr>>,
    /// Where its clients are; empty: where the traffic shows them to be.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "places::read_some",
        serialize_with = "places::write_some"
    )]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    pub clients: Option<Vec<IpNet>>,
    /// Whether it may use idle pages beyond its quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrow: Option<bool>,
    /// Write-back within so many milliseconds, 10 to 60000; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_back_ms: Option<u32>,
    /// New options of its discipline, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<BTreeMap<String, u32>>,
}

impl TenantChange {
    /// Nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == TenantChange::default()
    }
}

/// A tenant as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Number.
    pub id: u32,
    /// What lists, logs and the audit log call it; may be empty.
    pub name: String,
    /// Signs what is sent in its name, 32 hex digits. Only when asked for with `?secrets=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Another secret that is accepted while the secret is rotated. Only when asked for with
    /// `?secrets=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_secret: Option<String>,
    /// Seeds the hashes of its keys. Only when asked for with `?secrets=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_secret: Option<String>,
    /// A rotation of the secret is going on: two are accepted.
    pub rotating: bool,
    /// Guaranteed pages, over all switches.
    pub quota: u32,
    /// In which order they fill the switches.
    pub policy: Policy,
    /// Requests per second that each switch admits; 0: unlimited.
    pub rate: u64,
    /// What a switch does with requests above the rate.
    pub over_rate: OverRate,
    /// What decides what is cached.
    pub discipline: String,
    /// The stores that may hold its keys; empty: all.
    #[schema(value_type = Vec<String>)]
    pub stores: Vec<SocketAddr>,
    /// Where its clients are; empty: where the traffic shows them to be.
    #[serde(deserialize_with = "places::read", serialize_with = "places::write")]
    #[schema(value_type = Vec<String>)]
    pub clients: Vec<IpNet>,
    /// Whether it may use idle pages beyond its quota.
    pub borrow: bool,
    /// Write-back: stores have what switches answered so many milliseconds later at most; 0: none.
    pub write_back_ms: u32,
    /// Options of its discipline that were given.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, u32>,
    /// It came from the cluster file at the controller's start.
    pub declared: bool,
    /// Guaranteed pages that it holds.
    pub own_pages: u32,
    /// Idle pages beyond its quota that it uses until their owners need them.
    pub borrowed_pages: u32,
    /// Guaranteed pages that it leaves to others until it needs them.
    pub lent_out_pages: u32,
    /// Pages on their way from it: still to be cleared by their switch.
    pub leaving_pages: u32,
    /// Parts of the quota that end unless they are used, soonest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseView>,
    /// Items cached.
    pub items: u64,
    /// Cells that these use.
    pub cells: u64,
    /// Share of its pages' cells that is not in use although a page is counted as filled, 0 to 1:
    /// cells that an item of several cells did not fit.
    pub fragmentation: f64,
    /// The same, switch by switch; only switches where it has pages.
    pub switches: Vec<TenantOnSwitch>,
}

/// A part of a quota that was asked for with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// Pages.
    pub pages: u32,
    /// Seconds until those that are unused go back.
    pub ends_in_s: u64,
}

/// A tenant's memory on one switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantOnSwitch {
    /// Number of the switch.
    pub switch: u16,
    /// Guaranteed pages that it holds there.
    pub own_pages: u32,
    /// Pages that it borrows there.
    pub borrowed_pages: u32,
    /// Pages there that are still to be cleared.
    pub leaving_pages: u32,
    /// Items cached.
    pub items: u64,
    /// Cells that these use.
    pub cells: u64,
    /// Share of cells that is lost to items of several cells, 0 to 1.
    pub fragmentation: f64,
}

/// The answer to a step of a rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewSecret {
    /// The tenant.
    pub tenant: u32,
    /// Signs from now on, 32 hex digits.
    pub secret: String,
    /// Is accepted too, until the rotation is finished; absent: no other is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_secret: Option<String>,
}

/// Places of clients: prefixes, where a lone address stands for itself.
mod places {
    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    fn parse<E: Error>(text: &str) -> Result<IpNet, E> {
        text.parse()
            .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from))
            .map_err(|_| {
                let shown: String = text.chars().take(64).collect();
                E::custom(format!(
                    "{shown:?} is neither an address nor a prefix; expected for example 10.0.1.0/24"
                ))
            })
    }

    fn show(place: &IpNet) -> String {
        if place.prefix_len() == place.max_prefix_len() {
            place.addr().to_string()
        } else {
            place.to_string()
        }
    }

    pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| parse(text)).collect()
    }

    pub fn read_some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<IpNet>>, D::Error> {
        let texts = Option::<Vec<String>>::deserialize(from)?;
        texts
            .map(|texts| texts.iter().map(|text| parse(text)).collect())
            .transpose()
    }

    pub fn write<S: Serializer>(places: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(places.iter().map(show))
    }

    // serde hands over the field as it is.
    #[allow(clippy::ref_option)]
    pub fn write_some<S: Serializer>(
        places: &Option<Vec<IpNet>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match places {
            Some(places) => write(places, to),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_addresses_or_prefixes_and_stay_as_written() {
        let text = r#"["10.0.1.0/24","10.0.3.7","fd00::/64"]"#;
        let spec: TenantSpec = serde_json::from_str(&format!("{{\"clients\":{text}}}")).unwrap();
        let written = serde_json::to_value(&spec).unwrap()["clients"].to_string();
        assert_eq!(written, text);
        assert!(
            spec.borrow,
            "tenants may borrow unless they are told not to"
        );
        let wrong = serde_json::from_str::<TenantSpec>(r#"{"clients":["tent"]}"#).unwrap_err();
        assert!(wrong.to_string().contains("\"tent\" is neither"), "{wrong}");
    }

    #[test]
    fn a_change_of_nothing_is_empty() {
        let change: TenantChange = serde_json::from_str("{}").unwrap();
        assert!(change.is_empty());
        assert_eq!(serde_json::to_string(&change).unwrap(), "{}");
    }
}
