//! Tenants as they are shown: their terms, and what they have.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Terms;

/// A tenant as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Number.
    pub id: u32,
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
    /// What it was given; its discipline by name, also where that is the default one.
    #[serde(flatten)]
    pub terms: Terms,
    /// Those of its stores that the cluster has no longer. If that is all of them, nobody serves it
    /// until it is given others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub lost_stores: Vec<SocketAddr>,
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
    /// Switches and stores that were not told yet, a line each: they go by the secrets before this
    /// step until they are attached to the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_told: Vec<String>,
}
