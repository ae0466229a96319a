//! Reads that switches, other stores and holders answer from copies. The backend sees nothing of
//! them: what is read most would seem idle to it, and be evicted first. So it is told.
//!
//! In: how often keys were read, from switches and holders ([`wire::Op::ReadCounts`]). Out:
//! [`Backend::mark_read`](crate::backend::Backend::mark_read).
//!
//! - Once in a round of [`ROUND_NS`] at most for a key, spread over the round: nobody's read waits
//!   behind many of them.
//! - One command to the backend for [`READS_PER_COMMAND`] reads at most; where there are few reads,
//!   one in [`IDLE_ROUNDS`] rounds. And [`MOST`] keys in a round, however many reads there are.
//! - If that is not enough for all, tenants take [turns], each with the keys first that were read
//!   most since they were last marked. Those that were left out keep their reads, so their turn
//!   comes, too; but for those behind the first [`KEPT`], which are forgotten. So keys that are
//!   read now and then leave a place to those that become hot. [`WAITING`] keys wait at any time.

mod turns;

use wire::{Packet, ReadCount, TENANT_SYSTEM, maps::HashMap};

use self::turns::{Choice, Turns};
use super::{
    context::{Context, named},
    holder_messages,
};
use crate::{coherence::Nanos, counters::ElsewhereCounters, directory::KeyId, shares::Shares};

/// Marks are given out for reads of so long.
const ROUND_NS: Nanos = 1_000_000_000;
/// From the first of a round to the next: in so many parts it is spread.
const STEPS: u64 = 50;
/// Reads that pay for a command to the backend: by a quarter more than a thousand, because the
/// backend is asked for its policy now and then as well.
const READS_PER_COMMAND: u64 = 1_250;
/// A command in so many rounds is paid for by any reads at all.
const IDLE_ROUNDS: u64 = 10;
/// Keys in a round at most: some hundredths of a backend's time, were it the slowest kind.
const MOST: usize = 16_384;
/// Keys that wait from one round to the next, and keys that wait at any time.
const KEPT: usize = 2 * MOST;
const WAITING: usize = 4 * MOST;

/// Reads of a key that are taken from one message of a holder at most.
const HOLDER_READS_MOST: u32 = 1 << 17;

/// What was read elsewhere, and is to be told.
pub(super) struct ElsewhereReads {
    /// Reads of keys since they were last marked.
    unmarked: HashMap<KeyId, u64>,
    /// Whose these keys are.
    shares: Shares,
    turns: Turns,
    /// The keys of this round that are not marked yet, with their reads; the last is first.
    due: Vec<(KeyId, u32)>,
    /// Of these, how many in each step.
    in_step: usize,
    /// Reads that no command was made for yet.
    credit: u64,
    round_ends_ns: Nanos,
    next_ns: Option<Nanos>,
    pub counters: ElsewhereCounters,
}

impl ElsewhereReads {
    /// Nothing is read, of keys of so many tenants.
    pub fn new(tenants: usize) -> ElsewhereReads {
        ElsewhereReads {
            unmarked: HashMap::default(),
            shares: Shares::new(WAITING, tenants),
            turns: Turns::default(),
            due: vec![],
            in_step: 0,
            credit: 0,
            round_ends_ns: 0,
            next_ns: None,
            counters: ElsewhereCounters::default(),
        }
    }

    /// From now on so many tenants share the places of keys that wait.
    pub fn share_among(&mut self, tenants: usize) {
        self.shares.share_among(tenants);
    }

    /// A switch, or a holder, tells what was read there.
    pub fn told(&mut self, cx: &mut Context, packet: &Packet<'_>) {
        let header = &packet.header;
        let holder = (header.tenant != TENANT_SYSTEM).then_some(header.epoch.switch());
        let is_known = match holder {
            None => packet.tag_is_valid(&cx.system_secret()),
            Some(_) => holder_messages::tells_reads(cx, packet),
        };
        if !is_known {
            self.counters.dropped_read_counts += 1;
            return;
        }
        cx.backend.attend();
        if cx.backend.marks_at_once() == 0 {
            return;
        }
        for ReadCount { tenant, hash, reads } in ReadCount::decode(packet.value) {
            let id = (tenant, hash);
            // Without copies it is read here. A holder speaks of its tenant's keys alone, and of
            // copies that it has; it may lie, so no more is taken from it than anybody reads.
            let entry = cx.directory.find(&id).and_then(|place| cx.directory.get(place));
            let (is_read, most) = match holder {
                None => (entry.is_some_and(|entry| !entry.state.copies().is_empty()), u32::MAX),
                Some(holder) => {
                    let copy = entry.and_then(|entry| entry.state.copy_of(holder));
                    (tenant == header.tenant && copy.is_some(), HOLDER_READS_MOST)
                }
            };
            let reads = reads.min(most);
            if reads > 0 && is_read {
                let reads = u64::from(reads);
                self.remember(id, reads);
                self.credit = self.credit.saturating_add(reads);
                self.counters.reads_elsewhere += reads;
            }
        }
        if self.next_ns.is_none() && !self.unmarked.is_empty() {
            self.next_ns = Some(cx.now_ns.max(self.round_ends_ns));
        }
    }

