//! What the rows of the state store mean.
//!
//! | row | value |
//! | --- | --- |
//! | `tenant/ID` | a [`Tenant`] |
//! | `retired/ID` | the number of a tenant that was removed |
//! | `switch/ID` | a [`SwitchRecord`] |
//! | `interfaces/ID` | the [`InterfacesRow`] of a switch that told its interfaces |
//! | `configuration/SWITCH/TENANT` | the last configuration that the tenant's discipline asked for there |
//! | `remembered/TENANT/DISCIPLINE` | what the discipline of that name, or one with its programs, had remembered of the tenant; stays when the tenant goes |
//! | `kept/TENANT/DISCIPLINE/KEY` | what it keeps of a key of the tenant, which is named by its hash; likewise |
//! | `table/ID` | the version of a switch's page table |
//! | `page/SWITCH/PAGE` | who holds it; a free page has no row |
//! | `topology` | what was declared of it |
//! | `routing` | whether routes are kept |
//! | `audit/NUMBER` | an entry of the audit log |

use std::{fmt::Display, str::FromStr};

use api::types::{PageId, TopologySpec};
use decide::SwitchId;
use serde::de::DeserializeOwned;

use super::{
    audit,
    configurations::{ConfigurationRow, Place},
    kept::{KeptPlace, KeptRow},
    memories::{MemoryOwner, MemoryRow},
    network::InterfacesRow,
    switch::SwitchRecord,
    tenants::Tenant,
};
use crate::{
    pages::ledger::{PageRow, SwitchRow},
    state::{LoadedState, StateError},
};

/// Everything that is remembered but the items.
#[derive(Debug, Default)]
pub struct RememberedState {
    pub tenants: Vec<(u32, Tenant)>,
    pub retired: Vec<(u32, bool)>,
    pub switches: Vec<(SwitchId, SwitchRecord)>,
    pub interfaces: Vec<(SwitchId, InterfacesRow)>,
    pub configurations: Vec<(Place, ConfigurationRow)>,
    pub memories: Vec<(MemoryOwner, MemoryRow)>,
    pub kept: Vec<(KeptPlace, KeptRow)>,
    pub tables: Vec<(SwitchId, SwitchRow)>,
    pub pages: Vec<(PageId, PageRow)>,
    pub topology: TopologySpec,
    pub routes_managed: Option<bool>,
    pub audit: Vec<(u64, audit::Entry)>,
}

impl RememberedState {
    /// Reads the rows. Those of other kinds are of a later version, and left alone.
    ///
    /// # Errors
    /// The first row that cannot be read: to go on without it could give a page two owners.
    pub fn read(loaded: &LoadedState) -> Result<RememberedState, StateError> {
        Ok(RememberedState {
            tenants: all(loaded, "tenant/")?,
            retired: all(loaded, "retired/")?,
            switches: all(loaded, "switch/")?,
            interfaces: all(loaded, "interfaces/")?,
            configurations: all(loaded, "configuration/")?,
            memories: all(loaded, "remembered/")?,
            kept: all(loaded, "kept/")?,
            tables: all(loaded, "table/")?,
            pages: all(loaded, "page/")?,
            topology: loaded.row("topology")?.unwrap_or_default(),
            routes_managed: loaded.row("routing")?,
            audit: all(loaded, "audit/")?,
        })
    }
}

fn all<K: FromStr<Err: Display>, T: DeserializeOwned>(
    loaded: &LoadedState,
    prefix: &str,
) -> Result<Vec<(K, T)>, StateError> {
    let parsed = |(rest, value): (&str, T)| {
        let key = rest.parse().map_err(|e: K::Err| StateError::Row {
            key: format!("{prefix}{rest}"),
            reason: e.to_string(),
        })?;
        Ok((key, value))
    };
    loaded.rows_under(prefix)?.into_iter().map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let loaded = |key: &str, value: &str| LoadedState {
            rows: [(key.into(), value.into())].into(),
            ..LoadedState::default()
        };
        let good = loaded("switch/3", r#"{"name":"tor","pages":4}"#);
        let good = RememberedState::read(&good).unwrap();
        assert_eq!((good.switches[0].0, good.switches[0].1.pages), (3, 4));
        assert!(RememberedState::read(&loaded("later/1", "x")).is_ok());
        for (key, value) in
            [("switch/x", "{\"name\":\"\",\"pages\":1}"), ("switch/3", "{"), ("page/3-1", "{}")]
        {
            let error = RememberedState::read(&loaded(key, value)).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
