//! Commands on strings that are carried out here, as jobs: each of them waits for packets, and for
//! the Redis servers behind the stores, without holding up anybody.
//!
//! Jobs are futures of this loop alone. What they need done comes out as errands; once those are
//! told how they ended, the jobs go on that were waiting for it.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Instant,
};

use client::{Answer, Error, Reservation};
use futures_util::{StreamExt, stream::FuturesUnordered};
use hashbrown::{HashMap, HashSet};
use slab::Slab;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use super::Target;
use crate::{
    stats::Stats,
    strings::{
        data::{DataResult, ErrorLine},
        errands::Errand,
        job::Job,
        network::Network,
        reply::Reply,
        table,
    },
};

/// Jobs of one loop that run at the same time; more commands wait until one has ended.
const JOBS: usize = 4096;

/// What a loop carries commands on strings out with.
pub(crate) struct JobParts {
    pub network: Network,
    /// What the jobs of `network` want done.
    pub errands: UnboundedReceiver<Errand>,
    /// The Redis servers behind the stores, in the order of `--backend`.
    pub backends: Vec<Target>,
    /// Why there are no other commands.
    pub others: String,
}

/// Whose a job is, and what is needed to answer it.
pub(super) struct JobOwner {
    pub place: usize,
    pub number: u64,
    pub answer: u64,
    /// The protocol that its client spoke when it asked.
    pub protocol: u8,
    /// Row of its command.
    pub command: u16,
    pub asked: Instant,
    /// Hashes of its keys.
    pub keys: Vec<u64>,
    /// What is given back when it is answered.
    pub memory: [Option<Reservation>; 2],
}

type EndedJob = (JobOwner, Reply);

/// A command that a Redis has not answered yet.
struct AskedBackend {
    heard: Vec<u8>,
    tell: oneshot::Sender<DataResult<redis::Value>>,
}

/// The jobs of a loop.
pub(super) struct Jobs {
    pub network: Arc<Network>,
    pub others: String,
    /// Rows of the commands of the table, in its order.
    pub rows: Vec<u16>,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = EndedJob> + Send>>>,
    errands: UnboundedReceiver<Errand>,
    woken: Arc<Woken>,
    waker: Waker,
    calls: HashMap<u64, oneshot::Sender<Result<Answer, Error>>>,
    asked: Slab<AskedBackend>,
    pauses: Vec<(Instant, oneshot::Sender<()>)>,
    /// Clients whose next command waits for room, in the order in which they began to, each once.
    crowded: VecDeque<usize>,
    are_crowded: HashSet<usize>,
    /// Redis servers behind the stores.
    pub backends: usize,
    /// Of which of them it was said last that they cannot be used.
    away: Vec<bool>,
}

/// Notes that a job can go on.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Relaxed);
    }
}

impl Jobs {
    /// None yet, and so many Redis servers.
    pub fn new(parts: JobParts, backends: usize, stats: &Stats) -> Jobs {
        let JobParts { network, errands, others, .. } = parts;
        let woken = Arc::new(Woken::default());
        Jobs {
            network: Arc::new(network),
            others,
            rows: table::ALL.iter().map(|spec| stats.row(spec.name)).collect(),
            running: FuturesUnordered::new(),
            errands,
            waker: Waker::from(woken.clone()),
            woken,
            calls: HashMap::new(),
            asked: Slab::new(),
            pauses: vec![],
            crowded: VecDeque::new(),
            are_crowded: HashSet::new(),
            backends,
            away: vec![false; backends],
        }
    }

    /// Whether one more may run. If not, this client is told when it is tried again.
    pub fn has_room(&mut self, client: usize) -> bool {
        let has_room = self.free() > 0;
        if !has_room && self.are_crowded.insert(client) {
            self.crowded.push_back(client);
        }
        has_room
    }

    /// How many more may run.
    pub fn free(&self) -> usize {
        JOBS.saturating_sub(self.running.len())
    }

    /// The client that has waited for room for longest, and waits no longer.
    pub fn next_crowded(&mut self) -> Option<usize> {
        let next = self.crowded.pop_front()?;
        self.are_crowded.remove(&next);
        Some(next)
    }

    /// Begins a job.
    pub fn start(&mut self, owner: JobOwner, job: Job) {
        let network = self.network.clone();
        self.running.push(Box::pin(async move { (owner, job.run(&network).await) }));
    }

