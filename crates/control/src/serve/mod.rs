//! One listener for HTTP/JSON and gRPC: HTTP/1 and HTTP/2, in clear text or over TLS.
//!
//! Beyond loopback it demands TLS and tokens. Connections are bounded in number, and those without
//! a token have places of their own (see [`strangers`]); whoever says nothing, or reads nothing, is
//! disconnected.

mod places;
mod preface;
mod strangers;
mod unread;

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router, middleware::map_response, response::Response};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
    task::{AbortHandle, JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use places::Places;
pub use strangers::Introduction;
use strangers::Strangers;
pub use tls::{ServerFiles, TlsError};
use unread::UnreadAnswers;

use super::auth::{Access, TokenError};

/// How long a connection may take until its first request is under way.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long HTTP/1 may take for a request's head, and between requests.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// How often HTTP/2 asks whether the peer is still there, and how long it waits for the answer.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
/// Most requests of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 64;
/// Longest head of a request in bytes.
const HEAD_MAX: usize = 16 << 10;
/// How long open connections may take to end when the listener stops.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Where to listen, and what protects it.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The address; port 0 for any free one.
    pub address: SocketAddr,
    /// Certificate, key, and whose certificates clients need; none: clear text.
    pub tls: Option<ServerFiles>,
    /// The token file; none: whoever connects may do everything.
    pub tokens: Option<PathBuf>,
    /// Listen beyond loopback even without TLS and tokens.
    pub insecure: bool,
    /// Most connections at a time of those who showed a token; more are closed. All tenants have
    /// half of them, and one a sixteenth.
    pub connections_max: usize,
    /// How long a connection may take until somebody has shown a token on it.
    pub stranger_for: Duration,
    /// How long a peer may leave unread what was sent to it, in whole milliseconds.
    pub unread_for: Duration,
}

impl Listen {
    /// On this address, in clear text and without tokens: for loopback.
    pub fn on(address: SocketAddr) -> Listen {
        Listen {
            address,
            tls: None,
            tokens: None,
            insecure: false,
            connections_max: 1024,
            stranger_for: Duration::from_secs(5),
            unread_for: Duration::from_secs(40),
        }
    }

    fn check(&self) -> Result<(), ServeError> {
        let missing = match (&self.tls, &self.tokens) {
            (Some(_), Some(_)) => return Ok(()),
            _ if self.address.ip().is_loopback() => return Ok(()),
            (None, None) => "a certificate (--tls-cert, --tls-key) and tokens (--tokens)",
            (None, Some(_)) => "a certificate (--tls-cert, --tls-key)",
            (Some(_), None) => "tokens (--tokens)",
        };
        if !self.insecure {
            return Err(ServeError::Unprotected { address: self.address, missing });
        }
        tracing::warn!(
            "--insecure: {} can be reached from other machines without {missing}: whoever is in that network may read \
             tenants' secrets and change everything",
            self.address
        );
        Ok(())
    }
}

/// Why it cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {reason}{}", in_use_hint(.reason))]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        reason: io::Error,
    },
    /// It can be reached from elsewhere and is not protected.
    #[error(
        "{address} can be reached from other machines and needs {missing}; or listen on 127.0.0.1, or give \
         --insecure in a network that you trust"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
        /// What it needs.
        missing: &'static str,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenError),
}

fn in_use_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (is another controller running? stop it, or choose another --listen)"
        }
        _ => "",
    }
}

