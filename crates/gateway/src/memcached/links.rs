//! Connections to a store's memcached port: opened when there is none, lent to one exchange at a
//! time, and kept for the next.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::FutureExt;
use memcached::{PORT_ANSWER, PORT_QUESTION};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpStream, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::loops::{Target, stream::Place};

/// How long a port may take to take somebody in.
const OPENS_WITHIN: Duration = Duration::from_secs(2);
/// How long somebody may wait for others' exchanges to end.
const WAITS: Duration = Duration::from_secs(10);
/// How often a port is asked whether it is there while nothing is said.
const ASKED_EVERY: Duration = Duration::from_secs(15);
/// A port that takes nothing for so long is gone: its host, or the way there.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// Bytes both ways.
trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

/// A connection on which nothing goes on, or an exchange does.
pub(super) struct Link {
    bytes: Box<dyn Bytes>,
    /// Its place among those that are lent.
    _place: OwnedSemaphorePermit,
}

/// The connections to one port.
pub(super) struct Links {
    target: Target,
    idle: Mutex<Vec<Box<dyn Bytes>>>,
    places: Arc<Semaphore>,
}

impl Links {
    /// None yet; so many are lent at the same time, and never more are open.
    pub fn new(target: Target, most: usize) -> Links {
        Links { target, idle: Mutex::default(), places: Arc::new(Semaphore::new(most)) }
    }

    /// What the port is called.
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// One on which nothing goes on, and whether it was used before: as far as can be seen it is
    /// open still.
    ///
    /// # Errors
    /// The port is away, or is none: how.
    pub async fn take(&self) -> anyhow::Result<(Link, bool)> {
        let place = timeout(WAITS, self.places.clone().acquire_owned()).await;
        let place =
            place.map_err(|_| anyhow::anyhow!("too much is asked of {}", self.name()))??;
        if let Some(bytes) = self.kept() {
            return Ok((Link { bytes, _place: place }, true));
        }
        let opened = timeout(OPENS_WITHIN, self.opened()).await;
        let opened = opened.unwrap_or_else(|_| bail!("no answer within {OPENS_WITHIN:?}"));
        let bytes = opened.with_context(|| format!("{} is away", self.target.name))?;
        Ok((Link { bytes, _place: place }, false))
    }

    fn kept(&self) -> Option<Box<dyn Bytes>> {
        loop {
            let mut bytes = self.idle().pop()?;
            // Nobody was asked anything: what can be read is the end, or belongs to nothing.
            if bytes.read_u8().now_or_never().is_none() {
                return Some(bytes);
            }
        }
    }

    async fn opened(&self) -> anyhow::Result<Box<dyn Bytes>> {
        let Target { place, named, trust, .. } = &self.target;
        let mut bytes: Box<dyn Bytes> = match (place, trust) {
            (Place::Unix(path), _) => Box::new(UnixStream::connect(path).await?),
            (Place::Tcp(address), trust) => {
                let now = named.as_ref().map_or(*address, |named| named.now());
                let stream = TcpStream::connect(now).await?;
                prepare(&stream)?;
                match trust {
                    None => Box::new(stream),
                    Some(trust) => {
                        let connector = TlsConnector::from(trust.connector.config());
                        Box::new(connector.connect(trust.name.clone(), stream).await?)
                    }
                }
            }
        };
        recognise(&mut bytes).await?;
        Ok(bytes)
    }

    /// An exchange is over, and the connection on which it was can be used again.
    pub fn keep(&self, link: Link) {
        self.idle().push(link.bytes);
    }

    /// Forgets those that are kept: the port has been started again, or is gone.
    pub fn forget(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn Bytes>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is a store's port. A memcached would carry everything out, and nobody who has a
/// copy would hear of it; another gateway leads to a store, or back here.
async fn recognise(bytes: &mut Box<dyn Bytes>) -> anyhow::Result<()> {
    bytes.write_all(PORT_QUESTION.as_bytes()).await?;
    bytes.flush().await?;
    let mut answer = vec![];
    while !answer.ends_with(b"\n") {
        if answer.len() > 1024 || bytes.read_buf(&mut answer).await? == 0 {
            bail!("it has closed the connection");
        }
    }
    match answer == PORT_ANSWER.as_bytes() {
        true => Ok(()),
        false => bail!(
            "it is no store's memcached port, but a memcached or another gateway: expected what is behind `shortstop store \
             --memcached`"
        ),
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(GONE_AFTER))?;
    let asks = TcpKeepalive::new().with_time(ASKED_EVERY).with_interval(ASKED_EVERY);
    socket.set_tcp_keepalive(&asks)
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
