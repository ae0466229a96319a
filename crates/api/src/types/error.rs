//! Answers that are no success.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// One line: the thing, what was expected, and what was free.
    pub error: String,
    /// URL of the controller that leads, if this one does not and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}
