//! What holds the data. One trait; a backend in this process answers at once, one behind a
//! connection later.
//!
//! The server loop never awaits a backend: `get` and `put` either return [`Answer::Now`] or take
//! the request's [`Ticket`] and deliver a [`Completion`] later. Requests are executed in the order
//! in which they were handed over: the coherence rules rest on that.
//!
//! What goes away by itself: a key that expires takes its copies along, because a grant states what
//! remains of its life, rounded down; a copy may outlive it by as long as the grant was on its way.
//! The embedded backend never evicts a key that a switch holds a copy of ([`Backend::pin`]). Redis
//! tells of what it evicts, and of what its other clients change, afterwards ([`OutsideEvent`]).
//! memcached does not: the copies live on until their expiry or the next write here. Run it with
//! `-M` where that matters: it then refuses what there is no room for, and drops what the key had.
//! Both are told of keys that are read elsewhere ([`Backend::mark_read`]), so that they do not
//! evict first what is read most.

pub mod embedded;
pub mod memcached;
mod outage;
pub mod redis;
mod refusal;
mod remote;
mod small;

use bytes::Bytes;
use wire::KeyHash;

pub use crate::coherence::Watch;
pub use refusal::Refusal;

/// Names a request whose answer comes later.
pub type Ticket = u64;

/// A key as requests name it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The tenant it belongs to.
    pub tenant: u32,
    /// Its verified hash.
    pub hash: KeyHash,
    /// 1 to 250 bytes.
    pub bytes: &'a [u8],
}

/// A key's value as the backend holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<V> {
    /// The value's bytes.
    pub value: V,
    /// Its version.
    pub version: u64,
    /// What remains of its life in milliseconds, rounded down but at least 1; 0: it does
    /// not expire.
    pub expiry_ms: u32,
}

impl Item<Bytes> {
    /// The same, borrowed.
    pub fn as_ref(&self) -> Item<&[u8]> {
        Item { value: &self.value, version: self.version, expiry_ms: self.expiry_ms }
    }
}

/// When a write takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Condition {
    /// Whatever is there.
    Always,
    /// Only if the key is absent.
    Absent,
    /// Only if the key is present.
    Present,
    /// Only if the key is present with this version.
    Version(u64),
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Written or removed; the key's version is this one now.
    Done(u64),
    /// There was nothing to remove.
    NotFound,
    /// The condition did not hold; the current version, 0 if the key is absent.
    Mismatch(u64),
    /// Longer than this backend holds.
    TooLarge,
    /// The key is longer than this backend takes: so many bytes, were the others like these.
    KeyTooLong(u8),
    /// No room, and nothing that may be evicted. Nothing was written.
    Full,
    /// The backend failed; whether the write took place is unknown.
    Failed,
    /// The backend has refused it, or could not be told of it: it did not take place.
    Refused(Refusal),
}

/// How a read ended that was answered later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome<V = Vec<u8>> {
    /// The item.
    Item(Item<V>),
    /// The item, or that there is none, from a server that does not tell if others change it.
    Untold(Option<Item<V>>),
    /// It is longer than [`Backend::longest`]; its version.
    TooLarge(u64),
    /// There is no such key.
    Absent,
    /// The backend has refused to say, or could not be asked.
    Refused(Refusal),
    /// The backend failed.
    Failed,
}

impl ReadOutcome {
    /// The same, for several who read the value.
    pub fn shared(self) -> ReadOutcome<Bytes> {
        let shared = |item: Item<Vec<u8>>| Item {
            value: item.value.into(),
            version: item.version,
            expiry_ms: item.expiry_ms,
        };
        match self {
            ReadOutcome::Item(item) => ReadOutcome::Item(shared(item)),
            ReadOutcome::Untold(item) => ReadOutcome::Untold(item.map(shared)),
            ReadOutcome::TooLarge(version) => ReadOutcome::TooLarge(version),
            ReadOutcome::Absent => ReadOutcome::Absent,
            ReadOutcome::Refused(refusal) => ReadOutcome::Refused(refusal),
            ReadOutcome::Failed => ReadOutcome::Failed,
        }
    }
}

/// An answer, or the promise of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Here it is.
    Now(T),
    /// A [`Completion`] with the ticket will follow, always.
    Later,
}

/// The answer to a request that was taken with [`Answer::Later`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// To `get`.
    Get(Ticket, ReadOutcome),
    /// To `put`.
    Change(Ticket, Change),
    /// To nothing: something that others did in the backend.
    Outside(OutsideEvent),
    /// From the journal of loans: whether it is done.
    Journal(Ticket, bool),
    /// To nothing: no change that has failed until now can still take place.
    Settled,
}

impl Completion {
    /// The same for an engine whose clock was at 0 when CLOCK_BOOTTIME was at `began_ns`, by which
    /// a backend has told it.
    pub fn by_clock_since(self, began_ns: u64) -> Completion {
        match self {
            Completion::Outside(OutsideEvent::Seen(asked_ns)) => {
                Completion::Outside(OutsideEvent::Seen(asked_ns.saturating_sub(began_ns)))
            }
            other => other,
        }
    }
}

