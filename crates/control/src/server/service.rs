//! gRPC around the core: streams of switches, stores that watch, status.

use std::{collections::BTreeMap, net::SocketAddr, pin::Pin, sync::Arc};

use api::proto::{
    FromStore, FromSwitch, StatusReply, StatusRequest, ToStore, ToSwitch,
    control_server::{Control, ControlServer},
};
use decide::{Limits, Registration};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    config::CoreConfig,
    disciplines::choice,
    lead::{Beginning, live},
    shared::SharedCore,
    streams::{serve_store, serve_switch, standing_by},
};
use crate::{
    auth::Caller,
    serve::{Listen, RunningServer, ServeError},
    state::{Candidate, Location, State, StateError},
};

/// Messages that wait for a peer's connection; beyond them, commands stay in the outbox.
const MESSAGES_WAITING: usize = 4;
/// Longest message from a switch or store in bytes.
const MESSAGE_MAX: usize = 8 << 20;
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
    /// Disciplines that tenants may choose, beside `none`.
    pub disciplines: &'static [Registration],
    /// The name of the discipline of tenants that choose none.
    pub default_discipline: String,
    /// What disciplines keep to.
    pub limits: Limits,
    /// Settings of disciplines, by `DISCIPLINE.NAME`.
    pub settings: BTreeMap<String, u32>,
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
    /// A discipline's setting is unknown or out of bounds.
    #[error("{0}")]
    Setting(String),
    /// The cluster file is wrong.
    #[error(transparent)]
    Cluster(#[from] wire::ClusterError),
    /// The default discipline is not one that tenants may choose.
    #[error("discipline {name:?} is not known; expected one of {known}")]
    Discipline {
        /// Its name.
        name: String,
        /// Those that may be chosen.
        known: String,
    },
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A task of it ended.
    #[error("serving failed: {0}")]
    Ended(String),
}

/// A running controller.
pub struct Server {
    serving: RunningServer,
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
        let known: Vec<&str> = choice(options.disciplines).map(|r| r.name).collect();
        if !known.contains(&options.default_discipline.as_str()) {
            return Err(ServerError::Discipline {
                name: options.default_discipline,
                known: known.join(", "),
            });
        }
        decide::check_settings(options.disciplines, &options.settings)
            .map_err(ServerError::Setting)?;
        let scheme = if options.listen.tls.is_some() { "https" } else { "http" };
        let url = options.url.unwrap_or_else(|| format!("{scheme}://{}", options.listen.address));
        let serves = format!(
            "{} stores, {} tenants of the cluster file, discipline {}, state in {}",
            cluster.stores.len(),
            cluster.tenants.len(),
            options.default_discipline,
            options.state
        );
        let candidate = Candidate { name: options.name, url };
        let alone = matches!(options.state, Location::Directory(_));
        let state = State::open(&options.state, candidate).await?;
        let config = CoreConfig {
            cluster,
            limits: options.limits,
            settings: options.settings,
            updates_per_s: options.updates_per_s,
            sample_shift: options.sample_shift,
            term: 0,
        };
        let beginning = Beginning {
            config,
            disciplines: options.disciplines,
            default_discipline: options.default_discipline,
        };
        let shared = Arc::new(SharedCore::new(state));
        let (stop, stopped) = watch::channel(false);
        let service = ControlServer::new(Service { shared: shared.clone() })
            .max_decoding_message_size(MESSAGE_MAX);
        let admin: Arc<dyn crate::admin::Admin> = shared.clone();
        let grpc = tonic::service::Routes::new(service).into_axum_router();
        let serving =
            RunningServer::start(&options.listen, |access| crate::http::app(admin, access, grpc));
        let serving = serving.await?;
        tracing::info!("controller listens on {scheme}://{}: {serves}", serving.address());
        let mut term = shared.term.subscribe();
        let mut living = tokio::spawn(live(shared, beginning, stopped));
        if alone {
            // Nobody else can lead, so this one does at once, or cannot at all.
            tokio::select! {
                lived = &mut living => ended(lived)?,
                _ = term.wait_for(|term| *term > 0) => {}
            }
        }
        Ok(Server { serving, stop, living })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// Takes from switches what is to be kept, writes the state, ends the streams and lets another
    /// controller lead.
    ///
    /// # Errors
    /// If it had failed before.
    pub async fn stop(self) -> Result<(), ServerError> {
        let _ = self.stop.send(true);
        // Its end is the streams' end, and they are needed until then.
        let lived = self.living.await;
        self.serving.stop().await;
        ended(lived)
    }

    /// Waits until it ended by itself, which it does only when it failed.
    pub async fn failed(&mut self) -> ServerError {
        let result = ended((&mut self.living).await);
        result.err().unwrap_or(ServerError::Ended("it ended".into()))
    }
}

fn ended(
    result: Result<Result<(), StateError>, tokio::task::JoinError>,
) -> Result<(), ServerError> {
    let lived = result.map_err(|e| ServerError::Ended(e.to_string()))?;
    Ok(lived?)
}

struct Service {
    shared: Arc<SharedCore>,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    /// The term that this controller leads in.
    fn leads(&self) -> Result<u64, Status> {
        let term = *self.shared.term.borrow();
        (term > 0).then_some(term).ok_or_else(|| standing_by(&self.shared))
    }
}

#[tonic::async_trait]
impl Control for Service {
    type AttachStream = ResponseStream<ToSwitch>;
    type ServeStream = ResponseStream<ToStore>;

    async fn attach(
        &self,
        request: Request<Streaming<FromSwitch>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let term = self.leads()?;
        let caller = request.extensions().get::<Caller>().cloned();
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING);
        let (shared, incoming) = (self.shared.clone(), request.into_inner());
        tokio::spawn(serve_switch(shared, term, caller, incoming, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn serve(
        &self,
        request: Request<Streaming<FromStore>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        let term = self.leads()?;
        let (sender, receiver) = mpsc::channel(MESSAGES_WAITING);
        let (shared, incoming) = (self.shared.clone(), request.into_inner());
        tokio::spawn(serve_store(shared, term, incoming, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusReply>, Status> {
        let now = self.shared.now();
        let leader = self.shared.state.leader();
        let mut status =
            self.shared.leading(|core| core.view().status(now)).unwrap_or_else(|_| StatusReply {
                uptime_ms: now.as_millis() as u64,
                term: leader.as_ref().map_or(0, |leader| leader.term),
                ..StatusReply::default()
            });
        status.leader = leader.map(|leader| leader.url).unwrap_or_default();
        Ok(Response::new(status))
    }
}
