//! [`Client`]: a [`Machine`] on sockets, by the system's clock.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{
    Answer, Condition, Error, Operation, Value,
    kit::{Process, now_ns, open_socket, timer},
};
use tokio::{
    net::UdpSocket,
    sync::{Notify, oneshot},
    task::AbortHandle,
    time::{sleep_until, timeout_at},
};
use wire::Cluster;

use crate::{Counts, KeyState, Machine, Options, recipes::Asks};

/// Longest datagram in bytes.
const LONGEST: usize = 2048;
/// Datagrams taken from a socket before timers are looked at again.
const BATCH: usize = 64;

/// A client of one tenant whose keys chains of switches hold. Clones are the same client; when the
/// last one is dropped the sockets close. All methods may be called concurrently, and a call that
/// is dropped before it ends leaves nothing behind (a write may still take place). It belongs to
/// the process that connected it: in one that was forked since, each call is refused.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    process: Process,
    shared: Arc<Endpoint>,
    tasks: Vec<AbortHandle>,
}

struct Endpoint {
    state: Mutex<State>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    /// The next timer is an earlier one.
    earlier: Notify,
}

struct State {
    machine: Machine,
    /// When the timer task wakes.
    wakes_ns: u64,
    calls: HashMap<u64, oneshot::Sender<Result<Answer, Error>>>,
    watches: HashMap<u64, Arc<Mailbox>>,
}

impl Client {
    /// Opens the sockets. Sends nothing: a switch that is not there is noticed by the first call.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::UnknownTenant`], or [`Error::Socket`] if the system refuses a
    /// socket.
    pub async fn connect(
        cluster: &Cluster,
        tenant: u32,
        options: Options,
    ) -> Result<Client, Error> {
        let open = |v6: bool| {
            let has = options.switches.iter().any(|to| to.is_ipv6() == v6);
            let made = has.then(|| open_socket(v6, |socket| UdpSocket::from_std(socket.into())));
            made.transpose()
        };
        let (v4, v6) = (open(false)?, open(true)?);
        let shared = Arc::new(Endpoint {
            state: Mutex::new(State {
                machine: Machine::new(cluster, tenant, options, rand::random())?,
                wakes_ns: 0,
                calls: HashMap::new(),
                watches: HashMap::new(),
            }),
            v4,
            v6,
            earlier: Notify::new(),
        });
        let mut tasks = vec![tokio::spawn(timers(shared.clone())).abort_handle()];
        for v6 in [false, true] {
            if shared.socket(v6).is_some() {
                tasks.push(tokio::spawn(receive(shared.clone(), v6)).abort_handle());
            }
        }
        let inner = Arc::new(Inner { process: Process::current()?, shared, tasks });
        Ok(Client { inner })
    }

