//! The commands for one switch: numbered, sent at a bounded pace, repeated until they are answered. Tenants take turns,
//! so that one whose hot keys change all the time does not hold up the others.
//!
//! At most one command per key is on its way; a later one waits for its answer. So a repeated command can
//! never undo a newer one, whatever is lost and whenever the stream breaks.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use api::proto::{Command, command};

use super::convert;
use crate::{Change, ItemKey};

/// A command without an answer is sent again after this time.
pub const REPEAT_AFTER: Duration = Duration::from_millis(500);
/// Commands on their way at a time.
pub const IN_FLIGHT_MAX: usize = 4096;

struct Flying {
    change: Change,
    key: ItemKey,
    /// When it was sent last; `None`: it is to be sent at once.
    sent: Option<Duration>,
}

/// Commands that wait and commands that fly.
pub struct Outbox {
    most: usize,
    /// By tenant; none of the queues is empty.
    waiting: BTreeMap<u32, VecDeque<(Change, ItemKey)>>,
    /// The tenant whose turn it was last.
    turn: u32,
    flying: BTreeMap<u64, Flying>,
    /// Keys with a command waiting or flying, and the changes to be made after it.
    busy: HashMap<ItemKey, VecDeque<Change>>,
    /// Changes in `busy`.
    behind: usize,
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
        }
    }

    /// Adds a command; false if too many of its tenant wait.
    pub fn push(&mut self, change: Change, key: ItemKey) -> bool {
        let waiting = self.waiting.get(&key.tenant).map_or(0, VecDeque::len);
        if waiting + self.behind >= self.most {
            return false;
        }
        if let Some(after) = self.busy.get_mut(&key) {
            after.push_back(change);
            self.behind += 1;
        } else {
            self.busy.insert(key.clone(), VecDeque::new());
            self.wait(change, key);
        }
        true
    }

    fn wait(&mut self, change: Change, key: ItemKey) {
        self.waiting
            .entry(key.tenant)
            .or_default()
            .push_back((change, key));
    }

    /// The first command of the tenant whose turn it is.
    fn next_waiting(&mut self) -> Option<(Change, ItemKey)> {
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

    /// What to send now: what is due again, then what waits; `most` at most. New ones are numbered from `next_seq`.
    pub fn take(&mut self, now: Duration, most: usize, next_seq: &mut u64) -> Vec<Command> {
        let mut out = Vec::new();
        for (seq, flying) in &mut self.flying {
            if out.len() >= most {
                return out;
            }
            if flying.sent.is_none_or(|at| at + REPEAT_AFTER <= now) {
                flying.sent = Some(now);
                out.push(command(*seq, flying.change, &flying.key));
            }
        }
        while out.len() < most && self.flying.len() < IN_FLIGHT_MAX {
            let Some((change, key)) = self.next_waiting() else {
                break;
            };
            let seq = *next_seq;
            *next_seq += 1;
            out.push(command(seq, change, &key));
            self.flying.insert(
                seq,
                Flying {
                    change,
                    key,
                    sent: Some(now),
                },
            );
        }
        out
    }

    /// A command was answered: what it was, unless it had been answered before.
    pub fn answered(&mut self, seq: u64) -> Option<(Change, ItemKey)> {
        let Flying { change, key, .. } = self.flying.remove(&seq)?;
        if let Some(mut after) = self.busy.remove(&key)
            && let Some(next) = after.pop_front()
        {
            self.behind -= 1;
            self.wait(next, key.clone());
            self.busy.insert(key.clone(), after);
        }
        Some((change, key))
    }

    /// A new stream began: whatever flew on the old one is sent again at once.
    pub fn reconnected(&mut self) {
        for flying in self.flying.values_mut() {
            flying.sent = None;
        }
    }
}

fn command(seq: u64, change: Change, key: &ItemKey) -> Command {
    let key = convert::to_proto(key);
    let body = match change {
        Change::Insert => command::Body::Insert(key),
        Change::Evict => command::Body::Evict(key),
    };
    Command {
        seq,
        body: Some(body),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn key(n: u8) -> ItemKey {
        ItemKey {
            tenant: 0,
            key: vec![n].into(),
        }
    }

    #[test]
    fn repeats_only_what_is_due() {
        let (mut outbox, mut seq) = (Outbox::new(10), 1);
        assert!(outbox.push(Change::Insert, key(1)));
        let at = Duration::from_secs(1);
        let first = outbox.take(at, 10, &mut seq);
        assert_eq!(first.len(), 1);
        assert!(
            outbox
                .take(at + Duration::from_millis(499), 10, &mut seq)
                .is_empty()
        );
        assert_eq!(outbox.take(at + REPEAT_AFTER, 10, &mut seq), first);
        outbox.reconnected();
        assert_eq!(outbox.take(at + REPEAT_AFTER, 10, &mut seq), first);
        assert_eq!(
            outbox.answered(first[0].seq),
            Some((Change::Insert, key(1)))
        );
        assert_eq!(outbox.answered(first[0].seq), None);
        assert!(outbox.take(at + 9 * REPEAT_AFTER, 10, &mut seq).is_empty());
    }

    #[test]
    fn a_full_outbox_says_so() {
        let mut outbox = Outbox::new(2);
        assert!(outbox.push(Change::Insert, key(1)));
        assert!(outbox.push(Change::Evict, key(1)));
        assert!(!outbox.push(Change::Insert, key(2)));
    }

    #[test]
    fn tenants_take_turns() {
        let (mut outbox, mut seq) = (Outbox::new(100), 1);
        let of = |tenant, n: u8| ItemKey {
            tenant,
            key: vec![n].into(),
        };
        (0..50).for_each(|n| assert!(outbox.push(Change::Insert, of(1, n))));
        (0..5).for_each(|n| assert!(outbox.push(Change::Insert, of(2, n))));
        let first = outbox.take(Duration::ZERO, 10, &mut seq);
        let of_two = first
            .iter()
            .filter(|c| matches!(&c.body, Some(command::Body::Insert(k)) if k.tenant == 2));
        assert_eq!(of_two.count(), 5);
    }

    proptest! {
        /// Whatever is lost and however streams break, the switch ends where the changes lead in order.
        #[test]
        fn the_last_change_of_a_key_wins(
            changes in prop::collection::vec((any::<bool>(), 0u8..4), 0..60),
            fates in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..60),
        ) {
            let (mut outbox, mut seq, mut now) = (Outbox::new(1000), 1, Duration::ZERO);
            let (mut switch, mut wanted) = (HashSet::new(), HashSet::new());
            let mut changes = changes.into_iter();
            let mut fates = fates.into_iter().chain(std::iter::repeat((false, false, false)));
            let mut answers = 0;
            let total = changes.len();
            while answers < total {
                let (lose_command, lose_answer, reconnect) = fates.next().unwrap();
                for (insert, n) in changes.by_ref().take(2) {
                    let change = if insert { Change::Insert } else { Change::Evict };
                    if insert { wanted.insert(key(n)) } else { wanted.remove(&key(n)) };
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
                    match command.body.unwrap() {
                        command::Body::Insert(k) => switch.insert(convert::item_key(k.tenant, &k.key).unwrap()),
                        command::Body::Evict(k) => switch.remove(&convert::item_key(k.tenant, &k.key).unwrap()),
                    };
                    if !lose_answer && outbox.answered(command.seq).is_some() {
                        answers += 1;
                    }
                }
            }
            prop_assert_eq!(switch, wanted);
            prop_assert_eq!((outbox.waiting(), outbox.in_flight()), (0, 0));
        }
    }
}