/// A listener that serves.
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl RunningServer {
    /// Listens. `app` makes what is served, with who gets in.
    ///
    /// # Errors
    /// [`ServeError`] says what of `listen` cannot be used.
    pub async fn start(
        listen: &Listen,
        app: impl FnOnce(Arc<Access>) -> Router,
    ) -> Result<RunningServer, ServeError> {
        listen.check()?;
        let access = match &listen.tokens {
            Some(path) => Access::from_file(path)?,
            None => Access::open(),
        };
        let acceptor = |files| tls::Acceptor::with_protocols(files, &[b"h2", b"http/1.1"]);
        let tls = listen.tls.clone().map(acceptor).transpose()?;
        let failed = |reason| ServeError::Address { address: listen.address, reason };
        let listener = TcpListener::bind(listen.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let access = Arc::new(access);
        let server = Acceptor {
            listener,
            tls,
            app: app(access.clone()),
            access,
            strangers: Strangers::default(),
            places: Places::new(listen.connections_max),
            stranger_for: listen.stranger_for,
            unread_for: listen.unread_for,
            stopped,
        };
        Ok(RunningServer { address, stop, accepting: tokio::spawn(server.run()) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, lets requests that are under way end, for some seconds at most.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.accepting.await;
    }
}

struct Acceptor {
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
    app: Router,
    access: Arc<Access>,
    strangers: Strangers,
    places: Places,
    stranger_for: Duration,
    unread_for: Duration,
    stopped: watch::Receiver<bool>,
}

impl Acceptor {
    /// Until it is stopped, also by dropping the [`RunningServer`].
    async fn run(self) {
        let mut connections = JoinSet::new();
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                _ = stopped.changed() => break,
                Some(_) = connections.join_next() => {}
                (stream, from) = self.accept() => {
                    let (enter, entered) = oneshot::channel();
                    let served = connections.spawn(self.serve(stream, entered));
                    let _ = enter.send((self.strangers.enter(from, served.clone()), served));
                }
            }
        }
        drop(self.listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(STOP_WITHIN, all).await.is_err() {
            connections.shutdown().await;
        }
    }

    /// The next connection, and where it comes from.
    async fn accept(&self) -> (TcpStream, IpAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => return (stream, from.ip()),
                // Of one connection (aborted), or of the process (too many files): it gets time
                // to recover.
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Serves a connection to its end, if it has a stranger's place and becomes known in time, or
    /// until a token that was shown on it is good no more.
    fn serve(
        &self,
        stream: TcpStream,
        entered: oneshot::Receiver<(strangers::Place, AbortHandle)>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (tls, stopped) = (self.tls.clone(), self.stopped.clone());
        let introduction = Introduction::default();
        let unread = UnreadAnswers::default();
        let answers = unread.clone();
        let follow = move |response: Response| std::future::ready(answers.follow(response));
        let app =
            self.app.clone().layer(Extension(introduction.clone())).layer(map_response(follow));
        let (places, stranger_for) = (self.places.clone(), self.stranger_for);
        let unread_for = self.unread_for;
        let access = self.access.clone();
        async move {
            let Ok((stranger, abort)) = entered.await else { return };
            let mut served = pin!(async {
                tokio::select! {
                    ended = connection(stream, unread_for, tls, app, stopped) => {
                        if let Err(error) = ended {
                            tracing::debug!("a connection ended: {error}");
                        }
                    }
                    () = unread.waits_for(unread_for) => {
                        tracing::debug!("a connection was closed: its peer takes no answer");
                    }
                }
            });
            let tenant = tokio::select! {
                () = &mut served => return,
                tenant = introduction.done() => tenant,
                () = tokio::time::sleep(stranger_for) => {
                    return tracing::debug!("a connection was closed: nobody showed a token");
                }
            };
            drop(stranger);
            match (places.take(tenant, abort), tenant) {
                (Some(_place), _) => tokio::select! {
                    () = &mut served => {}
                    () = introduction.revoked(&access) => {
                        tracing::info!("a connection was closed: its token was revoked");
                    }
                },
                (None, Some(id)) => {
                    tracing::debug!("a connection was closed: there are too many of tenant {id}");
                }
                (None, None) => tracing::warn!("a connection was closed: there are too many"),
            }
        }
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    stream: TcpStream,
    unread_for: Duration,
    tls: Option<tls::Acceptor>,
    app: Router,
    stopped: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    // Small messages both ways, each waited for.
    stream.set_nodelay(true)?;
    // Also for a peer that says that it is there and has no room. HTTP/2 asks by itself, HTTP/1
    // would wait for ever.
    let unread_ms = u32::try_from(unread_for.as_millis()).unwrap_or(u32::MAX);
    rustix::net::sockopt::set_tcp_user_timeout(&stream, unread_ms)?;
    match tls {
        Some(tls) => {
            let acceptor = TlsAcceptor::from(tls.config());
            let stream = timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await??;
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            serve(stream, http2, app, stopped).await
        }
        None => {
            let (stream, http2) = timeout(HANDSHAKE_WITHIN, preface::read(stream)).await??;
            serve(stream, http2, app, stopped).await
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    app: Router,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ConnectionError> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ALIVE_EVERY)
        .keep_alive_timeout(ALIVE_EVERY)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32);
    let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
    let service = TowerToHyperService::new(app);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
