//! Connections on which nobody has shown a token yet. They have places of their own, few of them
//! from one address, and a short time; when all are taken, or all of an address, the one that has
//! waited longest makes room. So whoever has no token can keep out neither those who are served
//! nor, for longer than it takes to say who they are, those who come: also not those who come from
//! the same address, as a web page in an operator's browser does.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, task::AbortHandle};

use crate::auth::{Access, Pass};

/// Most of them.
const STRANGERS_MAX: usize = 256;
/// Most of them from one address.
const FROM_ONE_MAX: usize = 32;

/// Goes with the requests of a connection: whoever finds a token good says so with it. By default
/// nobody has.
#[derive(Clone, Debug, Default)]
pub struct Introduction(watch::Sender<Shown>);

/// What was shown on a connection.
#[derive(Debug, Default)]
struct Shown {
    /// The tenant of the first who may be here; the inner none: of no tenant.
    first: Option<Option<u32>>,
    /// The tokens, each once.
    passes: Vec<Pass>,
}

impl Introduction {
    /// Somebody who may be here has shown this token; none: no token is needed.
    pub fn known(&self, pass: Option<&Pass>) {
        self.0.send_if_modified(|shown| {
            let is_first = shown.first.is_none();
            shown.first.get_or_insert(pass.and_then(|pass| pass.caller.tenant()));
            if let Some(pass) = pass.filter(|pass| !shown.passes.contains(pass)) {
                shown.passes.push(pass.clone());
            }
            is_first
        });
    }

    /// Waits until somebody has; of which tenant, if of any. The first one counts.
    pub async fn done(&self) -> Option<u32> {
        let mut known = self.0.subscribe();
        // An error would mean that the sender is gone, but it is ours.
        let known = known.wait_for(|shown| shown.first.is_some()).await;
        known.ok().and_then(|shown| shown.first.flatten())
    }

    /// Waits until one of the tokens is good no more.
    pub async fn revoked(&self, access: &Access) {
        let mut checked = (0, 0);
        loop {
            match access.next_look() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
            let shown = self.0.borrow();
            let now = (access.revision(), shown.passes.len());
            if now != checked && !shown.passes.iter().all(|pass| access.admits(pass)) {
                return;
            }
            checked = now;
        }
    }
}

/// All such connections, by the order in which they came.
#[derive(Clone, Default)]
pub struct Strangers(Arc<Mutex<StrangersByAge>>);

#[derive(Default)]
struct StrangersByAge {
    by_age: BTreeMap<u64, (IpAddr, AbortHandle)>,
    newest: u64,
}

/// A stranger's place, until it is dropped.
pub struct Place {
    strangers: Strangers,
    number: u64,
}

impl Strangers {
    /// A place for a connection from this address, which ends by `abort`.
    pub fn enter(&self, from: IpAddr, abort: AbortHandle) -> Place {
        let mut waiting = self.lock();
        let from_there = waiting.by_age.iter().filter(|(_, (other, _))| *other == from);
        let oldest_there = from_there.clone().next().map(|(number, _)| *number);
        let goes = if from_there.count() >= FROM_ONE_MAX {
            oldest_there
        } else if waiting.by_age.len() >= STRANGERS_MAX {
            waiting.by_age.keys().next().copied()
        } else {
            None
        };
        if let Some((_, oldest)) = goes.and_then(|number| waiting.by_age.remove(&number)) {
            oldest.abort();
        }
        waiting.newest += 1;
        let number = waiting.newest;
        waiting.by_age.insert(number, (from, abort));
        let strangers = self.clone();
        Place { strangers, number }
    }

    fn lock(&self) -> MutexGuard<'_, StrangersByAge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.lock().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_waited_longest_makes_room_and_one_address_has_few_places() {
        let strangers = Strangers::default();
        let pending = || tokio::spawn(std::future::pending::<()>());
        let from = |n: usize| IpAddr::from([10, 0, (n / 250) as u8, (n % 250) as u8]);
        let mut tasks = vec![];
        let mut places = vec![];
        for n in 0..STRANGERS_MAX {
            tasks.push(pending());
            places.push(strangers.enter(from(n), tasks[n].abort_handle()));
        }
        // The first of them make room, then the first that came from the same address, and
        // nobody else.
        let one = from(9_000);
        for _ in 0..FROM_ONE_MAX + 2 {
            tasks.push(pending());
            let abort = tasks[tasks.len() - 1].abort_handle();
            places.push(strangers.enter(one, abort));
        }
        for task in tasks.drain(..FROM_ONE_MAX) {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        let mut of_one = tasks.split_off(STRANGERS_MAX - FROM_ONE_MAX);
        for task in of_one.drain(..2) {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        let left = tasks.iter().chain(&of_one);
        assert!(left.clone().all(|task| !task.is_finished()));
        assert_eq!(left.count(), STRANGERS_MAX);
    }
}
