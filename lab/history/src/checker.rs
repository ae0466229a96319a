//! Just-in-time linearization (Lowe, "Testing for linearizability", 2017; the same idea as Wing and
//! Gong's search with memoisation, run forward in time): the set of all states that the key may be
//! in is carried from event to event. An operation is linearized no earlier than some operation's
//! return needs it, so the set stays small; the history is bad when it becomes empty. The tests
//! hold it against stateright's `LinearizabilityTester`.
//!
//! Four things keep it fast where outcomes are unknown and many write at once. What changes nothing
//! is linearized as soon as it can be. An open operation is linearized only if its state is needed
//! by one that is pending. Of two states of the world that differ only in which open operations are
//! used up, the one that used fewer covers the other. And a write without a condition hides every
//! other such write that is under way: those may have taken effect just before it, or may still.
//!
//! A value with a time to live goes by itself: its lapse is one more operation, nobody's, which
//! takes effect at some moment while it is pending if the value is there then, and else never.
//! Between that moment and the lapse's end the value may still be read from a copy, unless
//! something else was written.
//!
//! What an operation makes of the value may depend on that ([`Effect::derives`]). While such a one
//! is pending no write can wait, for each makes another value of it; it hides nothing itself.

use std::collections::BTreeMap;

use anyhow::ensure;

use super::{Effect, Lapse, Need, Operation, indices::Indices, values::is_derived};

/// Its name, for reports.
pub const CHECKER: &str =
    "just-in-time linearization per key (Lowe 2017), cross-checked with stateright";

/// States of one key that may be possible at once; what needs more is not decided.
const MAX_WORLDS: usize = 200_000;

/// What came out for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One copy could have answered so.
    Linearizable,
    /// No order explains the return of the operation at this index.
    Violation(usize),
}

/// One way the past may have been: the key's value, and which pending operations have taken effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    state: Option<u64>,
    /// The value that has lapsed and may still be read from a copy.
    ghost: Option<u64>,
    /// Operations that have taken effect and will return.
    done: Indices,
    /// Operations that may have taken effect unseen, and will return; or they take effect later.
    free: Indices,
    /// Operations without a return, and lapses, that have taken effect.
    used: Indices,
}

/// Checks the operations on one key, which begins absent. Their order does not matter.
///
/// # Errors
/// Too many pasts are possible to decide.
pub fn check(operations: &[Operation]) -> anyhow::Result<Verdict> {
    check_within(operations, MAX_WORLDS)
}

/// As [`check`], and gives up when more than so many pasts are possible at a time: the work grows
/// with their square.
///
/// # Errors
/// Too many pasts are possible to decide.
pub fn check_within(operations: &[Operation], most: usize) -> anyhow::Result<Verdict> {
    // Lapses stand behind the operations, so that each keeps its index.
    let lapses: Vec<Operation> = operations.iter().filter_map(lapse_of).collect();
    let all = [operations, &lapses].concat();
    let mut search = Search {
        lapses_from: operations.len(),
        operations: &all,
        pending: Indices::default(),
        most,
    };
    // Calls before returns at the same time: operations that touch count as concurrent.
    let mut events: Vec<(u64, bool, usize)> = vec![];
    for (i, operation) in search.operations.iter().enumerate() {
        events.push((operation.call_ns, false, i));
        events.extend(operation.return_ns.map(|at| (at, true, i)));
    }
    events.sort_unstable();
    let mut worlds = vec![World::default()];
    for (_, is_return, i) in events {
        let operation = &search.operations[i];
        if is_return && search.is_lapse(i) {
            worlds = search.lapsed(i, worlds);
        } else if is_return {
            worlds = search.returned(i, worlds)?;
            if worlds.is_empty() {
                return Ok(Verdict::Violation(i));
            }
        } else if operation.return_ns.is_some() || operation.effect != Effect::Keep {
            search.pending.insert(i);
            worlds.iter_mut().for_each(|world| search.absorb(world));
        }
    }
    Ok(Verdict::Linearizable)
}

