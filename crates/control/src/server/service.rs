//! gRPC around the core: streams of switches, status, the clock, and the writing of state.

use std::{
    collections::HashMap,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::MissedTickBehavior};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    core::{Core, Link, Plan, Refusal},
    state::{Batch, State, StateError},
};
use crate::{
    Discipline, Limits,
    proto::{
        ClusterText, FromSwitch, StatusReply, StatusRequest, ToSwitch, WatchRequest,
        control_server::{Control, ControlServer},
        from_switch,
    },
};

/// Messages that wait for a switch's connection; beyond them, commands stay in the outbox.
const MESSAGES_WAITING: usize = 4;
/// Longest message from a switch in bytes.
const MESSAGE_MAX: usize = 8 << 20;
const PUMP_EVERY: Duration = Duration::from_millis(10);
const TICK_EVERY: Duration = Duration::from_millis(100);
const WRITE_EVERY: Duration = Duration::from_millis(500);
/// How long a switch may take until its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How a controller is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 for any free one.
    pub listen: SocketAddr,
    /// Listen there although it is not loopback and nothing is encrypted.
    pub insecure: bool,
    /// Directory of the state file.
    pub state: PathBuf,
    /// The cluster file's text (TOML).
    pub cluster: String,
    /// Name of the discipline, as switches know it.
    pub discipline: String,
    /// What the discipline keeps to.
    pub limits: Limits,
    /// Cache updates per second and switch.
    pub updates_per_s: u32,
    /// Switches count one request in 2^n.
    pub sample_shift: u32,
}

/// Why a controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {reason}{}", in_use_hint(.reason))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        reason: std::io::Error,
    },
    /// The address can be reached from elsewhere, and nothing protects it.
    #[error(
        "{0} is not a loopback address, and connections are neither encrypted nor authenticated: \
         listen on 127.0.0.1, or give --insecure in a network that you trust"
    )]
    NotLoopback(SocketAddr),
    /// The cluster file is wrong.
    #[error(transparent)]
    Cluster(#[from] wire::ClusterError),
    /// The state file cannot be used.
    #[error("{0}")]
    State(String),
    /// The server ended with an error.
    #[error("serving failed: {0}")]
    Serve(String),
}

fn in_use_hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            " (is another controller running? stop it, or choose another --listen)"
        }
        _ => "",
    }
}

impl From<StateError> for ServerError {
    fn from(error: StateError) -> ServerError {
        ServerError::State(error.to_string())
    }
}

struct Inner {
    core: Core,
    /// Where each switch's current stream takes its messages from.
    links: HashMap<Link, mpsc::Sender<Result<ToSwitch, Status>>>,
}

struct Shared {
    inner: Mutex<Inner>,
    began: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Inner {
    /// Hands a switch what there is for it, as far as its stream takes it.
    fn pump(&mut self, now: Duration, link: Link) {
        let Some(sender) = self.links.get(&link) else {
            return;
        };
        while let Ok(permit) = sender.try_reserve() {
            let Some(message) = self.core.next_message(now, link) else {
                break;
            };
            permit.send(Ok(message));
        }
    }

    fn pump_all(&mut self, now: Duration) {
        let links: Vec<Link> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.pump(now, link));
    }
}

/// A running controller.
pub struct Server {
    address: SocketAddr,
    stop: tokio::sync::watch::Sender<bool>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    keeping: JoinHandle<()>,
}

