//! The loop: datagrams in, replies out, timers, the status socket. One thread, no task per request.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use bytes::Bytes;
use hashbrown::HashMap;
use tokio::{
    io::AsyncWriteExt,
    net::{UnixListener, UnixStream},
    sync::{mpsc, mpsc::UnboundedReceiver, oneshot},
    task::JoinSet,
};
use wire::Cluster;

use crate::{
    BackendConfig, Config, Incarnation,
    backend::{Admission, Backend, Completion, embedded, memcached, redis},
    clock::boot_ns,
    engine::{Engine, HoldId, TellError, UpdateError},
    handover,
    journal::{FileJournal, Journal},
    memcached_port,
    net::{Endpoint, Outbox},
    ports::{Had, HoldMessage, HoldQuestion, Holder, NoHold, Port},
    reports::{Report, Reports},
    resp_port,
    status::BackendTroubleStatus,
    unix_socket,
};

/// Batches taken from the socket before timers and the backend get their turn.
const ROUNDS: usize = 8;
/// A store that ends waits so long for copies: longer than most leases last, of which a switch that
/// does not answer is rid then.
const COPIES_WITHIN: Duration = Duration::from_secs(3);
/// A store that ends waits so long for what its backend is still to answer.
const FINISHES_WITHIN: Duration = Duration::from_secs(1);

/// Runs a store until `shutdown` is done.
///
/// # Errors
/// What is wrong with the configuration, or what the system refused; the message names it.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    Server::start(config).await?.run(shutdown).await
}

/// A store that is bound and filled, and serves once [`Server::run`] is awaited.
pub struct Server {
    endpoint: Endpoint,
    engine: Engine,
    /// From a backend that answers later.
    completions: Option<UnboundedReceiver<Completion>>,
    /// From the journal of loans.
    journaled: Option<UnboundedReceiver<Completion>>,
    outbox: Outbox,
    /// Where clients of Redis or memcached are taken; none once it is served.
    port: Option<Port>,
    port_addresses: Vec<SocketAddr>,
    /// From connections of the port.
    holds: UnboundedReceiver<HoldMessage>,
    /// Who waits for holds that were asked for.
    waiting: HashMap<HoldId, (oneshot::Sender<Had>, Holder)>,
    /// CLOCK_BOOTTIME when the engine's clock was at 0.
    began_ns: u64,
    status: Option<StatusSocket>,
    /// What it serves, for the log.
    serves: String,
    /// Where the next store finds what this one leaves.
    state: Option<PathBuf>,
    orders: mpsc::Receiver<Order>,
    /// Makes handles, and keeps `orders` from ending.
    handle: Handle,
}

/// What the store is to do, and whom to tell when it has.
enum Order {
    Update(Cluster, oneshot::Sender<Result<(), UpdateError>>),
    Place(Vec<(u32, u16)>, oneshot::Sender<()>),
    Tell { half: String, tenant: u32, message: Bytes, done: oneshot::Sender<Result<(), TellError>> },
}

/// Changes a store that runs. Clones speak to the same store.
#[derive(Clone)]
pub struct Handle {
    orders: mpsc::Sender<Order>,
    reports: Reports,
}

impl Handle {
    /// Gives the store a cluster with other tenants, or other secrets, rates and stores of theirs;
    /// it counts from the next packet on. A removed tenant is denied, and its pending writes end
    /// without an answer. Copies of its items are forgotten, not called back: its number may be
    /// another's only after every switch has dropped it.
    ///
    /// # Errors
    /// [`UpdateError`], if partitions, stores or hash seeds differ; everything stays as it
    /// was then.
    pub async fn update(&self, cluster: Cluster) -> Result<(), UpdateError> {
        let done = self.order(|done| Order::Update(cluster, done)).await;
        done.unwrap_or(Err(UpdateError::Ended))
    }

