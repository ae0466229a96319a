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
//!   comes, too.

mod turns;

use wire::{Packet, ReadCount, TENANT_SYSTEM, maps::HashMap};

use self::turns::Turns;
use super::{
    context::{Context, named},
    holder_messages,
};
use crate::{coherence::Nanos, counters::ElsewhereCounters, directory::KeyId};

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

/// Reads of a key that are taken from one message of a holder at most.
const HOLDER_READS_MOST: u32 = 1 << 17;

/// What was read elsewhere, and is to be told.
#[derive(Default)]
pub(super) struct ElsewhereReads {
    /// Reads of keys since they were last marked.
    unmarked: HashMap<KeyId, u64>,
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
                *self.unmarked.entry(id).or_default() += reads;
                self.credit = self.credit.saturating_add(reads);
                self.counters.reads_elsewhere += reads;
            }
        }
        if self.next_ns.is_none() && !self.unmarked.is_empty() {
            self.next_ns = Some(cx.now_ns.max(self.round_ends_ns));
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
        self.unmarked.retain(|id, _| cx.directory.find(id).is_some());
        self.credit = self.credit.saturating_add(READS_PER_COMMAND / IDLE_ROUNDS);
        let affordable = usize::try_from(self.credit / READS_PER_COMMAND).unwrap_or(usize::MAX);
        let most = affordable.saturating_mul(at_once).min(MOST);
        let all = self.unmarked.iter().map(|(id, reads)| (*reads, *id)).collect();
        let chosen = self.turns.choose(all, most);
        let commands = chosen.len().div_ceil(at_once) as u64;
        // What was saved up is no licence for a burst of commands later.
        self.credit = (self.credit - commands * READS_PER_COMMAND).min(READS_PER_COMMAND);
        let steps = chosen.len().div_ceil(STEPS as usize);
        self.in_step = steps.next_multiple_of(at_once);
        self.due = (chosen.into_iter().rev())
            .map(|(reads, id)| {
                self.unmarked.remove(&id);
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