/// What others did in a backend with [`Watch::Tracked`]. Events and answers come in the order in
/// which the backend sent them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutsideEvent {
    /// A key that was read for a grant has been changed, has expired or was evicted.
    Changed {
        /// The tenant it belongs to.
        tenant: u32,
        /// The key.
        key: Vec<u8>,
    },
    /// Any key may have been changed.
    Everything,
    /// From now on it tells of changes, or cannot.
    Watch(Watch),
    /// Everything that happened before this time has been told. In nanoseconds: of CLOCK_BOOTTIME
    /// as backends send it, of the engine's clock as that is told
    /// ([`Completion::by_clock_since`]).
    Seen(u64),
}

/// A write's contents.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The new value; none: the key is removed.
    pub value: Option<&'a Bytes>,
    /// Time to live in milliseconds; 0: none.
    pub ttl_ms: u32,
    /// When to write.
    pub condition: Condition,
    /// The version that the value gets, or that its absence counts as.
    pub version: u64,
}

impl<'a> Put<'a> {
    /// A value that lasts, whatever was there.
    pub fn of(value: &'a Bytes, version: u64) -> Put<'a> {
        Put { value: Some(value), ttl_ms: 0, condition: Condition::Always, version }
    }

    /// Nothing, whatever was there.
    pub fn removal(version: u64) -> Put<'static> {
        Put { value: None, ttl_ms: 0, condition: Condition::Always, version }
    }
}

/// Takes a request for the keys of a partition, at a time in nanoseconds: the time before which its
/// answer must not leave (0: at once), or `None` where there is no time for it, and it is dropped.
/// A real server's socket has decided that before a store sees the request; for one that is
/// emulated this decides.
pub type Admission = Box<dyn FnMut(usize, u64) -> Option<u64> + Send>;

/// What is wrong with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Of which kind it is.
    pub kind: TroubleKind,
    /// For how long it has gone on, in nanoseconds.
    pub for_ns: u64,
    /// What the backend said last, or what went wrong with the connection.
    pub words: String,
}

/// Kinds of trouble with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// There is no connection to it, or it is not what the data may be asked of: requests are
    /// refused.
    Away,
    /// It does not answer, and is waited for.
    Slow,
    /// It answers, and refuses requests because of how it is.
    Refuses,
}

/// What holds the data.
pub trait Backend: Send {
    /// The value of a key. Time is in nanoseconds of the store's clock.
    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>>;

    /// As [`Backend::get`], for a reply that grants a copy: with [`Watch::Tracked`], the backend
    /// tells from before it reads the value if another changes the key.
    fn get_for_grant(
        &mut self,
        key: Key<'_>,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Option<Item<&[u8]>>> {
        self.get(key, now_ns, ticket)
    }

    /// Values of more bytes are of no use to anybody: of one that is answered later nothing need
    /// be read.
    fn longest(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// What was read of a key under this version is not what is there: others have written it. If
    /// its version is still `from`, it is `to` from now on. False: it is not, a write of ours has
    /// given it another since.
    fn raise(&mut self, tenant: u32, hash: KeyHash, from: u64, to: u64) -> bool {
        let _ = (tenant, hash, from, to);
        true
    }

    /// Any key may have another value than under its version before: each has this version from now
    /// on, which is higher than all of them, until it is written.
    fn forget_versions(&mut self, version: u64) {
        let _ = version;
    }

    /// A write of a key that [failed](Change::Failed) can no longer take place. Whichever value is
    /// there has this version from now on: what was read meanwhile may have been either.
    fn settle(&mut self, tenant: u32, hash: KeyHash, version: u64) {
        let _ = (tenant, hash, version);
    }

    /// Whether others may write to it, and whether it tells.
    fn watch(&self) -> Watch {
        Watch::Unneeded
    }

    /// Writes a key, or removes it.
    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change>;

    /// Marks a key that switches hold copies of: a backend that evicts must leave it alone, because
    /// an eviction that no copy learns of would show readers a value after its absence.
    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        let _ = (key, pinned);
    }

    /// How many keys one command to the backend can mark as read; 0: it needs none of that, for it
    /// sees all reads, or evicts nothing that switches hold copies of, or nothing at all.
    fn marks_at_once(&self) -> usize {
        0
    }

    /// These keys were read so often where copies of them lie, and not here: they are no less in
    /// use than what is read here. No answer follows. At most [`Backend::marks_at_once`] of them.
    fn mark_read(&mut self, keys: &[(Key<'_>, u32)]) {
        let _ = keys;
    }

    /// Somebody reads or writes what it holds, here or where copies lie: until a second from now it
    /// is asked so often whether it is what it was that it is not missed for long.
    fn attend(&mut self) {}

    /// Has it asked now whether it is what it was: leases are about to be lent from the time of
    /// that question.
    fn ask(&mut self) {}

    /// What is wrong with it, if something is.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Keys held, where the backend knows.
    fn items(&self) -> Option<u64> {
        None
    }

    /// Bytes held, overhead included, where the backend knows.
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    /// Items evicted for room.
    fn evicted(&self) -> u64 {
        0
    }
}