/// The end of the value that this operation writes, as an operation.
fn lapse_of(operation: &Operation) -> Option<Operation> {
    let Lapse { from_ns, until_ns } = operation.lapse?;
    let Effect::Write(value) = operation.effect else { return None };
    Some(Operation {
        call_ns: from_ns,
        return_ns: until_ns,
        need: Need::Value(value),
        effect: Effect::Delete,
        lapse: None,
        ..*operation
    })
}

struct Search<'a> {
    operations: &'a [Operation],
    /// Where among them the lapses begin.
    lapses_from: usize,
    pending: Indices,
    /// Pasts that may be possible at a time.
    most: usize,
}

impl Search<'_> {
    fn is_open(&self, i: usize) -> bool {
        self.operations[i].return_ns.is_none()
    }

    fn is_lapse(&self, i: usize) -> bool {
        i >= self.lapses_from
    }

    /// Linearizes what changes nothing and can take effect now: waiting could not help it.
    fn absorb(&self, world: &mut World) {
        for i in self.pending.iter() {
            let operation = &self.operations[i];
            if operation.effect == Effect::Keep && world.shows(operation.need) {
                world.done.insert(i);
            }
        }
    }

    /// The worlds in which `target` has taken effect, now that it returns.
    fn returned(&mut self, target: usize, worlds: Vec<World>) -> anyhow::Result<Vec<World>> {
        let (mut seen, mut found) = (Worlds::default(), Worlds::default());
        let mut stack = vec![];
        for world in worlds {
            if world.done.contains(target) {
                found.insert(world.without(target));
                continue;
            }
            if world.free.contains(target) {
                found.insert(world.clone().without(target));
            }
            if seen.insert(world.clone()) {
                stack.push(world);
            }
        }
        while let Some(world) = stack.pop() {
            let count = seen.count + found.count;
            ensure!(count < self.most, "more than {} pasts are possible: not decided", self.most);
            for next in self.steps(&world, target) {
                if next.done.contains(target) {
                    found.insert(next.without(target));
                    continue;
                }
                if next.free.contains(target) {
                    found.insert(next.clone().without(target));
                }
                if seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        self.pending.remove(target);
        Ok(found.into_all())
    }

    /// The worlds in which the value of this lapse is gone, now that its time is over.
    fn lapsed(&mut self, lapse: usize, worlds: Vec<World>) -> Vec<World> {
        let mut found = Worlds::default();
        for world in worlds {
            if Need::Value(self.value_of(lapse)).is_met(world.state) {
                // Each step away from it: the lapse itself, or what came just before and needed
                // the value.
                for next in self.steps(&world, lapse) {
                    found.insert(next.without(lapse).without_ghost(self.value_of(lapse)));
                }
            } else {
                // It has gone, or was overwritten: it will not come again, for its write has
                // returned.
                found.insert(world.without(lapse).without_ghost(self.value_of(lapse)));
            }
        }
        self.pending.remove(lapse);
        found.into_all()
    }

    /// The value that a lapse ends.
    fn value_of(&self, lapse: usize) -> u64 {
        match self.operations[lapse].need {
            Need::Value(value) => value,
            _ => unreachable!("a lapse needs its value"),
        }
    }

    /// Each world that one more operation leads to.
    fn steps(&self, world: &World, target: usize) -> Vec<World> {
        let mut next = vec![];
        let is_over = |i| world.done.contains(i) || world.used.contains(i);
        // What it makes depends on what was there: then nothing can wait. What is open may never
        // take place, and does not matter before something needs what it makes, or the value ends
        // that it makes it of.
        let needs_derived = |i: usize| match self.operations[i].need {
            Need::Value(value) => is_derived(value) && !is_over(i),
            _ => false,
        };
        let is_needed = self.pending.iter().any(needs_derived);
        let derives = |i: usize| {
            let may_wait = self.is_open(i) && !is_needed && !self.is_lapse(target);
            self.operations[i].effect.derives() && !is_over(i) && !may_wait
        };
        let some_derive = self.pending.iter().any(derives);
        for i in self.pending.iter() {
            let operation = &self.operations[i];
            if operation.effect == Effect::Keep || is_over(i) {
                continue;
            }
            let Some(state) = operation.effect.on(world.state) else { continue };
            if !operation.need.is_met(world.state) {
                continue;
            }
            // What has no condition, and whose state nobody needs, can wait. What has one cannot
            // wait for the end of the value that it needs.
            let can_wait = operation.need == Need::Any
                || (self.is_open(i) || self.is_lapse(i)) && !self.is_lapse(target);
            let can_wait = can_wait && !some_derive;
            if can_wait && i != target && !self.is_needed(i, state, world) {
                continue;
            }
            let mut new =
                World { state, ghost: world.state.filter(|_| self.is_lapse(i)), ..world.clone() };
            if operation.need == Need::Any && !operation.effect.derives() {
                self.hide(i, &mut new);
            }
            if self.is_open(i) || self.is_lapse(i) {
                new.used.insert(i);
            } else {
                new.free.remove(i);
                new.done.insert(i);
            }
            self.absorb(&mut new);
            next.push(new);
        }
        next
    }

    /// Every other write without a condition may have taken effect just before `by`.
    fn hide(&self, by: usize, world: &mut World) {
        for i in self.pending.iter() {
            let Operation { need, effect, .. } = self.operations[i];
            let changes = effect != Effect::Keep && !effect.derives();
            let is_plain = need == Need::Any && changes && !self.is_open(i);
            if is_plain && i != by && !world.done.contains(i) {
                world.free.insert(i);
            }
        }
    }

    /// Whether some other pending operation needs this state.
    fn is_needed(&self, by: usize, state: Option<u64>, world: &World) -> bool {
        self.pending.iter().any(|i| {
            let need = self.operations[i].need;
            i != by
                && need != Need::Any
                && need.is_met(state)
                && !world.done.contains(i)
                && !world.used.contains(i)
        })
    }
}

impl World {
    /// This world after an operation has returned.
    fn without(mut self, returned: usize) -> World {
        self.done.remove(returned);
        self.free.remove(returned);
        self.used.remove(returned);
        self
    }

    /// This world once no copy of a value is served any more.
    fn without_ghost(mut self, value: u64) -> World {
        self.ghost = self.ghost.filter(|ghost| *ghost != value);
        self
    }

    /// Whether an operation that changes nothing may see what it needs.
    fn shows(&self, need: Need) -> bool {
        need.is_met(self.state) || (self.ghost.is_some() && need.is_met(self.ghost))
    }

    /// Whether whatever can follow `other` can follow this: the value is the same, and each
    /// operation stands as it does there or is still free.
    fn covers(&self, other: &World) -> bool {
        self.state == other.state
            && (self.ghost == other.ghost || other.ghost.is_none())
            && self.used.is_subset(&other.used)
            && other.free.is_subset(&self.free)
            && self.done.is_subset(&other.done)
            && other.done.iter().all(|i| self.done.contains(i) || self.free.contains(i))
    }
}

/// Worlds of which none covers another.
#[derive(Default)]
struct Worlds {
    by_state: BTreeMap<Option<u64>, Vec<World>>,
    count: usize,
}

impl Worlds {
    /// Whether it was new: no other covers it.
    fn insert(&mut self, world: World) -> bool {
        let same = self.by_state.entry(world.state).or_default();
        if same.iter().any(|other| other.covers(&world)) {
            return false;
        }
        let before = same.len();
        same.retain(|other| !world.covers(other));
        same.push(world);
        self.count = self.count + same.len() - before;
        true
    }

    fn into_all(self) -> Vec<World> {
        self.by_state.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
