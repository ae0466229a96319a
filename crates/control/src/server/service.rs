//! gRPC around the core: streams of switches, stores that watch, status.

use std::{net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use api::proto::{
    ClusterText, FromSwitch, StatusReply, StatusRequest, ToSwitch, WatchRequest,
    control_server::{Control, ControlServer},
    from_switch,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{ReceiverStream, WatchStream},
};
use tonic::{Request, Response, Status, Streaming};

use super::{
    applications::DisciplineMaker,
    core::{Plan, Refusal},
    lead::{Beginning, live},
    shared::Shared,
};
use crate::{
    Limits,
    auth::Caller,
    serve::{Listen, ServeError, Serving},
    state::{Candidate, Location, State, StateError},
};

/// Messages that wait for a switch's connection; beyond them, commands stay in the outbox.
const MESSAGES_WAITING: usize = 4;
/// Longest message from a switch in bytes.
const MESSAGE_MAX: usize = 8 << 20;
/// How long a switch may take until its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How a controller is to run.
#[derive(Clone)]
pub struct Options {
    /// Where to listen, and what protects it.
    pub listen: Listen,
    /// Its name among several controllers.
    pub name: String,
    /// Where others reach it, as a URL; none: at the address that it listens on.
    pub url: Option<String>,
    /// Where the state is.
    pub state: Location,
    /// The cluster file's text (TOML).
    pub cluster: String,
    /// Disciplines that tenants may choose; the first is the default.
    pub disciplines: Vec<(String, DisciplineMaker)>,
    /// What disciplines keep to.
    pub limits: Limits,
    /// Cache updates per second and switch.
    pub updates_per_s: u32,
    /// Switches count one request in 2^n.
    pub sample_shift: u32,
}

/// Why a controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours, or must not be listened on unprotected.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The cluster file is wrong.
    #[error(transparent)]
    Cluster(#[from] wire::ClusterError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A task of it ended.
    #[error("serving failed: {0}")]
    Ended(String),
}

/// A running controller.
pub struct Server {
    serving: Serving,
    stop: watch::Sender<bool>,
    living: JoinHandle<Result<(), StateError>>,
}

impl Server {
    /// Starts one. It serves until [`Server::stop`], and leads whenever it may.
    ///
    /// # Errors
    /// [`ServerError`] says what of the options cannot be used.
    pub async fn start(options: Options) -> Result<Server, ServerError> {
        let cluster = wire::Cluster::parse(&options.cluster)?;
        let scheme = if options.listen.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let url = options
            .url
            .unwrap_or_else(|| format!("{scheme}://{}", options.listen.address));
        let candidate = Candidate {
            name: options.name,
            url,
        };
        let alone = matches!(options.state, Location::Directory(_));
        let state = State::open(&options.state, candidate).await?;
        let plan = Plan {
            cluster,
            limits: options.limits,
            updates_per_s: options.updates_per_s,
            sample_shift: options.sample_shift,
            term: 0,
        };
        let beginning = Beginning {
            plan,
            disciplines: options.disciplines,
        };
        let shared = Arc::new(Shared::new(state));
        let (stop, stopped) = watch::channel(false);
        let service = ControlServer::new(Service {
            shared: shared.clone(),
            stopped: stopped.clone(),
        })
        .max_decoding_message_size(MESSAGE_MAX);
        let admin: Arc<dyn crate::admin::Admin> =
            Arc::new(super::admin::OnCore::new(shared.clone()));
        let grpc = tonic::service::Routes::new(service).into_axum_router();
        let serving = Serving::start(&options.listen, |access| {
            crate::http::app(admin, access, grpc)
        });
        let serving = serving.await?;
        tracing::info!(address = %serving.address(), "controller starts");
        let mut term = shared.term.subscribe();
        let mut living = tokio::spawn(live(shared, beginning, stopped));
        if alone {
            // Nobody else can lead, so this one does at once, or cannot at all.
            tokio::select! {
                lived = &mut living => ended(lived)?,
                _ = term.wait_for(|term| *term > 0) => {}
            }
        }
        Ok(Server {
            serving,
            stop,
            living,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Ends the streams, writes the state and lets another controller lead.
    ///
    /// # Errors
    /// If it had failed before.
    pub async fn stop(self) -> Result<(), ServerError> {
        let _ = self.stop.send(true);
        self.serving.stop().await;
        ended(self.living.await)
    }

    /// Waits until it ended by itself, which it does only when it failed.
    pub async fn failed(&mut self) -> ServerError {
        let result = ended((&mut self.living).await);
        result
            .err()
            .unwrap_or(ServerError::Ended("it ended".into()))
    }
}

fn ended(
    result: Result<Result<(), StateError>, tokio::task::JoinError>,
) -> Result<(), ServerError> {
    let lived = result.map_err(|e| ServerError::Ended(e.to_string()))?;
    Ok(lived?)
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is as good as stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

struct Service {
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Service {
    type AttachStream = Streamed<ToSwitch>;
    type WatchStream = Streamed<ClusterText>;

    async fn attach(
        &self,
        request: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let term = *self.shared.term.borrow();
        if term == 0 {
            return Err(standing_by(&self.shared));
        }
        let caller = request.extensions().get::<Caller>().cloned();
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING);
        let stop = until(self.stopped.clone());
        let shared = self.shared.clone();
        tokio::spawn(serve_stream(
            shared,
            term,
            caller,
            request.into_inner(),
            sender,
            stop,
        ));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let term = *self.shared.term.borrow();
        if term == 0 {
            return Err(standing_by(&self.shared));
        }
        tracing::info!(name = request.into_inner().name, "a store watches");
        let cluster = WatchStream::new(self.shared.cluster.subscribe());
        let texts = cluster.filter(|text| !text.is_empty()).map(|text| {
            Ok(ClusterText {
                cluster: text.to_string(),
            })
        });
        let mut leading = self.shared.term.subscribe();
        let stop = until(self.stopped.clone());
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let pass_on = async {
                tokio::pin!(texts);
                while let Some(text) = texts.next().await {
                    if sender.send(text).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                () = pass_on => {}
                () = sender.closed() => {}
                () = stop => {}
                _ = leading.wait_for(|now| *now != term) => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        let now = self.shared.now();
        let leader = self.shared.state.leader();
        let mut status = self
            .shared
            .leading(|core| core.status(now, now))
            .unwrap_or_else(|_| StatusReply {
                uptime_ms: now.as_millis() as u64,
                term: leader.as_ref().map_or(0, |leader| leader.term),
                ..StatusReply::default()
            });
        status.leader = leader.map(|leader| leader.url).unwrap_or_default();
        Ok(Response::new(status))
    }
}

fn standing_by(shared: &Shared) -> Status {
    Status::unavailable(shared.not_leader().message)
}

/// One switch's stream, from hello to its end.
async fn serve_stream(
    shared: Arc<Shared>,
    term: u64,
    caller: Option<Caller>,
    mut incoming: Streaming<FromSwitch>,
    sender: super::shared::Outgoing,
    stop: impl Future<Output = ()>,
) {
    let first = tokio::time::timeout(HELLO_WITHIN, incoming.next()).await;
    let Ok(Some(Ok(FromSwitch {
        body: Some(from_switch::Body::Hello(hello)),
    }))) = first
    else {
        let status = Status::invalid_argument("the first message must be a hello");
        let _ = sender.send(Err(status)).await;
        return;
    };
    let id = u16::try_from(hello.switch_id).unwrap_or(0);
    if let Some(Err(refusal)) = caller.map(|caller| caller.is_switch(id)) {
        let _ = sender
            .send(Err(Status::permission_denied(refusal.message)))
            .await;
        return;
    }
    let attached = shared.leading(|core| core.attach(shared.now(), &hello));
    let link = match attached {
        Ok(Ok(link)) => link,
        Ok(Err(refusal)) => {
            let (switch, name) = (hello.switch_id, &hello.name);
            tracing::warn!(switch, name, "refused: {refusal}");
            let _ = sender.send(Err(status_of(&refusal))).await;
            return;
        }
        Err(refusal) => {
            let _ = sender.send(Err(Status::unavailable(refusal.message))).await;
            return;
        }
    };
    let (switch, name) = (link.switch, &hello.name);
    tracing::info!(switch, name, "switch attached");
    {
        let mut inner = shared.lock();
        inner.links.retain(|other, _| other.switch != link.switch);
        inner.links.insert(link, sender.clone());
        inner.pump(shared.now());
    }
    let mut leading = shared.term.subscribe();
    tokio::pin!(stop);
    let end = loop {
        let message = tokio::select! {
            message = incoming.next() => message,
            () = sender.closed() => break None,
            _ = leading.wait_for(|now| *now != term) => break Some(standing_by(&shared)),
            () = &mut stop => break Some(Status::unavailable("the controller stops")),
        };
        let Some(Ok(message)) = message else {
            break None;
        };
        match shared.leading(|core| core.message(shared.now(), link, message)) {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => break Some(status_of(&refusal)),
            Err(refusal) => break Some(Status::unavailable(refusal.message)),
        }
    };
    {
        let mut inner = shared.lock();
        inner.links.remove(&link);
        if let Some(core) = &mut inner.core {
            core.detach(shared.now(), link);
        }
    }
    tracing::info!(switch, "switch detached");
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
