//! A shard of a Redis Cluster, as the store before it meets it: what it tells of changes, and which
//! of the store's keys another node has. The values are in one place all the same, for of each key
//! one node alone has anything at a time.
//!
//! What is read for a grant at the shard's own master is tracked: the master tells, on the store's
//! connection and in the order of its answers, when a key is changed, or given away (MIGRATE). The
//! other node tells nobody. What a node answers comes a moment after it was carried out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt;
use seed::SeededRng;
use store::backend::{Change, Completion, OutsideEvent, ReadOutcome};
use wire::KeyHash;

/// Slots of a store's keys.
pub const SLOTS: usize = 2;
/// Nodes that a command is sent on to, each by the one before.
pub const REDIRECTS: u8 = 4;
/// The master is asked something so often while anybody reads or writes what the store has, else
/// seldom; in nanoseconds.
const QUESTION_NS: u64 = 100_000_000;
const SELDOM_NS: u64 = 700_000_000;
/// It counts as read or written for so long after it was.
const ATTENDED_NS: u64 = 1_000_000_000;
/// From when a question is wanted until it is asked.
const SOON_NS: u64 = 1_000;
/// The store reads the map of the cluster so often.
const MAP_READ_NS: u64 = 1_000_000_000;

type KeyId = (u32, KeyHash);

/// The slot of a key of this hash.
pub fn slot_of(hash: KeyHash) -> usize {
    usize::from(hash.0[0]) % SLOTS
}

/// Where a slot is.
enum Place {
    /// At the shard's own master.
    Here,
    /// On its way: these keys have left, and no others come to be here.
    Leaving(BTreeSet<KeyId>),
    /// At the other node since then, on the data's clock.
    Away(u64),
}

/// What comes about by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Leaves(KeyId),
    IsGone(usize),
    /// The store learns from the map that slots are elsewhere.
    MapRead(usize),
}

impl Step {
    fn slot(self) -> usize {
        match self {
            Step::Leaves((_, hash)) => slot_of(hash),
            Step::IsGone(slot) | Step::MapRead(slot) => slot,
        }
    }
}

/// The shard. Times are of the data's clock, in nanoseconds.
pub struct Shard {
    places: [Place; SLOTS],
    steps: BTreeSet<(u64, Step)>,
    /// Keys that the master tells the store of when they change, with their bytes.
    tracked: BTreeMap<KeyId, Vec<u8>>,
    /// What the store has written last of each key, though it may be removed.
    versions: BTreeMap<KeyId, u64>,
    /// What is on its way to the store, and when it is there.
    told: VecDeque<(u64, Completion)>,
    /// When the master is asked next where there is nothing to ask.
    question_ns: u64,
    attended_until_ns: u64,
    /// What an answer takes at most.
    answer_ns: u64,
    rng: SeededRng,
}

impl Shard {
    /// All of it is at its own master. An answer takes `answer_ns` at most.
    pub fn new(answer_ns: u64, rng: SeededRng) -> Shard {
        Shard {
            places: [const { Place::Here }; SLOTS],
            steps: BTreeSet::new(),
            tracked: BTreeMap::new(),
            versions: BTreeMap::new(),
            told: VecDeque::new(),
            question_ns: 0,
            attended_until_ns: 0,
            answer_ns,
            rng,
        }
    }

    /// Another life of the store has a connection now; nothing more is told to the one before.
    pub fn connects(&mut self, now_ns: u64) {
        self.tracked.clear();
        self.told.clear();
        self.question_ns = now_ns;
    }

    /// The connection is lost at `now_ns`, until `down_until_ns`: what was on its way on it is.
    pub fn is_lost(&mut self, now_ns: u64, down_until_ns: u64) {
        self.tracked.clear();
        self.question_ns = down_until_ns;
        let mut lost = vec![Completion::Outside(OutsideEvent::Everything)];
        for (due_ns, told) in std::mem::take(&mut self.told) {
            if due_ns <= now_ns {
                self.told.push_back((due_ns, told));
                continue;
            }
            lost.extend(match told {
                Completion::Get(ticket, _) => Some(Completion::Get(ticket, ReadOutcome::Failed)),
                Completion::Change(ticket, _) => Some(Completion::Change(ticket, Change::Failed)),
                Completion::Settled => Some(Completion::Settled),
                Completion::Outside(_) | Completion::Journal(..) => None,
            });
        }
        self.told.extend(lost.into_iter().map(|told| (now_ns, told)));
    }

    // ---- where keys are

