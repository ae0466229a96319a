//! What a switch believes of its pages, against the ledger.

use std::{collections::BTreeMap, fmt};

use super::{Ledger, Owners, PageRow};
use crate::{SwitchId, pages::PageId};

/// Differences that are listed of one comparison; one is enough to send the table again.
pub const DIFFERENCES_MAX: usize = 1000;

/// A page that a switch takes for another's than the ledger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The page.
    pub page: PageId,
    /// Whose it is; none: nobody's.
    pub ledger: Option<u32>,
    /// Whose it is as the switch has it.
    pub switch: Option<u32>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = |tenant: Option<u32>| match tenant {
            Some(id) => format!("tenant {id}'s"),
            None => "nobody's".into(),
        };
        let (page, ledger, switch) = (self.page, whose(self.ledger), whose(self.switch));
        write!(
            f,
            "page {page} is {ledger}, the switch takes it for {switch}"
        )
    }
}

impl Ledger {
    /// Where a switch's own account differs, at most [`DIFFERENCES_MAX`] of it. Pages that are leaving and that the
    /// switch still takes for their last holder's are no difference: that table is on its way. To repair: send the
    /// table.
    pub fn compare(&self, switch: SwitchId, reported: &Owners) -> Vec<Difference> {
        let mut said: BTreeMap<u32, u32> = BTreeMap::new();
        let mut differences = Vec::new();
        let none = BTreeMap::new();
        let rows = self.tables.get(&switch).map_or(&none, |t| &t.rows);
        let ours = |page: u32| match rows.get(&page) {
            Some(PageRow::Held(hold)) => Some(hold.tenant),
            _ => None,
        };
        let mut differ = |page: u32, said: Option<u32>| {
            if differences.len() < DIFFERENCES_MAX {
                differences.push(Difference {
                    page: PageId { switch, page },
                    ledger: ours(page),
                    switch: said,
                });
            }
        };
        for (&tenant, pages) in reported {
            for &page in pages {
                let twice = said.insert(page, tenant).is_some_and(|t| t != tenant);
                let leaving = matches!(rows.get(&page), Some(PageRow::Leaving { from, .. }) if *from == tenant);
                if twice || (ours(page) != Some(tenant) && !leaving) {
                    differ(page, Some(tenant));
                }
            }
        }
        for &page in rows.keys() {
            if ours(page).is_some() && !said.contains_key(&page) {
                differ(page, None);
            }
        }
        differences.sort_by_key(|d| d.page);
        differences
    }
}
