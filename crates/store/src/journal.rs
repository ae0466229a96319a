//! The loans that are open, where they survive the store: what a store that was killed had lent is
//! called back by its next life.
//!
//! A file of slots, each of one line of text (JSON) padded to [`SLOT`] bytes; a line of spaces is a
//! free slot. A loan that ends frees its slot, so the file does not grow, and ending one needs no
//! room on a full disk. Loans are begun only when their line is on the disk. A line that is torn or
//! broken is one of a loan that was not begun, or whose end was being written.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;
use wire::KeyHash;

use crate::{
    backend::{Answer, Completion, Ticket},
    coherence::Terms,
};

/// Bytes of a slot.
const SLOT: usize = 1024;
/// Slots of the file: far more than loans are open at once, so they are all taken only while a disk
/// refuses to let loans end.
const SLOTS_MOST: usize = 4096;
/// The file's name in the state directory.
const FILE: &str = "loans";

/// A switch as a loan remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its number.
    pub number: u16,
    /// The number by which it knows its lease of this store.
    pub slot: u64,
    /// Where it is reached.
    pub address: SocketAddr,
    /// The store's own address that it knows.
    pub local: Option<IpAddr>,
}

/// A loan that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Whose key it is.
    pub tenant: u32,
    /// The key's hash.
    #[serde(with = "hex_hash")]
    pub key_hash: KeyHash,
    /// The key.
    #[serde(with = "hex_bytes")]
    pub key: Vec<u8>,
    /// The life of its writes.
    pub life: u16,
    /// Its versions are above this one.
    pub base: u64,
    /// The tenant's `write_back_ms` when it was lent.
    pub bound_ms: u32,
    /// The switch that answers.
    pub owner: Switch,
    /// The switch that keeps.
    pub keeper: Switch,
}

impl Entry {
    /// What the loan is made of.
    pub fn terms(&self) -> Terms {
        Terms {
            life: self.life,
            base: self.base,
            owner: self.owner.number,
            keeper: self.keeper.number,
            bound_ns: u64::from(self.bound_ms) * 1_000_000,
        }
    }
}

/// Remembers loans beyond a crash.
pub trait Journal: Send {
    /// The loans that were open when it was opened.
    fn found(&mut self) -> Vec<Entry>;

    /// Remembers a loan. The answer, maybe later as a [`Completion::Journal`]: whether it is
    /// remembered for certain.
    fn begin(&mut self, entry: Entry, ticket: Ticket) -> Answer<bool>;

    /// Forgets the loan of a key, likewise.
    fn end(&mut self, tenant: u32, key_hash: KeyHash, ticket: Ticket) -> Answer<bool>;
}

/// What the thread that writes is to do.
enum Order {
    Begin(Box<Entry>, Ticket),
    End((u32, KeyHash), Ticket),
}

/// The journal of a store, in a directory of its own.
pub struct FileJournal {
    found: Vec<Entry>,
    /// There until the end.
    orders: Option<mpsc::Sender<Order>>,
    done: UnboundedSender<Completion>,
    writer: Option<JoinHandle<()>>,
}

impl FileJournal {
    /// Opens the journal in a directory, which is made if there is none. Answers go to `done`.
    ///
    /// # Errors
    /// What the system refused, or that another store has the journal; the message names the file.
    pub fn open(
        directory: &Path,
        done: UnboundedSender<Completion>,
    ) -> anyhow::Result<FileJournal> {
        let slots = Slots::open(directory)?;
        let found = slots.entries.clone();
        let (orders, queue) = mpsc::channel();
        let answers = done.clone();
        let writer = std::thread::Builder::new()
            .name("journal".into())
            .spawn(move || write(slots, &queue, &answers))
            .context("cannot start the journal's thread")?;
        Ok(FileJournal { found, orders: Some(orders), done, writer: Some(writer) })
    }

