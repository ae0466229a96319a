//! Connections to memcached that are not the store's own: those of clients of its memcached port.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use memcached::TERMINATOR;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::lives::Lives;

/// What memcached answers to a meta no-op.
const READY: &[u8] = b"MN\r\n";
/// A memcached whose host says nothing for so long is asked whether it is there, and again twice.
const ABSENT_AFTER: Duration = Duration::from_secs(10);

/// The memcached behind a store.
#[derive(Clone)]
pub(crate) struct Upstream {
    server: Arc<str>,
    within: Duration,
    lives: Lives,
}

impl Upstream {
    /// The one at `server` (HOST:PORT), which has so long for each answer; of whose values the
    /// store knows these lives.
    pub(super) fn new(server: &str, within: Duration, lives: Lives) -> Upstream {
        Upstream { server: server.into(), within, lives }
    }

    /// Where it is, HOST:PORT.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How long it has for an answer.
    pub fn within(&self) -> Duration {
        self.within
    }

    /// A connection on which it answers. Given up, it takes along what has not arrived: behind a
    /// partition the system would deliver a command much later.
    ///
    /// # Errors
    /// It is not there, or takes nobody in: what it says.
    pub async fn open(&self) -> anyhow::Result<TcpStream> {
        let opened = timeout(self.within, self.opened()).await;
        let opened = opened.unwrap_or_else(|_| bail!("no answer within {:?}", self.within));
        opened.with_context(|| format!("the memcached at {} is away", self.server))
    }

    async fn opened(&self) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&*self.server).await?;
        stream.set_nodelay(true)?;
        stream.set_zero_linger()?;
        let asks = TcpKeepalive::new().with_time(ABSENT_AFTER).with_interval(ABSENT_AFTER / 2);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&asks.with_retries(2))?;
        socket.set_tcp_user_timeout(Some(2 * ABSENT_AFTER))?;
        stream.write_all(TERMINATOR).await?;
        let mut answer = Vec::with_capacity(64);
        while !answer.ends_with(b"\n") {
            if answer.len() > READY.len() * 16 || stream.read_buf(&mut answer).await? == 0 {
                bail!("it has closed the connection");
            }
        }
        if answer != READY {
            bail!("it says {}", String::from_utf8_lossy(&answer).trim_end());
        }
        Ok(stream)
    }

    /// Until when these keys' values live is memcached's affair from now on: a command may change
    /// it and leave the value the one that the store wrote.
    pub fn forget_lives(&self, names: &[Vec<u8>]) {
        names.iter().for_each(|name| self.lives.forget(name));
    }
}
