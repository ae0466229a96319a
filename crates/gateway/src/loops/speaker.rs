//! How somebody speaks, and as whom: what all who share a connection have in common.

/// The user of clients that have not logged in: the gateway's own, or Redis's default.
pub(super) const NOBODY: u32 = 0;

/// A protocol and a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Speaker {
    /// 2 or 3.
    pub protocol: u8,
    /// Who has logged in, by its number at this loop.
    pub user: u32,
}
