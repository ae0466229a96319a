//! The commands for one switch: numbered, sent at a bounded pace, repeated until they are answered.
//! Tenants take turns, so that one whose hot keys change all the time does not hold up the others.
//!
//! At most one command per key is on its way; a later one waits for its answer. So a repeated
//! command can never undo a newer one, whatever is lost and whenever the stream breaks.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use api::{convert, proto::Command};
use decide::{Change, ItemKey};

/// A command without an answer is sent again after this time.
pub const REPEAT_AFTER: Duration = Duration::from_millis(500);
/// Commands on their way at a time.
pub const IN_FLIGHT_MAX: usize = 4096;

/// A change of a key, and those before it that were not sent because it came.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedChange {
    /// What is sent.
    pub change: Change,
    /// Answered as it is.
    pub replaced: Vec<Change>,
}

/// What is to be done with one key. The first change waits or flies, the others come after it.
#[derive(Default)]
struct Changes {
    is_flying: bool,
    queue: VecDeque<QueuedChange>,
}

impl Changes {
    /// The last one, if it was not sent and is a put.
    fn last_put(&mut self) -> Option<&mut QueuedChange> {
        let sent = usize::from(self.is_flying);
        let last = self.queue.iter_mut().skip(sent).next_back()?;
        matches!(last.change, Change::Put(_)).then_some(last)
    }
}

struct Flying {
    key: ItemKey,
    /// When it was sent last; `None`: it is to be sent at once.
    sent: Option<Duration>,
}

/// Commands that wait and commands that fly.
pub struct Outbox {
    most: usize,
    /// Keys whose first change waits, by tenant; none of the queues is empty.
    waiting: BTreeMap<u32, VecDeque<ItemKey>>,
    /// The tenant whose turn it was last.
    turn: u32,
    flying: BTreeMap<u64, Flying>,
    /// Keys with changes; none of them is without.
    busy: HashMap<ItemKey, Changes>,
    /// Changes in `busy` that are not the first of their key.
    behind: usize,
    /// Keys in `busy`, by tenant.
    busy_of: HashMap<u32, usize>,
}

impl Outbox {
    /// Takes at most `most` commands of a tenant that were not sent yet.
    pub fn new(most: usize) -> Outbox {
        Outbox {
            most,
            waiting: BTreeMap::new(),
            turn: 0,
            flying: BTreeMap::new(),
            busy: HashMap::new(),
            behind: 0,
            busy_of: HashMap::new(),
        }
    }

    /// Adds a command; a put takes the place of one that waits. False if too many of its
    /// tenant wait.
    pub fn push(&mut self, change: Change, key: ItemKey) -> bool {
        let waiting = self.waiting.get(&key.tenant).map_or(0, VecDeque::len);
        if waiting + self.behind >= self.most {
            return false;
        }
        let replaces = matches!(change, Change::Put(_));
        if let Some(changes) = self.busy.get_mut(&key) {
            self.behind += 1;
            match changes.last_put().filter(|_| replaces) {
                Some(last) => {
                    let before = std::mem::replace(&mut last.change, change);
                    last.replaced.push(before);
                }
                None => changes.queue.push_back(asked(change)),
            }
        } else {
            let changes = Changes { is_flying: false, queue: [asked(change)].into() };
            self.busy.insert(key.clone(), changes);
            *self.busy_of.entry(key.tenant).or_default() += 1;
            self.wait(key);
        }
        true
    }

    fn wait(&mut self, key: ItemKey) {
        self.waiting.entry(key.tenant).or_default().push_back(key);
    }

