//! A store's journal of loans, which outlives it: on a disk that takes its time, and that fails at
//! times.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rand::RngExt;
use seed::{SeededRng, rng};
use store::{
    backend::{Answer, Completion, Ticket},
    journal::{Entry, Journal},
};
use wire::KeyHash;

enum Order {
    Begin(Box<Entry>),
    End(u32, KeyHash),
}

/// An order on its way to the disk.
struct QueuedOrder {
    /// On the clock of the store's life.
    due_ns: u64,
    ticket: Ticket,
    order: Order,
    /// Whether the disk says that it has it.
    is_safe: bool,
}

struct Disk {
    entries: BTreeMap<(u32, KeyHash), Entry>,
    /// What is being written, in this order.
    queue: VecDeque<QueuedOrder>,
    /// What a write takes, on average; 0: nothing.
    delay_ns: u64,
    rng: SeededRng,
    /// The store's clock, as it last said.
    now_ns: u64,
    /// Whether what is written fails: it may be there all the same.
    fails: Arc<AtomicBool>,
}

impl Disk {
    fn write(&mut self, order: Order) {
        match order {
            Order::Begin(entry) => {
                self.entries.insert((entry.tenant, entry.key_hash), *entry);
            }
            Order::End(tenant, key_hash) => {
                self.entries.remove(&(tenant, key_hash));
            }
        }
    }

    /// Does what an order says if the disk has it; of a failed one nobody knows.
    fn carry_out(&mut self, order: Order, is_safe: bool) {
        if is_safe || self.rng.random() {
            self.write(order);
        }
    }

    fn order(&mut self, order: Order, ticket: Ticket) -> Answer<bool> {
        let is_safe = !self.fails.load(Relaxed);
        if self.delay_ns == 0 {
            self.carry_out(order, is_safe);
            return Answer::Now(is_safe);
        }
        let takes_ns = self.rng.random_range(self.delay_ns / 2..=self.delay_ns * 3 / 2);
        let before_ns = self.queue.back().map_or(0, |writing| writing.due_ns);
        let due_ns = before_ns.max(self.now_ns + takes_ns);
        self.queue.push_back(QueuedOrder { due_ns, ticket, order, is_safe });
        Answer::Later
    }
}

/// The journal, in the store that has it and beyond.
#[derive(Clone)]
pub struct KeptJournal(Arc<Mutex<Disk>>);

impl KeptJournal {
    /// An empty one. What is written to it takes so long on average, and fails while its disk does.
    pub fn new(delay_ns: u64, seed: u64, fails: Arc<AtomicBool>) -> KeptJournal {
        KeptJournal(Arc::new(Mutex::new(Disk {
            entries: BTreeMap::new(),
            queue: VecDeque::new(),
            delay_ns,
            rng: rng(seed, "journal"),
            now_ns: 0,
            fails,
        })))
    }

    /// The same entries once more, as a copy of its file has them.
    pub fn backup(&self) -> KeptJournal {
        let mut disk = self.lock();
        let copy = KeptJournal::new(disk.delay_ns, disk.rng.random(), disk.fails.clone());
        copy.lock().entries = disk.entries.clone();
        copy
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its store was killed: of what was being written, what came first is there, in order.
    pub fn crash(&self) {
        let mut disk = self.lock();
        let most = disk.queue.len();
        let written = disk.rng.random_range(0..=most);
        let queue = std::mem::take(&mut disk.queue);
        for writing in queue.into_iter().take(written) {
            disk.carry_out(writing.order, writing.is_safe);
        }
        disk.now_ns = 0;
    }

    /// The store's clock.
    pub fn tick(&self, now_ns: u64) {
        self.lock().now_ns = now_ns;
    }

    /// When the next order is carried out.
    pub fn next_ns(&self) -> Option<u64> {
        self.lock().queue.front().map(|writing| writing.due_ns)
    }

    /// Carries out what is due; the next answer, if there is one.
    pub fn next_completion(&self, now_ns: u64) -> Option<Completion> {
        let mut disk = self.lock();
        if disk.queue.front()?.due_ns > now_ns {
            return None;
        }
        let QueuedOrder { ticket, order, is_safe, .. } = disk.queue.pop_front()?;
        disk.carry_out(order, is_safe);
        Some(Completion::Journal(ticket, is_safe))
    }
}

impl Journal for KeptJournal {
    fn found(&mut self) -> Vec<Entry> {
        self.lock().entries.values().cloned().collect()
    }

    fn begin(&mut self, entry: Entry, ticket: Ticket) -> Answer<bool> {
        self.lock().order(Order::Begin(Box::new(entry)), ticket)
    }

    fn end(&mut self, tenant: u32, key_hash: KeyHash, ticket: Ticket) -> Answer<bool> {
        self.lock().order(Order::End(tenant, key_hash), ticket)
    }
}
