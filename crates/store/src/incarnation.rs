//! What tells the lives of a store apart: each numbers terms and versions from a place of its own.
//!
//! Neither may mean two things. A term that came again would bring copies of the former life back
//! to life; a version that came again would let a compare-and-set hold that read another value.
//! Wall clocks are set back, and a store may be restarted within a second, so chance decides.
//! Versions count the seconds in their high half besides, so that they rise from one life to the
//! next where the clock does.

use wire::Secret;

/// One life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    first_term: u64,
    first_version: u64,
    name: u16,
    ticks: u16,
    client: u64,
    secret: Secret,
}

impl Incarnation {
    /// A life that begins `wall_s` seconds after 1970; `random` is another number for each life of
    /// each store.
    pub fn new(wall_s: u32, random: u64) -> Incarnation {
        // Below 1 s after 1970 there would be versions that say something else: 0 is that of a key
        // that is absent.
        let seconds = u64::from(wall_s.max(1));
        Incarnation {
            first_term: random,
            first_version: seconds << 32 | random >> 32,
            name: (random % 65_534) as u16 + 2,
            ticks: 0,
            client: !random,
            secret: Secret(u128::from(!random).to_be_bytes()),
        }
    }

    /// The same life, which asks other stores under this name. Unlike its terms it is told to those
    /// that it asks, and nobody else.
    #[must_use]
    pub fn asking_as(self, client: u64) -> Incarnation {
        Incarnation { client, ..self }
    }

    /// The same life, which makes what it gives to holders by this secret, and tells it nobody.
    #[must_use]
    pub fn keeping(self, secret: Secret) -> Incarnation {
        Incarnation { secret, ..self }
    }

    /// What it makes tokens of holders by.
    pub fn secret(self) -> Secret {
        self.secret
    }

    /// The same life under the name of one that ended in order, which it goes on with; its versions
    /// are above that one's last.
    #[must_use]
    pub fn going_on(self, name: u16, newest_version: u64) -> Incarnation {
        let first_version = self.first_version.max(newest_version + 1);
        Incarnation { name, first_version, ..self }
    }

    /// Whose its requests to other stores are.
    pub fn client(self) -> u64 {
        self.client
    }

    /// The term in which a switch is lent its first lease.
    pub fn first_term(self) -> u64 {
        self.first_term
    }

    /// The same life, which begins so many 65,536ths of a second later.
    #[must_use]
    pub fn later(self, ticks: u16) -> Incarnation {
        Incarnation { ticks, ..self }
    }

    /// What the epochs of its copies of other stores' keys begin with: its start in 65,536ths of a
    /// second since 1970. A life takes no more for what others send it, so the next life's are
    /// above them.
    pub fn first_epoch(self) -> u64 {
        (self.first_version >> 32) << 16 | u64::from(self.ticks)
    }

    /// What it says of itself in replies: not 0, which says nothing, nor [`wire::LIFE_UNKNOWN`].
    pub fn name(self) -> u16 {
        self.name
    }

    /// The version of what was there before; what is written has higher ones. Lives write fewer
    /// than 2^32 values a second, so the next second's are above them.
    pub fn first_version(self) -> u64 {
        self.first_version
    }
}
