//! The data of a shard of a Redis Cluster: commands are carried out at the node that has their key,
//! each once, and what came of them is told in that order.

use bytes::Bytes;
use store::backend::{
    Answer, Change, Completion, Item, Key, OutsideEvent, Put, ReadOutcome, Refusal,
};
use wire::KeyHash;

use super::{Command, KeptData, NO_KEY, Origin, REDIRECTS, Server, Shard, Verb};
use crate::redis::{FIRST_VERSION, Redis, StoredValue};

impl KeptData {
    /// A slot of this shard begins to move to another, at `world_ns` of the world, which takes so
    /// long; nothing happens where the data is in no cluster.
    pub fn move_slot(&self, slot: usize, world_ns: u64, takes_ns: u64) {
        let mut server = self.lock();
        server.run(world_ns);
        let keys: Vec<_> = server.written.keys().collect();
        if let Some(shard) = &mut server.shard {
            shard.leaves(slot, world_ns, takes_ns, &keys);
        }
    }

    /// A slot is this shard's again, with all of its keys.
    pub fn bring_slot_back(&self, slot: usize, world_ns: u64) {
        let mut server = self.lock();
        server.run(world_ns);
        if let Some(shard) = &mut server.shard {
            shard.comes_back(slot);
        }
    }

    /// Somebody else reads a key, or writes it first, at the node that it has moved to: what he
    /// finds. None: its slot has not been there for longer than `for_ns`.
    pub fn ask_past_store(
        &self,
        key: Key<'_>,
        write: Option<&[u8]>,
        world_ns: u64,
        for_ns: u64,
    ) -> Option<Option<Item<Vec<u8>>>> {
        let mut server = self.lock();
        server.run(world_ns);
        let Server { backend, unversioned, written, shard, shown_ns: now_ns, .. } = &mut *server;
        let shard = shard.as_ref().filter(|s| s.is_long_away(key.hash, world_ns, for_ns))?;
        if let Some(value) = write {
            let before = backend.get(key, *now_ns, 0);
            let before = match before {
                Answer::Now(Some(item)) => item.version,
                _ => FIRST_VERSION,
            };
            let last = shard.version((key.tenant, key.hash)).unwrap_or(FIRST_VERSION);
            let version = before.max(last);
            let value = Bytes::copy_from_slice(value);
            written.count(key);
            backend.put(key, Put::of(&value, version), *now_ns, 0);
        }
        let now_ns = *now_ns;
        let found = Redis { backend: &mut **backend, unversioned, written, now_ns }.get(key);
        Some(found.map(|StoredValue { value, version, left_ms }| Item {
            value,
            version,
            expiry_ms: left_ms,
        }))
    }
}

impl Server {
    /// Whatever is due by then, in a shard of a cluster: what comes of it is told.
    pub(super) fn run(&mut self, now_ns: u64) {
        let Some(mut shard) = self.shard.take() else { return };
        loop {
            let due = self.queue.front().map(|command| command.due_ns);
            let due_ns = due.filter(|due_ns| *due_ns <= now_ns);
            let step_ns = shard.next_step_ns().filter(|at_ns| *at_ns <= now_ns);
            match (due_ns, step_ns) {
                (None, None) => break,
                (Some(due_ns), step) if step.is_none_or(|step_ns| due_ns < step_ns) => {
                    let Some(command) = self.queue.pop_front() else { break };
                    self.carry_out_where_it_is(&mut shard, command);
                }
                _ => shard.step(),
            }
        }
        self.shard = Some(shard);
    }

    /// What the store is told next that asks now.
    pub(super) fn next_told(&mut self, now_ns: u64, asked: Origin) -> Option<Completion> {
        let is_asked = self.shard.as_mut().is_some_and(|shard| shard.takes_question(now_ns));
        if is_asked {
            let due_ns = now_ns.max(self.shown_ns);
            self.queue(due_ns, asked, NO_KEY, Verb::Question);
        }
        self.run(now_ns);
        self.shard.as_mut()?.next_told(now_ns)
    }

