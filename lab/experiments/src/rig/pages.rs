//! Pages as the controller has them, and as a switch's memory has them.

use serde::Deserialize;

/// One page as the controller has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PageRow {
    /// The switch's id.
    pub switch: u16,
    /// The page's index there.
    pub page: u32,
    /// Whose it is.
    #[serde(default)]
    pub tenant: Option<u32>,
    /// `own`, `lent`, `leaving` or `free`.
    pub kind: String,
    /// Items in it.
    #[serde(default)]
    pub items: u64,
}

impl PageRow {
    /// Who may fill it now: owners and borrowers, until they have been told to leave.
    pub fn holder(&self) -> Option<u32> {
        let holds = self.kind == "own" || self.kind == "lent";
        self.tenant.filter(|_| holds)
    }
}

/// One page as a switch's memory has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SwitchPage {
    /// The page's index.
    pub page: u32,
    /// Whose it is.
    #[serde(default)]
    pub tenant: Option<u32>,
    /// Items in it.
    #[serde(default)]
    pub items: u64,
    /// Of these, items of other tenants than whose the page is.
    #[serde(default)]
    pub foreign_items: u64,
}