    fn send(&self, order: Order) -> Answer<bool> {
        let Some(orders) = &self.orders else { return Answer::Later };
        if let Err(mpsc::SendError(Order::Begin(_, ticket) | Order::End(_, ticket))) =
            orders.send(order)
        {
            let _ = self.done.send(Completion::Journal(ticket, false));
        }
        Answer::Later
    }
}

/// What was ordered is done, and the next store may have the file.
impl Drop for FileJournal {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Journal for FileJournal {
    fn found(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.found)
    }

    fn begin(&mut self, entry: Entry, ticket: Ticket) -> Answer<bool> {
        self.send(Order::Begin(Box::new(entry), ticket))
    }

    fn end(&mut self, tenant: u32, key_hash: KeyHash, ticket: Ticket) -> Answer<bool> {
        self.send(Order::End((tenant, key_hash), ticket))
    }
}

/// Carries orders out until nobody gives any more: all that wait, with one fsync.
fn write(mut slots: Slots, queue: &mpsc::Receiver<Order>, answers: &UnboundedSender<Completion>) {
    while let Ok(first) = queue.recv() {
        let orders = std::iter::once(first).chain(queue.try_iter()).collect();
        let done = slots.carry_out(orders);
        // A thousand loans may be tried again each second, while a disk refuses.
        if let Some(error) = done.iter().find_map(|(_, result)| result.as_ref().err()) {
            tracing::warn!("journal of loans {}: {error}", slots.path.display());
        }
        for (ticket, result) in done {
            let _ = answers.send(Completion::Journal(ticket, result.is_ok()));
        }
    }
}

/// The file.
struct Slots {
    file: File,
    path: PathBuf,
    /// Where each open loan is.
    taken: HashMap<(u32, KeyHash), usize>,
    free: Vec<usize>,
    /// Of those that are open still as far as the disk is known, the ones that have ended; and
    /// whether that was written since the last sync.
    ending: HashMap<(u32, KeyHash), bool>,
    slots: usize,
    entries: Vec<Entry>,
}

