//! What becomes of requests above a tenant's rate.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a switch does with a request above its tenant's rate. Neither touches a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OverRate {
    /// Passes it on to the store.
    #[default]
    Forward,
    /// Drops it.
    Drop,
}