    /// Tells the store where tenants are placed, pairs of a tenant and a switch: no other switch is
    /// granted copies from then on. Before the first time every switch is.
    pub async fn place(&self, all: Vec<(u32, u16)>) {
        self.order(|done| Order::Place(all, done)).await;
    }

    /// Gives the half of a discipline in the store a message about a tenant, at most
    /// [`decide::MESSAGE_MAX`] bytes. It has it once this returns.
    ///
    /// # Errors
    /// [`TellError`]; the half knows nothing of it then.
    pub async fn tell(&self, half: &str, tenant: u32, message: Bytes) -> Result<(), TellError> {
        let half = half.into();
        let tell = |done| Order::Tell { half, tenant, message, done };
        self.order(tell).await.unwrap_or(Err(TellError::Ended))
    }

    /// Takes what halves have reported since the last time; waits until there is something. Nothing
    /// is lost if that is given up.
    pub async fn reports(&self) -> Vec<Report> {
        self.reports.take().await
    }

    /// Reports that were taken may be lost with their stream: [`Handle::reports`] brings the newest
    /// about each tenant again.
    pub fn report_again(&self) {
        self.reports.again();
    }

    async fn order<R>(&self, make: impl FnOnce(oneshot::Sender<R>) -> Order) -> Option<R> {
        let (done, answer) = oneshot::channel();
        self.orders.send(make(done)).await.ok()?;
        answer.await.ok()
    }
}