    /// The value of a key; `None` if there is no such key.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nobody answers, and the others that [`Error`] lists for reads.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        self.call(Operation::Get { key }).await?.found()
    }

    /// The newest value of a key at the member that is asked, whether it is committed or not, if
    /// the tenant's clients may ask for that (its option `relaxed`); else as [`Client::get`].
    ///
    /// This is not linearizable. The value is no older than any that a client was told before this
    /// call began, and somebody wrote it or is about to. It may be newer than what others read
    /// later, and it may never be committed: then another value has its version, which therefore is
    /// good for no condition.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn get_relaxed(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
        let key = key.as_ref();
        self.ask(|machine, now_ns| machine.begin_relaxed(key, now_ns)).await?.found()
    }

    /// Begins a call, and waits for its answer.
    async fn ask(&self, begin: impl FnOnce(&mut Machine, u64) -> u64) -> Result<Answer, Error> {
        self.inner.process.check()?;
        let shared = &*self.inner.shared;
        let (sender, answer) = oneshot::channel();
        let number = shared.with(|state, now_ns| {
            let number = begin(&mut state.machine, now_ns);
            state.calls.insert(number, sender);
            number
        });
        let _begun = CallGuard { shared, number };
        // The sender lives as long as the call, and the machine ends each call at its deadline.
        answer.await.expect("a call ends with an answer or an error")
    }

    /// Writes a value if a condition holds, and returns the new version.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the current version if it does not; [`Error::OutcomeUnknown`] if no
    /// answer came: the write may have been applied, or still be.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition,
    ) -> Result<u64, Error> {
        let set = Operation::Set { key: key.as_ref(), value: value.as_ref(), ttl: None, condition };
        self.call(set).await?.written()
    }

    /// Removes a key if a condition holds; `false` if there was no such key.
    ///
    /// # Errors
    /// As for `put`.
    pub async fn delete(&self, key: impl AsRef<[u8]>, condition: Condition) -> Result<bool, Error> {
        let key = key.as_ref();
        let delete = Operation::Delete { key, condition };
        self.call(delete).await?.removed()
    }

    /// Watches a key: its state now, and each that follows as far as it can be told before the
    /// next.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Watch {
        let unheard = Arc::new(Mailbox::default());
        let number = self.inner.shared.with(|state, now_ns| {
            let number = state.machine.watch(key.as_ref(), now_ns);
            state.watches.insert(number, unheard.clone());
            number
        });
        Watch { client: self.clone(), number, unheard }
    }

    /// What this client and its clones have done so far.
    pub fn counts(&self) -> Counts {
        self.inner.shared.lock().machine.counts()
    }

    /// The members of a key's chain from head to tail, as far as they are known.
    pub fn members(&self, key: impl AsRef<[u8]>) -> Vec<SocketAddr> {
        self.inner.shared.lock().machine.members(key.as_ref())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// A key that is watched, until this is dropped.
pub struct Watch {
    client: Client,
    number: u64,
    unheard: Arc<Mailbox>,
}

/// What whoever watches has not heard yet: one state, the newest.
#[derive(Default)]
struct Mailbox {
    state: Mutex<Option<Result<KeyState, Error>>>,
    is_there: Notify,
}

impl Mailbox {
    fn put(&self, state: Result<KeyState, Error>) {
        *self.lock() = Some(state);
        self.is_there.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<KeyState, Error>>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Watch {
    /// The next state of the key. States that follow one another quickly may be told as the last of
    /// them.
    ///
    /// # Errors
    /// The key is not possible, or its value does not open ([`Error::NotOpened`]), or the client is
    /// another process's ([`Error::Forked`]); nothing follows then.
    pub async fn next(&mut self) -> Result<KeyState, Error> {
        self.client.inner.process.check()?;
        loop {
            if let Some(state) = self.unheard.lock().take() {
                return state;
            }
            self.unheard.is_there.notified().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Watch { client, number, .. } = self;
        client.inner.shared.end(*number);
    }
}

/// A call; ended when it is dropped.
struct CallGuard<'a> {
    shared: &'a Endpoint,
    number: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.shared.end(self.number);
    }
}

impl Asks for Client {
    async fn call(&self, operation: Operation<'_>) -> Result<Answer, Error> {
        self.ask(|machine, now_ns| machine.begin(&operation, now_ns)).await
    }

    async fn watch(
        &self,
        key: &[u8],
        mut tell: impl FnMut(KeyState) -> bool,
        until_ns: u64,
    ) -> Result<(), Error> {
        let mut watch = Client::watch(self, key);
        let until = timer(until_ns);
        while let Ok(state) = timeout_at(until, watch.next()).await {
            if !tell(state?) {
                break;
            }
        }
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        now_ns()
    }

    async fn until(&self, at_ns: u64) {
        sleep_until(timer(at_ns)).await;
    }

    fn nonce(&self) -> u64 {
        rand::random()
    }
}

impl Endpoint {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that was begun under the lock is left half done if it panics: the machine is one
        // value.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn socket(&self, v6: bool) -> Option<&UdpSocket> {
        if v6 { self.v6.as_ref() } else { self.v4.as_ref() }
    }

    /// Does something with the machine, and then what it wants done.
    fn with<T>(&self, act: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state, now_ns());
        while let Some((to, datagram)) = state.machine.next_datagram() {
            // One that finds no room is as good as lost: the call sends it again.
            if let Some(socket) = self.socket(to.is_ipv6()) {
                let _ = socket.try_send_to(&datagram, to);
            }
        }
        while let Some((number, result)) = state.machine.next_finished() {
            if let Some(sender) = state.calls.remove(&number) {
                let _ = sender.send(result);
            } else if let (Some(unheard), Err(error)) = (state.watches.remove(&number), result) {
                unheard.put(Err(error));
            }
        }
        while let Some((number, watched)) = state.machine.next_watched() {
            if let Some(unheard) = state.watches.get(&number) {
                unheard.put(Ok(watched));
            }
        }
        let next_ns = state.machine.next_ns().unwrap_or(u64::MAX);
        if next_ns < state.wakes_ns {
            state.wakes_ns = next_ns;
            self.earlier.notify_one();
        }
        result
    }

    /// Forgets a call or a watch.
    fn end(&self, number: u64) {
        self.with(|state, now_ns| {
            let call = state.calls.remove(&number).is_some();
            if state.watches.remove(&number).is_some() || call {
                state.machine.end(number, now_ns);
            }
        });
    }
}

/// Calls the machine's timers when they are due.
async fn timers(shared: Arc<Endpoint>) {
    loop {
        let next_ns = {
            let mut state = shared.lock();
            state.wakes_ns = state.machine.next_ns().unwrap_or(u64::MAX);
            state.wakes_ns
        };
        let due = async {
            match next_ns {
                u64::MAX => std::future::pending().await,
                at_ns => sleep_until(timer(at_ns)).await,
            }
        };
        tokio::select! {
            () = due => shared.with(|state, now_ns| state.machine.timer(now_ns)),
            () = shared.earlier.notified() => {}
        }
    }
}

/// Hands what arrives to the machine.
async fn receive(shared: Arc<Endpoint>, v6: bool) {
    let Some(socket) = shared.socket(v6) else { return };
    let mut buffer = [0; LONGEST];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((len, from)) => {
                shared.with(|state, now_ns| state.machine.take(&buffer[..len], from, now_ns));
                for _ in 0..BATCH {
                    let Ok((len, from)) = socket.try_recv_from(&mut buffer) else { break };
                    shared.with(|state, now_ns| state.machine.take(&buffer[..len], from, now_ns));
                }
                tokio::task::yield_now().await;
            }
            // Errors of earlier sends surface here; calls notice by their deadline. The pause keeps
            // an error that stays from taking a whole core.
            Err(error) => {
                tracing::debug!(%error, "receiving failed");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
