//! The terms on which a tenant uses the memory of switches: every attribute that an operator gives
//! it, listed once.

use std::{collections::BTreeMap, net::SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{OverRate, Policy, places};

/// Makes the documents that have all terms: those of a tenant as it is, those of one that is to be
/// created, and those that are to be changed.
macro_rules! terms {
    ($(
        $(#[doc = $doc:literal])*
        $(#[serde($($field_serde:tt)*)])?
        $(#[schema($($field_schema:tt)*)])?
        $(#[changed(serde($($change_serde:tt)*), schema($($change_schema:tt)*))])?
        $name:ident: $type:ty = $usual:expr;
    )*) => {
        /// What a tenant was given.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(default)]
        pub struct Terms {
            $(
                $(#[doc = $doc])*
                $(#[serde($($field_serde)*)])?
                $(#[schema($($field_schema)*)])?
                pub $name: $type,
            )*
        }

        impl Default for Terms {
            fn default() -> Terms {
                Terms { $($name: $usual,)* }
            }
        }

        /// A tenant to be created. Every field may be left out.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields, default)]
        #[schema(example = json!({
            "name": "shop", "quota": 8, "policy": "near-client", "rate": 50000
        }))]
        pub struct TenantSpec {
            /// Number, 1 to 4294967294. Absent: the lowest one that is free.
            #[schema(minimum = 1, maximum = 4294967294_u32)]
            pub id: Option<u32>,
            /// Take a number that a removed tenant had: whoever has it finds what that one left in
            /// the stores.
            pub reuse: bool,
            /// 32 hex digits, not all zero: signs what is sent in the tenant's name, and seeds the
            /// hashes of its keys for good. Absent: a random one.
            #[schema(pattern = "^[0-9a-fA-F]{32}$")]
            pub secret: Option<String>,
            $(
                $(#[doc = $doc])*
                $(#[serde($($field_serde)*)])?
                $(#[schema($($field_schema)*)])?
                pub $name: $type,
            )*
        }

        impl From<Terms> for TenantSpec {
            /// A new tenant with these terms.
            fn from(terms: Terms) -> TenantSpec {
                TenantSpec { id: None, reuse: false, secret: None, $($name: terms.$name,)* }
            }
        }

        impl From<TenantSpec> for Terms {
            fn from(spec: TenantSpec) -> Terms {
                Terms { $($name: spec.$name,)* }
            }
        }

        impl Default for TenantSpec {
            fn default() -> TenantSpec {
                Terms::default().into()
            }
        }

        /// What is to be changed of a tenant; fields that are left out stay as they are.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields, default)]
        #[schema(example = json!({"quota": 12, "over_rate": "drop"}))]
        pub struct TenantChange {
            $(
                $(#[doc = $doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                $(#[serde($($change_serde)*)])?
                $(#[schema($($change_schema)*)])?
                pub $name: Option<$type>,
            )*
        }

        impl Terms {
            /// The terms after a change.
            #[must_use]
            pub fn changed_by(self, change: TenantChange) -> Terms {
                Terms { $($name: change.$name.unwrap_or(self.$name),)* }
            }
        }
    };
}

terms! {
    /// What lists, logs and the audit log call it, at most 64 bytes; unique among the tenants
    /// unless it is empty.
    #[schema(max_length = 64)]
    #[changed(serde(), schema(max_length = 64))]
    name: String = String::new();
    /// Pages of cache memory that the tenant is guaranteed, over all switches. Refused if so many
    /// are not to be had; after a change to fewer, the coldest go back first.
    quota: u32 = 0;
    /// In which order these pages fill the switches.
    policy: Policy = Policy::default();
    /// Requests per second that each switch admits; 0: unlimited.
    rate: u64 = 0;
    /// What a switch does with requests above the rate.
    over_rate: OverRate = OverRate::default();
    /// The discipline that decides what is cached; empty: the controller's default one. With
    /// another one, what is cached is evicted and learned again.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "or_empty")]
    #[changed(serde(), schema())]
    discipline: String = String::new();
    /// The stores that may hold its keys, as `ADDRESS:PORT`; empty: all of the cluster. Keys do not
    /// move along with a change: they are found at their new stores only once they are written
    /// there.
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["10.0.2.1:7117"]))]
    #[changed(serde(), schema(value_type = Option<Vec<String>>, max_items = 1000))]
    stores: Vec<SocketAddr> = vec![];
    /// Where its clients are, as addresses or prefixes, for policies that look at paths; empty:
    /// where the traffic shows them to be.
    #[serde(deserialize_with = "places::read", serialize_with = "places::write")]
    #[schema(value_type = Vec<String>, max_items = 1000, example = json!(["10.0.1.0/24", "10.0.3.7"]))]
    #[changed(
        serde(deserialize_with = "places::read_some", serialize_with = "places::write_some"),
        schema(value_type = Option<Vec<String>>, max_items = 1000)
    )]
    clients: Vec<IpNet> = vec![];
    /// Whether it may use idle pages beyond its quota, until their owners need them.
    borrow: bool = true;
    /// Write-back: switches may answer writes of hot keys, and the stores have them so many
    /// milliseconds later at most, 10 to 60000; 0: stores answer every write.
    write_back_ms: u32 = 0;
    /// Options of its discipline, by name; the usual numbers where nothing is said. A change sets
    /// those that it names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, u32> = BTreeMap::new();
}

/// A name, where `null` says as much as leaving it out.
fn or_empty<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Terms {
    /// The discipline that was chosen; none: the controller's default one.
    pub fn discipline(&self) -> Option<&str> {
        Some(self.discipline.as_str()).filter(|name| !name.is_empty())
    }
}

impl TenantChange {
    /// Nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == TenantChange::default()
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
        assert!(spec.borrow, "tenants may borrow unless they are told not to");
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
