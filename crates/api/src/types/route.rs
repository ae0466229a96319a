//! The routes that the controller keeps in the switches' kernels.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All routes, and whether the controller keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteTable {
    /// The controller installs these routes; otherwise it only says which it would.
    pub managed: bool,
    /// The routes, by switch.
    pub routes: Vec<RouteView>,
}

/// A route of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouteView {
    /// Number of the switch.
    pub switch: u16,
    /// Where packets go, as `10.0.3.0/24`.
    pub prefix: String,
    /// Address of the next hop.
    pub via: String,
    /// The interface that they leave through.
    pub interface: String,
    /// The switch said that it is in force.
    pub installed: bool,
    /// Why the switch could not install it; absent: no failure known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// How routes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"managed": true}))]
pub struct RouteSettings {
    /// The controller installs the shortest paths' routes. False where a routing daemon does this:
    /// the routes that the controller had installed are removed.
    pub managed: bool,
}
