//! Controllers, switches and what was changed by whom.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The controllers and the switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterView {
    /// URL of the controller that leads; absent: unknown, or there is only one and it was given
    /// no URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The controller that answers is the leader.
    pub leading: bool,
    /// The leader's term; rises with each new one.
    pub term: u64,
    /// Milliseconds since the controller that answers started.
    pub uptime_ms: u64,
    /// The switches.
    pub switches: Vec<SwitchView>,
}

/// A switch as the controller sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SwitchView {
    /// Number.
    pub id: u16,
    /// What its agent calls itself.
    pub name: String,
    /// Its agent is connected.
    pub attached: bool,
    /// Pages of cache memory in all.
    pub pages: u32,
    /// Pages that nobody holds.
    pub free_pages: u32,
    /// Pages that tenants borrow for now: to be had as well if one asks.
    pub lent_pages: u32,
    /// Items believed to be cached.
    pub items: u64,
    /// What its kernel refuses, disciplines by name and `write-back`, with why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
}

/// A change that somebody made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Number of the change, from 1, without gaps.
    pub seq: u64,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// Name of the token that was used; `anonymous` without tokens, `controller` for what it did
    /// by itself.
    pub who: String,
    /// What was done, for example `tenant.create`.
    pub what: String,
    /// To what, and how; never a secret.
    pub detail: String,
}
