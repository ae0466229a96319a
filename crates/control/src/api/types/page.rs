//! Pages of cache memory and who holds them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::{PartialSchema, ToSchema};

/// A page: of which switch, and which of its pages. Written `SWITCH/PAGE`, for example `3/17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PageId {
    /// Number of the switch.
    pub switch: u16,
    /// Index of the page on that switch, from 0.
    pub page: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.switch, self.page)
    }
}

impl FromStr for PageId {
    type Err = String;

    fn from_str(text: &str) -> Result<PageId, String> {
        text.split_once('/')
            .and_then(|(switch, page)| {
                Some(PageId {
                    switch: switch.parse().ok().filter(|s| *s != 0)?,
                    page: page.parse().ok()?,
                })
            })
            .ok_or_else(|| {
                let shown: String = text.chars().take(64).collect();
                format!("{shown:?} is no page; expected SWITCH/PAGE, for example 3/17")
            })
    }
}

impl TryFrom<String> for PageId {
    type Error = String;

    fn try_from(text: String) -> Result<PageId, String> {
        text.parse()
    }
}

impl From<PageId> for String {
    fn from(page: PageId) -> String {
        page.to_string()
    }
}

impl PartialSchema for PageId {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("A page, as SWITCH/PAGE."))
            .pattern(Some("^[0-9]+/[0-9]+$"))
            .examples(["3/17"])
            .into()
    }
}

impl ToSchema for PageId {}

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
    /// Statistics windows since an item of it was last asked for.
    pub idle_windows: u32,
    /// Seconds until its lease ends; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_in_s: Option<u64>,
}

impl PageView {
    /// Which page.
    pub fn id(&self) -> PageId {
        PageId {
            switch: self.switch,
            page: self.page,
        }
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
    /// After so many seconds, those of these pages that are unused return to the pool, and the quota falls with
    /// them; a page that is in use is looked at again after as many seconds more. Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub lease_s: Option<u64>,
}

/// What was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PageGrant {
    /// The pages. One whose `kind` is `leaving` becomes the tenant's as soon as its switch has cleared it.
    pub granted: Vec<PageView>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_as_switch_and_index() {
        let page: PageId = "3/17".parse().unwrap();
        assert_eq!(
            page,
            PageId {
                switch: 3,
                page: 17
            }
        );
        assert_eq!(page.to_string(), "3/17");
        for wrong in ["", "3", "3/", "/17", "0/1", "70000/1", "3/-1", "3/17/1"] {
            let error = wrong.parse::<PageId>().unwrap_err();
            assert!(error.contains("expected SWITCH/PAGE"), "{wrong:?}: {error}");
        }
    }
}
