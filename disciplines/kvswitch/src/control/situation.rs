//! What a plan of the table goes by, and what it comes to.

use decide::Key;

/// Stores, by their place in the cluster file's list.
pub type Places = Vec<usize>;
/// What turns each of them has, in the same order; none: all have one.
pub type Turns = Vec<usize>;

/// The situation that a plan goes by.
pub struct Situation<'a> {
    /// The hottest keys with their loads in requests of a window, the hottest first; no more of
    /// them than may be in the table.
    pub hottest: &'a [(Key, f64)],
    /// The load of any other key.
    pub load: &'a dyn Fn(&Key) -> f64,
    /// Requests of a window beyond which a key gets another server.
    pub threshold: f64,
    /// The place where a key's reads come to by themselves; none: nobody is there.
    pub home: &'a dyn Fn(&Key) -> Option<usize>,
    /// Whether nobody has been there for so long that no replica answers any longer.
    pub is_lapsed: &'a dyn Fn(&Key) -> bool,
    /// The place at which a server has a key; none: it may not have it.
    pub entry: &'a dyn Fn(&Key, usize) -> Option<usize>,
    /// The server of a place.
    pub server_of: &'a dyn Fn(usize) -> usize,
    /// What each server has to do, in requests of a window beside its weight.
    pub loads: &'a [f64],
    /// With more than this to do, a server has no turn of a key that is at home there.
    pub full: f64,
    /// What a server has to do on average.
    pub average: f64,
    /// How fast the server of a place is: 1, or less.
    pub weight: &'a dyn Fn(usize) -> f64,
    /// Which servers may be chosen. A key may be at home at one that may not be, which then has no
    /// turn of it.
    pub may: &'a [bool],
    /// How many servers a key of this load may have.
    pub most: &'a dyn Fn(f64) -> usize,
    /// Keys that are left alone for now.
    pub busy: &'a dyn Fn(&Key) -> bool,
    /// Keys that the table may have.
    pub room: usize,
    /// Changes that may be made.
    pub changes: usize,
}

impl Situation<'_> {
    /// How many servers there are to choose from beside this one.
    pub(super) fn others(&self, server: usize) -> usize {
        let may = self.may.iter().enumerate();
        may.filter(|(at, may)| **may && *at != server).count()
    }

    /// Whether a server has too much to do for turns of keys that others may have.
    pub(super) fn is_full(&self, server: usize) -> bool {
        !self.may[server] || self.loads[server] > self.full
    }

    /// Whether one that has so much to do could have more of what others have.
    pub(super) fn is_idle(&self, server: usize, load: f64) -> bool {
        self.may[server] && load < 2.0 * self.average - self.full
    }

    /// Whether any server could have more.
    pub(super) fn has_idle(&self) -> bool {
        let mut loads = self.loads.iter().enumerate();
        loads.any(|(server, load)| self.is_idle(server, *load))
    }

    /// Adds a key's load to the loads of the servers that share it.
    pub(super) fn add(&self, places: &[usize], load: f64, loads: &mut [f64]) {
        let each = load / places.len() as f64;
        let servers = places.iter().map(|at| (self.server_of)(*at));
        servers.for_each(|server| loads[server] += each);
    }
}

/// A key's new servers; none: it leaves the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The key.
    pub key: Key,
    /// Its servers from now on.
    pub servers: Places,
}
