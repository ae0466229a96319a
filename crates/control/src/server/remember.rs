//! What the rows of the state store mean.
//!
//! | row | value |
//! | --- | --- |
//! | `tenant/ID` | a [`Tenant`] |
//! | `switch/ID` | a [`Known`] |
//! | `table/ID` | the version of a switch's page table |
//! | `page/SWITCH/PAGE` | who holds it; a free page has no row |
//! | `topology` | what was declared of it |
//! | `routing` | whether routes are kept |
//! | `audit/NUMBER` | an entry of the audit log |

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::{audit, switch::Known, tenants::Tenant};
use crate::{
    SwitchId,
    api::TopologySpec,
    pages::{PageId, PageRow, SwitchRow},
};

/// A row that makes no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("state: the row {row} cannot be read ({reason}): it was written by another version, or damaged")]
pub struct BadRow {
    /// Its key.
    pub row: String,
    /// Why not.
    pub reason: String,
}

/// Everything that is remembered but the items.
#[derive(Debug, Default)]
pub struct Remembered {
    pub tenants: BTreeMap<u32, Tenant>,
    pub switches: BTreeMap<SwitchId, Known>,
    pub tables: Vec<(SwitchId, SwitchRow)>,
    pub pages: Vec<(PageId, PageRow)>,
    pub topology: TopologySpec,
    pub routes_managed: bool,
    pub audit: BTreeMap<u64, audit::Entry>,
}

impl Remembered {
    /// Reads the rows. Rows of kinds that are not known are of a later version, and left alone.
    ///
    /// # Errors
    /// The first row that cannot be read: to go on without it could give a page two owners.
    pub fn read(rows: &BTreeMap<String, Vec<u8>>) -> Result<Remembered, BadRow> {
        let mut all = Remembered::default();
        for (row, value) in rows {
            let (kind, rest) = row.split_once('/').unwrap_or((row, ""));
            match kind {
                "tenant" => {
                    all.tenants.insert(number(row, rest)?, parse(row, value)?);
                }
                "switch" => {
                    all.switches.insert(number(row, rest)?, parse(row, value)?);
                }
                "table" => all.tables.push((number(row, rest)?, parse(row, value)?)),
                "page" => all.pages.push((number(row, rest)?, parse(row, value)?)),
                "topology" => all.topology = parse(row, value)?,
                "routing" => all.routes_managed = parse(row, value)?,
                "audit" => {
                    all.audit.insert(number(row, rest)?, parse(row, value)?);
                }
                _ => tracing::warn!(row, "a row of an unknown kind is left alone"),
            }
        }
        Ok(all)
    }
}

fn number<T: std::str::FromStr>(row: &str, text: &str) -> Result<T, BadRow>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e: T::Err| BadRow {
        row: row.into(),
        reason: e.to_string(),
    })
}

fn parse<T: DeserializeOwned>(row: &str, value: &[u8]) -> Result<T, BadRow> {
    serde_json::from_slice(value).map_err(|e| BadRow {
        row: row.into(),
        reason: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        let rows = |key: &str, value: &str| BTreeMap::from([(key.into(), value.into())]);
        let good = Remembered::read(&rows("switch/3", r#"{"name":"tor","pages":4}"#)).unwrap();
        assert_eq!(good.switches[&3].pages, 4);
        assert!(Remembered::read(&rows("later/1", "x")).is_ok());
        for (key, value) in [("switch/x", "{}"), ("switch/3", "{"), ("page/3-1", "{}")] {
            let error = Remembered::read(&rows(key, value)).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
