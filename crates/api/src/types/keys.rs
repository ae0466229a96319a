//! The answer to `GET /v1/tenants/ID/keys`, which the controller gives and the command line prints.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Keys of a tenant that switches have items of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    /// As hex digits, in their order.
    #[schema(example = json!(["6b6579"]))]
    pub keys: Vec<String>,
    /// Switches with pages of the tenant that have not told yet what they hold, since this
    /// controller leads: what only they have may be missing.
    pub unheard: Vec<u16>,
}
