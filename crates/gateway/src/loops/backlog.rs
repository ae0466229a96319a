//! How much waits for one server, as it is counted among what waits for all of them.

use std::sync::Arc;

use crate::shared::GatewayState;

/// What waits for one server by one connection, as it is counted.
pub(super) struct Backlog {
    shared: Arc<GatewayState>,
    bytes: usize,
}

impl Backlog {
    /// Nothing waits.
    pub fn new(shared: Arc<GatewayState>) -> Backlog {
        Backlog { shared, bytes: 0 }
    }

    /// Nothing waits any more.
    pub fn clear(&mut self) {
        self.set(0);
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many wait now.
    pub fn set(&mut self, bytes: usize) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes != before {
            self.shared.wait_for_servers(before, bytes);
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.clear();
    }
}
