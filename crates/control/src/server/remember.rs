//! What the rows of the state store mean.
//!
//! | row | value |
//! | --- | --- |
//! | `tenant/ID` | a [`Tenant`] |
//! | `retired/ID` | the number of a tenant that was removed |
//! | `switch/ID` | a [`Known`] |
//! | `table/ID` | the version of a switch's page table |
//! | `page/SWITCH/PAGE` | who holds it; a free page has no row |
//! | `topology` | what was declared of it |
//! | `routing` | whether routes are kept |
//! | `audit/NUMBER` | an entry of the audit log |

use std::{fmt::Display, str::FromStr};

use api::types::{PageId, TopologySpec};
use serde::de::DeserializeOwned;

use super::{audit, switch::Known, tenants::Tenant};
use crate::{
    SwitchId,
    pages::ledger::{PageRow, SwitchRow},
    state::{Memory, StateError},
};

/// Everything that is remembered but the items.
#[derive(Debug, Default)]
pub struct Remembered {
    pub tenants: Vec<(u32, Tenant)>,
    pub retired: Vec<(u32, bool)>,
    pub switches: Vec<(SwitchId, Known)>,
    pub tables: Vec<(SwitchId, SwitchRow)>,
    pub pages: Vec<(PageId, PageRow)>,
    pub topology: TopologySpec,
    pub routes_managed: Option<bool>,
    pub audit: Vec<(u64, audit::Entry)>,
}

impl Remembered {
    /// Reads the rows. Those of other kinds are of a later version, and left alone.
    ///
    /// # Errors
    /// The first row that cannot be read: to go on without it could give a page two owners.
    pub fn read(memory: &Memory) -> Result<Remembered, StateError> {
        Ok(Remembered {
            tenants: all(memory, "tenant/")?,
            retired: all(memory, "retired/")?,
            switches: all(memory, "switch/")?,
            tables: all(memory, "table/")?,
            pages: all(memory, "page/")?,
            topology: memory.row("topology")?.unwrap_or_default(),
            routes_managed: memory.row("routing")?,
            audit: all(memory, "audit/")?,
        })
    }
}

fn all<K: FromStr<Err: Display>, T: DeserializeOwned>(
    memory: &Memory,
    prefix: &str,
) -> Result<Vec<(K, T)>, StateError> {
    let parsed = |(rest, value): (&str, T)| {
        let key = rest.parse().map_err(|e: K::Err| StateError::Row {
            key: format!("{prefix}{rest}"),
            reason: e.to_string(),
        })?;
        Ok((key, value))
    };
    memory.rows_under(prefix)?.into_iter().map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let memory = |key: &str, value: &str| Memory {
            rows: [(key.into(), value.into())].into(),
            ..Memory::default()
        };
        let good = memory("switch/3", r#"{"name":"tor","pages":4}"#);
        let good = Remembered::read(&good).unwrap();
        assert_eq!((good.switches[0].0, good.switches[0].1.pages), (3, 4));
        assert!(Remembered::read(&memory("later/1", "x")).is_ok());
        for (key, value) in [
            ("switch/x", "{\"name\":\"\",\"pages\":1}"),
            ("switch/3", "{"),
            ("page/3-1", "{}"),
        ] {
            let error = Remembered::read(&memory(key, value)).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
