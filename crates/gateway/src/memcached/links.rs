//! Connections to a store's memcached port: opened when there is none, lent to one exchange at a
//! time, and kept for the next.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use futures_util::FutureExt;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::loops::{Target, stream::Place};

/// How long a port may take to take somebody in.
const OPENS_WITHIN: Duration = Duration::from_secs(2);
/// Connections that are kept while nobody needs them.
const IDLE: usize = 64;
/// How often a port is asked whether it is there while nothing is said.
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// A port that takes nothing for so long is gone: its host, or the way there.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Bytes both ways.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// A connection on which nothing goes on, or an exchange does.
pub(super) type Link = Box<dyn Bytes>;

/// The connections to one port.
pub(super) struct Links {
    target: Target,
    idle: Mutex<Vec<Link>>,
}

impl Links {
    /// None yet.
    pub fn new(target: Target) -> Links {
        Links { target, idle: Mutex::default() }
    }

    /// What the port is called.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// One that was used before and is open still, as far as can be seen.
    pub fn kept(&self) -> Option<Link> {
        loop {
            let mut link = self.idle().pop()?;
            // Nobody was asked anything: what can be read is the end, or belongs to nothing.
            if link.read_u8().now_or_never().is_none() {
                return Some(link);
            }
        }
    }

    /// A new one.
    ///
    /// # Errors
    /// The port is away: how.
    pub async fn open(&self) -> anyhow::Result<Link> {
        let opened = timeout(OPENS_WITHIN, self.opened()).await;
        let opened = opened.unwrap_or_else(|_| bail!("no answer within {OPENS_WITHIN:?}"));
        opened.with_context(|| format!("{} is away", self.target.name))
    }

    async fn opened(&self) -> anyhow::Result<Link> {
        let Target { place, named, trust, .. } = &self.target;
        let stream = match place {
            Place::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            Place::Tcp(address) => {
                let now = named.as_ref().map_or(*address, |named| named.now());
                TcpStream::connect(now).await?
            }
        };
        prepare(&stream)?;
        Ok(match trust {
            None => Box::new(stream),
            Some(trust) => {
                let connector = TlsConnector::from(trust.connector.config());
                Box::new(connector.connect(trust.name.clone(), stream).await?)
            }
        })
    }

    /// An exchange is over, and the connection on which it was can be used again.
    pub fn keep(&self, link: Link) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(link);
        }
    }

    /// Forgets them: the port has been started again, or is gone.
    pub fn forget(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(GONE_AFTER))?;
    let asks = TcpKeepalive::new().with_time(ASKED_EVERY).with_interval(ASKED_EVERY);
    socket.set_tcp_keepalive(&asks)
}
