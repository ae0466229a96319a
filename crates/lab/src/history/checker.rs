//! Just-in-time linearization (Lowe, "Testing for linearizability", 2017; the same idea as Wing and Gong's search with
//! memoisation, run forward in time): the set of all states that the key may be in is carried from event to event. An operation
//! is linearized no earlier than some operation's return needs it, so the set stays small; the history is bad when
//! it becomes empty. The tests hold it against stateright's `LinearizabilityTester`.
//!
//! Three things keep it fast where outcomes are unknown. What changes nothing is linearized as soon as it can be. An open
//! operation is linearized only if its state is needed by one that is pending. Of two states of the world that
//! differ only in which open operations are used up, the one that used fewer covers the other.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::ensure;

use super::{Effect, Need, Operation};

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    state: Option<u64>,
    /// Operations that have taken effect and will return.
    done: BTreeSet<usize>,
    /// Operations without a return that have taken effect.
    used: BTreeSet<usize>,
}

/// Checks the operations on one key, which begins absent. Their order does not matter.
///
/// # Errors
/// Too many pasts are possible to decide.
pub fn check(operations: &[Operation]) -> anyhow::Result<Verdict> {
    // Calls before returns at the same time: operations that touch count as concurrent.
    let mut events: Vec<(u64, bool, usize)> = vec![];
    for (i, operation) in operations.iter().enumerate() {
        events.push((operation.call_ns, false, i));
        events.extend(operation.return_ns.map(|at| (at, true, i)));
    }
    events.sort_unstable();
    let mut search = Search {
        operations,
        pending: BTreeSet::new(),
    };
    let mut worlds = vec![World {
        state: None,
        done: BTreeSet::new(),
        used: BTreeSet::new(),
    }];
    for (_, is_return, i) in events {
        if is_return {
            worlds = search.returned(i, worlds)?;
            if worlds.is_empty() {
                return Ok(Verdict::Violation(i));
            }
        } else if operations[i].return_ns.is_some() || operations[i].effect != Effect::Keep {
            search.pending.insert(i);
            worlds.iter_mut().for_each(|world| search.absorb(world));
        }
    }
    Ok(Verdict::Linearizable)
}

struct Search<'a> {
    operations: &'a [Operation],
    pending: BTreeSet<usize>,
}

impl Search<'_> {
    fn is_open(&self, i: usize) -> bool {
        self.operations[i].return_ns.is_none()
    }

    /// Linearizes what changes nothing and can take effect now: waiting could not help it.
    fn absorb(&self, world: &mut World) {
        for &i in &self.pending {
            let operation = &self.operations[i];
            if operation.effect == Effect::Keep && operation.need.is_met(world.state) {
                world.done.insert(i);
            }
        }
    }

    /// The worlds in which `target` has taken effect, now that it returns.
    fn returned(&mut self, target: usize, worlds: Vec<World>) -> anyhow::Result<Vec<World>> {
        let mut seen = HashSet::new();
        let mut stack = vec![];
        let mut found = vec![];
        for world in worlds {
            if world.done.contains(&target) {
                found.push(world);
            } else {
                seen.insert(world.clone());
                stack.push(world);
            }
        }
        while let Some(world) = stack.pop() {
            ensure!(
                seen.len() + found.len() < MAX_WORLDS,
                "more than {MAX_WORLDS} pasts are possible: not decided"
            );
            for next in self.steps(&world) {
                if next.done.contains(&target) {
                    found.push(next);
                } else if seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        self.pending.remove(&target);
        for world in &mut found {
            world.done.remove(&target);
        }
        Ok(without_covered(found))
    }

    /// Each world that one more operation leads to.
    fn steps(&self, world: &World) -> Vec<World> {
        let mut next = vec![];
        for &i in &self.pending {
            let operation = &self.operations[i];
            let state = match operation.effect {
                Effect::Keep => continue,
                Effect::Write(value) => Some(value),
                Effect::Delete => None,
            };
            let is_over = world.done.contains(&i) || world.used.contains(&i);
            if is_over || !operation.need.is_met(world.state) {
                continue;
            }
            let mut new = World {
                state,
                ..world.clone()
            };
            if self.is_open(i) {
                if state == world.state || !self.is_needed(i, state, world) {
                    continue;
                }
                new.used.insert(i);
            } else {
                new.done.insert(i);
            }
            self.absorb(&mut new);
            next.push(new);
        }
        next
    }

    /// Whether some other pending operation needs this state.
    fn is_needed(&self, by: usize, state: Option<u64>, world: &World) -> bool {
        self.pending.iter().any(|&i| {
            let need = self.operations[i].need;
            i != by
                && need != Need::Any
                && need.is_met(state)
                && !world.done.contains(&i)
                && !world.used.contains(&i)
        })
    }
}

/// Leaves out worlds that differ from another only in having used up more open operations.
fn without_covered(worlds: Vec<World>) -> Vec<World> {
    let mut best: HashMap<(Option<u64>, BTreeSet<usize>), Vec<BTreeSet<usize>>> = HashMap::new();
    for World { state, done, used } in worlds {
        let kept = best.entry((state, done)).or_default();
        if kept.iter().any(|other| other.is_subset(&used)) {
            continue;
        }
        kept.retain(|other| !used.is_subset(other));
        kept.push(used);
    }
    let flat = best.into_iter().flat_map(|((state, done), all)| {
        all.into_iter().map(move |used| World {
            state,
            done: done.clone(),
            used,
        })
    });
    flat.collect()
}

#[cfg(test)]
mod tests;