    /// The first key of the tenant whose turn it is.
    fn next_waiting(&mut self) -> Option<ItemKey> {
        let after = self.waiting.range(self.turn.saturating_add(1)..).next();
        let (tenant, _) = after.or_else(|| self.waiting.iter().next())?;
        self.turn = *tenant;
        let queue = self.waiting.get_mut(&self.turn)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&self.turn);
        }
        first
    }

    /// Commands not sent yet.
    pub fn waiting(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum::<usize>() + self.behind
    }

    /// Commands sent and not answered.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Whether items of a tenant are about to change.
    pub fn is_busy(&self, tenant: u32) -> bool {
        self.busy_of.contains_key(&tenant)
    }

    /// What to send now: what is due again, then what waits; `most` at most. New ones are numbered
    /// from `next_number`.
    pub fn take(&mut self, now: Duration, most: usize, next_number: &mut u64) -> Vec<Command> {
        let mut out = Vec::new();
        for (seq, flying) in &mut self.flying {
            if out.len() >= most {
                return out;
            }
            if flying.sent.is_none_or(|at| at + REPEAT_AFTER <= now) {
                flying.sent = Some(now);
                let first = &self.busy[&flying.key].queue[0];
                out.push(convert::command(*seq, &flying.key, &first.change));
            }
        }
        while out.len() < most && self.flying.len() < IN_FLIGHT_MAX {
            let Some(key) = self.next_waiting() else { break };
            let seq = *next_number;
            *next_number += 1;
            let changes = self.busy.get_mut(&key).expect("it waits");
            changes.is_flying = true;
            out.push(convert::command(seq, &key, &changes.queue[0].change));
            let sent = Some(now);
            self.flying.insert(seq, Flying { key, sent });
        }
        out
    }

    /// A command was answered: what it was, unless it had been answered before.
    pub fn answered(&mut self, seq: u64) -> Option<(ItemKey, QueuedChange)> {
        let Flying { key, .. } = self.flying.remove(&seq)?;
        let changes = self.busy.get_mut(&key)?;
        let first = changes.queue.pop_front()?;
        self.behind -= first.replaced.len();
        changes.is_flying = false;
        if changes.queue.is_empty() {
            self.busy.remove(&key);
            let left = self.busy_of.entry(key.tenant).or_default();
            *left -= 1;
            if *left == 0 {
                self.busy_of.remove(&key.tenant);
            }
        } else {
            self.behind -= 1;
            self.wait(key.clone());
        }
        Some((key, first))
    }

    /// A new stream began: whatever flew on the old one is sent again at once.
    pub fn reconnected(&mut self) {
        for flying in self.flying.values_mut() {
            flying.sent = None;
        }
    }
}

