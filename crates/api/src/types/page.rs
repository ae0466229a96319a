//! Pages of cache memory and who holds them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PageId;

/// How a page is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageKind {
    /// By its tenant, as one of its guaranteed pages.
    Own,
    /// By its tenant, beyond its quota, until an owner needs it.
    Lent,
    /// Taken from its tenant; the switch has not said yet that it is clear.
    Leaving,
    /// By nobody.
    Free,
}

impl PageKind {
    /// As JSON writes it.
    pub fn name(self) -> &'static str {
        match self {
            PageKind::Own => "own",
            PageKind::Lent => "lent",
            PageKind::Leaving => "leaving",
            PageKind::Free => "free",
        }
    }
}

/// A page as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PageView {
    /// Number of the switch.
    pub switch: u16,
    /// Index of the page on that switch, from 0.
    pub page: u32,
    /// Who holds it, or held it until it is clear; absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<u32>,
    /// How it is held.
    pub kind: PageKind,
    /// Items in it.
    pub items: u32,
    /// Its cells that are in use.
    pub cells: u32,
    /// Statistics windows since an item of it was last asked for; absent: none ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_windows: Option<u64>,
}

impl PageView {
    /// Which page.
    pub fn id(&self) -> PageId {
        PageId { switch: self.switch, page: self.page }
    }
}

/// Asks for guaranteed pages: raises the tenant's quota by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"pages": 4, "lease_s": 3600}))]
pub struct PageRequest {
    /// How many, at least 1. All of them are granted or none.
    #[schema(minimum = 1)]
    pub pages: u32,
    /// From this switch only; absent: where the tenant's policy wants them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<u16>,
    /// After so many seconds, those of these pages that are unused return to the pool, and the
    /// quota falls with them; a page that is in use is looked at again after as many seconds more.
    /// Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub lease_s: Option<u64>,
}

/// What became of a request for pages, or to return some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PageGrant {
    /// The pages that the tenant has got at once, or those that leave it. Pages that were lent to
    /// others come as soon as their switch has cleared them: `GET /v1/tenants/{id}/pages` lists
    /// them then.
    pub pages: Vec<PageView>,
    /// The tenant's quota from now on.
    pub quota: u32,
}

/// Which pages a tenant gives back; lowers its quota by their number. Either `pages` or `count`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"pages": ["3/17", "3/18"]}))]
pub struct ReturnPages {
    /// These. All of them must be guaranteed pages that the tenant holds, each named once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub pages: Vec<PageId>,
    /// So many, the coldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub count: Option<u32>,
}