    fn carry_out_where_it_is(&mut self, shard: &mut Shard, mut command: Command) {
        let (key, now_ns) = (command.key.key(), command.due_ns);
        let id = (key.tenant, key.hash);
        let is_heard = command.asker == self.askers;
        let is_sent_on = command.redirects % 2 == 1;
        if let Verb::Get { .. } | Verb::Put { .. } = command.verb {
            let found = self.backend.get(key, now_ns, 0);
            let is_there = matches!(found, Answer::Now(Some(_)));
            if shard.is_elsewhere(id, is_there) != is_sent_on {
                if command.redirects == REDIRECTS {
                    if is_heard {
                        shard.tell(now_ns, refused(&command));
                    }
                    return;
                }
                command.redirects += 1;
                command.due_ns += shard.detour_ns();
                let due_ns = command.due_ns;
                self.queue.push_front(command);
                // What was asked later is not carried out before.
                for later in &mut self.queue {
                    later.due_ns = later.due_ns.max(due_ns);
                }
                return;
            }
        }
        let is_read_for_grant = matches!(command.verb, Verb::Get { for_grant: true });
        // By any connection but the first it is not told what others change, at any node.
        let is_told = command.redirects == 0;
        if is_read_for_grant && is_heard && is_told {
            shard.tracks(id, key.bytes);
        }
        let mut completion = self.carry_out(&command);
        match &mut completion {
            Completion::Change(_, Change::Done(version)) => {
                shard.is_written(id, *version);
                match is_sent_on {
                    true => shard.arrives(id),
                    false => shard.changes(id, now_ns),
                }
            }
            Completion::Get(_, found) if is_read_for_grant && !is_told => {
                let untold = match found {
                    ReadOutcome::Item(item) => Some(Some(item.clone())),
                    ReadOutcome::Absent => Some(None),
                    _ => None,
                };
                if let Some(untold) = untold {
                    *found = ReadOutcome::Untold(untold);
                }
            }
            _ => {}
        }
        if is_heard {
            let seen = Completion::Outside(OutsideEvent::Seen(command.asked_ns));
            match command.verb {
                Verb::Get { .. } | Verb::Put { .. } => shard.tell(now_ns, seen),
                _ => {}
            }
            shard.tell(now_ns, completion);
        }
    }

    /// A key has another version, if it still has this one and no write of it is under way.
    pub(super) fn raise(&mut self, id: (u32, KeyHash), from: u64, to: u64) -> bool {
        let Some(shard) = &mut self.shard else { return true };
        let is_its = |command: &Command| {
            let is_write = matches!(command.verb, Verb::Put { .. });
            is_write && (command.key.tenant, command.key.hash) == id
        };
        let is_written = self.queue.iter().any(is_its);
        let Some(bytes) = self.written.bytes(id).filter(|_| !is_written) else { return false };
        let key = Key { tenant: id.0, hash: id.1, bytes };
        let Answer::Now(Some(item)) = self.backend.get(key, self.shown_ns, 0) else { return false };
        if item.version != from {
            return false;
        }
        let (value, ttl_ms) = (Bytes::copy_from_slice(item.value), item.expiry_ms);
        let put = Put { ttl_ms, ..Put::of(&value, to) };
        self.backend.put(key, put, self.shown_ns, 0);
        shard.is_written(id, to);
        true
    }
}

/// A slot moves while a command is sent from node to node: its client is to try again.
fn refused(command: &Command) -> Completion {
    let refusal = Refusal::new("TRYAGAIN the slot is being moved");
    match command.verb {
        Verb::Get { .. } => Completion::Get(command.ticket, ReadOutcome::Refused(refusal)),
        _ => Completion::Change(command.ticket, Change::Refused(refusal)),
    }
}
