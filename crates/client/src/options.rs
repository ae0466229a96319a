//! How a client behaves: deadlines, waits, room for values, memory, the seal.
//!
//! Whoever makes a client fills this in: applications, the gateway, the lab, `shortstop`. It is
//! checked once, before anything is opened ([`crate::rules`]).

use std::time::Duration;

use crate::{Error, Memory, Seal};

/// How a client behaves. The defaults suit a data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a call may take in all; a write never takes longer than the cluster's leases allow
    /// ([`wire::Cluster::write_deadline`]). Default 1500 ms.
    pub deadline: Duration,
    /// Calls that may wait for answers at the same time; more wait for a place. Default 4096.
    pub max_in_flight: usize,
    /// Wait before the first retransmission as long as no round trip was measured. Default 20 ms.
    pub initial_timeout: Duration,
    /// Least wait before a retransmission. Default 5 ms.
    pub min_timeout: Duration,
    /// Longest wait between retransmissions. Default 500 ms.
    pub max_timeout: Duration,
    /// Length in bytes of the values that reads leave room for at least; for longer ones the client
    /// learns from what it sees. Default 256.
    pub expected_value: usize,
    /// What values that no packet holds take their memory from, from their first part until they
    /// are written, or until the bytes that were read are dropped; `None`: they take what
    /// they need.
    pub memory: Option<Memory>,
    /// Bytes for copies of what is read most, from which reads are answered without a packet, and
    /// never with what a write has made old; 0: none. A thread of the client's own keeps them.
    /// Whoever writes waits for its acknowledgement, or for a lease if this process stands still.
    /// [`Client`] keeps them, a [`Machine`] does not. Default 0.
    ///
    /// [`Client`]: crate::Client
    /// [`Machine`]: crate::Machine
    pub cache: usize,
    /// Seals what is written and opens what is read; `None`: keys and values travel and are kept as
    /// they are. All clients of a tenant must agree: a sealed key is another key.
    pub seal: Option<Seal>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            deadline: Duration::from_millis(1500),
            max_in_flight: 4096,
            initial_timeout: Duration::from_millis(20),
            min_timeout: Duration::from_millis(5),
            max_timeout: Duration::from_millis(500),
            expected_value: 256,
            memory: None,
            cache: 0,
            seal: None,
        }
    }
}

/// Most calls in flight that a client can be asked to allow.
const MAX_IN_FLIGHT: usize = 1 << 16;

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |text: &str| Err(Error::Options(text.into()));
        if self.deadline.is_zero() || self.deadline > Duration::from_secs(3600) {
            return fail("deadline: expected more than 0 and at most one hour");
        }
        if !(1..=MAX_IN_FLIGHT).contains(&self.max_in_flight) {
            return fail("max_in_flight: expected 1 to 65536");
        }
        if self.min_timeout.is_zero() || self.min_timeout > self.max_timeout {
            return fail("min_timeout: expected more than 0 and at most max_timeout");
        }
        Ok(())
    }
}