impl Server {
    /// Starts one, with this discipline deciding. It serves until [`Server::stop`].
    ///
    /// # Errors
    /// [`ServerError`] says what of the options cannot be used.
    pub async fn start(
        options: Options,
        discipline: Box<dyn Discipline>,
    ) -> Result<Server, ServerError> {
        if !options.insecure && !options.listen.ip().is_loopback() {
            return Err(ServerError::NotLoopback(options.listen));
        }
        let cluster = wire::Cluster::parse(&options.cluster)?;
        let open = cluster.open_tenant.then_some(wire::TENANT_OPEN);
        let tenants = open
            .into_iter()
            .chain(cluster.tenants.iter().map(|t| t.id))
            .collect();
        let listen_error = |reason| ServerError::Listen {
            address: options.listen,
            reason,
        };
        let listener = TcpListener::bind(options.listen)
            .await
            .map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;

        let state = State::open(&options.state)?;
        let memory = state.load()?;
        let known: usize = memory.items.values().map(|items| items.len()).sum();
        tracing::info!(%address, switches = memory.switches.len(), items = known, "controller starts");
        let plan = Plan {
            cluster: options.cluster,
            tenants,
            discipline: options.discipline,
            limits: options.limits,
            updates_per_s: options.updates_per_s,
            sample_shift: options.sample_shift,
        };
        // Microseconds since 1970: above every number of an earlier run, which used at most one per microsecond.
        let first_seq = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros() as u64;
        let core = Core::new(plan, discipline, memory, first_seq);
        let inner = Mutex::new(Inner {
            core,
            links: HashMap::new(),
        });
        let shared = Arc::new(Shared {
            inner,
            began: Instant::now(),
        });

        let (stop, stopped) = tokio::sync::watch::channel(false);
        let keeping = tokio::spawn(keep(shared.clone(), state, stopped.clone()));
        let service = ControlServer::new(Service {
            shared,
            stopped: stopped.clone(),
        })
        .max_decoding_message_size(MESSAGE_MAX);
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(Duration::from_secs(5)))
            .http2_keepalive_timeout(Some(Duration::from_secs(5)))
            .tcp_nodelay(true)
            .add_service(service)
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), until(stopped));
        Ok(Server {
            address,
            stop,
            serving: tokio::spawn(serving),
            keeping,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the streams, writes the state and closes its file.
    ///
    /// # Errors
    /// If serving had failed before.
    pub async fn stop(self) -> Result<(), ServerError> {
        let _ = self.stop.send(true);
        let served = self.serving.await;
        let _ = self.keeping.await;
        match served {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(ServerError::Serve(e.to_string())),
            Err(e) => Err(ServerError::Serve(e.to_string())),
        }
    }

    /// Waits until serving ended by itself, which it does only when it failed.
    pub async fn failed(&mut self) -> ServerError {
        match (&mut self.serving).await {
            Ok(Ok(())) => ServerError::Serve("ended".into()),
            Ok(Err(e)) => ServerError::Serve(e.to_string()),
            Err(e) => ServerError::Serve(e.to_string()),
        }
    }
}

async fn until(mut stopped: tokio::sync::watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good as stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Keeps time and state: sends what became due, ticks the discipline, writes what changed.
async fn keep(shared: Arc<Shared>, state: State, stopped: tokio::sync::watch::Receiver<bool>) {
    let state = Arc::new(state);
    let mut pump = tokio::time::interval(PUMP_EVERY);
    let mut tick = tokio::time::interval(TICK_EVERY);
    pump.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut writing = tokio::spawn(write_changes(
        shared.clone(),
        state.clone(),
        stopped.clone(),
    ));
    loop {
        tokio::select! {
            _ = pump.tick() => shared.lock().pump_all(shared.now()),
            _ = tick.tick() => shared.lock().core.tick(shared.now()),
            _ = &mut writing => break,
        }
    }
    let batch = shared.lock().core.take_changes();
    if !batch.is_empty() {
        write_batch(&shared, &state, batch).await;
    }
}

async fn write_changes(
    shared: Arc<Shared>,
    state: Arc<State>,
    stopped: tokio::sync::watch::Receiver<bool>,
) {
    let mut every = tokio::time::interval(WRITE_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stop = until(stopped);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = &mut stop => return,
        }
        let batch = shared.lock().core.take_changes();
        if !batch.is_empty() {
            write_batch(&shared, &state, batch).await;
        }
    }
}

async fn write_batch(shared: &Shared, state: &Arc<State>, batch: Batch) {
    let state = state.clone();
    let written =
        tokio::task::spawn_blocking(move || state.write(&batch).map_err(|e| (e, batch))).await;
    if let Ok(Err((error, batch))) = written {
        tracing::error!("state not written, tried again soon: {error}");
        shared.lock().core.put_changes_back(batch);
    }
}

struct Service {
    shared: Arc<Shared>,
    stopped: tokio::sync::watch::Receiver<bool>,
}

type Outgoing = Pin<Box<dyn Stream<Item = Result<ToSwitch, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Service {
    type AttachStream = Outgoing;

    async fn attach(
        &self,
        request: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Outgoing>, Status> {
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING);
        let stop = until(self.stopped.clone());
        tokio::spawn(serve_stream(
            self.shared.clone(),
            request.into_inner(),
            sender,
            stop,
        ));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<ClusterText, Status>> + Send>>;

    async fn watch(&self, _: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not yet"))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        let now = self.shared.now();
        Ok(Response::new(self.shared.lock().core.status(now, now)))
    }
}

/// One switch's stream, from hello to its end.
async fn serve_stream(
    shared: Arc<Shared>,
    mut incoming: Streaming<FromSwitch>,
    sender: mpsc::Sender<Result<ToSwitch, Status>>,
    stop: impl Future<Output = ()>,
) {
    let first = tokio::time::timeout(HELLO_WITHIN, incoming.next()).await;
    let Ok(Some(Ok(FromSwitch {
        body: Some(from_switch::Body::Hello(hello)),
    }))) = first
    else {
        let _ = sender
            .send(Err(Status::invalid_argument(
                "the first message must be a hello",
            )))
            .await;
        return;
    };
    let attached = shared.lock().core.attach(shared.now(), &hello);
    let link = match attached {
        Ok(link) => link,
        Err(refusal) => {
            tracing::warn!(
                switch = hello.switch_id,
                name = hello.name,
                "refused: {refusal}"
            );
            let _ = sender.send(Err(status_of(&refusal))).await;
            return;
        }
    };
    tracing::info!(
        switch = link.switch,
        name = hello.name,
        held = hello.held.len(),
        "switch attached"
    );
    drop(hello);
    {
        let mut inner = shared.lock();
        inner.links.retain(|other, _| other.switch != link.switch);
        inner.links.insert(link, sender.clone());
        inner.pump(shared.now(), link);
    }
    tokio::pin!(stop);
    let end = loop {
        let message = tokio::select! {
            message = incoming.next() => message,
            () = sender.closed() => break None,
            () = &mut stop => break Some(Status::unavailable("the controller stops")),
        };
        let Some(Ok(message)) = message else {
            break None;
        };
        let mut inner = shared.lock();
        let now = shared.now();
        if let Err(refusal) = inner.core.message(now, link, message) {
            break Some(status_of(&refusal));
        }
        inner.pump(now, link);
    };
    {
        let mut inner = shared.lock();
        inner.links.remove(&link);
        inner.core.detach(shared.now(), link);
    }
    tracing::info!(switch = link.switch, "switch detached");
    if let Some(status) = end {
        // Not waited for: a peer that takes nothing must not hold the end of its stream up.
        let _ = sender.try_send(Err(status));
    }
}

fn status_of(refusal: &Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::Protocol(_) | Refusal::Invalid(_) => Status::invalid_argument(text),
        Refusal::Taken { .. } => Status::already_exists(text),
        Refusal::Replaced => Status::aborted(text),
    }
}