    /// Runs those that can go on, until one has ended.
    pub fn next_ended(&mut self) -> Option<EndedJob> {
        loop {
            self.woken.0.store(false, Relaxed);
            let mut context = Context::from_waker(&self.waker);
            match self.running.poll_next_unpin(&mut context) {
                Poll::Ready(ended) => return ended,
                Poll::Pending if self.woken.0.load(Relaxed) => {}
                Poll::Pending => return None,
            }
        }
    }

    /// The next thing that a job wants done.
    pub fn next_errand(&mut self) -> Option<Errand> {
        self.errands.try_recv().ok()
    }

    /// Remembers whom to tell of a call by packets.
    pub fn await_call(&mut self, call: u64, tell: oneshot::Sender<Result<Answer, Error>>) {
        self.calls.insert(call, tell);
    }

    /// A call has ended.
    pub fn hear_call(&mut self, call: u64, result: Result<Answer, Error>) {
        if let Some(tell) = self.calls.remove(&call) {
            let _ = tell.send(result);
        }
    }

    /// Remembers whom to tell what a Redis answers: its number.
    pub fn await_backend(&mut self, tell: oneshot::Sender<DataResult<redis::Value>>) -> usize {
        self.asked.insert(AskedBackend { heard: vec![], tell })
    }

    /// A part of what a Redis answers.
    pub fn hear_backend(&mut self, number: usize, piece: &[u8], ended: bool) {
        let Some(asked) = self.asked.get_mut(number) else { return };
        asked.heard.extend_from_slice(piece);
        if ended {
            let AskedBackend { heard, tell } = self.asked.remove(number);
            let _ = tell.send(value_of(&heard));
        }
    }

    /// The rest does not come: what has come is no answer.
    pub fn drop_heard(&mut self, number: usize) {
        if let Some(asked) = self.asked.get_mut(number) {
            asked.heard.clear();
        }
    }

    /// Has a job wait until then.
    pub fn pause(&mut self, until: Instant, tell: oneshot::Sender<()>) {
        self.pauses.push((until, tell));
    }

    /// When the next pause is over.
    pub fn next_timer(&self) -> Option<Instant> {
        self.pauses.iter().map(|(until, _)| *until).min()
    }

    /// Ends the pauses that are over.
    pub fn expire(&mut self, now: Instant) {
        for (_, tell) in self.pauses.extract_if(.., |(until, _)| *until <= now) {
            let _ = tell.send(());
        }
    }

    /// Whether it is news that a Redis can be used, or cannot.
    pub fn is_news(&mut self, backend: usize, is_away: bool) -> bool {
        let said = self.away.get_mut(backend);
        said.is_some_and(|said| std::mem::replace(said, is_away) != is_away)
    }
}

/// What a Redis has answered.
fn value_of(heard: &[u8]) -> DataResult<redis::Value> {
    if let Some(line) = heard.strip_prefix(b"-") {
        return Err(ErrorLine(String::from_utf8_lossy(line).trim_end().into()));
    }
    redis::parse_redis_value(heard)
        .map_err(|error| ErrorLine(format!("ERR the backend's answer makes no sense: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strings::errands::Errands;

    fn none() -> Jobs {
        let (errands, taken) = Errands::new();
        let counters = Arc::default();
        let network = Network { keeps_names: true, errands, direct: None, counters };
        let parts = JobParts { network, errands: taken, backends: vec![], others: String::new() };
        Jobs::new(parts, 0, &Stats::new(64))
    }

    #[test]
    fn a_client_waits_for_room_once_however_often_it_is_refused() {
        let mut jobs = none();
        assert!(jobs.has_room(7));
        assert_eq!(jobs.next_crowded(), None);
        (0..JOBS).for_each(|_| jobs.running.push(Box::pin(std::future::pending())));
        for client in [7, 7, 8, 7] {
            assert!(!jobs.has_room(client));
        }
        assert_eq!(jobs.next_crowded(), Some(7));
        assert!(!jobs.has_room(7), "it comes behind the other one");
        let rest = std::iter::from_fn(|| jobs.next_crowded());
        assert_eq!(rest.collect::<Vec<_>>(), [8, 7]);
    }
}
