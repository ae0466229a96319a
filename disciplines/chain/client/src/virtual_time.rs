//! Recipes in the time of a simulator: futures that are polled whenever something has come, without
//! a runtime.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use client::{Answer, Error, Operation};

use crate::{Counts, KeyState, Machine, recipes::Asks};

/// A client in virtual time, whose operations are futures. Clones are the same client.
///
/// Its owner spawns tasks, hands over what arrives, and says what time it is; after each of these
/// it takes what is to be sent. Every task is polled each time: this is for tens of tasks, not for
/// thousands.
#[derive(Clone)]
pub struct Virtual {
    shared: Rc<RefCell<State>>,
}

struct State {
    machine: Machine,
    now_ns: u64,
    finished: BTreeMap<u64, Result<Answer, Error>>,
    watched: BTreeMap<u64, VecDeque<KeyState>>,
    /// When tasks that wait for nothing but the time want to go on.
    alarms: BTreeSet<u64>,
    spawned: Vec<Task>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of a [`Virtual`].
pub struct Tasks {
    client: Virtual,
    tasks: Vec<Task>,
}

impl Virtual {
    /// A client, and what runs its tasks.
    pub fn new(machine: Machine, now_ns: u64) -> (Virtual, Tasks) {
        let shared = Rc::new(RefCell::new(State {
            machine,
            now_ns,
            finished: BTreeMap::new(),
            watched: BTreeMap::new(),
            alarms: BTreeSet::new(),
            spawned: vec![],
        }));
        let client = Virtual { shared };
        let tasks = Tasks { client: client.clone(), tasks: vec![] };
        (client, tasks)
    }

    /// Begins a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.shared.borrow_mut().spawned.push(Box::pin(task));
    }

    /// Begins a call or a watch.
    fn begin(&self, begin: impl FnOnce(&mut Machine, u64) -> u64) -> Guard {
        let mut shared = self.shared.borrow_mut();
        let now_ns = shared.now_ns;
        Guard { number: begin(&mut shared.machine, now_ns), client: self.clone() }
    }

    /// What its machine has done so far.
    pub fn counts(&self) -> Counts {
        self.shared.borrow().machine.counts()
    }
}

impl Tasks {
    /// A datagram has arrived.
    pub fn take(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let mut shared = self.client.shared.borrow_mut();
        shared.now_ns = now_ns;
        shared.machine.take(datagram, from, now_ns);
        drop(shared);
        self.run(now_ns);
    }

    /// The time has come, or gone by; or tasks were begun.
    pub fn run(&mut self, now_ns: u64) {
        let mut shared = self.client.shared.borrow_mut();
        shared.now_ns = now_ns;
        shared.alarms = shared.alarms.split_off(&(now_ns + 1));
        if shared.machine.next_ns().is_some_and(|at| at <= now_ns) {
            shared.machine.timer(now_ns);
        }
        drop(shared);
        loop {
            self.tasks.append(&mut self.client.shared.borrow_mut().spawned);
            let heard = self.client.shared.borrow_mut().collect();
            let mut context = Context::from_waker(Waker::noop());
            let before = self.tasks.len();
            self.tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
            let shared = self.client.shared.borrow();
            // A task that ended, or began an operation which ended at once, may be what another one
            // waits for.
            let goes_on = before != self.tasks.len() || !shared.spawned.is_empty();
            if !goes_on && !heard {
                return;
            }
        }
    }

    /// When [`Tasks::run`] is to be called next, if nothing arrives.
    pub fn next_ns(&self) -> Option<u64> {
        let shared = self.client.shared.borrow();
        let alarm = shared.alarms.first().copied();
        alarm.into_iter().chain(shared.machine.next_ns()).min()
    }

    /// The next datagram to send, and where to.
    pub fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.client.shared.borrow_mut().machine.next_datagram()
    }

    /// Whether tasks were begun that have not run yet.
    pub fn has_begun(&self) -> bool {
        !self.client.shared.borrow().spawned.is_empty()
    }

    /// Tasks that have not ended.
    pub fn len(&self) -> usize {
        self.tasks.len() + self.client.shared.borrow().spawned.len()
    }

    /// Whether all tasks have ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends all tasks where they stand, as a process that is killed does.
    pub fn kill(&mut self) {
        self.tasks.clear();
        self.client.shared.borrow_mut().spawned.clear();
    }
}

impl State {
    /// Puts what the machine has to say where tasks look for it; whether there was anything.
    fn collect(&mut self) -> bool {
        let mut any = false;
        while let Some((number, result)) = self.machine.next_finished() {
            self.finished.insert(number, result);
            any = true;
        }
        while let Some((number, watched)) = self.machine.next_watched() {
            self.watched.entry(number).or_default().push_back(watched);
            any = true;
        }
        any
    }
}

/// A call or a watch of a task; ended when the task drops it.
struct Guard {
    client: Virtual,
    number: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut shared = self.client.shared.borrow_mut();
        let now_ns = shared.now_ns;
        shared.machine.end(self.number, now_ns);
        shared.finished.remove(&self.number);
        shared.watched.remove(&self.number);
    }
}

impl Asks for Virtual {
    async fn call(&self, operation: Operation<'_>) -> Result<Answer, Error> {
        let begun = self.begin(|machine, now_ns| machine.begin(&operation, now_ns));
        poll_fn(|_| {
            let mut shared = begun.client.shared.borrow_mut();
            shared.collect();
            match shared.finished.remove(&begun.number) {
                Some(result) => Poll::Ready(result),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn watch(
        &self,
        key: &[u8],
        mut tell: impl FnMut(KeyState) -> bool,
        until_ns: u64,
    ) -> Result<(), Error> {
        let begun = self.begin(|machine, now_ns| machine.watch(key, now_ns));
        self.shared.borrow_mut().alarms.insert(until_ns);
        poll_fn(|_| {
            let mut shared = begun.client.shared.borrow_mut();
            shared.collect();
            if let Some(Err(error)) = shared.finished.remove(&begun.number) {
                return Poll::Ready(Err(error));
            }
            while let Some(watched) =
                shared.watched.get_mut(&begun.number).and_then(VecDeque::pop_front)
            {
                if !tell(watched) {
                    return Poll::Ready(Ok(()));
                }
            }
            match shared.now_ns >= until_ns {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn now_ns(&self) -> u64 {
        self.shared.borrow().now_ns
    }

    async fn until(&self, at_ns: u64) {
        self.shared.borrow_mut().alarms.insert(at_ns);
        poll_fn(|_| match self.now_ns() >= at_ns {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn nonce(&self) -> u64 {
        self.shared.borrow_mut().machine.random()
    }
}