impl Server {
    /// Binds the sockets, connects to the backend.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start(config: Config) -> anyhow::Result<Server> {
        Server::start_around(config, |_, _, _| Ok(None)).await
    }

    /// Likewise. The caller is given the data, the configuration and the first version that a value
    /// may have, before anybody else, and says what requests there is time for.
    ///
    /// # Errors
    /// As [`run`], and those of the caller.
    pub async fn start_around(
        config: Config,
        prepare: impl FnOnce(&mut dyn Backend, &Config, u64) -> anyhow::Result<Option<Admission>>,
    ) -> anyhow::Result<Server> {
        config.check()?;
        if !config.cluster.tenants.is_empty() && config.cluster.system_secret.is_none() {
            tracing::warn!(
                "the cluster file has tenants with secrets but no system_secret: anybody who reaches this port can \
                 ask for leases in a switch's name; add `system_secret`, 32 hex digits"
            );
        }
        if config.cluster.open_tenant
            && config.backend_password.is_some()
            && !config.listen.ip().is_loopback()
        {
            tracing::warn!(
                "the backend asks for a password, and tenant 0 for none: whoever reaches {} reads and writes what is \
                 no other tenant's; let a firewall say who may, or set open_tenant = false",
                config.listen
            );
        }
        let wall = SystemTime::UNIX_EPOCH.elapsed().context("the clock is set before 1970")?;
        let wall_s = u32::try_from(wall.as_secs()).context("the clock is set after 2106")?;
        let ticks = (u64::from(wall.subsec_nanos()) << 16) / 1_000_000_000;
        let incarnation = Incarnation::new(wall_s, rand::random())
            .later(ticks as u16)
            .asking_as(rand::random())
            .keeping(wire::Secret(rand::random()));
        let (journal, journaled) = open_journal(&config)?;
        let former = config.state.as_deref().filter(|_| journal.is_some());
        let former =
            former.map(|directory| handover::take(directory, &config)).transpose()?.flatten();
        let incarnation = match &former {
            Some((_, left)) => incarnation.going_on(left.life, left.newest_version),
            None => incarnation,
        };
        let (mut backend, completions, behind) = open_backend(&config, incarnation).await?;
        let admission = prepare(&mut *backend, &config, incarnation.first_version())?;
        let endpoint = Endpoint::bind(config.listen)?;
        let (holder, holds) = Holder::new();
        let port = open_port(&config, behind, holder)?;
        let port_addresses = port.as_ref().map_or(vec![], |port| port.tcp_addresses().to_vec());
        let status = config.status_socket.as_deref().map(StatusSocket::bind).transpose()?;
        let began_ns = boot_ns().saturating_sub(config.born_ago.as_nanos() as u64);
        let serves = config.serves();
        let (began_ns, former) = former.map_or((began_ns, None), |(ns, left)| (ns, Some(left)));
        let state = config.state.clone().filter(|_| journal.is_some());
        let mut engine = Engine::new(Arc::new(config), backend, 0, incarnation);
        if let Some(admission) = admission {
            engine.admit_by(admission);
        }
        if let Some(former) = former {
            tracing::info!("the former store ended in order: its life goes on, no write waits");
            engine.go_on(former);
        }
        let mut outbox = Outbox::default();
        if let Some(journal) = journal {
            engine.keep_journal(journal, 0, &mut outbox);
        }
        if let Some(why) = engine.lends_nothing() {
            tracing::warn!("a tenant has write-back, but no key is lent: {why}");
        }
        let (orders_in, orders) = mpsc::channel(1);
        Ok(Server {
            orders,
            handle: Handle { orders: orders_in, reports: engine.reports() },
            endpoint,
            engine,
            completions,
            journaled,
            outbox,
            port,
            port_addresses,
            holds,
            waiting: HashMap::new(),
            began_ns,
            status,
            serves,
            state,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of `getsockname`.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_address()
    }

    /// The TCP addresses of its RESP port, or of its memcached port.
    pub fn port_addresses(&self) -> &[SocketAddr] {
        &self.port_addresses
    }

    /// What changes the store while it runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until `shutdown` is done, and what is lent and every copy has come back, if its
    /// backend outlives the store. Then it answers what it has taken, and leaves the next store
    /// what that needs to go on at once.
    ///
    /// # Errors
    /// The socket failed for good.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
        tracing::info!("store listens on {}: {}", self.local_address()?, self.serves);
        let mut shutdown = std::pin::pin!(shutdown);
        // Dropped with this, when the store has ended.
        let mut clients = JoinSet::new();
        if let Some(port) = self.port.take() {
            clients.spawn(port.serve());
        }
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                ready = self.happens() => ready?,
            }
            self.turn();
        }
        self.end().await
    }

    /// Calls back what is lent and granted, and serves meanwhile. What does not come back in time
    /// is in the journal, or waited for by the next store.
    async fn end(mut self) -> anyhow::Result<()> {
        let now_ns = self.now_ns();
        let Server { engine, outbox, .. } = &mut self;
        engine.leave(now_ns, outbox);
        self.flush();
        let patience = tokio::time::sleep(self.engine.returns_within());
        let mut patience = std::pin::pin!(patience);
        let mut for_copies = std::pin::pin!(tokio::time::sleep(COPIES_WITHIN));
        let mut waits_for_copies = true;
        while self.engine.loans() > 0 || (waits_for_copies && self.engine.owed() > 0) {
            tokio::select! {
                () = &mut patience => {
                    tracing::warn!("{} keys have not come back from switches", self.engine.loans());
                    break;
                }
                () = &mut for_copies, if waits_for_copies => waits_for_copies = false,
                ready = self.happens() => ready?,
            }
            self.turn();
        }
        self.finish_taken().await;
        let next = if self.hand_over() { "at once" } else { "a lease after its start" };
        tracing::info!(
            "store has ended: what it took is answered; the next one takes writes {next}"
        );
        Ok(())
    }

    /// Answers what it has taken. What comes now stays unread: who sent it sends it again, to the
    /// next store.
    async fn finish_taken(&mut self) {
        let patience = tokio::time::sleep(FINISHES_WITHIN);
        let mut patience = std::pin::pin!(patience);
        while self.engine.is_at_work() {
            tokio::select! {
                () = &mut patience => return,
                done = next(self.completions.as_mut()) => self.complete(done),
                done = next(self.journaled.as_mut()) => self.complete(done),
                Some(message) = self.holds.recv() => self.end_hold(message),
                () = until(self.began_ns, self.engine.next_deadline_ns()) => {}
            }
            self.do_due();
        }
    }

    /// Leaves the next store what it needs, if this one ended so that there is no more to it: then
    /// that one need not wait.
    fn hand_over(&self) -> bool {
        let Some(directory) = self.state.as_deref() else { return false };
        let Some(left) = self.engine.hand_over(self.now_ns()) else { return false };
        let done = handover::leave(directory, self.engine.config(), self.began_ns, left);
        done.inspect_err(|error| tracing::warn!("{error:#}")).is_ok()
    }

    /// Waits until something is to be done, and does what is not for [`Server::turn`].
    async fn happens(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            ready = self.endpoint.readable() => ready.context("the UDP socket failed")?,
            Some(order) = self.orders.recv() => self.obey(order),
            Some(message) = self.holds.recv() => self.held(message),
            done = next(self.completions.as_mut()) => self.complete(done),
            done = next(self.journaled.as_mut()) => self.complete(done),
            () = until(self.began_ns, self.engine.next_deadline_ns()) => {}
            stream = accept(self.status.as_ref()) => self.tell_status(stream),
        }
        Ok(())
    }

    /// Handles what has arrived and what is due.
    fn turn(&mut self) {
        for _ in 0..ROUNDS {
            let Server { endpoint, engine, outbox, began_ns, .. } = self;
            // Read when they are here: nothing that comes after a pause of this process is taken
            // for having come before.
            let mut arrived_ns = None;
            let received = endpoint.receive(|datagram, peer| {
                let now_ns = *arrived_ns.get_or_insert_with(|| boot_ns() - *began_ns);
                engine.receive(datagram, peer, now_ns, outbox);
            });
            match received {
                Ok(0) => break,
                Ok(_) => self.flush(),
                // The last datagram could not be delivered somewhere: not ours to mend.
                Err(error) => {
                    tracing::debug!("receive: {error}");
                    break;
                }
            }
        }
        self.do_due();
    }

    /// Does what is due, and what follows from that and from what came before.
    fn do_due(&mut self) {
        let now_ns = self.now_ns();
        self.engine.tick(now_ns, &mut self.outbox);
        self.give_holds();
        self.flush();
    }

    /// What a connection of the port says, and what others have said since.
    fn held(&mut self, first: HoldMessage) {
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                HoldMessage::Ask(question) => self.ask_hold(question),
                end @ HoldMessage::End(..) => self.end_hold(end),
            }
            next = self.holds.try_recv().ok();
        }
        self.flush();
    }

    /// A hold is asked for.
    fn ask_hold(&mut self, question: HoldQuestion) {
        let HoldQuestion { id, wanted, at_home, ready, holder } = question;
        let elsewhere = |name: &&Vec<u8>| at_home && self.engine.is_elsewhere(name);
        if let Some(name) = wanted.names.iter().find(elsewhere) {
            return drop(ready.send(Err(NoHold::Elsewhere(name.clone()))));
        }
        let now_ns = self.now_ns();
        self.waiting.insert(id, (ready, holder));
        self.engine.hold(id, wanted, now_ns, &mut self.outbox);
        self.give_holds();
    }

    /// A hold is over; one that is asked for is not given.
    fn end_hold(&mut self, message: HoldMessage) {
        if let HoldMessage::End(id, end) = message {
            let now_ns = self.now_ns();
            self.waiting.remove(&id);
            self.engine.end_hold(id, end, now_ns, &mut self.outbox);
            self.give_holds();
        }
    }

    /// Gives the holds that are had to who asked for them, and tells who is not going to have one.
    /// Who does not want one any more gives it back by that ([`crate::ports::Hold`]).
    fn give_holds(&mut self) {
        for id in self.engine.take_held() {
            if let Some((ready, holder)) = self.waiting.remove(&id) {
                drop(ready.send(Ok(holder.had(id))));
            }
        }
        for id in self.engine.take_refused() {
            if let Some((ready, _)) = self.waiting.remove(&id) {
                drop(ready.send(Err(NoHold::Late)));
            }
        }
    }

    fn obey(&mut self, order: Order) {
        let now_ns = self.now_ns();
        let Server { engine, outbox, .. } = self;
        match order {
            Order::Update(cluster, done) => {
                let _ = done.send(engine.update(cluster, now_ns, outbox));
            }
            Order::Place(all, done) => {
                engine.place(all);
                let _ = done.send(());
            }
            Order::Tell { half, tenant, message, done } => {
                let _ = done.send(engine.tell(&half, tenant, &message, now_ns, outbox));
            }
        }
    }

    /// Passes on what the backend has answered: this, and all that has come since.
    fn complete(&mut self, first: Completion) {
        let Server { engine, outbox, completions, began_ns, .. } = self;
        let mut next = Some(first);
        while let Some(completion) = next {
            // Read when it is here: others may have come while those before were handled.
            let now_ns = boot_ns() - *began_ns;
            engine.complete(completion.by_clock_since(*began_ns), now_ns, outbox);
            next = completions.as_mut().and_then(|c| c.try_recv().ok());
        }
        self.flush();
    }

    fn now_ns(&self) -> u64 {
        boot_ns() - self.began_ns
    }

    fn flush(&mut self) {
        if !self.outbox.is_empty() {
            let lost = self.endpoint.send(&mut self.outbox);
            self.engine.lost(lost);
        }
    }

    fn tell_status(&self, stream: UnixStream) {
        let mut status = self.engine.status(self.now_ns());
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let trouble = self.engine.backend_trouble();
        status.backend_trouble =
            trouble.map(|trouble| BackendTroubleStatus::at(trouble, unix.as_millis() as u64));
        status.listen = self.local_address().map_or_else(|e| e.to_string(), |a| a.to_string());
        match serde_json::to_vec(&status) {
            Ok(text) => drop(tokio::spawn(tell(stream, text))),
            Err(error) => tracing::warn!("status: {error}"),
        }
    }
}