impl Slots {
    fn open(directory: &Path) -> anyhow::Result<Slots> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("state directory {}", directory.display()))?;
        let path = directory.join(FILE);
        let name = || format!("journal of loans {}", path.display());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // Tenants' keys are nobody else's affair.
            .mode(0o600)
            .open(&path)
            .with_context(name)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                anyhow::bail!("{}: another store has it: give each its own --state", name())
            }
            Err(std::fs::TryLockError::Error(e)) => return Err(e).with_context(name),
        }
        let mut slots = Slots {
            file,
            taken: HashMap::new(),
            free: vec![],
            ending: HashMap::new(),
            slots: 0,
            entries: vec![],
            path: path.clone(),
        };
        slots.read().with_context(name)?;
        // That the file is there must survive a crash, too.
        slots.file.sync_all().with_context(name)?;
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .with_context(|| format!("state directory {}", directory.display()))?;
        Ok(slots)
    }

    /// Reads what is there. What is no loan is a free slot.
    fn read(&mut self) -> io::Result<()> {
        let mut bytes = vec![];
        io::Read::read_to_end(&mut &self.file, &mut bytes)?;
        for (at, slot) in bytes.chunks(SLOT).enumerate() {
            self.slots = at + 1;
            let entry = (slot.len() == SLOT).then(|| parse(slot)).flatten();
            match entry {
                Some(entry) => {
                    self.taken.insert((entry.tenant, entry.key_hash), at);
                    self.entries.push(entry);
                }
                None => {
                    if slot.iter().any(|byte| !b" \n\0".contains(byte)) && slot[0] != b' ' {
                        tracing::warn!(
                            "journal of loans {}: line {} is broken: taken for a loan that was not begun",
                            self.path.display(),
                            at + 1
                        );
                    }
                    self.free.push(at);
                }
            }
        }
        Ok(())
    }

    /// Carries orders out, with one fsync. Each one's result: whether it is on the disk.
    fn carry_out(&mut self, orders: Vec<Order>) -> Vec<(Ticket, io::Result<()>)> {
        self.end_again();
        let (mut done, mut begun) = (vec![], vec![]);
        for order in orders {
            done.push(match order {
                Order::Begin(entry, ticket) => {
                    let result = self.begin(&entry);
                    let id = (entry.tenant, entry.key_hash);
                    begun.extend(self.taken.contains_key(&id).then_some(id));
                    (ticket, result)
                }
                Order::End(id, ticket) => (ticket, self.end(id)),
            });
        }
        let synced = self.file.sync_data();
        match synced {
            Ok(()) => self.free_ended(),
            // These are not made.
            Err(_) => self.ending.extend(begun.into_iter().map(|id| (id, false))),
        }
        let with_sync = |result: io::Result<()>| {
            result.and(synced.as_ref().copied().map_err(|e| e.kind().into()))
        };
        done.into_iter().map(|(ticket, result)| (ticket, with_sync(result))).collect()
    }

    fn begin(&mut self, entry: &Entry) -> io::Result<()> {
        let id = (entry.tenant, entry.key_hash);
        let line = line(entry)?;
        let at = match self.taken.get(&id) {
            Some(at) => *at,
            None if self.taken.len() >= SLOTS_MOST => {
                return Err(io::Error::other("the ends of too many loans are not on the disk yet"));
            }
            None => self.free.pop().unwrap_or(self.slots),
        };
        self.slots = self.slots.max(at + 1);
        self.taken.insert(id, at);
        self.ending.remove(&id);
        let written = self.file.write_all_at(&line, (at * SLOT) as u64);
        if written.is_err() {
            let _ = self.end(id);
        }
        written
    }

    /// Frees a slot by its first byte: that needs no room, and is whole or not at all. It is nobody
    /// else's before that is on the disk. After a sync that failed nothing is known of what was
    /// written, and a second one may well report success: so it is written again.
    fn end(&mut self, id: (u32, KeyHash)) -> io::Result<()> {
        let Some(&at) = self.taken.get(&id) else { return Ok(()) };
        let written = self.file.write_all_at(b" ", (at * SLOT) as u64);
        self.ending.insert(id, written.is_ok());
        written
    }

    /// Writes the ends again that are not on the disk for certain.
    fn end_again(&mut self) {
        for id in self.ending.keys().copied().collect::<Vec<_>>() {
            let _ = self.end(id);
        }
    }

    /// What was written is on the disk.
    fn free_ended(&mut self) {
        let ended = self.ending.extract_if(|_, written| *written);
        for (id, _) in ended {
            self.free.extend(self.taken.remove(&id));
        }
    }
}

/// A loan's line: its checksum and what it is, padded.
fn line(entry: &Entry) -> io::Result<Vec<u8>> {
    let text = serde_json::to_string(entry)?;
    let mut line = format!("{:016x} {text}", checksum(text.as_bytes())).into_bytes();
    if line.len() >= SLOT {
        return Err(io::Error::other("a loan that does not fit its line"));
    }
    line.resize(SLOT - 1, b' ');
    line.push(b'\n');
    Ok(line)
}

fn parse(slot: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(slot).ok()?.trim_end();
    let (sum, text) = line.split_once(' ')?;
    let sum = u64::from_str_radix(sum, 16).ok()?;
    (sum == checksum(text.as_bytes())).then(|| serde_json::from_str(text).ok())?
}

/// Tells a line that was written whole from one that was not.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    wire::Secret([0x4c; 16]).key_hash(0, bytes).low()
}

mod hex_bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        hex::decode(String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

mod hex_hash {
    use serde::{Deserializer, Serializer, de::Error};
    use wire::KeyHash;

    pub fn serialize<S: Serializer>(hash: &KeyHash, to: S) -> Result<S::Ok, S::Error> {
        super::hex_bytes::serialize(&hash.0, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<KeyHash, D::Error> {
        let bytes = super::hex_bytes::deserialize(from)?;
        let bytes = bytes.try_into().map_err(|_| D::Error::custom("16 bytes expected"))?;
        Ok(KeyHash(bytes))
    }
}

#[cfg(test)]
mod tests;
