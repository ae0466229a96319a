//! What a token allows: the token file says it, and each request is checked against it.

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// To see everything but secrets.
    Viewer,
    /// To see one tenant, its pages and credentials, and to ask for and return its pages.
    Tenant(u32),
    /// To attach as a switch: this one, or any.
    Switch(Option<u16>),
    /// To follow the cluster as a store.
    Store,
}
