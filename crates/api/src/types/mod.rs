//! The documents of the HTTP interface. Their field comments are its documentation
//! (`/openapi.json`).
//!
//! Requests refuse fields that they do not know; answers may grow fields, and clients should skip
//! those that they do not know.

mod check;
mod cluster;
mod error;
mod keys;
mod over_rate;
mod page;
mod page_id;
mod places;
mod policy;
mod route;
mod tenant;
mod terms;
mod topology;

pub use check::Check;
pub use cluster::{AuditEntry, ClusterView, SwitchView};
pub use error::ErrorBody;
pub use keys::KeyList;
pub use over_rate::OverRate;
pub use page::{PageGrant, PageKind, PageRequest, PageView, ReturnPages};
pub use page_id::{PageId, PageIdError};
pub use policy::{Policy, PolicyError};
pub use route::{RouteSettings, RouteTable, RouteView};
pub use tenant::{LeaseView, NewSecret, TenantOnSwitch, TenantView};
pub use terms::{TenantChange, TenantSpec, Terms};
pub use topology::{
    LinkSpec, LinkView, NetworkSpec, NetworkView, SwitchSpec, TopologySpec, TopologyView,
};

/// Most entries of a list in one answer, and in one request's list.
pub const LIST_MAX: usize = 1_000;
/// Longest name of a tenant or switch, in bytes.
pub const NAME_MAX: usize = 64;
