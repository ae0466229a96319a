//! Connections to the master that are not the store's own: those of clients of its RESP port, what
//! commands the master has, and the end of a connection that was given up.

use std::{io, time::Duration};

use anyhow::{Context, anyhow};
use redis::{Client, ConnectionAddr, ConnectionInfo, Value, aio::MultiplexedConnection};
use resp::CommandTable;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};

use super::sessions::{FormerSessions, Session};

/// From one attempt to have a connection ended to the next.
const RETRY: Duration = Duration::from_millis(100);

/// What a master sends.
pub(crate) type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// What a master is sent.
pub(crate) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Where the master is.
#[derive(Clone)]
pub(crate) struct Upstream {
    master: watch::Receiver<ConnectionInfo>,
    /// How long it has for an answer.
    within: Duration,
}

impl Upstream {
    pub fn new(master: watch::Receiver<ConnectionInfo>, within: Duration) -> Upstream {
        Upstream { master, within }
    }

    fn info(&self) -> ConnectionInfo {
        self.master.borrow().clone()
    }

    /// The same, which knows where the master is now.
    pub fn anew(&self) -> Upstream {
        let mut upstream = self.clone();
        upstream.master.mark_unchanged();
        upstream
    }

    /// Waits until the master is another than [`Upstream::anew`] has seen.
    pub async fn moves(&mut self) {
        if self.master.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// The database that has the store's data.
    pub fn database(&self) -> i64 {
        self.info().redis_settings().db()
    }

    /// A connection on which nothing has been said.
    ///
    /// # Errors
    /// Nobody answers there, or it is no address for a plain connection.
    pub async fn open(&self) -> anyhow::Result<(Reader, Writer)> {
        let info = self.info();
        let at = info.addr().clone();
        let open = async {
            Ok::<(Reader, Writer), io::Error>(match &at {
                ConnectionAddr::Tcp(host, port) => {
                    let stream = TcpStream::connect((&host[..], *port)).await?;
                    stream.set_nodelay(true)?;
                    // Given up, it takes along what has not arrived.
                    stream.set_zero_linger()?;
                    let (read, write) = stream.into_split();
                    (Box::new(read), Box::new(write))
                }
                ConnectionAddr::Unix(path) => {
                    let (read, write) = UnixStream::connect(path).await?.into_split();
                    (Box::new(read), Box::new(write))
                }
                _ => return Err(io::Error::other("no plain connection")),
            })
        };
        let opened = timeout(self.within, open).await.context("no answer")?;
        opened.map_err(|error| anyhow!("cannot connect to Redis at {at}: {error}"))
    }

    /// The commands that it has.
    ///
    /// # Errors
    /// It does not answer, or does not say.
    pub async fn commands(&self) -> anyhow::Result<CommandTable> {
        let ask = async {
            let mut connection = self.connect().await?;
            let answer: Value = redis::cmd("COMMAND").query_async(&mut connection).await?;
            Ok(CommandTable::of(&answer)?)
        };
        timeout(self.within, ask).await.context("COMMAND: no answer")?
    }

    /// Has a connection ended on which something was asked that has not been answered, however long
    /// that takes. True: it can take place no more. False: Redis does not say.
    pub async fn end(&self, session: Option<Session>) -> bool {
        let mut former = FormerSessions::default();
        if session.is_none() {
            return false;
        }
        former.add(session);
        loop {
            let end = async {
                let mut connection = self.connect().await?;
                let now = Session::of(&mut connection).await?;
                former.end(&mut connection, now.as_ref()).await
            };
            match timeout(self.within, end).await {
                Ok(Ok(is_over)) => return is_over,
                Ok(Err(error)) => tracing::debug!("a connection is to be ended: {error:#}"),
                Err(_) => {}
            }
            sleep(RETRY).await;
        }
    }

    async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        Client::open(self.info())?.get_multiplexed_async_connection().await
    }
}
