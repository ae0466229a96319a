//! Connections on which nobody has shown a token yet. They have places of their own, few of them from one address, and a short
//! time; when all are taken the one that has waited longest makes room. So whoever has no token can keep out neither those who
//! are served nor, for longer than it takes to say who they are, those who come.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, task::AbortHandle};

/// How long a connection may take until somebody has shown a token on it.
pub const STRANGER_FOR: Duration = Duration::from_secs(5);
/// Most of them.
const STRANGERS_MAX: usize = 256;
/// Most of them from one address.
const FROM_ONE_MAX: usize = 32;

/// Goes with the requests of a connection: whoever finds a token good says so with it. By default nobody has.
#[derive(Clone, Debug, Default)]
pub struct Introduction(watch::Sender<bool>);

impl Introduction {
    /// Somebody who may be here has shown a token.
    pub fn known(&self) {
        self.0
            .send_if_modified(|known| !std::mem::replace(known, true));
    }

    /// Waits for that.
    pub async fn done(&self) {
        let mut known = self.0.subscribe();
        // An error would mean that the sender is gone, but it is ours.
        let _ = known.wait_for(|known| *known).await;
    }
}

/// All such connections, by the order in which they came.
#[derive(Clone, Default)]
pub struct Strangers(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    by_age: BTreeMap<u64, (IpAddr, AbortHandle)>,
    newest: u64,
}

/// A stranger's place, until it is dropped.
pub struct Place {
    strangers: Strangers,
    number: u64,
}

impl Strangers {
    /// A place for a connection from this address, which ends by `abort`; none: too many came from there.
    pub fn enter(&self, from: IpAddr, abort: AbortHandle) -> Option<Place> {
        let mut waiting = self.lock();
        let others = waiting.by_age.values();
        if others.filter(|(other, _)| *other == from).count() >= FROM_ONE_MAX {
            return None;
        }
        if waiting.by_age.len() >= STRANGERS_MAX
            && let Some((_, (_, oldest))) = waiting.by_age.pop_first()
        {
            oldest.abort();
        }
        waiting.newest += 1;
        let number = waiting.newest;
        waiting.by_age.insert(number, (from, abort));
        let strangers = self.clone();
        Some(Place { strangers, number })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
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
            places.push(strangers.enter(from(n), tasks[n].abort_handle()).unwrap());
        }
        let one = from(9_000);
        for _ in 0..FROM_ONE_MAX {
            places.push(strangers.enter(one, pending().abort_handle()).unwrap());
        }
        assert!(strangers.enter(one, pending().abort_handle()).is_none());
        let first = tasks.drain(..FROM_ONE_MAX);
        for task in first {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(!tasks[0].is_finished());
        places.pop();
        assert!(strangers.enter(one, pending().abort_handle()).is_some());
    }
}
