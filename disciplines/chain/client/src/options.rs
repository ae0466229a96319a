//! How a client behaves.

use std::{net::SocketAddr, time::Duration};

use client::{Error, Seal};
use wire::{Cluster, PORT};

/// The longest that a write may be sent again: switches forget who was idle for 60 s, and clocks
/// differ.
const DEADLINE_MAX: Duration = Duration::from_secs(30);

/// Which members of a chain are asked for a key that any of them may answer for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The one that answers fastest, as far as was measured.
    #[default]
    Near,
    /// All of them, at random.
    Spread,
    /// This one, as long as it answers and is a member. Where only the tail answers, it passes the
    /// request on.
    At(SocketAddr),
}

/// As whom the switches know a client: they remember its last writes under its id. Whoever has an
/// id that another one had before goes on with it, and takes no room of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id, which nobody else has at the same time.
    pub client: u64,
    /// Above every number that its requests had before; below [`Identity::NUMBERS`].
    pub first: u64,
}

impl Identity {
    /// How many numbers there are: a request's is 16 times one of them and a place below 16.
    pub const NUMBERS: u64 = 1 << 58;

    /// One that nobody had before.
    pub fn random() -> Identity {
        Identity { client: rand::random(), first: 1 }
    }
}

/// How a client of chains behaves. The defaults suit a data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// Switches that may be asked which chains there are; at least one.
    pub switches: Vec<SocketAddr>,
    /// How long a call may take in all, at most 30 s. Default 5 s.
    pub deadline: Duration,
    /// Wait before the first retransmission, and least. Default 10 ms.
    pub first_timeout: Duration,
    /// Longest wait between two retransmissions. Default 40 ms: a chain that lost a member is a new
    /// one after some 200 ms, and then nobody should wait for long.
    pub max_timeout: Duration,
    /// Calls that may be under way or wait for their turn. Default 4096.
    pub max_in_flight: usize,
    /// Whom reads are sent to.
    pub reads: Reads,
    /// Length in bytes of the values that reads leave room for at first. Default 256.
    pub expected_value: usize,
    /// Seals what is written and opens what is read, as [`client::Options::seal`].
    pub seal: Option<Seal>,
    /// As whom it goes on; none: the switches do not know it yet.
    pub identity: Option<Identity>,
}

impl Options {
    /// The defaults, for the switches that a cluster file names.
    pub fn of(cluster: &Cluster) -> Options {
        let switches = cluster.switches.iter();
        Options::new(switches.map(|s| (s.address, PORT).into()).collect())
    }

    /// The defaults, for these switches.
    pub fn new(switches: Vec<SocketAddr>) -> Options {
        Options {
            switches,
            deadline: Duration::from_secs(5),
            first_timeout: Duration::from_millis(10),
            max_timeout: Duration::from_millis(40),
            max_in_flight: 4096,
            reads: Reads::Near,
            expected_value: 256,
            seal: None,
            identity: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |text: &str| Err(Error::Options(text.into()));
        if self.switches.is_empty() {
            return fail("switches: expected the address of at least one");
        }
        if self.deadline.is_zero() || self.deadline > DEADLINE_MAX {
            return fail("deadline: expected more than 0 and at most 30 s");
        }
        if self.first_timeout.is_zero() || self.first_timeout > self.max_timeout {
            return fail("first_timeout: expected more than 0 and at most max_timeout");
        }
        if !(1..=1 << 16).contains(&self.max_in_flight) {
            return fail("max_in_flight: expected 1 to 65536");
        }
        if self.identity.is_some_and(|it| !(1..Identity::NUMBERS).contains(&it.first)) {
            return fail("identity: expected a first number of 1 to 2^58 - 1");
        }
        Ok(())
    }
}