fn asked(change: Change) -> QueuedChange {
    QueuedChange { change, replaced: vec![] }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use decide::Record;
    use proptest::prelude::*;

    use super::*;

    const INSERT: Change = Change::Put(Record::Fetched);

    fn key(n: u8) -> ItemKey {
        ItemKey { tenant: 0, key: vec![n].into() }
    }

    #[test]
    fn repeats_only_what_is_due() {
        let (mut outbox, mut seq) = (Outbox::new(10), 1);
        assert!(outbox.push(INSERT, key(1)));
        let at = Duration::from_secs(1);
        let first = outbox.take(at, 10, &mut seq);
        assert_eq!(first.len(), 1);
        assert!(outbox.take(at + Duration::from_millis(499), 10, &mut seq).is_empty());
        assert_eq!(outbox.take(at + REPEAT_AFTER, 10, &mut seq), first);
        outbox.reconnected();
        assert_eq!(outbox.take(at + REPEAT_AFTER, 10, &mut seq), first);
        assert_eq!(outbox.answered(first[0].seq), Some((key(1), asked(INSERT))));
        assert_eq!(outbox.answered(first[0].seq), None);
        assert!(outbox.take(at + 9 * REPEAT_AFTER, 10, &mut seq).is_empty());
    }

    #[test]
    fn a_full_outbox_says_so() {
        let mut outbox = Outbox::new(2);
        assert!(outbox.push(INSERT, key(1)));
        assert!(outbox.push(Change::Remove, key(1)));
        assert!(!outbox.push(INSERT, key(2)));
    }

    #[test]
    fn a_newer_put_takes_the_place_of_one_that_waits() {
        let (mut outbox, mut seq) = (Outbox::new(10), 1);
        let put = |n: u8| Change::Put(Record::Given(vec![n].into()));
        let sent = |commands: Vec<Command>| {
            let change = |c: Command| (c.seq, convert::change(c).unwrap().1);
            commands.into_iter().map(change).collect::<Vec<_>>()
        };
        (0..3).for_each(|n| assert!(outbox.push(put(n), key(1))));
        assert_eq!(sent(outbox.take(Duration::ZERO, 10, &mut seq)), [(1, put(2))]);
        // What is on its way stays as it is.
        (3..5).for_each(|n| assert!(outbox.push(put(n), key(1))));
        assert!(outbox.push(Change::Remove, key(1)));
        assert!(outbox.push(put(5), key(1)));
        let replaced = |asked: QueuedChange| (asked.change, asked.replaced);
        let (_, first) = outbox.answered(1).unwrap();
        assert_eq!(replaced(first), (put(2), vec![put(0), put(1)]));
        for (n, (change, instead)) in
            [(put(4), vec![put(3)]), (Change::Remove, vec![]), (put(5), vec![])]
                .into_iter()
                .enumerate()
        {
            let seq_now = n as u64 + 2;
            let commands = sent(outbox.take(Duration::ZERO, 10, &mut seq));
            assert_eq!(commands, [(seq_now, change.clone())]);
            let (_, asked) = outbox.answered(seq_now).unwrap();
            assert_eq!(replaced(asked), (change, instead));
        }
        assert_eq!((outbox.waiting(), outbox.in_flight()), (0, 0));
    }

    #[test]
    fn tenants_take_turns() {
        let (mut outbox, mut seq) = (Outbox::new(100), 1);
        let of = |tenant, n: u8| ItemKey { tenant, key: vec![n].into() };
        (0..50).for_each(|n| assert!(outbox.push(INSERT, of(1, n))));
        (0..5).for_each(|n| assert!(outbox.push(INSERT, of(2, n))));
        let first = outbox.take(Duration::ZERO, 10, &mut seq);
        let of_two = first.iter().filter(|c| convert::change((*c).clone()).unwrap().0.tenant == 2);
        assert_eq!(of_two.count(), 5);
    }

    proptest! {
        /// Whatever is lost and however streams break, the switch ends where the changes lead
        /// in order.
        #[test]
        fn the_last_change_of_a_key_wins(
            changes in prop::collection::vec((any::<Option<u8>>(), 0u8..4), 0..60),
            fates in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..60),
        ) {
            let (mut outbox, mut seq, mut now) = (Outbox::new(1000), 1, Duration::ZERO);
            let (mut switch, mut wanted) = (HashMap::new(), HashMap::new());
            let mut changes = changes.into_iter();
            let mut fates = fates.into_iter().chain(std::iter::repeat((false, false, false)));
            let mut answers = 0;
            let total = changes.len();
            while answers < total {
                let (lose_command, lose_answer, reconnect) = fates.next().unwrap();
                for (put, n) in changes.by_ref().take(2) {
                    let change = match put {
                        Some(byte) => Change::Put(Record::Given(vec![byte].into())),
                        None => Change::Remove,
                    };
                    match &change {
                        Change::Put(record) => wanted.insert(key(n), record.clone()),
                        Change::Remove | Change::RemoveIf(_) => wanted.remove(&key(n)),
                    };
                    prop_assert!(outbox.push(change, key(n)));
                }
                now += Duration::from_millis(200);
                if reconnect {
                    outbox.reconnected();
                }
                for command in outbox.take(now, 3, &mut seq) {
                    if lose_command {
                        continue;
                    }
                    let seq = command.seq;
                    match convert::change(command).unwrap() {
                        (key, Change::Put(record)) => switch.insert(key, record),
                        (key, Change::Remove | Change::RemoveIf(_)) => switch.remove(&key),
                    };
                    if !lose_answer && let Some((_, asked)) = outbox.answered(seq) {
                        answers += 1 + asked.replaced.len();
                    }
                }
            }
            prop_assert_eq!(switch, wanted);
            prop_assert_eq!((outbox.waiting(), outbox.in_flight()), (0, 0));
            prop_assert!(!outbox.is_busy(0));
        }
    }
}
