//! Connections to memcached that are not the store's own: those of clients of its memcached port.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use memcached::TERMINATOR;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::lives::Lives;
use crate::tcp;

/// What memcached answers to a meta no-op.
const READY: &[u8] = b"MN\r\n";

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

    /// A connection on which it answers.
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
        tcp::to_server(&stream)?;
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
