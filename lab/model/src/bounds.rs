//! What a world is made of before anything happens in it: its time, the ways of its datagrams, and
//! how much of everything may happen.

use crate::Call;

/// A lease as its holder counts it.
pub(crate) const LEASE_MS: u32 = 1000;
pub(crate) const LEASE_NS: u64 = LEASE_MS as u64 * 1_000_000;

/// Nanoseconds at a step of time: 0.6 leases each.
pub(crate) fn now_ns(step: u8) -> u64 {
    u64::from(step) * (LEASE_NS / 10 * 6)
}

/// The way of a client's datagrams to the store and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// Through switch 1, then switch 2.
    Both,
    /// Around switch 1.
    Second,
    /// Around both.
    Neither,
}

impl Path {
    /// Indices of the switches, in the order in which a request meets them.
    pub fn switches(self) -> &'static [usize] {
        match self {
            Path::Both => &[0, 1],
            Path::Second => &[1],
            Path::Neither => &[],
        }
    }
}

/// How much of everything happens at most, and who does what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Each client's operations, in order.
    pub scripts: [Vec<Call>; 3],
    /// Each client's way, and the way that its retransmissions take.
    pub paths: [(Path, Path); 3],
    /// Clients whose operations are commands by the RESP port, past all switches.
    pub ports: [bool; 3],
    /// Connections to the backend that are lost with a command on them, which may take place for a
    /// lease yet.
    pub lost: u8,
    /// Whether values have two parts. A writer sends the first by its own way and the second by
    /// that of its retransmissions; a reader asks for the second when it has the first; switches
    /// hold both.
    pub parts: bool,
    /// Whether the switches (1, 2) begin with an entry.
    pub entries: [bool; 2],
    /// Datagrams delivered twice.
    pub duplicates: u8,
    /// Retransmissions, of all clients together.
    pub retransmissions: u8,
    /// Evictions.
    pub evictions: u8,
    /// Entries made anew.
    pub refills: u8,
    /// Blanks that agents give: the next read that misses there makes an entry.
    pub blanks: u8,
    /// Fetches by agents.
    pub fetches: u8,
    /// Lease requests.
    pub renewals: u8,
    /// Switches that leave in order; one that asks for a lease afterwards has come back.
    pub leaves: u8,
    /// Steps of time of 0.6 leases; two let a holder's lease lapse, and the granter's too.
    pub steps: u8,
    /// Restarts of the store.
    pub restarts: u8,
    /// The step at which the life of the value ends that the key begins with: no switch may serve
    /// it then.
    pub life: Option<u8>,
    /// How many of all the above may happen together, refills, blanks and steps of time not
    /// counted: the states to look at are those of every choice of so many.
    pub together: u8,
}

impl Bounds {
    /// Nothing but these operations.
    pub fn quiet(scripts: [Vec<Call>; 3], paths: [(Path, Path); 3]) -> Bounds {
        Bounds {
            scripts,
            paths,
            ports: [false; 3],
            lost: 0,
            parts: false,
            entries: [true; 2],
            duplicates: 0,
            retransmissions: 0,
            evictions: 0,
            refills: 0,
            blanks: 0,
            fetches: 0,
            renewals: 0,
            leaves: 0,
            steps: 0,
            restarts: 0,
            life: None,
            together: u8::MAX,
        }
    }
}