/// Writes the status to one reader, who has 5 seconds to take it.
async fn tell(mut stream: UnixStream, text: Vec<u8>) {
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(&text)).await;
}

/// Waits until a time of the store's clock, if the machine is not suspended before; for ever
/// without one.
async fn until(began_ns: u64, deadline_ns: Option<u64>) {
    match deadline_ns {
        Some(ns) => {
            let left_ns = (began_ns + ns).saturating_sub(boot_ns());
            tokio::time::sleep(Duration::from_nanos(left_ns)).await;
        }
        None => std::future::pending().await,
    }
}

/// The status socket; its file goes when the store ends.
struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Binds it, in place of a socket that a store which was killed left behind. Its folder is made
    /// for this user alone, if there is none: below /run there is nothing after a boot.
    fn bind(path: &Path) -> anyhow::Result<StatusSocket> {
        let listener = unix_socket::bind(path, "status socket")?;
        Ok(StatusSocket { listener, path: path.into() })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn accept(socket: Option<&StatusSocket>) -> UnixStream {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        if let Ok((stream, _)) = socket.listener.accept().await {
            return stream;
        }
        // Out of descriptors, most likely: others must close some first.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The next answer of the backend; never, if it answers at once.
async fn next(completions: Option<&mut UnboundedReceiver<Completion>>) -> Completion {
    if let Some(completions) = completions
        && let Some(completion) = completions.recv().await
    {
        return completion;
    }
    std::future::pending().await
}

type OpenedJournal = (Option<Box<dyn Journal>>, Option<UnboundedReceiver<Completion>>);

/// The journal of loans, if there is a directory for it and the data outlives the store.
fn open_journal(config: &Config) -> anyhow::Result<OpenedJournal> {
    let directory = config.state.as_deref();
    let Some(directory) = directory.filter(|_| config.backend != BackendConfig::Embedded) else {
        return Ok((None, None));
    };
    let (done, journaled) = mpsc::unbounded_channel();
    let journal = FileJournal::open(directory, done)?;
    Ok((Some(Box::new(journal)), Some(journaled)))
}

/// The server behind the store, for clients of the port.
enum Behind {
    Nothing,
    Redis(redis::Upstream),
    Memcached(memcached::Upstream),
}

type OpenedBackend = (Box<dyn Backend>, Option<UnboundedReceiver<Completion>>, Behind);

async fn open_backend(config: &Config, incarnation: Incarnation) -> anyhow::Result<OpenedBackend> {
    let base_version = incarnation.first_version();
    let within = config.backend_within;
    match &config.backend {
        BackendConfig::Embedded => {
            let embedded = embedded::EmbeddedBackend::new(config.memory_limit);
            Ok((Box::new(embedded), None, Behind::Nothing))
        }
        BackendConfig::Redis(url) => {
            let (backend, completions, upstream) =
                redis::connect(url, config, base_version).await?;
            Ok((backend, Some(completions), Behind::Redis(upstream)))
        }
        BackendConfig::Memcached(server) => {
            let (backend, completions, upstream) =
                memcached::connect(server, base_version, within).await;
            Ok((backend, Some(completions), Behind::Memcached(upstream)))
        }
    }
}

/// The port at which the store speaks the protocol of the server behind it, if there is to be one.
fn open_port(config: &Config, behind: Behind, holder: Holder) -> anyhow::Result<Option<Port>> {
    Ok(match behind {
        Behind::Redis(upstream) if !config.resp.is_empty() => {
            Some(resp_port::bind(&config.resp, config.tls.as_ref(), upstream, holder)?)
        }
        Behind::Memcached(upstream) if !config.memcached.is_empty() => {
            Some(memcached_port::bind(&config.memcached, config.tls.as_ref(), upstream, holder)?)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::engine::HoldRequest;

    /// Its command is one of those that the store has taken.
    #[tokio::test]
    async fn who_waits_for_a_hold_has_it_when_the_one_before_ends_as_the_store_does() {
        let config = Config::new("127.0.0.1:0".parse().unwrap());
        let born_ago = Duration::from_secs(60);
        let mut server = Server::start(Config { born_ago, ..config }).await.unwrap();
        let (holder, holds) = Holder::new();
        server.holds = holds;
        let ask = || holder.ask(HoldRequest { names: vec![b"k".to_vec()], everything: false });
        let (first, second) = (ask(), ask());
        let hears = |server: &mut Server| {
            let message = server.holds.try_recv().unwrap();
            server.held(message);
        };
        hears(&mut server);
        let mut first = first.await.unwrap().unwrap();
        // Nobody knows what has become of its command; then a lease passes.
        first.sent();
        drop(first);
        hears(&mut server);
        server.began_ns = server.began_ns.saturating_sub(60_000_000_000);
        let finishes = async {
            server.finish_taken().await;
            assert!(!server.engine.is_at_work(), "it has finished");
            drop(server);
        };
        let ((), is_had) = tokio::join!(finishes, async { second.await.is_ok() });
        assert!(is_had);
    }

    #[tokio::test]
    async fn a_status_socket_takes_the_place_of_a_dead_one_and_of_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("status");
        let error = || StatusSocket::bind(&path).err().expect("an error").to_string();
        std::fs::write(&path, "precious").unwrap();
        assert!(error().contains("no socket"), "{}", error());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        // Whoever bound it was killed: its file is left.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let bound = StatusSocket::bind(&path).unwrap();
        assert!(error().contains("another process"), "{}", error());
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_folder_of_a_status_socket_is_made_for_its_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        StatusSocket::bind(&folder.join("status")).unwrap();
        assert_eq!(std::fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = StatusSocket::bind(&file.join("status")).err().expect("an error");
        assert!(error.to_string().contains("cannot make"), "{error}");
    }
}