    /// A key waits for its mark, if there is a place for it.
    fn remember(&mut self, id: KeyId, reads: u64) {
        match self.unmarked.get_mut(&id) {
            Some(known) => *known += reads,
            None if self.shares.has_room(id.0) => {
                self.shares.take(id.0, 1);
                self.unmarked.insert(id, reads);
            }
            None => {}
        }
    }

    /// A key does not wait any more.
    fn forget(&mut self, id: &KeyId) {
        if self.unmarked.remove(id).is_some() {
            self.shares.give_back(id.0, 1);
        }
    }

    /// When [`ElsewhereReads::tick`] has something to do next.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.next_ns
    }

    /// Marks what is due.
    pub fn tick(&mut self, cx: &mut Context) {
        if self.next_ns.is_none_or(|next_ns| cx.now_ns < next_ns) {
            return;
        }
        if self.due.is_empty() {
            self.begin_round(cx);
        }
        let mut step = self.due.split_off(self.due.len().saturating_sub(self.in_step));
        step.reverse();
        self.mark(cx, &step);
        self.next_ns = match (self.due.is_empty(), self.unmarked.is_empty()) {
            (false, _) => Some(cx.now_ns + ROUND_NS / STEPS),
            (true, false) => Some(self.round_ends_ns),
            (true, true) => None,
        };
    }

    /// Chooses the keys of a round.
    fn begin_round(&mut self, cx: &mut Context) {
        self.round_ends_ns = cx.now_ns + ROUND_NS;
        let at_once = cx.backend.marks_at_once().max(1);
        self.credit = self.credit.saturating_add(READS_PER_COMMAND / IDLE_ROUNDS);
        let affordable = usize::try_from(self.credit / READS_PER_COMMAND).unwrap_or(usize::MAX);
        let most = affordable.saturating_mul(at_once).min(MOST);
        if most == 0 && self.unmarked.len() <= KEPT {
            return;
        }
        let (all, unread): (Vec<_>, Vec<_>) = (self.unmarked.iter())
            .map(|(id, reads)| (*reads, *id))
            .partition(|(_, id)| cx.directory.find(id).is_some());
        let Choice { chosen, left_out } = self.turns.choose(all, most, KEPT);
        unread.iter().chain(&left_out).for_each(|(_, id)| self.forget(id));
        let commands = chosen.len().div_ceil(at_once) as u64;
        // What was saved up is no licence for a burst of commands later.
        self.credit = (self.credit - commands * READS_PER_COMMAND).min(READS_PER_COMMAND);
        let steps = chosen.len().div_ceil(STEPS as usize);
        self.in_step = steps.next_multiple_of(at_once);
        self.due = (chosen.into_iter().rev())
            .map(|(reads, id)| {
                self.forget(&id);
                (id, u32::try_from(reads).unwrap_or(u32::MAX))
            })
            .collect();
    }

    fn mark(&mut self, cx: &mut Context, step: &[(KeyId, u32)]) {
        let Context { backend, directory, .. } = cx;
        for keys in step.chunks(backend.marks_at_once().max(1)) {
            let named = |(id, reads): &(KeyId, u32)| {
                let entry = directory.get(directory.find(id)?)?;
                Some((named(*id, &entry.key), *reads))
            };
            let keys: Vec<_> = keys.iter().filter_map(named).collect();
            if !keys.is_empty() {
                backend.mark_read(&keys);
                self.counters.marks += keys.len() as u64;
                self.counters.mark_commands += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::KeyHash;

    use super::*;

    #[test]
    fn keys_that_wait_for_a_mark_are_bounded_and_each_tenant_has_its_share() {
        let mut reads = ElsewhereReads::new(2);
        let key = |tenant, n: usize| (tenant, KeyHash((n as u128).to_be_bytes()));
        (0..2 * WAITING).for_each(|n| reads.remember(key(7, n), 1));
        assert_eq!(reads.unmarked.len(), WAITING * 3 / 4);
        reads.remember(key(8, 0), 1);
        assert_eq!(reads.unmarked.len(), WAITING * 3 / 4 + 1);
        reads.remember(key(7, 0), 1);
        assert_eq!(reads.unmarked[&key(7, 0)], 2, "what waits is counted on");
        reads.forget(&key(7, 0));
        reads.remember(key(7, WAITING), 1);
        assert!(reads.unmarked.contains_key(&key(7, WAITING)));
    }
}
