//! Commands that wait, and the batches that are made of them.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
};

use tokio::sync::mpsc;

use super::{BATCH_BYTES, Command, Completions, Outcome, Verb, completion::completion};
use crate::backend::Refusal;

/// Requests in one batch.
pub(super) const BATCH: usize = 256;

/// Commands on their way to the backend. Each is answered: if the task ends before its time, with
/// a failure.
pub(super) struct Queue {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Received, and in no batch yet.
    next: VecDeque<Command>,
    /// Reads of values that turned out to be large.
    large: Large,
    /// They took the room that the first of `next` needs: it goes before them now.
    next_first: bool,
    /// Taken, and not yet answered.
    pub batch: Vec<Command>,
    pub completions: Completions,
}

impl Queue {
    /// Of what is received here; what it comes to goes there.
    pub fn new(commands: mpsc::UnboundedReceiver<Command>, completions: Completions) -> Queue {
        Queue {
            commands,
            next: VecDeque::new(),
            large: Large::default(),
            next_first: false,
            batch: Vec::with_capacity(BATCH),
            completions,
        }
    }

    /// Waits for commands, if there are none, and takes a batch of them. False: nobody will send
    /// any more.
    pub async fn gather(&mut self) -> bool {
        let mut room = BATCH_BYTES;
        let next_first = std::mem::take(&mut self.next_first);
        if next_first {
            self.take_next(&mut room);
        }
        // Otherwise first, for they were asked first.
        while let Some(read) = self.large.pop(room, self.batch.is_empty()) {
            room = room.saturating_sub(read.large_bytes());
            self.batch.push(read);
        }
        if self.next.is_empty() {
            if self.batch.is_empty() {
                match self.commands.recv().await {
                    Some(command) => self.next.push_back(command),
                    None => return false,
                }
            }
            while self.next.len() < BATCH
                && let Ok(command) = self.commands.try_recv()
            {
                self.next.push_back(command);
            }
        }
        self.take_next(&mut room);
        self.next_first = !next_first && !self.next.is_empty();
        true
    }

    /// Puts what there is room for into the batch, in order.
    fn take_next(&mut self, room: &mut usize) {
        while let Some(first) = self.next.front()
            && (self.batch.is_empty() || first.large_bytes() <= *room)
        {
            *room = room.saturating_sub(first.large_bytes());
            self.batch.extend(self.next.pop_front());
        }
    }

    /// Answers some of the batch at once with this refusal.
    pub fn refuse(&mut self, is_refused: impl Fn(&Command) -> bool, refusal: &Refusal) {
        for command in self.batch.extract_if(.., |command| is_refused(command)) {
            let refused = completion(command, Outcome::Refused(refusal.clone()));
            refused.into_iter().for_each(|refused| drop(self.completions.send(refused)));
        }
    }

    /// Answers the batch, but for reads that go on; false if nobody listens any more.
    pub fn answer(&mut self, outcomes: impl IntoIterator<Item = Outcome>) -> bool {
        for (mut command, outcome) in self.batch.drain(..).zip(outcomes) {
            if let (Verb::Get { most, large, .. }, Outcome::Large(len)) =
                (&mut command.verb, &outcome)
                && len <= most
            {
                *large = Some(*len);
                self.large.push(command);
                continue;
            }
            if let Some(completion) = completion(command, outcome)
                && self.completions.send(completion).is_err()
            {
                return false;
            }
        }
        true
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.commands.close();
        self.batch.extend(self.next.drain(..));
        while let Some(read) = self.large.pop(usize::MAX, true) {
            self.batch.push(read);
        }
        while let Ok(command) = self.commands.try_recv() {
            self.batch.push(command);
        }
        self.answer(std::iter::repeat(Outcome::Failed));
    }
}

/// Reads of large values: tenants take turns.
#[derive(Default)]
struct Large {
    tenants: BTreeMap<u32, VecDeque<Command>>,
    /// Whose turn it was.
    last: u32,
}

impl Large {
    fn push(&mut self, read: Command) {
        self.tenants.entry(read.tenant).or_default().push_back(read);
    }

    /// The next read, if its value takes no more than `room` bytes or `any` will do.
    fn pop(&mut self, room: usize, any: bool) -> Option<Command> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let mut turns = self.tenants.range(after).chain(&self.tenants);
        let tenant = *turns.next()?.0;
        let reads = self.tenants.get_mut(&tenant)?;
        let fits = |read: &Command| any || read.large_bytes() <= room;
        reads.front().filter(|read| fits(read))?;
        let read = reads.pop_front();
        if reads.is_empty() {
            self.tenants.remove(&tenant);
        }
        self.last = tenant;
        read
    }
}