    /// A slot begins to leave, which takes so long; `keys` are those that there are.
    pub fn leaves(&mut self, slot: usize, now_ns: u64, takes_ns: u64, keys: &[KeyId]) {
        self.comes_back(slot);
        self.places[slot] = Place::Leaving(BTreeSet::new());
        let keys: Vec<KeyId> =
            keys.iter().copied().filter(|(_, hash)| slot_of(*hash) == slot).collect();
        let parts = keys.len() as u64 + 1;
        for (number, key) in (1..).zip(keys) {
            self.steps.insert((now_ns + takes_ns * number / parts, Step::Leaves(key)));
        }
        let gone_ns = now_ns + takes_ns;
        self.steps.insert((gone_ns, Step::IsGone(slot)));
        let read_ns = gone_ns + self.rng.random_range(1..=MAP_READ_NS);
        self.steps.insert((read_ns, Step::MapRead(slot)));
    }

    /// A slot is at the shard's own master again, with all of its keys.
    pub fn comes_back(&mut self, slot: usize) {
        self.places[slot] = Place::Here;
        self.steps.retain(|(_, step)| step.slot() != slot);
    }

    /// When something comes about by itself.
    pub fn next_step_ns(&self) -> Option<u64> {
        self.steps.first().map(|(at_ns, _)| *at_ns)
    }

    /// What comes about next does.
    pub fn step(&mut self) {
        let Some((at_ns, step)) = self.steps.pop_first() else { return };
        match step {
            Step::Leaves(id) => {
                self.arrives(id);
                self.changes(id, at_ns);
            }
            Step::IsGone(slot) => self.places[slot] = Place::Away(at_ns),
            Step::MapRead(_) => self.tell(at_ns, Completion::Outside(OutsideEvent::Everything)),
        }
    }

    /// Whether the other node is to be asked of a key that `is_there` or is not.
    pub fn is_elsewhere(&self, id: KeyId, is_there: bool) -> bool {
        match &self.places[slot_of(id.1)] {
            Place::Here => false,
            Place::Leaving(gone) => gone.contains(&id) || !is_there,
            Place::Away(_) => true,
        }
    }

    /// The other node has written a key.
    pub fn arrives(&mut self, id: KeyId) {
        if let Place::Leaving(gone) = &mut self.places[slot_of(id.1)] {
            gone.insert(id);
        }
    }

    /// Whether a key's slot has been at the other node for longer than `for_ns`.
    pub fn is_long_away(&self, hash: KeyHash, now_ns: u64, for_ns: u64) -> bool {
        match &self.places[slot_of(hash)] {
            Place::Away(since_ns) => now_ns > since_ns + for_ns,
            Place::Here | Place::Leaving(_) => false,
        }
    }

    // ---- what the store is told

    /// The master tells from now on when this key changes.
    pub fn tracks(&mut self, id: KeyId, bytes: &[u8]) {
        self.tracked.insert(id, bytes.into());
    }

    /// The master has changed a key, or given it away.
    pub fn changes(&mut self, id: KeyId, now_ns: u64) {
        if let Some(key) = self.tracked.remove(&id) {
            let tenant = id.0;
            self.tell(now_ns, Completion::Outside(OutsideEvent::Changed { tenant, key }));
        }
    }

    /// The store has written a key under this version.
    pub fn is_written(&mut self, id: KeyId, version: u64) {
        self.versions.insert(id, version);
    }

    /// The version of what the store has written last of a key.
    pub fn version(&self, id: KeyId) -> Option<u64> {
        self.versions.get(&id).copied()
    }

    /// Tells the store, in a moment and after what it was told before.
    pub fn tell(&mut self, now_ns: u64, completion: Completion) {
        let due_ns = now_ns + self.rng.random_range(0..=self.answer_ns);
        let before_ns = self.told.back().map_or(0, |(due_ns, _)| *due_ns);
        self.told.push_back((due_ns.max(before_ns), completion));
    }

    /// When the store is told something next.
    pub fn next_told_ns(&self) -> Option<u64> {
        self.told.front().map(|(due_ns, _)| *due_ns)
    }

    /// What it is told by then.
    pub fn next_told(&mut self, now_ns: u64) -> Option<Completion> {
        self.next_told_ns().filter(|due_ns| *due_ns <= now_ns)?;
        self.told.pop_front().map(|(_, completion)| completion)
    }

    // ---- questions

    /// Somebody reads or writes.
    pub fn attend(&mut self, now_ns: u64) {
        self.attended_until_ns = now_ns + ATTENDED_NS;
    }

    /// The store wants a question asked.
    pub fn wants_question(&mut self, now_ns: u64) {
        self.question_ns = self.question_ns.min(now_ns + SOON_NS);
    }

    /// When a question is to be asked.
    pub fn question_ns(&self) -> u64 {
        self.question_ns
    }

    /// Whether one is to be asked now, and then the next later.
    pub fn takes_question(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.question_ns;
        if is_due {
            let is_attended = now_ns < self.attended_until_ns;
            self.question_ns = now_ns + if is_attended { QUESTION_NS } else { SELDOM_NS };
        }
        is_due
    }

    /// What a command takes that is sent on to another node.
    pub fn detour_ns(&mut self) -> u64 {
        self.answer_ns + self.rng.random_range(0..=self.answer_ns)
    }
}
